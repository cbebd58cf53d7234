"""`python -m nmt_cli` and the `nmt` command."""

import os  # no `from __future__` above: with `-m`, Python looks for that module in the working folder too
import sys


def leave_working_folder() -> None:
    """Remove the working folder from the module search path: a `json.py` or `torch.py` in it would run instead of the
    real module.

    `python -m` looks there first, and so do the Python processes that this process starts. If the package itself is in
    the working folder, as in a checkout, the folder stays on the path.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        here = os.path.realpath(os.curdir)
    except OSError:  # it has been removed
        return
    if os.path.realpath(package) == here:
        return
    if sys.path and os.path.realpath(sys.path[0]) == here and not sys.flags.safe_path:
        del sys.path[0]
    os.environ["PYTHONSAFEPATH"] = "1"


def main() -> None:
    """Run the command line."""
    leave_working_folder()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it looks for them in every installed package
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # NumPy's idle threads would compute for 0.05 s at the start
    try:
        from .cli.process import run_guarded
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run_guarded(_command))


def _command() -> int:
    from .cli.app import run

    return run()


if __name__ == "__main__":
    main()
