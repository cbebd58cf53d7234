"""Verification: an exported folder computes the same as its source model.

    sentences ──▶ our tokenizer, the folder's ──▶ the same ids
              ──▶ our model, the folder's in fp32
                  ──▶ encoder states, logits of each greedy step, log-probabilities of the
                  output: within TOLERANCE; greedy outputs: the same tokens, the same text

A batch has sentences of several lengths, so masks are compared too. Our side runs the model itself with plain greedy
search: every step takes the largest logit of the tokens that are not banned.

If the logits of our two best tokens differ by less than twice the tolerance, rounding may choose the other token. Such
a tie ends the comparison of this sentence, and is counted.

    B sentences   S source length   T target length   D d_model   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..console import progress
from ..data.tokenizer import BOS, EOS, PAD
from ..errors import ModelError
from ..model.transformer import Transformer, attention_mask
from .exporter import BANNED, Output, Reader, SourceModel

TOLERANCE = 1e-4
"""Largest absolute difference that is allowed between two numbers."""
BATCH = 16
LEFT = "Do not use it; it was not deleted, so that you can look at it. Another version of the library may help."
LONGEST_OUTPUT = 100
"""Maximum number of tokens of a greedy output that are compared."""


@dataclass
class Verification:
    """The number of comparisons, and the largest differences."""

    sentences: int = 0
    steps: int = 0
    ties: int = 0
    largest: dict[str, float] = field(default_factory=dict)
    """Name of a quantity -> largest absolute difference."""


@dataclass(frozen=True)
class Sentence:
    """A sentence to compare, counted from 1, and its source ids."""

    number: int
    text: str
    source: list[int]


def verify(
    source_model: SourceModel, reader: Reader, texts: Sequence[str], what: str, remedy: str = LEFT
) -> Verification:
    """Compare what `reader` has loaded with the model on `texts`. Messages have its name, `what`, and a `remedy`.

    Raises ModelError at the first difference.
    """
    verification = Verification(sentences=len(texts))
    try:
        sources = [[*ids, EOS] for ids in source_model.vocabulary.source.encode(texts)]
        for number, (text, ours, theirs) in enumerate(zip(texts, sources, reader.encode(texts), strict=True), 1):
            if ours != theirs:
                raise Difference(
                    f"sentence {number} ({_short(text)}) is {ours} to our tokenizer, {theirs} to the exported one"
                )
        sentences = sorted(
            (Sentence(*item) for item in zip(range(1, len(texts) + 1), texts, sources, strict=True)),
            key=lambda s: len(s.source),
        )
        with progress(len(sentences), "verifying", " sentences") as bar:
            for start in range(0, len(sentences), BATCH):
                batch = sentences[start : start + BATCH]
                _verify_batch(source_model, reader, batch, verification)
                bar.update(len(batch))
    except Difference as difference:
        raise ModelError(f"{what} is not equal to the model: {difference}. {remedy}") from None
    return verification


class Difference(Exception):
    """The first difference between the two sides."""


def _verify_batch(
    source_model: SourceModel, reader: Reader, batch: Sequence[Sentence], verification: Verification
) -> None:
    sources = [sentence.source for sentence in batch]
    limit = min(
        len(sources[-1]) + source_model.recipe.decode.max_extra,
        source_model.recipe.model.max_positions - 1,
        LONGEST_OUTPUT,
    )
    ours = run(source_model.model, sources, limit)
    targets = [output.tokens if output.tokens[-1] == EOS else [*output.tokens, EOS] for output in ours]
    theirs = reader.run(sources, targets, limit)
    texts = (
        [source_model.vocabulary.target.decode([output.tokens])[0] for output in ours],
        reader.decode([output.tokens for output in ours]),
    )
    for sentence, our, their, our_text, their_text in zip(batch, ours, theirs, *texts, strict=True):
        compare(sentence, our, their, verification)
        if our_text.strip() != their_text.strip():
            raise Difference(
                f"sentence {sentence.number} ({_short(sentence.text)}): the output {our.tokens} reads "
                f"{our_text!r} here, {their_text!r} there"
            )


@torch.inference_mode()
def run(model: Transformer, sources: Sequence[list[int]], limit: int) -> list[Output]:
    """Return our outputs: greedy search up to `limit` tokens, then the decoder once over its tokens and the end
    symbol.
    """
    lengths = torch.tensor([len(row) for row in sources])
    src = _padded(sources)
    mask = attention_mask(lengths, src.size(1))
    states = model.encode(src, mask)
    memory = model.project_memory(states)
    hypotheses = _greedy(model, memory, mask, limit)
    targets = [row if row[-1] == EOS else [*row, EOS] for row in hypotheses]
    logits = model.logits(model.decode(_padded([[BOS, *row[:-1]] for row in targets]), memory, mask))  # (B, T, V)
    outputs = []
    for index, (source, tokens, target) in enumerate(zip(sources, hypotheses, targets, strict=True)):
        rows = logits[index, : len(target)]
        log_probs = rows.log_softmax(-1).gather(1, torch.tensor(target)[:, None])[:, 0]
        outputs.append(Output(tokens, rows, log_probs, states[index, : len(source)]))
    return outputs


class _Cache:
    """Keys and values of a layer, (B, H, T, K)."""

    def __init__(self) -> None:
        self.seen: tuple[Tensor, Tensor] | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.seen is not None:
            keys, values = torch.cat([self.seen[0], keys], 2), torch.cat([self.seen[1], values], 2)
        self.seen = keys, values
        return self.seen


def _greedy(
    model: Transformer, memory: Sequence[tuple[Tensor, Tensor]], mask: Tensor | None, limit: int
) -> list[list[int]]:
    """Return the outputs of greedy search: the most likely token, step by step, up to the end symbol or `limit`
    tokens.
    """
    batch = memory[0][0].size(0)
    caches, tokens, done = [_Cache() for _ in memory], torch.full((batch, 1), BOS), torch.zeros(batch, dtype=torch.bool)
    while tokens.size(1) <= limit and not bool(done.all()):
        logits = model.logits(model.decode(tokens[:, -1:], memory, mask, caches, tokens.size(1) - 1))[:, -1]
        logits[:, BANNED] = float("-inf")
        best = logits.argmax(-1)
        tokens, done = torch.cat([tokens, best[:, None]], 1), done | (best == EOS)
    rows = tokens[:, 1:].tolist()
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]


def compare(sentence: Sentence, ours: Output, theirs: Output, verification: Verification) -> None:
    """Raise Difference if the outputs for one sentence differ; else record the largest differences."""
    where = f"sentence {sentence.number} ({_short(sentence.text)})"
    if ours.states is not None and theirs.states is not None:
        _within(verification, "encoder states", ours.states, theirs.states, f"{where}, encoder state at position")
    parted = next((step for step, (a, b) in enumerate(zip(ours.tokens, theirs.tokens, strict=False)) if a != b), None)
    steps = min(len(ours.logits), len(theirs.logits)) if parted is None else parted + 1
    allowed = torch.ones(ours.logits.size(1), dtype=torch.bool)
    allowed[list(BANNED)] = False
    their_logits = theirs.logits[:steps, : allowed.numel()][:, allowed]
    _within(verification, "logits", ours.logits[:steps, allowed], their_logits, f"{where}, logits at step")
    log_probs = ours.log_probs[:, None], theirs.log_probs[:, None]
    _within(verification, "log-probabilities", *log_probs, f"{where}, log-probability at step")
    verification.steps += steps
    if parted is not None:
        a, b = ours.tokens[parted], theirs.tokens[parted]
        gap = float(ours.logits[parted, a] - ours.logits[parted, b])
        if not gap <= 2 * TOLERANCE:
            raise Difference(
                f"{where}, greedy output at step {parted + 1}: token {a} here, {b} there ({gap:.3g} below in "
                "our logits)"
            )
        verification.ties += 1
    elif len(ours.tokens) != len(theirs.tokens):
        raise Difference(f"{where}: greedy output has {len(ours.tokens)} tokens here, {len(theirs.tokens)} there")


def _within(verification: Verification, name: str, ours: Tensor, theirs: Tensor, where: str) -> None:
    """Raise Difference if two numbers of `ours` and `theirs`, (T, n), differ by more than TOLERANCE; else record the
    largest difference.
    """
    if ours.shape != theirs.shape:
        raise Difference(f"{where} 1: {tuple(ours.shape)} numbers here, {tuple(theirs.shape)} there")
    differences = (ours - theirs).abs()
    wrong = (~(differences <= TOLERANCE)).nonzero()  # written so that NaN is wrong
    if len(wrong):
        row, column = wrong[0].tolist()
        raise Difference(
            f"{where} {row + 1}: {float(ours[row, column]):.6g} here, {float(theirs[row, column]):.6g} there, "
            f"{TOLERANCE:g} apart at most were allowed"
        )
    verification.largest[name] = max(
        verification.largest.get(name, 0.0), float(differences.max()) if differences.numel() else 0.0
    )


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
