"""`python -m nmt_cli` and the `nmt` command."""

import os  # no `from __future__` above: with `-m`, that module too is looked for in the working folder
import sys


def leave_working_folder() -> None:
    """Look for no module in the working folder, where a `json.py` or `torch.py` of somebody's would run in place of the real one.

    `python -m` looks there first, and so do the Python processes that this one starts. A package that itself lies in the
    working folder, as in a checkout, is found there.
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
