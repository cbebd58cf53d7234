"""`python -m nmt_cli` and the `nmt` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from .cli.edge import guarded
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(guarded(_command))


def _command() -> int:
    from .cli.app import run

    return run()


if __name__ == "__main__":
    main()
