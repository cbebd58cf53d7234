"""Which checkpoint of a small corpus is the best one, and which length penalty: ten corpora in several scripts, with one rule.

    python benchmarks/choices.py --catalogues FOLDER --data-dir DATA --out OUT [--only gimp …] [--seeds 1,2] [--markdown]

FOLDER holds Debian's packages of CORPORA, unpacked: FOLDER/PACKAGE/usr/share/locale/…; their catalogues of messages are the texts.
DATA holds the folders multi30k, tatoeba-en-de, tatoeba-en-fr and wmt-newstest. From each, so many pairs are drawn as CORPORA says
and up to 1,000 others, with other source lines, are the test set. `nmt init` holds out the validation set.

For each corpus the run keeps all checkpoints. The first table has BLEU and chrF of the test set for the checkpoint with the lowest
NLL, with the highest chrF of the validation set, that which training chooses, the last one, the average, the model that `nmt average`
leaves in RUN/averaged, and that with the highest chrF of the test set. The second has them for several length penalties.
Everything is kept: the same command goes on where an earlier one was stopped. `fixed` are those on which the rule was fixed.
"""

from __future__ import annotations

import argparse
import gettext
import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from common import nmt, print_rows, sets

import nmt_cli
from nmt_cli.evaluation.tokenizers import default_tokenizer
from nmt_cli.text.lines import read_parallel
from nmt_cli.training.checkpoint import best_of
from nmt_cli.training.run import RunFolder

PENALTIES = [("gnmt", 0.6), ("gnmt", 1.0), *(("power", alpha) for alpha in (0.6, 0.8, 1.0, 1.2)), ("gnmt", 2.0)]
Pairs = list[tuple[str, str]]
Scores = tuple[float, float]


class Corpus(NamedTuple):
    """A corpus: its languages, where its pairs come from, how many of them are for training and validation."""

    source: str
    target: str
    files: Sequence[str]
    """A catalogue of messages, or files with the languages in braces below the folder of the data."""
    pairs: int
    fixed: bool = False


CORPORA = {
    "gimp": Corpus("en", "ja", ["gimp-data/usr/share/locale/ja/LC_MESSAGES/gimp20.mo"], 2000, True),
    "tatoeba-de": Corpus("en", "de", ["tatoeba-en-de/train.{}.gz"], 8000, True),
    "krita": Corpus("en", "ru", ["krita-l10n/usr/share/locale/ru/LC_MESSAGES/krita.mo"], 6000, True),
    "captions": Corpus("en", "fr", ["multi30k/train.{}.gz"], 4000, True),
    "vlc": Corpus("en", "zh", ["vlc-l10n/usr/share/locale/zh_CN/LC_MESSAGES/vlc.mo"], 3000, True),
    "gnucash": Corpus("en", "ko", ["gnucash-common/usr/share/locale/ko/LC_MESSAGES/gnucash.mo"], 2500),
    "evolution": Corpus("en", "ar", ["evolution-common/usr/share/locale/ar/LC_MESSAGES/evolution.mo"], 3000),
    "tatoeba-fr": Corpus("fr", "en", ["tatoeba-en-fr/train.{}.gz"], 8000),
    "news": Corpus("en", "de", [f"wmt-newstest/newstest{year}.{{}}.gz" for year in range(2008, 2013)], 4000),
    "audacity": Corpus("en", "hi", ["audacity-data/usr/share/locale/hi/LC_MESSAGES/audacity.mo"], 1500),
}


def pairs_of(corpus: Corpus, catalogues: Path, data: Path) -> Pairs:
    """Return the pairs of a corpus, each once."""
    pairs: Pairs = []
    for name in corpus.files:
        if name.endswith(".mo"):
            with (catalogues / name).open("rb") as stream:
                messages = vars(gettext.GNUTranslations(stream))["_catalog"]
            for key, translation in messages.items():
                message, form = key if isinstance(key, tuple) else (key, 0)
                if form == 0:
                    pairs.append((" ".join(message.split("\x04")[-1].split()), " ".join(translation.split())))
        else:
            source_file, target_file = (data / name.format(side) for side in (corpus.source, corpus.target))
            pairs += [(s.strip(), t.strip()) for s, t in read_parallel([source_file], [target_file])]
    return [(s, t) for s, t in dict.fromkeys(pairs) if s and t and s != t and len(s) < 400]


def write(folder: Path, corpus: Corpus, pairs: Pairs) -> None:
    """Write the text for `nmt init` and the test set."""
    random.Random(5).shuffle(pairs)
    known = {source for source, _ in pairs[: corpus.pairs]}
    tests = [pair for pair in pairs[corpus.pairs :] if pair[0] not in known][:1000]
    for name, chosen in (("text", pairs[: corpus.pairs]), ("test", tests)):
        for side, language in enumerate((corpus.source, corpus.target)):
            lines = "".join(f"{pair[side]}\n" for pair in chosen)
            (folder / f"{name}.{language}").write_text(lines, encoding="utf-8")


def train(folder: Path, corpus: Corpus, seed: int) -> Path:
    """Train as a newcomer would, and keep all checkpoints. Return the run folder."""
    log = folder / "log"
    options = list[str]()
    for side, language in (("source", corpus.source), ("target", corpus.target)):
        options += [f"--{side}", f"text.{language}", f"--test-{side}", f"test.{language}"]
    run = folder / f"runs/{seed}"
    if not (folder / "mine.toml").exists():
        nmt(log, "init", "mine", *options, cwd=folder)
    if not (folder / "data").exists():
        nmt(log, "preprocess", "mine.toml", cwd=folder)
    if not (run / "averaged").exists():
        changes = sets([f"train.seed={seed}", "train.keep=1000"])
        nmt(log, "train", "mine.toml", "--run", run, *changes, cwd=folder)
        nmt(log, "average", run, cwd=folder)
        nmt(log, "average", run, "--out", run / "mean", cwd=folder)
    return run


def scorer(folder: Path, corpus: Corpus) -> Callable[..., Scores]:
    """Return a function: model folder, length penalty → BLEU and chrF of the test set."""
    sides = (folder / f"test.{side}" for side in (corpus.source, corpus.target))
    source, target = (side.read_text("utf-8").splitlines() for side in sides)
    tokenizer = default_tokenizer(corpus.target, target)

    def scores(model: Path, length_penalty: str | None = None, alpha: float | None = None) -> Scores:
        with nmt_cli.load(model, device="cpu", precision="fp32") as translator:
            found = translator.translate(source, length_penalty=length_penalty, alpha=alpha)
            texts = [translation.text for translation in found]
        scored = nmt_cli.evaluate(texts, [target], metrics=["bleu", "chrf"], tokenize=tokenizer).scores()
        return scored["bleu"].value, scored["chrf"].value

    return scores


def choices(run: Path, scores: Callable[[Path], Scores]) -> Mapping[str, tuple[str, Scores]]:
    """Return for each way of choosing a model its name, and its scores on the test set."""
    checkpoints = [c for c in RunFolder(run).checkpoints() if c.metrics.get("nll") is not None]
    tests = {c.folder: scores(c.folder) for c in checkpoints[len(checkpoints) // 6 :]}
    chosen = {
        "NLL": min(checkpoints, key=lambda c: c.metrics["nll"]).folder,
        "chrF": max(checkpoints, key=lambda c: c.metrics.get("chrf") or 0).folder,
        "chosen": best_of(checkpoints, "chrf")[0].folder,
        "last": checkpoints[-1].folder,
        "average": run / "mean",
        "RUN/averaged": run / "averaged",
        "best of test": max(tests, key=lambda folder: tests[folder][1]),
    }
    return {name: (folder.name, tests.get(folder) or scores(folder)) for name, folder in chosen.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--catalogues", "--data-dir", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    tables: list[list[list[str]]] = [[], []]
    for name in arguments.only:
        corpus, folder = CORPORA[name], (arguments.out / name).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / f"test.{corpus.target}").exists():
            write(folder, corpus, pairs_of(corpus, arguments.catalogues, arguments.data_dir))
        scores = scorer(folder, corpus)
        for seed in map(int, arguments.seeds.split(",")):
            result = folder / f"result-{seed}.json"
            if not result.exists():
                run = train(folder, corpus, seed)
                averaged = partial(scores, run / "averaged")
                penalties = {f"{kind} {a}": averaged(length_penalty=kind, alpha=a) for kind, a in PENALTIES}
                result.write_text(json.dumps([choices(run, scores), penalties]), encoding="utf-8")
            chosen, by_penalty = json.loads(result.read_text(encoding="utf-8"))
            label = f"{name}, {corpus.source}-{corpus.target}, {corpus.pairs:,}{', fixed' * corpus.fixed}"
            tables[0].append([label, *(f"{b:.2f} / {c:.2f}" for _, (b, c) in chosen.values())])
            tables[1].append([label, *(f"{b:.2f} / {c:.2f}" for b, c in by_penalty.values())])
            heads = ["corpus", *chosen], ["corpus", *by_penalty]
    for head, rows in zip(heads, tables, strict=True):
        print_rows([head, *rows], arguments.markdown)


if __name__ == "__main__":
    main()
