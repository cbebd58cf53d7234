"""WMT 2014, English-German and English-French: statmt.org/wmt14/translation-task.html.

The checksums of the large archives come from TensorFlow Datasets (url_checksums/wmt14_translate.txt). Those of the
second addresses come from Hugging Face's dataset_infos.json for wmt14, and those of the test sets from sacrebleu. None
means that no checksum is published.
"""

from __future__ import annotations

from .dataset import Archive, Dataset, Joined, Source, archive, within

STATMT = "https://www.statmt.org"
SECOND = "https://huggingface.co/datasets/wmt"
"""The second address, which has the same files as .zip."""

KnownFile = tuple[str | None, int | None]
"""Checksum and size of an archive; None: not published."""


def _archive(path: str, first: KnownFile, second: KnownFile) -> Archive:
    """Return the archive at `path` of STATMT; the .zip at the second address has another checksum and size."""
    folder, name = path.split("/")
    zipped = f"{SECOND}/{folder}/resolve/main-zip/{name.partition('.')[0]}.zip"
    return archive(f"{STATMT}/{path}", *first, Source(url=zipped, digest=second[0], size=second[1]))


def _test(name: str, language: str, lines: int, archive: Archive, path: str) -> Joined:
    """Return a test set of English and `language`; `path` is the beginning of its files in the archive."""
    parts = (within(archive, f"{path}-src.en.sgm", f"{path}-ref.{language}.sgm"),)
    return Joined(files=(f"{name}.en", f"{name}.{language}"), lines=lines, parts=parts)


EUROPARL = _archive(
    "wmt13/training-parallel-europarl-v7.tgz",
    ("sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7", 657_632_379),
    ("sha256:5b2d8b32c2396da739b4e731871c597fcc6e75729becd74619d0712eecf7770e", 658_092_427),
)
COMMON_CRAWL = _archive(
    "wmt13/training-parallel-commoncrawl.tgz",
    ("sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5", 918_311_367),
    ("sha256:5ffe980072ea29adfd84568d099bea366d9f72772b988e670794ae851b4e5627", 918_734_483),
)
NEWS_COMMENTARY = _archive(
    "wmt14/training-parallel-nc-v9.tgz",
    ("sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485", 80_418_416),
    ("sha256:ce199f93ec56ff480137ba29f0819f9a22e70d88be6d7458f112303d67d623d5", 80_462_375),
)
UNITED_NATIONS = _archive(
    "wmt13/training-parallel-un.tgz",
    (None, None),
    ("sha256:74f07002e053c81bc7f73b4fdab58e7987e831338748f264cbda82a8b062d2e2", 2_366_237_633),
)
GIGA_FREN = _archive(
    "wmt10/training-giga-fren.tar",
    (None, 2_595_102_720),
    ("sha256:9439f86523e5dff3f923526dbf6c6929da1786c18dbf64436d2b7564b83aaba3", 2_595_877_717),
)
DEV = archive(f"{STATMT}/wmt14/dev.tgz")
TEST_FULL = archive(f"{STATMT}/wmt14/test-full.tgz", "md5:a8cd784e006feb32ac6f3d9ec7eb389a")
TEST_FILTERED = archive(f"{STATMT}/wmt14/test-filtered.tgz", "md5:84c597844c1542e29c2aff23aaee4310")

EN_DE = Dataset(
    title="WMT 2014 English-German, the paper's: Europarl v7, Common Crawl, News Commentary v9; newstest2013, 2014",
    languages=("en", "de"),
    size="1.7 GB",
    licence="free for research, see statmt.org/wmt14",
    texts=(
        _test("newstest2013", "de", 3000, DEV, "dev/newstest2013"),
        _test("newstest2014", "de", 3003, TEST_FULL, "test-full/newstest2014-deen"),
        _test("newstest2014-filtered", "de", 2737, TEST_FILTERED, "test/newstest2014-deen"),
        Joined(
            files=("train.en.gz", "train.de.gz"),
            training=True,
            parts=(
                within(EUROPARL, "training/europarl-v7.de-en.en", "training/europarl-v7.de-en.de"),
                within(COMMON_CRAWL, "commoncrawl.de-en.en", "commoncrawl.de-en.de"),
                within(NEWS_COMMENTARY, "training/news-commentary-v9.de-en.en", "training/news-commentary-v9.de-en.de"),
            ),
        ),
    ),
    recipe="wmt14_en_de_base",
)

EN_FR = Dataset(
    title="WMT 2014 English-French, the paper's: Europarl v7, Common Crawl, UN, News Commentary v9, 10^9; "
    "newstest2013, 2014",
    languages=("en", "fr"),
    size="6.6 GB",
    licence="free for research, see statmt.org/wmt14",
    texts=(
        _test("newstest2013", "fr", 3000, DEV, "dev/newstest2013"),
        _test("newstest2014", "fr", 3003, TEST_FULL, "test-full/newstest2014-fren"),
        Joined(
            files=("train.en.gz", "train.fr.gz"),
            training=True,
            parts=(
                within(EUROPARL, "training/europarl-v7.fr-en.en", "training/europarl-v7.fr-en.fr"),
                within(COMMON_CRAWL, "commoncrawl.fr-en.en", "commoncrawl.fr-en.fr"),
                within(UNITED_NATIONS, "un/undoc.2000.fr-en.en", "un/undoc.2000.fr-en.fr"),
                within(NEWS_COMMENTARY, "training/news-commentary-v9.fr-en.en", "training/news-commentary-v9.fr-en.fr"),
                within(GIGA_FREN, "giga-fren.release2.fixed.en.gz", "giga-fren.release2.fixed.fr.gz"),
            ),
        ),
    ),
    recipe="wmt14_en_fr_base",
)
