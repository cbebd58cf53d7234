"""Run the tests that depend on the machine as other machines would run them: each setting in a pytest of its own.

    make test-machines
    python tools/other_machines.py off threads     only the settings that have such a word in their name

Each prints a line. The exit status is 1 if any failed. What this machine lacks is left out, by name.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nmt_cli.device.processor import cpu_flags
from nmt_cli.engine.library import NEEDS, OFF, VARIABLE, path_of

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow")
WORKERS = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder")

ENGINE = (
    *(
        "engine/test_candidates",
        "engine/test_folders",
        "engine/test_library",
        "engine/test_model",
        "engine/test_search",
    ),
    *("translation/test_alignment", "translation/test_decoders", "translation/test_line_translator"),
    "translation/test_scoring",
)
TRANSLATING = (
    *ENGINE,
    *("cli/test_translate", "search/test_search", "translation/test_confidence", "translation/test_pool"),
    *("translation/test_processes", "translation/test_real_invariance"),
)
TRAINING = (
    *("kernels/test_chunked_loss", "kernels/test_parity", "kernels/test_block_loss", "model/test_packing"),
    *("model/test_precision", "model/test_transformer", "device/test_hardware", "test_old_formats"),
    *("training/test_averaging", "training/test_trainer", "training/test_update"),
    *("translation/test_real_invariance", "translation/test_scoring"),
)
FILES = ("cli/test_edges", "cli/test_matrix", "storage/test_files", "storage/test_output_paths")
"""The tests of a setting: of what multiplies matrices to translate, or to train; of files and users."""

AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
ONEDNN = {
    "AVX2": frozenset({"avx2"}),
    "AVX512_CORE": AVX512,
    "AVX512_CORE_BF16": AVX512 | {"avx512_bf16"},
    "AVX512_CORE_AMX": AVX512 | {"amx_tile", "amx_bf16"},
}
"""Instructions that oneDNN may use at most → what they need, as /proc/cpuinfo names it."""


@dataclass(frozen=True)
class Setting:
    """A machine: variables that decide what computes, and the tests that depend on them."""

    variables: dict[str, str]
    tests: tuple[str, ...]
    needs: frozenset[str] = frozenset()
    stranger: bool = False
    """Not root, in a home of its own, in another locale and time zone; and the tests in random order."""

    @property
    def name(self) -> str:
        """The variables, as in a shell."""
        return " ".join(f"{key}={value}" for key, value in self.variables.items())


def settings() -> Iterator[Setting]:
    """Yield all of them."""
    for name, needs in NEEDS.items():
        if path_of(name).is_file():
            yield Setting({VARIABLE: name}, ENGINE, needs)
    yield Setting({VARIABLE: OFF}, TRANSLATING)
    yield Setting({"ATEN_CPU_CAPABILITY": "avx2"}, TRAINING, ONEDNN["AVX2"])
    for isa, needs in ONEDNN.items():
        yield Setting({"ONEDNN_MAX_CPU_ISA": isa}, TRAINING, needs)
    for threads in ("1", "2"):
        yield Setting({"OMP_NUM_THREADS": threads}, TRAINING)
    yield Setting({"LC_ALL": "C", "TZ": "Asia/Kathmandu", "NMT_TEST_ORDER": "other"}, FILES, stranger=True)


def main(words: list[str]) -> int:
    """Run the settings; return the exit status."""
    failures = []
    for setting in settings():
        if words and not any(word in setting.name for word in words):
            continue
        if lacks := sorted(setting.needs - cpu_flags()):
            print(f"{setting.name:60} left out: this processor has no {', '.join(lacks)}", flush=True)
            continue
        print(f"{setting.name:60} ", end="", flush=True)
        if setting.stranger and not os.getuid() and not nobody():
            print("(as root: nobody may not read this Python) ", end="", flush=True)
        start, done = time.monotonic(), run(setting)
        counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?)", done.stdout.strip().rpartition("\n")[2])
        print(f"{', '.join(counts)}, {time.monotonic() - start:.0f} s", flush=True)
        if done.returncode:
            failures.append(f"\n{setting.name}\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
    print(*failures, sep="\n")
    return bool(failures)


def run(setting: Setting) -> subprocess.CompletedProcess[str]:
    """Run a setting's tests in a pytest."""
    environment = {**os.environ, **setting.variables, "NMT_TEST_MACHINE": setting.name}
    with tempfile.TemporaryDirectory(prefix="nmt-machine-") as home:
        user = nobody() if setting.stranger else {}
        if setting.stranger:
            environment |= {"HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"}
            os.chown(home, user.get("user", -1), user.get("group", -1))
        command = [*PYTEST, *WORKERS, *(f"tests/{name}.py" for name in setting.tests)]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, **user)


@cache
def nobody() -> dict[str, Any]:
    """Return what makes a subprocess one of the user `nobody`; {} unless this is root, or if `nobody` cannot run it."""
    entry = pwd.getpwnam("nobody")
    user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    try:
        command = [sys.executable, "-c", "import nmt_cli, pytest"]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, **user)  # type: ignore[call-overload]
    except (OSError, subprocess.CalledProcessError):
        return {}
    return user


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
