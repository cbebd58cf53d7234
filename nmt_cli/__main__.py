"""`python -m nmt_cli` and the `nmt` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from .cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())


if __name__ == "__main__":
    main()
