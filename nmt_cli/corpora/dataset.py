"""The description of a data set: addresses, checksums, and which text of which archive becomes which file.

    Dataset ──▶ Joined: a pair of files ──▶ PairedFiles: one of an archive per side ──▶ Archive ──▶ Source: an address

The data sets are the entries of `registry.DATASETS`. To add one, write a Dataset into a file beside this one (or into
another package) and add a line there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class Source:
    """An address of an archive, with checksum and size if they are known."""

    url: str
    digest: str | None = None
    """`sha256:` or `md5:` and the checksum in hex."""
    size: int | None = None
    """Size of the archive in bytes."""

    @property
    def name(self) -> str:
        """Return the file's name at the address. The downloaded file has the same name."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Archive:
    """A file to download. Its sources are tried in turn; they may be packed differently, but contain the same files."""

    sources: tuple[Source, ...]

    @property
    def name(self) -> str:
        return self.sources[0].name


class PairedFiles(NamedTuple):
    """A parallel text: for source and for target an archive and a file in it; "" if the archive is a single file.

    The file in the archive may be plain, compressed or .sgm.
    """

    source: tuple[Archive, str]
    target: tuple[Archive, str]


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A pair of files to write, from parts that are read one after the other."""

    files: tuple[str, str]
    parts: tuple[PairedFiles, ...]
    training: bool = False
    """Whether this is training text. From training text, pairs with an empty side are dropped; a test set keeps every
    pair."""
    lines: int | None = None
    """Number of lines that each file must have; None: not checked."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Tab-separated pairs to be cut into train, valid and test by `split.cut`."""

    archive: Archive
    member: str


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set: the archives to download, and the files to write."""

    title: str
    languages: tuple[str, str]
    size: str
    """Size of the archives, as text."""
    licence: str
    texts: tuple[Joined | Split, ...]
    recipe: str
    """The name of the recipe that trains on this data set."""

    @property
    def archives(self) -> tuple[Archive, ...]:
        """Return each archive once, in order of use."""
        return tuple(dict.fromkeys(archive for text in self.texts for archive, _ in members_of(text)))


def members_of(text: Joined | Split) -> list[tuple[Archive, str]]:
    """Return the archives that a text is made of, each with the file in it, in order of use."""
    if isinstance(text, Split):
        return [(text.archive, text.member)]
    return [member for part in text.parts for member in part]


def outputs(text: Joined | Split, languages: tuple[str, str]) -> tuple[str, ...]:
    """Return the names of the files that a text becomes: source and target in turn."""
    if isinstance(text, Joined):
        return text.files
    return tuple(
        f"{name}.{language}{'.gz' * (name == 'train')}" for name in ("train", "valid", "test") for language in languages
    )


def archive(url: str, digest: str | None = None, size: int | None = None, *more: Source) -> Archive:
    """Return an archive with its first address; the addresses `more` are tried after it."""
    return Archive((Source(url=url, digest=digest, size=size), *more))


def within(archive: Archive, source: str, target: str) -> PairedFiles:
    """Return a part that consists of two files of one archive."""
    return PairedFiles((archive, source), (archive, target))
