"""Multi30k, English image captions and their German and French translations: github.com/multi30k/dataset, task 1.

The checksums belong to the commit in ADDRESS.
"""

from __future__ import annotations

from .dataset import Dataset, Joined, PairedFiles, archive

ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1"
LINES = {"train": 29_000, "val": 1014, "test_2016_flickr": 1000, "test_2017_flickr": 1000, "test_2017_mscoco": 461}
SHA256SUMS = """\
d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f  raw/train.en.gz
726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6  raw/train.de.gz
14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28  raw/val.en.gz
f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a  raw/val.de.gz
611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9  raw/test_2016_flickr.en.gz
9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8  raw/test_2016_flickr.de.gz
76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074  raw/test_2017_flickr.en.gz
a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee  raw/test_2017_flickr.de.gz
622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c  raw/train.fr.gz
ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9  raw/val.fr.gz
6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90  raw/test_2016_flickr.fr.gz
3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496  raw/test_2017_flickr.fr.gz
08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119  tok/train.lc.norm.tok.en
cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505  tok/train.lc.norm.tok.de
46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec  tok/val.lc.norm.tok.en
97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00  tok/val.lc.norm.tok.de
5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2  tok/test_2016_flickr.lc.norm.tok.en
c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4  tok/test_2016_flickr.lc.norm.tok.de
c9d1dfd7a26add989382e534af235af9f0f658b2a30e7eb0efdaf142496ee54f  tok/test_2017_flickr.lc.norm.tok.en
02067e4a9402786a4fcb8c1b6f4307e4a5073ced64800abead5273b54f5f31f6  tok/test_2017_flickr.lc.norm.tok.de
"""
"""What sha256sum prints for the files at ADDRESS."""
SHA256 = {file: digest for digest, file in (line.split() for line in SHA256SUMS.splitlines())}


def _text(split: str, target: str, name: str, file: str) -> Joined:
    """Return the text of `split` from files `name` at ADDRESS, to write as `file`; both have {} for the language."""
    sides = [name.format(language) for language in ("en", target)]
    archives = [archive(f"{ADDRESS}/{side}", f"sha256:{SHA256[side]}" if side in SHA256 else None) for side in sides]
    return Joined(
        files=(file.format("en"), file.format(target)),
        parts=(PairedFiles((archives[0], ""), (archives[1], "")),),
        lines=LINES[split],
    )


def _raw(target: str) -> tuple[Joined, ...]:
    return tuple(_text(split, target, f"raw/{split}.{{}}.gz", f"{split}.{{}}.gz") for split in LINES)


EN_DE = Dataset(
    title="Multi30k English-German image captions: raw, and the data set's own tokenised lower-cased text in tok/",
    languages=("en", "de"),
    size="6 MB",
    licence="research and education, non-commercial",
    texts=(
        *_raw("de"),
        *(_text(split, "de", f"tok/{split}.lc.norm.tok.{{}}", f"tok/{split}.lc.norm.tok.{{}}.gz") for split in LINES),
    ),
    recipe="multi30k_en_de",
)
EN_FR = Dataset(
    title="Multi30k English-French image captions, raw",
    languages=("en", "fr"),
    size="2 MB",
    licence="research and education, non-commercial",
    texts=_raw("fr"),
    recipe="multi30k_en_fr",
)
