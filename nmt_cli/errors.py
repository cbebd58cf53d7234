"""All errors that `nmt` reports, as one tree; the command line catches `NmtError` once.

    NmtError                exit 1: an error of data or state
    ├── RecipeError         a recipe that cannot be read or contradicts itself
    ├── DataError           corpora, tokenizers and shards
    ├── DocumentError       a text, HTML or XML document that is malformed or refused for safety
    ├── ModelError          a model folder, run folder or checkpoint
    ├── TrainingError       training cannot continue (a non-finite loss, a dead rank)
    │   └── RankFailed      exit status of the failed process, which has printed the reason
    ├── UsageError          exit 2: the command was called wrongly
    ├── NeedsTorch          what was asked for needs torch, which is not installed
    ├── OutputError         standard output cannot be written to
    ├── ReaderLeft          exit 0, no message: the reader of standard output has closed it
    └── Stopped             exit 128 + signal: stopped by a signal, after saving
    KeyboardInterrupt       exit 130: Ctrl-C
    └── Terminated          exit 128 + signal: SIGTERM or SIGHUP, raised at any point of the program

Any of them exits with 75 where the machine is at fault and a retry may help: see `of_machine`.

A message contains the bad value (`!r`), what was expected, where it is, and how to fix it.
`reading` and `writing` turn an `OSError` into such a message.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import re
import reprlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar


class NmtError(Exception):
    """An error whose text is shown to the user without a traceback."""

    exit_code = 1
    reported = False
    """Whether the text was printed already. Then the command line does not print it again."""


RETRY = 75
"""The exit status EX_TEMPFAIL: memory, a disk or a process failed; the same command may succeed later or elsewhere."""
_Error = TypeVar("_Error", bound=NmtError)


def of_machine(error: _Error) -> _Error:
    """Return an error of the machine: with the exit status RETRY."""
    error.exit_code = RETRY
    return error


class RecipeError(NmtError):
    """A recipe that is missing, does not parse, or has wrong values."""


class DataError(NmtError):
    """A corpus, tokenizer or shard folder that is missing, damaged or does not fit."""


class DocumentError(NmtError):
    """A document that is not well-formed, or that could not be translated safely."""


class ModelError(NmtError):
    """A model folder, run folder or checkpoint that is missing, damaged or does not fit."""


class TrainingError(NmtError):
    """Training cannot continue."""


class RankFailed(TrainingError):
    """One of several training processes has failed, and has printed the reason on stderr.

    `exit_code` is the exit code of that process.
    """

    reported = True

    def __init__(self, rank: int, ranks: int, exit_code: int) -> None:
        super().__init__(
            f"rank {rank} of {ranks} failed with exit status {exit_code}; it has said why on standard error."
        )
        self.exit_code = exit_code


class UsageError(NmtError):
    """The command was called wrongly."""

    exit_code = 2


class NeedsTorch(NmtError):
    """`what` needs torch, which is not installed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs torch, which is not installed: pip install torch")


class OutputError(NmtError):
    """Standard output is closed, or the disk behind it is full."""


class ReaderLeft(NmtError):
    """The program that reads standard output has ended. There is nothing left to do or to report."""

    exit_code = 0


class Stopped(NmtError):
    """Stopped by a signal after the state was saved; `exit_code` is 128 + the signal's number."""

    def __init__(self, signal_number: int, message: str, *, reported: bool = False) -> None:
        super().__init__(message)
        self.exit_code, self.reported = 128 + signal_number, reported


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP. As with Ctrl-C, `except Exception` does not catch it, and context managers clean up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def system_reason(error: OSError) -> str:
    """Return the system's message, with the name of the file."""
    return (
        f"{error.filename!r}: {error.strerror}"
        if error.filename and error.strerror
        else str(error) or type(error).__name__
    )


def write_failed(error: OSError, path: Path | str, what: str, kind: type[NmtError] = DataError) -> NmtError:
    """Return an error of type `kind`: why `what` could not be written at `path`, and how to fix that."""
    reason, way_out = WRITE_FAILURES.get(error.errno or 0, (error.strerror or str(error), ""))
    failed = kind(f"cannot write {what} at {shown(str(path), LONGEST_SHOWN)}: {reason}.{way_out}")
    return of_machine(failed) if error.errno in MACHINE else failed


@contextmanager
def writing(path: Path | str, what: str, kind: type[NmtError] = DataError) -> Iterator[None]:
    """Raise an OSError of the block as `write_failed` describes it."""
    try:
        yield
    except OSError as error:
        raise write_failed(error, path, what, kind) from None


@contextmanager
def reading(path: str | Path, remedy: str = "", kind: type[NmtError] = DataError) -> Iterator[None]:
    """Raise an OSError of the block as an error of type `kind`, with the name of the file and the `remedy`."""
    try:
        yield
    except OSError as error:
        failed = kind(f"cannot read {str(path)!r}: {error.strerror or error}.{remedy}")
        raise (of_machine(failed) if error.errno in MACHINE else failed) from None


MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE),
}
"""Error numbers of the machine: disks, network file systems, memory, processes and descriptors."""
LONGEST_SHOWN = 300
"""Largest number of characters of a path in an error."""
_SPACE = " Free some space or choose another folder; nothing that was there before was changed."
_PERMISSION = " Choose a folder that you may write to, or change its permissions."
WRITE_FAILURES = {
    errno.ENOSPC: ("the disk is full", _SPACE),
    errno.EDQUOT: ("the disk is full", _SPACE),
    errno.EACCES: ("no write permission", _PERMISSION),
    errno.EPERM: ("no write permission", _PERMISSION),
    errno.EROFS: ("the file system is mounted read-only", " Choose a folder elsewhere."),
    errno.ENAMETOOLONG: ("the name is too long", " Most file systems allow 255 bytes a name."),
    errno.ENOTDIR: ("a part of its path is a file, not a folder", " Choose another path."),
    errno.EEXIST: ("it is a file, expected a folder", " Choose another path."),
    errno.EISDIR: ("it is a folder", " Give the name of a file."),
    errno.ELOOP: ("its links lead in a circle", " Choose another path."),
}
"""Error number → the reason, and how to fix it."""


def differing(before: str, after: str, around: int = 12) -> tuple[str, str]:
    """Return the parts of two texts in which they differ, with some characters before and after them."""
    start = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), len(before))
    start = max(0, start - around)
    return before[start : start + 2 * around], after[start : start + 2 * around]


_BOUNDED = reprlib.Repr()
"""Shows a part of what contains others: a few hundred bytes of YAML may stand for gigabytes."""
_BOUNDED.maxlevel, _BOUNDED.fillvalue = 3, "…"
_BOUNDED.maxlist = _BOUNDED.maxtuple = _BOUNDED.maxset = _BOUNDED.maxdict = 50
_BOUNDED.maxstring = _BOUNDED.maxother = _BOUNDED.maxlong = 10_000


def shown(value: object, longest: int = 200) -> str:
    """Return the repr of `value` for messages.

    The middle of a long repr is left out. A value whose repr fails is described instead.
    """
    try:
        text = _BOUNDED.repr(value) if isinstance(value, list | tuple | dict | set) else repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or deeply nested lists
        text = (
            f"a number of about {int(value.bit_length() * 0.30103):,} digits"
            if isinstance(value, int)
            else f"a {type(value).__name__}"
        )
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[-longest // 2 :]}"


def shown_name(name: str) -> str:
    """Return a name for messages as `shown` does, but without quotes: a key, a version, the text of a library's
    error.
    """
    return shown(name)[1:-1]


def listed(items: Sequence[str], most: int = 6, between: str = ", ") -> str:
    """Return the first `most` items for messages, and an ellipsis if there are more."""
    return between.join([*items[:most], *["…"] * (len(items) > most)])


UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters except tab and newline, other line ends, and characters that change the direction of text."""


def printable(text: str) -> str:
    r"""Return `text` with each character of UNPRINTABLE as a number, as in \u001b, so that a terminal only shows it.

    JSON stays the same JSON.
    """
    return UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """Return " Did you mean 'name'?" with the known names that are most similar to `word`, or "" if none is similar."""
    near = difflib.get_close_matches(word.lower(), list(known), n=most, cutoff=0.5)
    *others, last = map(repr, near) if near else [""]
    return f" Did you mean {', '.join(others)}{' or ' * bool(others)}{last}?" if near else ""


def expected(value: str, names: Iterable[str]) -> str:
    """Return "expected a, b or c.", and the name that is most similar to `value`."""
    *others, last = names
    return f"expected {', '.join(others)}{' or ' * bool(others)}{last}.{did_you_mean(value, [*others, last])}"


def check_choice(what: str, value: str, names: Iterable[str]) -> None:
    """Raise UsageError unless `value` is one of `names`; `what` is the option."""
    known = list(names)
    if value not in known:
        raise UsageError(f"{what} {shown(value)}: {expected(value, known)}")


def extra_module(name: str, extra: str, what: str) -> Any:
    """Import the module `name` of an extra, which `what` needs. Raises UsageError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UsageError(f"{what} needs the extra package {package} ({error}): {install_command(extra)}.") from None


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra, for nmt from a checkout and from a wheel."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        requirements = [requirement.split(";") for requirement in requires("nmt-cli") or ()]
    except PackageNotFoundError:  # a checkout that is not installed
        return f"pip install '.[{extra}]' in the folder of nmt's checkout"
    wanted = [name for name, *marker in requirements if f"extra == '{extra}'" in "".join(marker).replace('"', "'")]
    return f"pip install {shlex.join(name.strip() for name in wanted)}"
