"""The layout: imports run down only, stdout belongs to the commands, nothing is pickled, the core names no device."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import nmt_cli

PACKAGE = Path(nmt_cli.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"

LAYERS = {
    "__main__": 15,
    "cli": 14,
    "serving": 13,
    "interface": 12,
    "reporting": 11,
    "training": 10,
    "translation": 9,
    "exchange": 9,
    "search": 8,
    "engine": 7,
    "kernels": 7,
    "documents": 7,
    "data": 6,
    "model": 6,
    "evaluation": 6,
    "corpora": 6,
    "parsing": 5,
    "parsing/metric": 7,  # loaded by their names in registries, as what they extend
    "parsing/word_tables": 7,
    "parsing/constraint": 9,
    "sides": 5,
    "text_files": 5,
    "recipe": 4,
    "hardware": 4,
    "device": 4,
    "lines": 4,
    "function_words": 4,
    "scripts": 3,
    "languages": 3,
    "control_groups": 3,
    "placeholders": 4,
    "records": 4,
    "output_paths": 4,
    "cache": 4,
    "compression": 2,
    "registry": 2,
    "options": 2,
    "console": 2,
    "files": 2,
    "encodings": 1,
    "errors": 1,
    "__init__": 0,  # the version, and the public names by their modules
}
"""Packages and top-level modules, and files with a layer of their own; each imports only from layers below its own."""


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def layer(file: str) -> int:
    """The layer of a file, such as "parsing/metric", or of its package."""
    return LAYERS[file if file in LAYERS else file.partition("/")[0]]


def imported_parts(path: Path) -> Iterator[tuple[str, int]]:
    """Parts of nmt_cli that a file imports anywhere, inside functions too, with the line."""
    return ((name.partition("/")[0], line) for name, line in imported_files(path))


def imported_files(path: Path) -> Iterator[tuple[str, int]]:
    """The same as files, such as "parsing/metric"."""
    for module, line in imported_modules(path, list(ast.walk(tree(path)))):
        parts = module.split(".")
        if parts[0] == "nmt_cli":
            name = "/".join(parts[1:]) or "__init__"
            yield ("__init__" if name.startswith("__version") else name), line


def imported_modules(path: Path, nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """The modules that these nodes of a file import, with the line."""
    package = ["nmt_cli", *path.relative_to(PACKAGE).parent.parts]
    for node in nodes:
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            modules = [f"{module}.{alias.name}" for alias in node.names] if module == "nmt_cli" else [module]
        yield from ((module, node.lineno) for module in modules)  # type: ignore[attr-defined]


def test_files_do_not_import_each_other_in_a_circle() -> None:
    """Imports inside functions count; those for type checkers alone do not."""
    files = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in FILES}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        whole = tree(path)
        for_types = [
            node for node in ast.walk(whole) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ]
        left_out = {id(inner) for node in for_types for inner in ast.walk(node)}
        nodes = [node for node in ast.walk(whole) if id(node) not in left_out]
        of_packages = [
            ast.ImportFrom(f"{node.module or ''}", [alias], node.level, lineno=node.lineno)
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        ]
        found = {module for module, _ in imported_modules(path, nodes)}
        for node in of_packages:  # from .package import file
            [(module, _)] = imported_modules(path, [node])
            found.add(f"{module}.{node.names[0].name}".removeprefix("nmt_cli.nmt_cli."))
        graph[name] = {module for module in found if module in files and module != name}
    assert sum(map(len, graph.values())) > len(files)
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_every_part_has_its_layer() -> None:
    assert {part(path) for path in FILES} <= set(LAYERS)
    assert {name for name in LAYERS if "/" in name} <= {
        str(path.relative_to(PACKAGE).with_suffix("")) for path in FILES
    }
    assert {"cli", "training", "search", "data", "model", "evaluation", "recipe", "errors"} <= {
        part(path) for path in FILES
    }


@pytest.mark.skipif(not ARCHITECTURE.exists(), reason="the documents are not here")
def test_the_architecture_page_shows_the_layers_and_the_rooms() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    drawn = re.findall(r"^ +(\d+)  (.+)$", text, re.MULTILINE)
    assert {name: int(number) for number, names in drawn for name in names.split(" · ")} == LAYERS
    rooms = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(rooms) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert [LAYERS[room] for room in rooms] == sorted((LAYERS[room] for room in rooms), reverse=True)
    files = {"/".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in FILES}
    assert set(re.findall(r"\b(?:data|model|training|translation)/\w+", text)) - {"data/NAME"} <= files


def test_imports_are_seen_at_all() -> None:
    assert {name for name, _ in imported_parts(PACKAGE / "model" / "folder.py")} == {"errors", "model", "recipe"}
    assert "training" in {
        name for name, _ in imported_parts(PACKAGE / "interface" / "commands.py")
    }  # inside a function


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_down_only(path: Path) -> None:
    own = layer(str(path.relative_to(PACKAGE).with_suffix("")))
    wrong = [
        f"line {line}: {own} imports {name} (layer {layer(name)})"
        for name, line in imported_files(path)
        if name.partition("/")[0] != part(path) and layer(name) >= own
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["arrays", "search", "beam_search", "coverage", "diverse_beam_search", "sampling"])
def test_search_sees_a_step_function_and_no_model(name: str) -> None:
    path = PACKAGE / "search" / f"{name}.py"
    assert {part for part, _ in imported_parts(path)} <= {"errors", "search", "engine"}
    imports = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom) and node.level]
    assert not any("decoder" in (node.module or "") for node in imports)
    of_engine = {alias.name for node in imports if "engine" in (node.module or "") for alias in node.names}
    assert of_engine <= {"log_softmax", "rank"}


CORE = ("model", "training", "search", "translation")
COMMUNICATION = ("process_group.py",)
"""Files that explain the messages of the communication libraries, which name devices."""
KINDS_OF_DEVICE = ("cuda", "onednn", "mkldnn", "amx", "avx", "nccl")


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if part(path) in CORE and path.name not in COMMUNICATION],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_the_core_names_no_kind_of_device(path: Path) -> None:
    """Comparing a device with "cpu" is naming it; moving a tensor to the host is not."""
    text = path.read_text(encoding="utf-8").lower()
    assert [word for word in KINDS_OF_DEVICE if word in text] == []
    compared = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Compare)]
    constants = [
        child.value for node in compared for child in (node.left, *node.comparators) if isinstance(child, ast.Constant)
    ]
    assert "cpu" not in constants


def is_stdout(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("stdout", "__stdout__")
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    )


def writes_to_stdout(path: Path) -> list[int]:
    """Lines with a call of print or a use of sys.stdout other than flushing it."""
    nodes = list(ast.walk(tree(path)))
    flushed = [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "flush"]
    printed = [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
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
            assert node.arg != "allow_pickle" or ast.unparse(node.value) == "False"


@pytest.mark.parametrize(
    ("module", "needed"),
    [
        *((f"nmt_cli.{name}", ()) for name in ("cli.app", "recipe", "hardware", "errors")),
        ("nmt_cli.engine.model", ("numpy",)),
    ],
)
def test_heavy_packages_stay_unloaded(module: str, needed: tuple[str, ...]) -> None:
    heavy = tuple({"torch", "sentencepiece", "sacrebleu", "numpy", "safetensors"}.difference(needed))
    code = f"import sys, {module}; print(*[name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")
