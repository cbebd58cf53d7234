"""Wrong models and calls do not end the process: `make fuzz` in small, with the inputs of one seed."""

import os
import platform
import subprocess
from pathlib import Path

import pytest
from engine_flags import COMPILER, FLAGS, SETS

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).with_name("hostile.cpp")
SANITIZERS = ("-O0", "-g1", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
SET = SETS["neon" if platform.machine() in ("aarch64", "arm64") else "portable"]


def compiled(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert COMPILER is not None
    command = [*COMPILER.split(), *FLAGS.split(), *SET.split(), *SANITIZERS, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_wrong_models_and_calls_give_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.cpp").write_text("int main() {}", encoding="ascii")
    if COMPILER is None or compiled(tmp_path / "empty.cpp", "-o", tmp_path / "empty").returncode:
        pytest.skip("there is no C++ compiler with AddressSanitizer")
    done = compiled(DRIVER, "-o", tmp_path / "hostile")
    assert done.returncode == 0, done.stderr
    environment = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1"}
    for arguments, expected in [(["300", "1", "1500"], "1500 inputs"), (["threads", "300", "1", "1"], "1 inputs")]:
        done = subprocess.run(
            [tmp_path / "hostile", *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.splitlines()[-1] == expected
