"""Which library of the engine is loaded, and what is said if none is."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from engine_libraries import RUNNING

from nmt_cli.engine import library as engine
from nmt_cli.errors import UsageError

needs_engine = pytest.mark.skipif(not RUNNING, reason=engine._unusable(list(engine.NEEDS)) if not RUNNING else "")


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NMT_ENGINE", raising=False)
    engine._found.cache_clear()
    yield
    engine._found.cache_clear()


def name_of_loaded() -> str:
    loaded = engine.library()
    assert loaded is not None, engine.missing()
    assert engine.missing() == ""
    return str(loaded.nmt_instructions().decode())


@needs_engine
@pytest.mark.parametrize("name", RUNNING)
def test_the_processors_best_library_or_the_named_one_is_loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as this_processor:
        this_processor.setattr(engine, "cpu_flags", lambda: {"sse2", *engine.NEEDS[name]})
        assert name_of_loaded() == name
        others = [other for other in engine.NEEDS if other != name and engine.path_of(other).is_file()]
        assert engine.summary() == f"{name} (also installed: {', '.join(others) or 'none'})"
    engine._found.cache_clear()
    monkeypatch.setenv("NMT_ENGINE", name)
    assert name_of_loaded() == name


Change = Callable[[pytest.MonkeyPatch, Path], object]
BEST = next(iter(engine.NEEDS))


def big_endian(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr(engine, "FOLDER", folder)
    patch.setattr("sys.byteorder", "big")
    patch.setattr("platform.machine", lambda: "s390x")


def of_size(size: int) -> Change:
    """Cut the library off."""

    def cut(patch: pytest.MonkeyPatch, folder: Path) -> None:
        whole = engine.path_of(RUNNING[0]).read_bytes()
        patch.setattr(engine, "FOLDER", folder)
        engine.path_of(RUNNING[0]).write_bytes(whole[:size])

    return cut


CUT = pytest.param if RUNNING and sys.platform == "linux" else partial(pytest.param, marks=pytest.mark.skip("no ELF"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda patch, _: patch.setenv("NMT_ENGINE", "off"), "NMT_ENGINE is off; unset it"),
        (lambda patch, folder: patch.setattr(engine, "FOLDER", folder), r"there is no .*portable.* C\+\+ compiler"),
        (big_endian, "this one, s390x, is big-endian"),
        CUT(lambda patch, _: patch.setattr(engine, "ABI", 99), r"has interface \d+, expected 99; install"),
        CUT(lambda patch, _: patch.setitem(engine.FUNCTIONS, "nmt_nothing", (None, [])), "nmt_nothing"),
        *(CUT(of_size(size), "cannot be loaded") for size in (0, 1, 63)),
        *(CUT(of_size(size), r"is cut off, [\d,]+ bytes of it are missing") for size in (64, 65, 4096, -2000, -1)),
    ],
)
def test_a_library_that_cannot_be_used_is_named_and_no_error(
    change: Change, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    change(monkeypatch, tmp_path)
    assert engine.library() is None
    assert re.search(reason, engine.missing())
    assert engine.summary() == f"no engine: {engine.missing()}"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("avx99", lambda *_: None, "expected .*portable or off"),
        (BEST, lambda patch, folder: patch.setattr(engine, "FOLDER", folder), f"compiler that knows {BEST};"),
        pytest.param(
            "avx2",
            lambda patch, _: patch.setattr(engine, "cpu_flags", lambda: set(engine.NEEDS["avx2"]) - {"fma", "f16c"}),
            "needs a processor with f16c, fma",
            marks=pytest.mark.skipif("avx2" not in RUNNING, reason="this is no x86-64 processor with AVX2"),
        ),
    ],
)
def test_a_library_that_is_named_and_cannot_be_used_is_an_error(
    name: str, change: Change, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    change(monkeypatch, tmp_path)
    monkeypatch.setenv("NMT_ENGINE", name)
    with pytest.raises(UsageError, match=f"NMT_ENGINE = '{name}'.*{message}"):
        engine.library()


@pytest.mark.skipif("avx512-vnni" not in RUNNING, reason="this processor has no AVX-512 with VNNI")
@pytest.mark.skipif("avx512-amx" in RUNNING, reason="AMX runs here")
def test_amx_that_the_system_does_not_give_is_not_used() -> None:
    """The library asks for it when it is loaded. Without it, products are those of AVX-512."""
    path = engine.path_of("avx512-amx")
    if not path.is_file():
        pytest.skip("the compiler does not know AMX")
    loaded, reason = engine._loaded(path)
    assert not reason
    assert loaded is not None
    assert loaded.nmt_instructions() == b"avx512-vnni"


def test_neither_torch_nor_numpy_is_loaded() -> None:
    code = "import sys, nmt_cli.engine.library as e; e.summary(); print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "set()\n", "")
