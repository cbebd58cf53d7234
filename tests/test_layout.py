"""The layout: imports run down only, stdout belongs to the commands, nothing is pickled, the core names no device."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nmt_cli

PACKAGE = Path(nmt_cli.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = {
    "__main__": 11,
    "cli": 10,
    "reporting": 9,
    "training": 8,
    "decoding": 7,
    "export": 7,
    "kernels": 6,
    "data": 5,
    "model": 5,
    "evaluation": 5,
    "corpora": 5,
    "demo_corpus": 4,
    "parsing": 4,
    "recipe": 3,
    "hardware": 3,
    "lines": 3,
    "records": 3,
    "output_paths": 3,
    "cache": 3,
    "recipe_errors": 2,
    "registry": 2,
    "console": 2,
    "files": 2,
    "encodings": 1,
    "errors": 1,
    "__init__": 0,  # the version
}
"""Packages and top-level modules; each imports only from layers below its own."""


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported_parts(path: Path) -> Iterator[tuple[str, int]]:
    """Parts of nmt_cli that a file imports anywhere, inside functions too, with the line."""
    package = ["nmt_cli", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(tree(path)):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            modules = [f"{module}.{alias.name}" for alias in node.names] if module == "nmt_cli" else [module]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "nmt_cli":
                name = parts[1] if len(parts) > 1 else "__init__"
                yield ("__init__" if name.startswith("__version") else name), node.lineno  # type: ignore[attr-defined]


def test_every_part_has_its_layer() -> None:
    assert {part(path) for path in FILES} <= set(LAYERS)
    assert {"cli", "training", "decoding", "data", "model", "evaluation", "recipe", "errors"} <= {part(path) for path in FILES}


def test_imports_are_seen_at_all() -> None:
    assert {name for name, _ in imported_parts(PACKAGE / "model" / "folder.py")} == {"__init__", "errors", "files", "model", "recipe", "records"}
    assert "training" in {name for name, _ in imported_parts(PACKAGE / "cli" / "average.py")}  # inside a function


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_down_only(path: Path) -> None:
    own = part(path)
    wrong = [
        f"line {line}: {own} (layer {LAYERS[own]}) imports {name} (layer {LAYERS[name]})"
        for name, line in imported_parts(path)
        if name != own and LAYERS[name] >= LAYERS[own]
    ]
    assert wrong == []


def test_search_sees_a_step_function_and_no_model() -> None:
    search, candidates = PACKAGE / "decoding" / "search.py", PACKAGE / "decoding" / "candidates.py"
    assert {name for name, _ in imported_parts(search)} == {"errors", "decoding"}
    assert {node.module or node.names[0].name for node in ast.walk(tree(search)) if isinstance(node, ast.ImportFrom) and node.level == 1} == {"candidates", "min_length"}
    assert list(imported_parts(candidates)) == []


def is_stdout(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("stdout", "__stdout__") and isinstance(node.value, ast.Name) and node.value.id == "sys"


def writes_to_stdout(path: Path) -> list[int]:
    """Lines with a call of print or a use of sys.stdout other than flushing it."""
    nodes = list(ast.walk(tree(path)))
    flushed = [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "flush"]
    printed = [node.lineno for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"]
    return printed + [node.lineno for node in nodes if is_stdout(node) and node not in flushed]  # type: ignore[attr-defined]


def test_only_commands_print() -> None:
    found = {path: writes_to_stdout(path) for path in FILES}
    assert any(lines for path, lines in found.items() if part(path) == "cli")
    assert {str(path): lines for path, lines in found.items() if lines and part(path) != "cli"} == {}


UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_pickled(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & UNPICKLERS
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in UNPICKLERS
            assert not (node.module == "torch" and {alias.name for alias in node.names} & {"save", "load"})
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("torch", "save"), ("torch", "load")}
        elif isinstance(node, ast.keyword):
            assert node.arg != "allow_pickle"


@pytest.mark.parametrize("module", ["nmt_cli.cli.app", "nmt_cli.recipe", "nmt_cli.hardware", "nmt_cli.errors"])
def test_heavy_packages_stay_unloaded(module: str) -> None:
    heavy = ("torch", "sentencepiece", "sacrebleu", "numpy", "safetensors")
    code = f"import sys, {module}; print(*[name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")
