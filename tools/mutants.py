"""Do the tests notice a fault? Faults are put into a copy of the package, one at a time, and the tests of its room run.

    python tools/mutants.py --count 150 --seed 1 --out found.jsonl     makes faults, and writes a line for each
    python tools/mutants.py --again found.jsonl --out later.jsonl      the same faults, with the tests of today

A fault is one change of an expression (`faults`): a comparison that includes its bound, a number one higher, a
condition turned round. It is drawn with equal chance for each entry of `FILES`, each of its files and each place there,
and written as the line before and after, so that it is found again after lines have moved. The tests are those of its
own file (tests/ROOM/test_FILE.py), then those of its room, without the slow ones. "killed" names the first that failed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILES = [
    "batches.py",
    "checkpoint.py",
    "split.py",
    "authorization.py",
    "significance.py",
    "lines.py",
    "files.py",
    "sealed_json.py",
    "search/*.py",
    "search/constraints/*.py",
    "exchange/*.py",
    "engine/*.py",
]
"""The files that get faults, below nmt_cli/ and its rooms."""
COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
COMPARISONS |= {ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"}
OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "*"}
LIMIT = 600
"""The seconds that the tests of a fault may take."""


def faults(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield every fault of a file: where the changed piece begins and ends, in bytes, and what stands there instead."""
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def place(node: Any) -> tuple[int, int]:
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset

    def source(node: ast.AST) -> str:
        return ast.get_source_segment(text, node) or ""

    for node in walk(ast.parse(text)):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
                yield *place(node), f"{source(left)} {COMPARISONS[type(operator)]} {source(right)}"
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                yield *place(node), f"({source(left)}) {OPERATORS[type(operator)]} ({source(right)})"
            case ast.BoolOp(op=operator, values=[left, right]):
                yield *place(node), f"{source(left)} {'or' if isinstance(operator, ast.And) else 'and'} {source(right)}"
            case ast.Constant(value=bool(value)):
                yield *place(node), str(not value)
            case ast.Constant(value=int(value)):
                yield *place(node), str(value + 1)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield *place(node), f"({source(operand)})"
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield *place(test), f"not ({source(test)})"
            case ast.Break():
                yield *place(node), "continue"


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that do something: no annotations, messages of errors and imports for type checkers."""
    if isinstance(node, ast.Raise | ast.JoinedStr) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child)


def drawn(count: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield `count` faults, each with its file and the line, or lines, before and after."""
    rooms = [sorted((ROOT / "nmt_cli").rglob(name)) for name in FILES]
    chance = random.Random(seed)
    seen: set[tuple[Path, str]] = set()
    while len(seen) < count:
        file = chance.choice(chance.choice(rooms))
        text = file.read_bytes()
        if not (places := sorted(faults(text.decode()))):
            continue
        begin, end, other = chance.choice(places)
        first, last = text.rfind(b"\n", 0, begin) + 1, text.find(b"\n", end)
        before, after = text[first:last].decode(), (text[first:begin] + other.encode() + text[end:last]).decode()
        if (file, after) not in seen and text.count(before.encode()) == 1:
            seen.add((file, after))
            yield {"file": str(file.relative_to(ROOT)), "before": before, "after": after}


def killed(fault: dict[str, str], copy: Path) -> str:
    """Return the test that fails with a fault, "" if none does, "gone" if its line is no longer there."""
    file = next(iter([*copy.glob(fault["file"]), *copy.glob(f"nmt_cli/**/{Path(fault['file']).name}")]), copy / "none")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if text.count(fault["before"]) != 1:
        return "gone"
    file.write_text(text.replace(fault["before"], fault["after"]), encoding="utf-8")
    try:
        own = copy / "tests" / file.parent.relative_to(copy / "nmt_cli") / f"test_{file.name}"
        for tests in (own, own.parent):
            if tests.exists() and tests != copy / "tests" and (failed := first_failed(tests, copy)):
                return failed
        return ""
    finally:
        file.write_text(text, encoding="utf-8")


def first_failed(tests: Path, copy: Path) -> str:
    """Return the first test that fails, or why none could be run to its end; "" if all pass."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "-n0",
        str(tests),
    ]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return "took too long"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "" if done.returncode in (0, 5) else (failed or ["ended with an error"])[0].partition(" - ")[0]


def main() -> None:
    """Run the tests with each fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    again = options.again and [json.loads(line) for line in options.again.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build", "runs", "data", "__pycache__")
        )
        for part in ("nmt_cli", "tests"):  # `data` is also the name of a room
            shutil.copytree(ROOT / part, copy / part, dirs_exist_ok=True)
        with options.out.open("w", encoding="utf-8") as out:
            for fault in again or drawn(options.count, options.seed):
                fault["killed"] = killed(fault, copy)
                out.write(json.dumps(fault, ensure_ascii=False) + "\n")
                out.flush()


if __name__ == "__main__":
    main()
