"""Which library of the engine is loaded, and what is said if none is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_libraries import RUNNING

from nmt_cli.engine import library as engine
from nmt_cli.errors import UsageError

needs_engine = pytest.mark.skipif(not RUNNING, reason=engine._unusable(list(engine.NEEDS)) if not RUNNING else "")

needs_x86 = pytest.mark.skipif("avx2" not in RUNNING, reason="this is no x86-64 processor with AVX2")


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
def test_the_best_library_for_the_processor_is_loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "cpu_flags", lambda: {"sse2", *engine.NEEDS[name]})
    assert name_of_loaded() == name
    others = [other for other in engine.NEEDS if other != name and engine.path_of(other).is_file()]
    assert engine.summary() == f"{name} (also installed: {', '.join(others)})"


@needs_engine
@pytest.mark.parametrize("name", RUNNING)
def test_a_variable_names_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_ENGINE", name)
    assert name_of_loaded() == name


def test_the_variable_turns_the_engine_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_ENGINE", "off")
    assert engine.library() is None
    assert engine.summary() == "no engine: NMT_ENGINE is off; unset it to use the engine"


def test_a_name_that_is_no_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_ENGINE", "avx99")
    message = f"NMT_ENGINE = 'avx99': expected {', '.join(engine.NEEDS)} or off."
    message += " Did you mean 'avx2'?" * ("avx2" in engine.NEEDS)
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        engine.library()


@needs_x86
def test_a_library_that_the_processor_does_not_run_is_an_error_if_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "cpu_flags", lambda: set(engine.NEEDS["avx2"]) - {"fma", "f16c"})
    assert name_of_loaded() == "portable"
    monkeypatch.setenv("NMT_ENGINE", "avx2")
    engine._found.cache_clear()
    reason = f"{engine.path_of('avx2').name} needs a processor with f16c, fma; use such a machine"
    message = f"NMT_ENGINE = 'avx2': {reason}. Or name another library, or unset NMT_ENGINE."
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        engine.library()


def test_a_library_that_is_not_built_is_an_error_if_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine, "FOLDER", tmp_path)
    assert engine.library() is None
    missing = f"there is no {engine.path_of('portable')}, because the package was built without a C++ compiler; install"
    assert engine.missing().startswith(missing)
    best = next(iter(engine.NEEDS))
    monkeypatch.setenv("NMT_ENGINE", best)
    engine._found.cache_clear()
    with pytest.raises(UsageError, match=rf"NMT_ENGINE = '{best}': there is no .* a C\+\+ compiler that knows {best};"):
        engine.library()


def test_a_big_endian_processor_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.byteorder", "big")
    monkeypatch.setattr("platform.machine", lambda: "s390x")
    reason = "the engine needs a little-endian processor, and this one, s390x, is big-endian; translate with torch"
    assert engine.summary() == f"no engine: {reason}"


@needs_engine
def test_a_library_of_another_interface_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ABI", engine.ABI + 1)
    path = engine.path_of(RUNNING[0])
    reason = f"{path} has interface {engine.ABI - 1}, expected {engine.ABI}; install the package again"
    assert (engine.library(), engine.missing()) == (None, reason)


@needs_engine
def test_a_library_without_a_function_or_damaged_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(engine.FUNCTIONS, "nmt_nothing", (None, []))
    path = engine.path_of(RUNNING[0])
    assert re.fullmatch(rf"{path} cannot be loaded \(.*nmt_nothing.*\); install the package again", engine.missing())
    monkeypatch.setattr(engine, "FOLDER", tmp_path)
    path = engine.path_of(RUNNING[0])
    path.write_bytes(b"no library")
    engine._found.cache_clear()
    assert re.fullmatch(rf"{path} cannot be loaded \(.*\); install the package again", engine.missing())


@needs_engine
@pytest.mark.skipif(sys.platform != "linux", reason="libraries here are no ELF files")
def test_a_library_that_is_cut_off_anywhere_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = engine.path_of(RUNNING[0]).read_bytes()
    monkeypatch.setattr(engine, "FOLDER", tmp_path)
    path = engine.path_of(RUNNING[0])
    for size in (0, 1, 63, 64, 65, 4096, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        engine._found.cache_clear()
        how = "cannot be loaded" if size < 64 else f"is cut off, {len(whole) - size:,} bytes of it are missing;"
        assert engine.missing().startswith(f"{path} {how}")
        assert engine.missing().endswith("; install the package again")


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
