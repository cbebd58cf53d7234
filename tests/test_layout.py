"""The layout: imports run down only, stdout belongs to the commands, nothing is pickled, the core names no device."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import nmt_cli

PACKAGE = Path(nmt_cli.__file__).parent
FILES = {path.relative_to(PACKAGE).with_suffix("").as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
"""The files by their names, such as "search/arrays"."""
ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"
MOST_LEVELS = 11

drawn = pytest.mark.skipif(not ARCHITECTURE.exists(), reason="the documents are not here")


@cache
def nodes(name: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"), name)))


@cache
def imports(name: str) -> list[tuple[str, int]]:
    """The files of the package that a file imports anywhere, with the line: in functions, and for type checkers too."""
    found = []
    package = ["nmt_cli", *name.split("/")[:-1]]
    for node in nodes(name):
        modules: list[list[str]] = []
        if isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            modules = [[*base, *(node.module or "").split("."), alias.name] for alias in node.names]
        for module in modules:
            if module[0] == "nmt_cli":
                parts = [part for part in module[1:] if part]
                while parts and "/".join(parts) not in FILES and f"{'/'.join(parts)}/__init__" not in FILES:
                    parts.pop()
                file = "/".join(parts) or "__init__"
                found.append((file if file in FILES else f"{file}/__init__", node.lineno))  # type: ignore[attr-defined]
    return found


@cache
def levels() -> dict[str, tuple[int, str]]:
    """The level and the room of each part of the package, as docs/architecture.md draws them.

    A part is a package or a file beside them; files in brackets are a room together, and may import each other.
    """
    found = {}
    for number, row in re.findall(r"^ +(\d+)  (.+)$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE):
        for room, files in re.findall(r"(\w+)(?: \(([^)]+)\))?(?: ·|$)", row):
            found.update(
                {part: (int(number), room) for part in files.split(", ") if files} or {room: (int(number), room)}
            )
    return found


def part(name: str) -> str:
    return name.partition("/")[0]


@drawn
def test_imports_run_down_only() -> None:
    wrong = []
    for name in FILES:
        level, room = levels()[part(name)]
        for imported, line in imports(name):
            its_level, its_room = levels()[part(imported)]
            if its_room != room and its_level >= level:
                wrong.append(f"{name}.py:{line}: {room} ({level}) imports {its_room} ({its_level})")
    assert wrong == []


def test_files_do_not_import_each_other_in_a_circle() -> None:
    graph = {name: {imported for imported, _ in imports(name)} - {name} for name in FILES}
    assert sum(map(len, graph.values())) > len(FILES)
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_imports_are_seen_at_all() -> None:
    assert {part(name) for name, _ in imports("model/folder")} == {"errors", "model", "recipe"}
    assert "training" in {part(name) for name, _ in imports("interface/commands")}  # inside a function
    assert "translation/line" in {name for name, _ in imports("interface/parsing")}  # for type checkers


@drawn
def test_the_architecture_page_has_every_part_and_room() -> None:
    assert set(levels()) == {part(name) for name in FILES}
    assert len({level for level, _ in levels().values()}) <= MOST_LEVELS
    text = ARCHITECTURE.read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(rooms) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert [levels()[room][0] for room in rooms] == sorted((levels()[room][0] for room in rooms), reverse=True)
    assert set(re.findall(r"\b(?:data|model|training|translation)/\w+", text)) - {"data/NAME"} <= set(FILES)


def test_parsing_is_known_by_registries_alone() -> None:
    """Commands and functions about trees are in `interface`, and load it when they are called."""
    knowing = {part(name) for name in FILES for imported, _ in imports(name) if part(imported) == "parsing"}
    assert knowing == {"parsing", "interface"}


def test_search_sees_a_step_function_and_no_model() -> None:
    for name in ("arrays", "search", "beam_search", "diverse_beam_search", "sampling"):
        assert {part(file) for file, _ in imports(f"search/{name}")} <= {"errors", "search", "engine"}
        found = [node for node in nodes(f"search/{name}") if isinstance(node, ast.ImportFrom) and node.level]
        assert not any("decoder" in (node.module or "") for node in found)
        of_engine = {alias.name for node in found if "engine" in (node.module or "") for alias in node.names}
        assert of_engine <= {"Bans", "log_softmax", "rank"}


CORE = ("model", "training", "search", "translation")
COMMUNICATION = "training/process_group"
"""The file that explains the messages of the communication libraries, which name devices."""
KINDS_OF_DEVICE = ("cuda", "onednn", "mkldnn", "amx", "avx", "nccl")


def test_the_core_names_no_kind_of_device() -> None:
    """Comparing a device with "cpu" is naming it; moving a tensor to the host is not."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in FILES.keys() - {COMMUNICATION}:
        if part(name) in CORE:
            text = FILES[name].read_text(encoding="utf-8").lower()
            found[name] += [word for word in KINDS_OF_DEVICE if word in text]
            for node in nodes(name):
                if isinstance(node, ast.Compare):
                    constants = [child.value for child in ast.iter_child_nodes(node) if isinstance(child, ast.Constant)]
                    found[name] += ["cpu"] * ("cpu" in constants)
    assert {name: words for name, words in found.items() if words} == {}


def writes_to_stdout(name: str) -> Iterator[int]:
    """Lines with a call of print or a use of sys.stdout other than flushing it."""
    flushed = [node.value for node in nodes(name) if isinstance(node, ast.Attribute) and node.attr == "flush"]
    for node in nodes(name):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield node.lineno
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.__stdout__"):
            yield from [node.lineno] * (node not in flushed)


def test_only_commands_print() -> None:
    found = {name: list(writes_to_stdout(name)) for name in FILES}
    assert any(lines for name, lines in found.items() if part(name) == "cli")
    assert {name: lines for name, lines in found.items() if lines and part(name) != "cli"} == {}


UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


def unpickles(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return not {alias.name.split(".")[0] for alias in node.names}.isdisjoint(UNPICKLERS)
    if isinstance(node, ast.ImportFrom):
        of_torch = node.module == "torch" and any(alias.name in ("save", "load") for alias in node.names)
        return of_torch or (node.module or "").split(".")[0] in UNPICKLERS
    if isinstance(node, ast.Attribute):
        return ast.unparse(node) in ("torch.save", "torch.load")
    return isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False"


def test_nothing_is_pickled() -> None:
    found = {name: [ast.unparse(node) for node in nodes(name) if unpickles(node)] for name in FILES}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("modules", "needed"),
    [
        ("nmt_cli.cli.app, nmt_cli.recipe, nmt_cli.device.hardware, nmt_cli.errors", ()),
        ("nmt_cli.engine.model", ("numpy",)),
    ],
)
def test_heavy_packages_stay_unloaded(modules: str, needed: tuple[str, ...]) -> None:
    heavy = {"torch", "sentencepiece", "sacrebleu", "numpy", "safetensors"}.difference(needed)
    code = f"import sys, {modules}; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")
