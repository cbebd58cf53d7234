"""SHA256SUMS beside the archives: what each was when it was fetched, in the form that `sha256sum --check` reads."""

from __future__ import annotations

from pathlib import Path

from ..files import write_named

NAME = "SHA256SUMS"


def recorded(path: Path) -> str | None:
    """The SHA-256 that was written down for a file, if any."""
    return _read(path.parent).get(path.name)


def record(path: Path, digest: str) -> None:
    """Write down a file's SHA-256. Raises DataError where that cannot be written."""
    if recorded(path) != digest:
        _write(path, f"{digest}  {path.name}\n")


def forget(path: Path) -> None:
    """Strike out a file that is no longer there."""
    if recorded(path) is not None:
        _write(path, "")


def _read(folder: Path) -> dict[str, str]:
    return {name: digest for line in _lines(folder) if (name := _name(line)) and (digest := line.partition(" ")[0])}


def _name(line: str) -> str:
    """The file that a line is about; "" for a remark."""
    return line.rstrip("\n").partition(" ")[2].lstrip(" *")


def _lines(folder: Path) -> list[str]:
    try:
        return (folder / NAME).read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        return []


def _write(path: Path, line: str) -> None:
    """Put `line` in place of that about a file, or at the end; every other line stays as it is."""
    lines = _lines(path.parent)
    places = [place for place, old in enumerate(lines) if _name(old) == path.name]
    if not places and lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    lines = [old for place, old in enumerate(lines) if place not in places[1:]]
    lines[places[0] if places else len(lines) : places[0] + 1 if places else len(lines)] = [line] if line else []
    write_named(path.parent / NAME, "".join(lines).encode(), "the checksums of the archives")
