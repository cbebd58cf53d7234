"""What a release needs: the tag, the version, CHANGELOG.md and CITATION.cff agree.

    python tools/release.py v1.2.3            exits with 1 and says what differs
    python tools/release.py v1.2.3 --notes    prints the version's section of the changelog

It needs no package, so that it runs before anything is installed.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from pathlib import Path

ROOT = Path(__file__).parents[1]


def disagreements(tag: str, root: Path = ROOT) -> list[str]:
    """Return a sentence for each place that is not ready for the release `tag`."""
    version = tag.removeprefix("v")
    places = {
        "nmt_cli/__init__.py": rf'^__version__ = "{re.escape(version)}"$',
        "CHANGELOG.md": rf"^## \[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d$",
        "CITATION.cff": rf"^version: {re.escape(version)}$",
    }
    found = [] if re.fullmatch(r"v\d+\.\d+\.\d+(\w+\d+)?", tag) else [f"{tag!r} is no tag such as v1.2.3"]
    for place, expected in places.items():
        if not re.search(expected, (root / place).read_text(encoding="utf-8"), re.MULTILINE):
            found.append(f"{place} has no line {expected}")
    return found


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the section of the changelog about the release `tag`."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(
        rf"^## \[?{re.escape(tag.removeprefix('v'))}\b.*?$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return section[1].strip() if section else ""


def main() -> int:
    parser = ArgumentParser(description="Whether a version can be released.")
    parser.add_argument("tag", help="the tag of the version, such as v1.2.3")
    parser.add_argument("--notes", action="store_true", help="print the version's section of the changelog instead")
    given = parser.parse_args()
    if given.notes:
        print(notes(given.tag))
        return 0
    found = disagreements(given.tag)
    print("\n".join(found) or f"{given.tag} is ready", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
