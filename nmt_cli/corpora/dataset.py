"""What a data set is: addresses, checksums, and which text of which archive becomes which file.

    Dataset ──▶ Text: a pair of files ──▶ Part: a file of an archive per side ──▶ Archive ──▶ Source: an address

The data sets are the entries of `registry.DATASETS`. To add one, write a Dataset into a file beside this one (or into
another package) and add a line there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Source:
    """An address of an archive, and what is known of its bytes."""

    url: str
    digest: str | None = None
    """`sha256:` or `md5:` and the checksum in hex."""
    size: int | None = None
    """Bytes."""

    @property
    def name(self) -> str:
        """Return the file's name, which is also that of the downloaded file."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Archive:
    """A file to download; its sources are tried in turn. They may be packed differently, but hold the same files."""

    sources: tuple[Source, ...]

    @property
    def name(self) -> str:
        return self.sources[0].name


@dataclass(frozen=True)
class Part:
    """A parallel text: for source and target an archive and a file in it; "" where the archive is a single file.

    The file in the archive may be plain, compressed or .sgm.
    """

    source: tuple[Archive, str]
    target: tuple[Archive, str]


@dataclass(frozen=True, kw_only=True)
class Text:
    """A pair of files to write, from parts that are read one after the other."""

    files: tuple[str, str]
    parts: tuple[Part, ...]
    training: bool = False
    """Pairs with an empty side are dropped; of a test set nothing ever is."""
    lines: int | None = None
    """How many lines there must be."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Tab-separated pairs to be cut into train, valid and test by `split.cut`."""

    archive: Archive
    member: str


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set: what is downloaded, and which files it becomes."""

    title: str
    languages: tuple[str, str]
    size: str
    """Of the archives, in words."""
    licence: str
    texts: tuple[Text | Split, ...]
    recipe: str
    """The recipe that trains on it."""

    @property
    def archives(self) -> tuple[Archive, ...]:
        """Return each archive once, in the order of use."""
        return tuple(dict.fromkeys(archive for text in self.texts for archive in archives_of(text)))


def archives_of(text: Text | Split) -> Iterator[Archive]:
    """Yield the archives that a text is made of, in order; one may come several times."""
    if isinstance(text, Split):
        yield text.archive
        return
    for part in text.parts:
        yield part.source[0]
        yield part.target[0]


def outputs(text: Text | Split, languages: tuple[str, str]) -> tuple[str, ...]:
    """Return the names of the files that a text becomes: source and target in turn."""
    if isinstance(text, Text):
        return text.files
    return tuple(f"{name}.{language}{'.gz' * (name == 'train')}" for name in ("train", "valid", "test") for language in languages)


def archive(url: str, digest: str | None = None, size: int | None = None, *more: Source) -> Archive:
    """Return an archive from its first address; `more` are tried after it."""
    return Archive((Source(url=url, digest=digest, size=size), *more))


def within(archive: Archive, source: str, target: str) -> Part:
    """Return the parallel text of two files of one archive."""
    return Part((archive, source), (archive, target))
