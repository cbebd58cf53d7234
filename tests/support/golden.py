"""What fixed small models give for fixed lines, with every feature of a model, every search and every option, in fp32.

    python tests/support/golden.py        # writes tests/fixtures/golden anew, by torch's operators alone

MODELS   name → features of [model]; the weights are drawn by NumPy, so that they are the same on every machine
CASES    name → models (several: an ensemble) and options
outputs  a case → for each of the 500 LINES its output: score, text, and what else the option asks for

A change of nmt that alters an output writes the files anew, and says why. Vocabularies are files that stay: another version of
SentencePiece may learn another one from the same text.
"""

import lzma
import os
import random
import tempfile
import zlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch
from untrained import WORDS, sentence

import nmt_cli as nmt
from nmt_cli.model.folder import weights_of
from nmt_cli.model.parameters import TABLES
from nmt_cli.model.transformer import ABSENT, BOS, NO_PROBABILITY, Transformer
from nmt_cli.model.weights import write_model
from nmt_cli.recipe import DataSection, DecodeSection, ModelSection, Recipe

FOLDER = Path(__file__).parents[1] / "fixtures" / "golden"
JOINT, TREES = "tokenizer.model", "trees.model"
SOURCE, TARGET_WORDS = "tokenizer.source.model", "tokenizer.target.model"
GAIN = 2.0
"""Of random maps, so that an output depends on every word of its line; and of the last norm of a pre-norm decoder, so that probabilities are as far
from each other as those of a trained model."""
TOLERANCE = 1e-4
"""Of scores and probabilities."""
NOISE, TRIES = 1e-6, 12
"""Relative size of the noise that `near_ties` adds to weights, and how often it tries."""

SMALL = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 32, "d_ff": 48, "num_heads": 4, "max_positions": 48}
MODELS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre": {"residual": "pre"},
    "gelu": {"activation": "gelu"},
    "silu": {"activation": "silu"},
    "swiglu": {"activation": "swiglu", "residual": "pre"},
    "rms": {"norm": "rms"},
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary", "residual": "pre"},
    "heads": {"num_heads": 2, "d_k": 6, "d_v": 10},
    "untied": {"tie_embeddings": False},
    "marian": {"positions": "marian", "output_bias": True, "zero_start": True, "norm_epsilon": 1e-6},
    "two": {"tie_embeddings": False, "residual": "pre", "norm": "rms", "activation": "swiglu", "positions": "rotary"},
    "parser": {"tie_embeddings": False},
    "monotonic": {"tie_embeddings": False, "monotonic_attention": True, "residual": "pre"},
}
"""`two` has a vocabulary for each side; the last two write trees."""


@dataclass(frozen=True)
class Case:
    """Models, the options of `Translator.translate`, and what each line has besides its text."""

    models: tuple[str, ...] = ("two",)
    options: dict[str, Any] = field(default_factory=dict)
    lines: str = "plain"
    """`plain`; `prefix` or `terms`: lines that ask for them; `score`: log P of a given translation; `parse`."""


CASES = {
    **{f"model-{name}": Case((name,), {"alignment": True}) for name in list(MODELS)[:-2]},
    "parse": Case(("parser",), lines="parse"),
    "parse-monotonic": Case(("monotonic",), lines="parse"),
    "ensemble": Case(("rotary", "pre"), {"alignment": True}),
    "greedy": Case(options={"beam": 1}),
    "nbest": Case(options={"beam": 6, "nbest": 6}),
    "alpha-0": Case(options={"alpha": 0.0}),
    "alpha-2": Case(options={"alpha": 2.0}),
    "average": Case(options={"length_penalty": "average"}),
    "none": Case(options={"length_penalty": "none"}),
    "power": Case(options={"length_penalty": "power", "alpha": 0.8}),
    "words": Case(options={"word_penalty": -0.3, "nbest": 2}),
    "longest": Case(options={"max_extra": 2, "max_len_ratio": 0.5}),
    "shortest": Case(options={"min_length": 9}),
    "diverse": Case(
        options={"search": "diverse", "beam": 6, "diverse_groups": 3, "diversity_penalty": 0.7, "nbest": 3}
    ),
    "sample": Case(options={"sample": True, "seed": 5, "nbest": 2}),
    "sample-top": Case(options={"sample": True, "seed": 6, "top_k": 20, "top_p": 0.9, "temperature": 1.5}),
    "sample-min": Case(options={"sample": True, "seed": 7, "min_p": 0.05}),
    "mbr-chrf": Case(options={"search": "mbr", "mbr_samples": 4, "seed": 8}),
    "mbr-bleu": Case(options={"search": "mbr", "mbr_samples": 4, "mbr_utility": "bleu", "mbr_candidates": "beam"}),
    "prefix": Case(lines="prefix"),
    "terms": Case(lines="terms"),
    "no-repeat": Case(options={"no_repeat_ngram": 2}),
    "repetition": Case(options={"repetition_penalty": 1.3}),
    "banned": Case(options={"banned_words": ["tac", "der"]}),
    "outputs": Case(options={"outputs": ["eht tac .sees", "a god", "eht esuoh rednu a gib .god"]}),
    "confidence": Case(options={"confidence": True}),
    "score": Case(lines="score"),
}


def lines() -> list[str]:
    """500 lines: words of the vocabulary, other words, other scripts, blank and long lines."""
    rng = random.Random(42)
    found = [sentence(rng, rng.randint(1, 12)) for _ in range(440)]
    found += [" ".join(rng.choices([*WORDS, "Zebra", "naïve", "42", "(x)", "A.B."], k=6)) for _ in range(30)]
    found += [
        rng.choice(["дом", "猫", "が", "بيت", "ไม้", "é́", "😀", "<x>"]) + " " + sentence(rng, 3) for _ in range(20)
    ]
    found += [sentence(rng, 60) for _ in range(4)] + ["", " ", ".", "a", "\u00a0the  cat ", "cat" * 30]
    rng.shuffle(found)
    return found


LINES = lines()
TREE_LINES = [" ".join(line.split()[:7]) for line in LINES]


def outputs(case: Case, folder: Path, noise: int = 0) -> list[str]:
    """Return for each line its output as text. `folder` has the models that were made so far. `noise`: see `write`."""
    models = [folder / f"{name}-{noise}" for name in case.models]
    for path, name in zip(models, case.models, strict=True):
        if not path.exists():
            write(path, name, noise)
    with nmt.load(models, device="cpu", devices=1, precision="fp32") as translator:
        if case.lines == "parse":
            return [str(parse) for parse in translator.parse(TREE_LINES, tokenized=True, **case.options)]
        if case.lines == "score":
            pairs = zip(LINES, [*LINES[1:], LINES[0]], strict=True)
            return [_number(scored.log_prob) for scored in translator.score(pairs)]
        rng = random.Random(1)
        given = [
            nmt.Line(
                line,
                prefix=rng.choice(["eht ", "tac der", "g"]) if case.lines == "prefix" else None,
                terms=rng.choice([("god",), ("tac|der", "esu*")]) if case.lines == "terms" else (),
            )
            for line in LINES
        ]
        return [_text(translation) for translation in translator.translate(given, **case.options)]


def _text(translation: nmt.Translation) -> str:
    fields = [part for one in translation.nbest for part in (_number(one.score), one.text)]
    if translation.alignment is not None:
        fields.append(" ".join(f"{i}-{j}" for i, j in translation.alignment))
    if translation.words is not None:
        fields += [_number(word.probability) for word in translation.words]
        fields.append(_number(translation.quality or 0.0))
    return "\t".join(fields)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.5f}"


def differences(found: list[str], expected: list[str]) -> list[int]:
    """Return the lines whose outputs differ: in texts, or in numbers by more than TOLERANCE."""
    assert len(found) == len(expected) == len(LINES)
    pairs = zip(found, expected, strict=True)
    return [number for number, (a, b) in enumerate(pairs) if not _same(a.split("\t"), b.split("\t"))]


def _same(one: list[str], other: list[str]) -> bool:
    return len(one) == len(other) and all(a == b or _close(a, b) for a, b in zip(one, other, strict=True))


def _close(one: str, other: str) -> bool:
    """Whether both are numbers that differ by rounding only. Utilities are 0 to 100, and may differ by 100 times as much."""
    try:
        return abs(float(one) - float(other)) <= TOLERANCE * (100 if float(one) > 1 else 1)
    except ValueError:
        return False


def near_ties(name: str, folder: Path, lines: list[int]) -> list[int]:
    """Return those of these lines where rounding decides: with some noise in the weights, a line has the expected output."""
    expected, left = read(name), set(lines)
    for noise in range(1, TRIES + 1):
        if left:
            left &= set(differences(outputs(CASES[name], folder, noise), expected))
    return [line for line in lines if line not in left]


def read(name: str) -> list[str]:
    """Return the expected outputs of a case."""
    return lzma.decompress((FOLDER / f"{name}.xz").read_bytes()).decode().split("\n")[:-1]


def write(folder: Path, name: str, noise: int = 0) -> None:
    """Make `folder` the model folder of MODELS[name]. Each `noise` above 0 changes all weights a little, as rounding does."""
    trees = name in ("parser", "monotonic")
    two = {SOURCE: SOURCE, TARGET_WORDS: TREES if trees else TARGET_WORDS} if trees or name == "two" else {JOINT: JOINT}
    recipe = Recipe(data=_data(trees, len(two) == 2), model=ModelSection(**{**SMALL, **MODELS[name]}), decode=DECODE)
    content = {to: (FOLDER / file).read_bytes() for to, file in two.items()}
    sizes = [_size(model) for model in content.values()]
    vocabularies = sizes[0], sizes[-1]
    weights = weights_of(Transformer(recipe.model, *vocabularies))
    drawn = {
        key: weight if key.startswith(TABLES) else _drawn(f"{name} {key}", weight, noise)
        for key, weight in weights.items()
    }
    if recipe.model.zero_start:
        drawn["embeddings.shared"][BOS] = 0
        drawn["output_bias"][list(ABSENT)] = NO_PROBABILITY
    folder.mkdir(parents=True)
    write_model(folder, drawn, recipe, vocabularies, content, {})


def _drawn(name: str, weight: torch.Tensor, noise: int) -> torch.Tensor:
    """Return random weights of the same shape. They depend on the name and the noise alone."""
    rng = numpy.random.RandomState(zlib.crc32(name.encode()))
    values = rng.standard_normal(tuple(weight.shape))
    if noise:
        rng = numpy.random.RandomState(zlib.crc32(f"{name} {noise}".encode()))
        values *= 1 + NOISE * rng.standard_normal(tuple(weight.shape))
    normal = torch.from_numpy(values).float()
    if weight.dim() == 1:
        return (GAIN if name.endswith("decoder_norm.weight") else "norm.weight" in name) + 0.1 * normal
    return normal * (1.0 if "embeddings" in name else GAIN) / float(weight.shape[-1] ** 0.5)


DECODE = DecodeSection(max_extra=6, beam=4, placeholders=False)


def _data(trees: bool, two: bool) -> DataSection:
    of_target: dict[str, Any] = {"target_vocab_size": 90} if two else {}
    if trees:
        of_target = {"target_vocab_size": 40, "target_tokenization": "words", "terminals": "tags"}
    return DataSection(
        **of_target,
        generator="teaching",
        vocab_size=100,
        max_length=40,
        joint_vocab=not two,
        byte_fallback=False,
        normalization="identity",
    )


@cache
def _size(model: bytes) -> int:
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_proto=model).get_piece_size()


def main() -> None:
    """Write the files anew."""
    os.environ["NMT_ENGINE"] = "off"
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            found = outputs(case, Path(folder))
            (FOLDER / f"{name}.xz").write_bytes(
                lzma.compress("".join(f"{line}\n" for line in found).encode(), preset=9)
            )
            print(name, len(found), flush=True)


if __name__ == "__main__":
    main()
