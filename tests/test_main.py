"""Modules come from where Python is installed, not from the working folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nmt_cli

PACKAGE = Path(nmt_cli.__file__).parent.parent
pytestmark = pytest.mark.slow
BEFORE = {"importlib", "types", "warnings", "contextlib", "collections", "functools", "keyword", "operator", "reprlib"}
"""What `python -m` itself may import before a package has a say."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder that holds a file named as each module of Python's own, and some of others; each says that it ran."""
    for name in sorted(
        {*sys.stdlib_module_names, "torch", "numpy", "typer", "rich", "pydantic", "tqdm"} - BEFORE - {"os", "sys"}
    ):
        (tmp_path / f"{name}.py").write_text(
            f"import sys\nsys.stderr.write('{name}.py of the working folder ran\\n')\nsys.exit(9)\n"
        )
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = str(PACKAGE)
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_python_m_does_not_import_from_the_working_folder(folder: Path) -> None:
    done = run(folder, "-m", "nmt_cli", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"nmt {nmt_cli.__version__}\n", "")


def test_nor_do_the_processes_that_it_starts(folder: Path) -> None:
    """Those that encode text are new Python processes."""
    (folder / "numpy.py").unlink()
    (folder / "code").mkdir()
    (folder / "code" / "start.py").write_text(
        "from nmt_cli.__main__ import leave_working_folder\n"
        "leave_working_folder()\n"
        "if __name__ == '__main__':\n"
        "    from nmt_cli.data.workers import pool\n"
        "    with pool(abs, 2) as job:\n"
        "        print([result for _, result in job([-1, -2])])\n"
    )
    done = run(folder, "code/start.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2]\n", "")


def test_a_package_in_the_working_folder_is_still_found(tmp_path: Path) -> None:
    """As in a checkout that is not installed."""
    (tmp_path / "nmt_cli").symlink_to(PACKAGE / "nmt_cli")
    code = "import os, sys; sys.argv = ['nmt', '--version']; import nmt_cli.__main__ as main; main.leave_working_folder(); print('PYTHONSAFEPATH' in os.environ, os.getcwd() in sys.path or '' in sys.path)"
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    for where, left in ((PACKAGE, "False True\n"), (tmp_path, "False True\n")):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=where, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == left


def test_waiting_threads_spin_briefly_unless_the_user_says_how() -> None:
    code = "import os, sys, nmt_cli; print(os.environ.get('GOMP_SPINCOUNT', '-'), 'torch' in sys.modules)"
    left = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    for given, spins in (({}, nmt_cli.SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "-")):  # type: ignore[attr-defined]
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env={**left, **given}, capture_output=True, text=True, check=True)
        assert done.stdout == f"{spins} False\n"
