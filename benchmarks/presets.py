"""What a preset of `nmt init` reaches on a part of a real corpus, taken for one's own text.

    python benchmarks/presets.py multi30k|tatoeba --data-dir DIR --pairs 10000 --out FOLDER [--time 1h] [--markdown]

So many pairs of the training text are drawn by a fixed seed. Then the commands of the README's path run: `nmt init` with the corpus's
own validation and test sets, `nmt preprocess`, `nmt train`, `nmt average`, `nmt translate`, `nmt score`. Everything is kept; the same
command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from common import print_rows
from trainings import OUTPUT_ERRORS, nmt, score, training_figures

from nmt_cli.lines import read_parallel
from nmt_cli.recipe_files import load_recipe

CORPORA = {
    "multi30k": ("train.{}.gz", "val.{}.gz", "test_2016_flickr.{}.gz"),
    "tatoeba": ("train.{}.gz", "valid.{}", "test.{}"),
}
"""English-German: the files of the training, validation and test text."""
LANGUAGES = ("en", "de")
SEED = 1


def draw(train: list[Path], pairs: int, stem: Path) -> list[Path]:
    """Write so many pairs to STEM.en and STEM.de; return these files. Raises SystemExit if there are too few."""
    all_pairs = list(read_parallel(train[:1], train[1:]))
    if len(all_pairs) < pairs:
        raise SystemExit(f"--pairs {pairs}: expected at most {len(all_pairs):,}, the pairs of {train[0]}")
    random.Random(SEED).shuffle(all_pairs)
    files = [stem.with_name(f"{stem.name}.{language}") for language in LANGUAGES]
    for file, lines in zip(files, zip(*all_pairs[:pairs], strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return files


def main() -> None:
    """Train a preset and print its row of the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--pairs", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--time", help="of `nmt init`")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args()
    name = f"{options.corpus}-{options.pairs}"
    options.out.mkdir(parents=True, exist_ok=True)
    log, recipe, run = options.out / "log", options.out / f"{name}.toml", options.out / "runs" / name
    train, valid, test = (
        [(options.data_dir / names.format(language)).resolve() for language in LANGUAGES]
        for names in CORPORA[options.corpus]
    )
    if not recipe.exists():
        sides = [f"--{of}{side}" for of in ("", "valid-", "test-") for side in ("source", "target")]
        files = [file.resolve() for file in (*draw(train, options.pairs, options.out / name), *valid, *test)]
        file_options = [part for side, file in zip(sides, files, strict=True) for part in (side, file)]
        nmt(log, "init", name, *file_options, *(["--time", options.time] if options.time else []), cwd=options.out)
    shards = options.out / "data" / name
    nmt(log, "preprocess", recipe, "--out", shards)
    nmt(log, "train", recipe, "--data", shards, "--run", run)
    if not (run / "averaged").exists():
        nmt(log, "average", run, "--out", run / "averaged")
    loaded, figures = load_recipe(str(recipe)), training_figures(run)
    row = [
        f"{options.pairs:,}",
        options.corpus,
        f"{loaded.model.encoder_layers} + {loaded.model.decoder_layers}, {loaded.model.d_model}",
        f"{figures['updates']:,}",
        f"{figures['minutes']:.0f}",
        f"{figures['nll']:.3f}",
    ]
    for part, (source, target) in (("valid", valid), ("test", test)):
        scores = score(log, run / "averaged", run / part, [source], [target], [])
        errors = " / ".join(str(scores[error]) for error in OUTPUT_ERRORS)
        row += [f"{scores['bleu']:.2f}", f"{scores['chrf']:.2f}", errors]
    errors_head = " / ".join(OUTPUT_ERRORS)
    print_rows(
        [
            [
                "pairs",
                "corpus",
                "layers, d_model",
                "updates",
                "minutes",
                "NLL",
                "BLEU, valid",
                "chrF",
                errors_head,
                "BLEU, test",
                "chrF",
                errors_head,
            ],
            row,
        ],
        options.markdown,
    )


if __name__ == "__main__":
    main()
