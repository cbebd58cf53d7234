"""SHA256SUMS beside the archives: what each was when it was fetched, in the form that `sha256sum --check` reads."""

from __future__ import annotations

from pathlib import Path

from ..lines import write_aside

NAME = "SHA256SUMS"


def recorded(path: Path) -> str | None:
    """The SHA-256 that was written down for a file, if any."""
    return _read(path.parent).get(path.name)


def record(path: Path, digest: str) -> None:
    """Write down a file's SHA-256. Raises DataError where that cannot be written."""
    sums = _read(path.parent)
    if sums.get(path.name) != digest:
        _write(path.parent, sums | {path.name: digest})


def forget(path: Path) -> None:
    """Strike out a file that is no longer there."""
    sums = _read(path.parent)
    if sums.pop(path.name, None) is not None:
        _write(path.parent, sums)


def _read(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / NAME).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    return {name.lstrip(" *"): digest for digest, _, name in (line.partition(" ") for line in lines) if name}


def _write(folder: Path, sums: dict[str, str]) -> None:
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
    write_aside(folder / NAME, text.encode(), "the checksums of the archives")
