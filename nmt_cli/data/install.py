"""The folder of the shards: built in a hidden folder, then moved into place.

    with folder_aside(out) as partial: write the shards into `partial` ──▶ check_replaceable ──▶ install(partial, out)

The shards are built in a hidden folder, `.NAME.partial`, which is locked. A second command for the same
folder is refused. Files that a killed command left there are removed. After an error the earlier shards are unchanged.

Only files of earlier shards are replaced: index.json in the folder lists the file, and the file still has the SHA-256
recorded there. (index.json contains its own checksum.) Every other file stays; if its name is needed, that is an error.
Replacing shards takes several renames. Before the first one, the file INSTALLING is created in the hidden folder. If a
command is killed between the renames, the next command finds INSTALLING and finishes the renames.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .. import console
from ..errors import DataError, write_failed
from ..files import ASIDE, Lock, flush_to_disk, follow_links, rename_flushed, sha256
from .inputs import TEXT
from .shards import INDEX_FILE, held_alone, listed, read_index

OURS = re.compile(
    r"index\.json|(train|valid)-\d{5,}\.safetensors|valid\.(source|target)\.txt|tokenizer(\.source|\.target)?\.model"
)
"""Names of the files that nmt preprocess writes, except the files in the folder TEXT."""
INSTALLING = "installing"
"""A file in the hidden folder. It shows that the folder is complete and that its files are being moved into place."""


def _partial(out: Path) -> Path:
    """Return the path of the hidden folder: on the same disk as `out`, and inside `out` if `out` exists."""
    real = follow_links(out)
    return (real if real.is_dir() else real.parent) / f".{real.name}.partial"


@contextmanager
def folder_aside(out: Path) -> Iterator[Path]:
    """Provide a locked, empty folder to build the shards in. It is removed at the end. Raises DataError."""
    partial = _partial(out)
    busy = DataError(
        f"another nmt preprocess is writing to {str(out)!r} just now: let it finish, or choose another --out."
    )
    try:
        partial.mkdir(parents=True, exist_ok=True)
        with Lock(partial, busy) as held:
            _clear(partial)
            try:
                yield partial
            finally:
                if (
                    partial.exists()
                    and os.path.samestat(os.stat(partial), os.fstat(held.handle))
                    and not (partial / INSTALLING).exists()
                ):
                    _clear(partial)
                    with suppress(OSError):
                        partial.rmdir()
    except OSError as error:
        raise write_failed(error, out, "the shards") from None


def _clear(partial: Path) -> None:
    """Remove the files of an earlier command from the hidden folder. Raises DataError if another file is in it."""
    for item in list(partial.iterdir()):
        name = match["name"] if (match := ASIDE.fullmatch(item.name)) else item.name
        if item.is_symlink() or not (OURS.fullmatch(name) or name in (TEXT, INSTALLING)):
            raise DataError(
                f"{str(item)!r} was not written by nmt preprocess, which works in its folder. Move it away."
            )
        shutil.rmtree(item) if item.is_dir() else item.unlink()


def check_replaceable(out: Path, new: Path | None = None) -> list[Path]:
    """Return the files of `out` that an earlier command wrote, as paths below `out`.

    Raises DataError for a file that would be replaced although no earlier command wrote it: one whose name is in OURS,
    or one that the folder `new` holds with other contents.
    """
    if not out.is_dir():
        return []
    recorded = _recorded(out)
    new_files = {path.relative_to(new) for path in new.rglob("*") if path.is_file()} if new else set()
    existing = {path.relative_to(out) for path in out.iterdir() if OURS.fullmatch(path.name)} | {
        path for path in new_files if os.path.lexists(out / path)
    }
    ours = [
        path
        for path in sorted(existing)
        if (recorded and str(path) == INDEX_FILE) or _unchanged(out / path, recorded.get(str(path)))
    ]
    others = [
        path
        for path in sorted(existing - set(ours))
        if not (new and path in new_files and _unchanged(out / path, sha256(new / path)))
    ]
    if others:
        raise DataError(
            f"{str(out / others[0])!r} would be replaced, and it is not as nmt preprocess wrote it: {INDEX_FILE} "
            f"{'records another SHA-256' if str(others[0]) in recorded else 'does not list it'}. Move it away, "
            "or choose another --out."
        )
    return [
        *ours,
        *(
            path
            for path in (Path(name) for name in recorded)
            if path not in existing and _unchanged(out / path, recorded[str(path)])
        ),
    ]


def _recorded(out: Path) -> dict[str, str]:
    """Return the SHA-256 of the shards' files by name, as the index lists them.

    Entries with names that nmt preprocess does not write are ignored.
    """
    entries = listed(read_index(out)) if (out / INDEX_FILE).exists() else []
    return {
        entry.file: entry.sha256
        for entry in entries
        if OURS.fullmatch(entry.file) or Path(entry.file).parent == Path(TEXT)
    }


def _unchanged(path: Path, recorded: str | None) -> bool:
    return recorded is not None and path.is_file() and not path.is_symlink() and sha256(path) == recorded


def install(partial: Path, out: Path) -> None:
    """Move the finished folder into place: by one rename if `out` is new, else file by file, with the index last."""
    flush_to_disk(partial)
    if not out.exists():
        real = follow_links(out)
        rename_flushed(partial, real)
        return
    earlier = check_replaceable(out, partial)
    (partial / INSTALLING).touch()
    flush_to_disk(partial)
    _move(partial, out, earlier)


def _move(partial: Path, out: Path, earlier: list[Path]) -> None:
    """Replace the files `earlier` in `out` by those in the hidden folder, which holds INSTALLING."""
    new = {path.relative_to(partial) for path in partial.rglob("*") if path.is_file()} - {Path(INSTALLING)}
    for path in sorted(new, key=lambda path: (str(path) == INDEX_FILE, path)):
        if str(path) == INDEX_FILE:  # comes last: until then the earlier index lists the files to remove
            for old in set(earlier) - _listed_in(partial):
                (out / old).unlink(missing_ok=True)
            flush_to_disk(out)
        (out / path).parent.mkdir(exist_ok=True)
        os.replace(partial / path, out / path)
    flush_to_disk(out)
    (partial / INSTALLING).unlink()


def _listed_in(folder: Path) -> set[Path]:
    return {Path(INDEX_FILE), *(Path(entry.file) for entry in listed(read_index(folder)))}


def finish_installing(out: Path) -> None:
    """Finish the installation that a killed command began. Raises DataError if another process uses the folder."""
    partial = _partial(out)
    if not out.is_dir() or not (partial / INSTALLING).exists():
        return
    with held_alone(out):
        try:
            if (partial / INDEX_FILE).exists():
                coming = _listed_in(partial)
                earlier = [
                    path
                    for name, digest in _recorded(out).items()
                    if (path := Path(name)) not in coming and _unchanged(out / path, digest)
                ]
                _move(partial, out, earlier)
            _clear(partial)
            partial.rmdir()
        except OSError as error:
            raise write_failed(error, out, "the shards") from None
    console.say(f"{out}: finished installing the shards of a command that was stopped")
