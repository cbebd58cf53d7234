"""The data sets that `nmt data` fetches: addresses, checksums, and which text of which archive becomes which file.

    DATASETS: name ──▶ Dataset ──▶ Text: a pair of files ──▶ Part: a file of an archive a side ──▶ Archive ──▶ Source

A new data set is one entry of DATASETS. Checksums: those of the large archives are as published in TensorFlow Datasets
(url_checksums/wmt14_translate.txt) and, for the second addresses, in Hugging Face's dataset_infos.json of wmt14; those of
the test sets stand in sacrebleu; Multi30k's are those of the commit that its addresses name. None: none is published (or,
for Tatoeba, the file changes), so what is seen is written down beside the archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Source:
    """An address that an archive can be fetched from, and what is known of the bytes there."""

    url: str
    digest: str | None = None
    """`sha256:` or `md5:` and the checksum in hex."""
    size: int | None = None
    """Bytes."""

    @property
    def name(self) -> str:
        """The file's name, here as there."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Archive:
    """One thing to fetch; its sources are tried in turn. They may be packed differently, but hold the same files."""

    sources: tuple[Source, ...]

    @property
    def name(self) -> str:
        return self.sources[0].name


@dataclass(frozen=True)
class Part:
    """A piece of parallel text: an archive and a file within it, source and target; "" where the archive is one file.

    A file within may be plain, compressed or .sgm.
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
    """What a name of `nmt data` stands for."""

    title: str
    languages: tuple[str, str]
    size: str
    """Of the archives, in words."""
    licence: str
    texts: tuple[Text | Split, ...]
    recipe: str
    """What `nmt preprocess` makes of it."""

    @property
    def archives(self) -> tuple[Archive, ...]:
        """Each once, in the order of their use."""
        return tuple(dict.fromkeys(archive for text in self.texts for archive in archives_of(text)))


def archives_of(text: Text | Split) -> Iterator[Archive]:
    """The archives that a text is made of, in order and perhaps several times."""
    if isinstance(text, Split):
        yield text.archive
        return
    for part in text.parts:
        yield part.source[0]
        yield part.target[0]


def outputs(text: Text | Split, languages: tuple[str, str]) -> tuple[str, ...]:
    """Names of the files that a text becomes: source and target in turn."""
    if isinstance(text, Text):
        return text.files
    return tuple(f"{name}.{language}{'.gz' * (name == 'train')}" for name in ("train", "valid", "test") for language in languages)


def _archive(url: str, digest: str | None = None, size: int | None = None, *more: Source) -> Archive:
    return Archive((Source(url=url, digest=digest, size=size), *more))


def _within(archive: Archive, source: str, target: str) -> Part:
    return Part((archive, source), (archive, target))


# --- WMT 2014: statmt.org/wmt14/translation-task.html ----------------------------------------------------------------

STATMT = "https://www.statmt.org"
SECOND = "https://huggingface.co/datasets/wmt"
"""Where the same files lie as .zip."""

EUROPARL = _archive(
    f"{STATMT}/wmt13/training-parallel-europarl-v7.tgz", "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7", 657_632_379,
    Source(url=f"{SECOND}/wmt13/resolve/main-zip/training-parallel-europarl-v7.zip", digest="sha256:5b2d8b32c2396da739b4e731871c597fcc6e75729becd74619d0712eecf7770e", size=658_092_427),
)  # fmt: skip
COMMON_CRAWL = _archive(
    f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz", "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5", 918_311_367,
    Source(url=f"{SECOND}/wmt13/resolve/main-zip/training-parallel-commoncrawl.zip", digest="sha256:5ffe980072ea29adfd84568d099bea366d9f72772b988e670794ae851b4e5627", size=918_734_483),
)  # fmt: skip
NEWS_COMMENTARY = _archive(
    f"{STATMT}/wmt14/training-parallel-nc-v9.tgz", "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485", 80_418_416,
    Source(url=f"{SECOND}/wmt14/resolve/main-zip/training-parallel-nc-v9.zip", digest="sha256:ce199f93ec56ff480137ba29f0819f9a22e70d88be6d7458f112303d67d623d5", size=80_462_375),
)  # fmt: skip
UNITED_NATIONS = _archive(
    f"{STATMT}/wmt13/training-parallel-un.tgz", None, None,
    Source(url=f"{SECOND}/wmt13/resolve/main-zip/training-parallel-un.zip", digest="sha256:74f07002e053c81bc7f73b4fdab58e7987e831338748f264cbda82a8b062d2e2", size=2_366_237_633),
)  # fmt: skip
GIGA_FREN = _archive(
    f"{STATMT}/wmt10/training-giga-fren.tar", None, 2_595_102_720,
    Source(url=f"{SECOND}/wmt10/resolve/main-zip/training-giga-fren.zip", digest="sha256:9439f86523e5dff3f923526dbf6c6929da1786c18dbf64436d2b7564b83aaba3", size=2_595_877_717),
)  # fmt: skip
DEV = _archive(f"{STATMT}/wmt14/dev.tgz")
TEST_FULL = _archive(f"{STATMT}/wmt14/test-full.tgz", "md5:a8cd784e006feb32ac6f3d9ec7eb389a")
TEST_FILTERED = _archive(f"{STATMT}/wmt14/test-filtered.tgz", "md5:84c597844c1542e29c2aff23aaee4310")

WMT14_EN_DE = Dataset(
    title="WMT 2014 English-German, the paper's: Europarl v7, Common Crawl, News Commentary v9; newstest2013, 2014",
    languages=("en", "de"),
    size="1.7 GB",
    licence="free for research, see statmt.org/wmt14",
    texts=(
        Text(files=("newstest2013.en", "newstest2013.de"), lines=3000, parts=(_within(DEV, "dev/newstest2013-src.en.sgm", "dev/newstest2013-ref.de.sgm"),)),
        Text(files=("newstest2014.en", "newstest2014.de"), lines=3003, parts=(_within(TEST_FULL, "test-full/newstest2014-deen-src.en.sgm", "test-full/newstest2014-deen-ref.de.sgm"),)),
        Text(
            files=("newstest2014-filtered.en", "newstest2014-filtered.de"),
            lines=2737,
            parts=(_within(TEST_FILTERED, "test/newstest2014-deen-src.en.sgm", "test/newstest2014-deen-ref.de.sgm"),),
        ),
        Text(
            files=("train.en.gz", "train.de.gz"),
            training=True,
            parts=(
                _within(EUROPARL, "training/europarl-v7.de-en.en", "training/europarl-v7.de-en.de"),
                _within(COMMON_CRAWL, "commoncrawl.de-en.en", "commoncrawl.de-en.de"),
                _within(NEWS_COMMENTARY, "training/news-commentary-v9.de-en.en", "training/news-commentary-v9.de-en.de"),
            ),
        ),
    ),
    recipe="wmt14_en_de_base",
)

WMT14_EN_FR = Dataset(
    title="WMT 2014 English-French, the paper's: Europarl v7, Common Crawl, UN, News Commentary v9, 10^9; newstest2013, 2014",
    languages=("en", "fr"),
    size="6.6 GB",
    licence="free for research, see statmt.org/wmt14",
    texts=(
        Text(files=("newstest2013.en", "newstest2013.fr"), lines=3000, parts=(_within(DEV, "dev/newstest2013-src.en.sgm", "dev/newstest2013-ref.fr.sgm"),)),
        Text(files=("newstest2014.en", "newstest2014.fr"), lines=3003, parts=(_within(TEST_FULL, "test-full/newstest2014-fren-src.en.sgm", "test-full/newstest2014-fren-ref.fr.sgm"),)),
        Text(
            files=("train.en.gz", "train.fr.gz"),
            training=True,
            parts=(
                _within(EUROPARL, "training/europarl-v7.fr-en.en", "training/europarl-v7.fr-en.fr"),
                _within(COMMON_CRAWL, "commoncrawl.fr-en.en", "commoncrawl.fr-en.fr"),
                _within(UNITED_NATIONS, "un/undoc.2000.fr-en.en", "un/undoc.2000.fr-en.fr"),
                _within(NEWS_COMMENTARY, "training/news-commentary-v9.fr-en.en", "training/news-commentary-v9.fr-en.fr"),
                _within(GIGA_FREN, "giga-fren.release2.fixed.en.gz", "giga-fren.release2.fixed.fr.gz"),
            ),
        ),
    ),
    recipe="wmt14_en_fr_base",
)

# --- Multi30k: github.com/multi30k/dataset, task 1 --------------------------------------------------------------------

MULTI30K_ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1"
MULTI30K_LINES = {"train": 29_000, "val": 1014, "test_2016_flickr": 1000, "test_2017_flickr": 1000, "test_2017_mscoco": 461}
MULTI30K_SHA256 = {
    "raw/train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "raw/train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "raw/val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "raw/val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "raw/test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "raw/test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "raw/test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "raw/test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "tok/train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    "tok/train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "tok/val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "tok/val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "tok/test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "tok/test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    "tok/test_2017_flickr.lc.norm.tok.en": "c9d1dfd7a26add989382e534af235af9f0f658b2a30e7eb0efdaf142496ee54f",
    "tok/test_2017_flickr.lc.norm.tok.de": "02067e4a9402786a4fcb8c1b6f4307e4a5073ced64800abead5273b54f5f31f6",
}


def _multi30k(split: str, name: str, file: str) -> Text:
    """`name` is the file there and `file` the one here, both with {} for the language."""
    sides = [name.format(language) for language in ("en", "de")]
    archives = [_archive(f"{MULTI30K_ADDRESS}/{side}", f"sha256:{MULTI30K_SHA256[side]}" if side in MULTI30K_SHA256 else None) for side in sides]
    return Text(
        files=(file.format("en"), file.format("de")),
        parts=(Part((archives[0], ""), (archives[1], "")),),
        lines=MULTI30K_LINES[split],
    )


MULTI30K = Dataset(
    title="Multi30k English-German image captions: raw, and the data set's own tokenised lower-cased text in tok/",
    languages=("en", "de"),
    size="6 MB",
    licence="research and education, non-commercial",
    texts=(
        *(_multi30k(split, f"raw/{split}.{{}}.gz", f"{split}.{{}}.gz") for split in MULTI30K_LINES),
        *(_multi30k(split, f"tok/{split}.lc.norm.tok.{{}}", f"tok/{split}.lc.norm.tok.{{}}.gz") for split in MULTI30K_LINES),
    ),
    recipe="multi30k_en_de",
)

# --- Tatoeba: manythings.org/anki -------------------------------------------------------------------------------------


def _tatoeba(language: str, code: str, recipe: str) -> Dataset:
    return Dataset(
        title=f"Tatoeba {'English-German' if language == 'de' else 'English-French'}, short everyday sentences; cut into train, valid and test here",
        languages=("en", language),
        size="10 MB",
        licence="CC BY 2.0 FR, attribution: tatoeba.org and manythings.org/anki",
        texts=(Split(archive=_archive(f"https://www.manythings.org/anki/{code}-eng.zip"), member=f"{code}.txt"),),
        recipe=recipe,
    )


DATASETS: dict[str, Dataset] = {
    "wmt14-en-de": WMT14_EN_DE,
    "wmt14-en-fr": WMT14_EN_FR,
    "multi30k": MULTI30K,
    "tatoeba-en-de": _tatoeba("de", "deu", "tatoeba_en_de"),
    "tatoeba-en-fr": _tatoeba("fr", "fra", "tatoeba_en_fr"),
}
