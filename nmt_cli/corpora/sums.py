"""SHA256SUMS beside the archives: the hash of each archive after its download, in the format of `sha256sum --check`."""

from __future__ import annotations

from pathlib import Path

from ..files import write_named

NAME = "SHA256SUMS"


def recorded(path: Path) -> str | None:
    """Return the recorded SHA-256 of a file, or None."""
    return _read(path.parent).get(path.name)


def record(path: Path, digest: str) -> None:
    """Record the SHA-256 of a file. Raises DataError."""
    if recorded(path) != digest:
        _write(path, f"{digest}  {path.name}\n")


def forget(path: Path) -> None:
    """Remove the record of a deleted file. Raises DataError."""
    if recorded(path) is not None:
        _write(path, "")


def _read(folder: Path) -> dict[str, str]:
    return {name: digest for line in _lines(folder) if (name := _name(line)) and (digest := line.partition(" ")[0])}


def _name(line: str) -> str:
    """Return the file name in a line, or "" if the line has no file name."""
    return line.rstrip("\n").partition(" ")[2].lstrip(" *")


def _lines(folder: Path) -> list[str]:
    try:
        return (folder / NAME).read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        return []


def _write(path: Path, line: str) -> None:
    """Replace the line about a file by `line`, or append it. All other lines stay."""
    lines = _lines(path.parent)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    names = [_name(old) for old in lines]
    position = names.index(path.name) if path.name in names else len(lines)
    before, after = (
        lines[:position],
        [old for old, name in zip(lines[position:], names[position:], strict=True) if name != path.name],
    )
    lines = [*before, line, *after]
    write_named(path.parent / NAME, "".join(lines).encode(), "the checksums of the archives")
