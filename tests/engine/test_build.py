"""The package as it is built: the content of a wheel, with and without a compiler, and the libraries of a checkout.

All builds start from the unpacked source archive, so it is complete. One has the real engine, the others have SMALL. The
one with the engine is installed beside the packages of requirements-cpu.txt, without torch, and tried.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from untrained import write_untrained

from nmt_cli.engine.library import NEEDS, path_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LIB = "nmt_cli/engine/lib/"
LIBRARIES = {f"{LIB}{path_of(name).name}" for name in NEEDS}
SMALL = 'extern "C" __attribute__((visibility("default"))) int nmt_abi(void) { return %d; }\n'
SITE = Path(sysconfig.get_path("purelib"))
COMPILER = shutil.which("c++")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no c++ here")
Build = Callable[..., subprocess.CompletedProcess[str]]


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def build(kind: str, tree: Path, out: Path, **variables: str) -> Path:
    """Build a "sdist", "wheel" or "editable" (a wheel) of `tree` into the folder `out`, as pip does; return its path."""
    code = f"import sys; from scikit_build_core.build import build_{kind} as build; build(sys.argv[1])"
    done = run(sys.executable, "-c", code, out, cwd=tree, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = out.iterdir()
    return built


def content(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source archive of the checkout."""
    out = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, out / "built")) as archive:
        archive.extractall(out, filter="data")
    [folder] = out.glob("nmt_cli-*")
    return folder


@pytest.fixture
def small(tree: Path, tmp_path: Path) -> Path:
    """A copy of `tree` whose engine is SMALL."""
    copy = Path(shutil.copytree(tree, tmp_path / "tree", ignore=shutil.ignore_patterns("tests")))
    write_engine(copy, SMALL % 1)
    return copy


def write_engine(tree: Path, code: str) -> None:
    (tree / "nmt_cli/engine/src/engine.cpp").write_text(code, encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `tree`, with the engine."""
    return build("wheel", tree, tmp_path_factory.mktemp("wheel"))


@needs_compiler
def test_a_wheel_holds_the_package_the_recipes_and_the_libraries(wheel: Path, tmp_path: Path) -> None:
    assert "-py3-none-" in wheel.name
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "nmt_cli").rglob("*.*")}
    package = {
        name for name in sources if not name.startswith((LIB, "nmt_cli/engine/src")) and not name.endswith(".pyc")
    }
    recipes = {f"nmt_cli/recipes/{path.name}" for path in (ROOT / "recipes").iterdir()}
    header = {"nmt_cli/engine/src/nmt.h"}
    assert content(wheel) == package - {"nmt_cli/engine/CMakeLists.txt"} | recipes | header | LIBRARIES
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    for library in LIBRARIES:
        symbols = run("nm", "--dynamic", "--defined-only", tmp_path / "site" / library, cwd=tmp_path).stdout
        assert {line.split()[-1].partition("_")[0] for line in symbols.splitlines()} == {"nmt"}
    code = "from nmt_cli.engine.library import summary; print(summary())"
    done = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"), NMT_ENGINE="")
    assert (done.returncode, done.stdout.count("avx2")) == (0, 2), done.stdout + done.stderr


@needs_compiler
def test_without_torch_and_a_compiler_an_installed_wheel_translates_and_serves(wheel: Path, tmp_path: Path) -> None:
    """The packages come from the index of pip. Nothing is written beside them, so they may be on a read-only disk."""
    model = write_untrained(tmp_path / "model")
    site = tmp_path / "venv"
    assert run(sys.executable, "-m", "venv", "--without-pip", site, cwd=tmp_path).returncode == 0
    python = site / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    listed = run(*pip, "-c", ROOT / "constraints.txt", "-r", ROOT / "requirements-cpu.txt", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert run(*pip, "--no-deps", "--no-index", wheel, cwd=tmp_path).returncode == 0
    assert "No module named 'torch'" in run(python, "-c", "import torch", cwd=tmp_path).stderr

    installed = set(site.rglob("*"))
    script = ROOT / "tests" / "support" / "installed.py"
    environment = {"PATH": str(site / "bin"), "TMPDIR": str(tmp_path)}  # no compiler, no $HOME
    tried = subprocess.run([python, script, model], cwd="/", env=environment, capture_output=True, text=True)
    assert tried.returncode == 0, tried.stderr
    assert set(site.rglob("*")) == installed


def test_the_packages_to_install_without_torch_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [line for line in project["dependencies"] if not line.startswith(("torch>", "sacrebleu>"))]
    listed = (ROOT / "requirements-cpu.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in listed if not line.startswith("#")] == needed + project["optional-dependencies"]["serve"]


def test_without_a_compiler_the_package_has_no_engine_and_says_so(tree: Path, tmp_path: Path) -> None:
    wheel = build("wheel", tree, tmp_path / "wheel", CXX=str(tmp_path / "no-compiler"))
    assert not [name for name in content(wheel) if name.startswith(LIB)]
    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel)
    assert run(*pip, cwd=tmp_path).returncode == 0
    environment = {"PYTHONPATH": str(site), "NMT_ENGINE": ""}
    shown = run(site / "bin" / "nmt", "--help", cwd=tmp_path, **environment)
    assert (shown.returncode, shown.stderr) == (0, "")
    code = "import nmt_cli.engine.library as engine; print(engine.library(), engine.missing())"
    reason = run(sys.executable, "-c", code, cwd=tmp_path, **environment)
    assert reason.stdout.startswith(f"None there is no {site / LIB / path_of('portable').name}")
    assert "install g++ or clang++" in reason.stdout


@needs_compiler
def test_an_error_in_the_sources_fails_the_build(small: Path, tmp_path: Path) -> None:
    write_engine(small, "#error this is wrong\n")
    with pytest.raises(AssertionError, match="#error this is wrong"):
        build("wheel", small, tmp_path / "wheel")
    assert not list((tmp_path / "wheel").glob("*"))


@needs_compiler
def test_a_checkout_has_its_libraries_beside_the_sources_and_renames_new_ones(small: Path, tmp_path: Path) -> None:
    assert not [name for name in content(build("editable", small, tmp_path / "first")) if name.startswith("nmt_cli/")]
    lib = small / LIB
    assert {path.name for path in lib.iterdir()} == {Path(name).name for name in LIBRARIES}
    with (lib / path_of("avx2").name).open("rb") as mapped:  # as in a program that runs
        before = mapped.read()
        compiler = tmp_path / "older-compiler"
        compiler.write_text(f'#!/bin/sh\ncase "$*" in *-mavxvnni*) exit 1; esac\nexec {COMPILER} "$@"\n')
        compiler.chmod(0o755)
        write_engine(small, SMALL % 2)
        build("editable", small, tmp_path / "second", CXX=str(compiler))
        mapped.seek(0)
        assert mapped.read() == before
    assert (lib / path_of("avx2").name).read_bytes() != before
    assert {path.name for path in lib.iterdir()} == {path_of(name).name for name in NEEDS if name != "avx2-vnni"}


def test_an_installed_checkout_is_read_where_it_is_and_builds_nothing_then(small: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build("editable", small, tmp_path / "wheel", CXX=str(tmp_path / "no-compiler"))) as archive:
        archive.extractall(tmp_path / "site")
    for program in ("cmake", "ninja", "c++"):
        (tmp_path / program).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
        (tmp_path / program).chmod(0o755)
    (small / "nmt_cli" / "added.py").touch()  # after it was installed
    code = (
        f"import site, sys; site.addsitedir({str(tmp_path / 'site')!r}); sys.path.append({str(SITE)!r})\n"
        "import nmt_cli.added, nmt_cli.cli.app, nmt_cli.engine.library, nmt_cli.recipe as recipes\n"
        "print(nmt_cli.added.__file__, recipes.recipe_folder())"
    )
    done = run(sys.executable, "-S", "-c", code, cwd=tmp_path, PATH=str(tmp_path), PYTHONPATH="")
    assert done.stdout.split() == [str(small / "nmt_cli/added.py"), str(small / "recipes")], done.stderr
    assert not (tmp_path / "started").exists()
