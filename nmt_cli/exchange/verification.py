"""Verification: an exported folder computes the same as its source model.

    sentences ──▶ our tokenizer, the folder's ──▶ the same ids
              ──▶ our model, the folder's in fp32
                  ──▶ encoder states, logits of each greedy step, log-probabilities of the
                  output: within TOLERANCE; greedy outputs: the same tokens, the same text

A batch has sentences of several lengths, so masks are compared too. Our side runs the model itself with plain greedy
search: every step takes the largest logit of the tokens that are not banned. No sentence has more steps than its own
limit. The logits of one sentence at a time are in memory.

If the logits of our two best tokens differ by less than twice the tolerance, rounding may choose the other token. Such
a tie ends the comparison of this sentence, and is counted.

Where numbers differ in fp32, our model computes in float64 from there on: its own rounding must not look like a fault.

    B sentences   S source length   T target length   D d_model   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..console import progress
from ..data.tokenizer import BOS, EOS, ended
from ..errors import ModelError
from ..model.transformer import Transformer, attention_mask
from .exporter import BANNED, Output, Reader, SourceModel, padded_rows

TOLERANCE = 1e-4
"""Largest absolute difference that is allowed between two numbers."""
BATCH = 16
TOKENS = 1024
"""A batch has at most BATCH sentences and TOKENS source tokens with their padding, or one sentence."""
LEFT = "Do not use it; it was not deleted, so that you can look at it. Another version of the library may help."
LONGEST_OUTPUT = 50
"""Maximum number of tokens of a greedy output that are compared."""


@dataclass
class Verification:
    """The number of comparisons, and the largest differences."""

    sentences: int = 0
    lines: int = 0
    """Lines on which only the tokenizers were compared."""
    steps: int = 0
    ties: int = 0
    largest: dict[str, float] = field(default_factory=dict)
    """Name of a quantity -> largest absolute difference."""


@dataclass(frozen=True)
class ComparedSentence:
    """A sentence to compare, counted from 1, and its source ids."""

    number: int
    text: str
    source: list[int]

    def __str__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:60] + "…"
        return f"sentence {self.number} ({text!r})"


def verify(
    source_model: SourceModel,
    reader: Reader,
    texts: Sequence[str],
    what: str,
    remedy: str = LEFT,
    lines: Sequence[str] = (),
) -> Verification:
    """Compare what `reader` has loaded with the model on `texts`, and its tokenizer on `lines` too. Messages have its
    name, `what`, and a `remedy`. The model may be in float64 afterwards.

    Raises ModelError at the first difference.
    """
    verification = Verification(sentences=len(texts), lines=len(lines))
    compared = [*texts, *lines]
    try:
        end = source_model.recipe.model.source_end
        encoded = [ended(ids, end) for ids in source_model.vocabulary.source.encode(compared)]
        sentences = [ComparedSentence(*one) for one in zip(range(1, len(encoded) + 1), compared, encoded, strict=True)]
        for sentence, theirs in zip(sentences, reader.encode(compared), strict=True):
            if sentence.source != theirs:
                raise Difference(f"{sentence} is {sentence.source} to our tokenizer, {theirs} to the other one")
        sentences = sorted(sentences[: len(texts)], key=lambda sentence: len(sentence.source))
        with progress(len(sentences), "verifying", " sentences") as bar:
            for batch in _batches(sentences):
                before = replace(verification, largest={**verification.largest})
                try:
                    _verify_batch(source_model, reader, batch, verification)
                except Difference:
                    if source_model.model.embedding("source").dtype == torch.float64:
                        raise
                    source_model.model.double()  # fp32 may round large numbers by more than the tolerance
                    vars(verification).update(vars(before))
                    _verify_batch(source_model, reader, batch, verification)
                bar.update(len(batch))
    except Difference as difference:
        raise ModelError(f"{what} is not equal to the model: {difference}. {remedy}") from None
    return verification


class Difference(Exception):
    """The first difference between the two sides."""


def _batches(sentences: Sequence[ComparedSentence]) -> Iterator[list[ComparedSentence]]:
    """Yield batches of sentences, which are in order of length."""
    batch: list[ComparedSentence] = []
    for sentence in sentences:
        if batch and (len(batch) == BATCH or (len(batch) + 1) * len(sentence.source) > TOKENS):
            yield batch
            batch = []
        batch.append(sentence)
    if batch:
        yield batch


def _verify_batch(
    source_model: SourceModel, reader: Reader, batch: Sequence[ComparedSentence], verification: Verification
) -> None:
    sources, config = [sentence.source for sentence in batch], source_model.recipe
    most = min(config.model.max_positions - 1, LONGEST_OUTPUT)
    limits = [min(len(source) + config.decode.max_extra, most) for source in sources]
    ours = run(source_model.model, sources, limits)
    targets = [one.tokens if one.tokens[-1] == EOS else [*one.tokens, EOS] for one in ours]
    theirs = reader.run(sources, targets, max(limits))
    for sentence, limit, our, their in zip(batch, limits, ours, theirs, strict=True):
        compare(sentence, our.output(source_model.model), replace(their, tokens=their.tokens[:limit]), verification)
    rows = [one.tokens for one in ours]
    texts = source_model.vocabulary.target.decode(rows), reader.decode(rows)
    for sentence, our, our_text, their_text in zip(batch, ours, *texts, strict=True):
        if our_text.strip() != their_text.strip():
            raise Difference(f"{sentence}: the output {our.tokens} reads {our_text!r} here, {their_text!r} there")


@dataclass(frozen=True)
class Greedy:
    """What greedy search of our model computed for a sentence."""

    tokens: list[int]
    """With the end symbol if it was reached."""
    hidden: Tensor
    """(T, D), the decoder's state at each step."""
    states: Tensor
    """(S, D), the encoder's output."""

    @torch.inference_mode()
    def output(self, model: Transformer) -> Output:
        """Return the numbers of all steps: the logits of all tokens take much memory."""
        logits = model.logits(self.hidden)
        log_probs = logits.log_softmax(-1).gather(1, torch.tensor(self.tokens)[:, None])[:, 0]
        return Output(self.tokens, logits, log_probs, self.states)


@torch.inference_mode()
def run(model: Transformer, sources: Sequence[list[int]], limits: Sequence[int]) -> list[Greedy]:
    """Search greedily: the most likely token, step by step, up to the end symbol or the sentence's limit."""
    lengths = torch.tensor([len(row) for row in sources])
    src = padded_rows(sources)
    mask = attention_mask(lengths, src.size(1))
    states = model.encode(src, mask)
    memory = model.project_memory(states)
    caches, tokens = [_Cache() for _ in memory], torch.full((len(sources), 1), BOS)
    done = torch.tensor(limits) < 1
    hidden = []
    while not bool(done.all()):
        hidden.append(model.decode(tokens[:, -1:], memory, mask, caches, tokens.size(1) - 1))
        logits = model.logits(hidden[-1])[:, -1]
        logits[:, BANNED] = float("-inf")
        best = logits.argmax(-1)
        done |= (best == EOS) | (torch.tensor(limits) <= tokens.size(1))
        tokens = torch.cat([tokens, best[:, None]], 1)
    rows = [row[:limit] for row, limit in zip(tokens[:, 1:].tolist(), limits, strict=True)]
    outputs = [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]
    steps = torch.cat(hidden, 1)  # (B, T, D)
    return [
        Greedy(output, steps[index, : len(output)], states[index, : len(sources[index])])
        for index, output in enumerate(outputs)
    ]


class _Cache:
    """Keys and values of a layer for the tokens so far, (B, H, T, K)."""

    seen: tuple[Tensor, Tensor] | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.seen:
            keys, values = (torch.cat(both, 2) for both in zip(self.seen, (keys, values), strict=True))
        self.seen = keys, values
        return self.seen


def compare(sentence: ComparedSentence, ours: Output, theirs: Output, verification: Verification) -> None:
    """Raise Difference if the outputs for one sentence differ; else record the largest differences."""
    if ours.states is not None and theirs.states is not None:
        _within(verification, "encoder states", ours.states, theirs.states, f"{sentence}, encoder state at position")
    parted = next((step for step, (a, b) in enumerate(zip(ours.tokens, theirs.tokens, strict=False)) if a != b), None)
    steps = min(len(ours.logits), len(theirs.logits)) if parted is None else parted + 1
    allowed = slice(max(BANNED) + 1, ours.logits.size(1))
    logits = ours.logits[:steps, allowed], theirs.logits[:steps, allowed]
    _within(verification, "logits", *logits, f"{sentence}, logits at step")
    log_probs = ours.log_probs[:, None], theirs.log_probs[: len(ours.log_probs), None]
    _within(verification, "log-probabilities", *log_probs, f"{sentence}, log-probability at step")
    verification.steps += steps
    if parted is not None:
        a, b = ours.tokens[parted], theirs.tokens[parted]
        gap = float(ours.logits[parted, a] - ours.logits[parted, b])
        if not gap <= 2 * TOLERANCE:
            raise Difference(
                f"{sentence}, greedy output at step {parted + 1}: token {a} here, {b} there ({gap:.3g} below in "
                "our logits)"
            )
        verification.ties += 1
    elif len(ours.tokens) != len(theirs.tokens):
        raise Difference(f"{sentence}: greedy output has {len(ours.tokens)} tokens here, {len(theirs.tokens)} there")


def _within(verification: Verification, name: str, ours: Tensor, theirs: Tensor, where: str) -> None:
    """Raise Difference if numbers, (T, n), differ by more than TOLERANCE; else record the largest difference."""
    if ours.shape != theirs.shape:
        raise Difference(f"{where} 1: {tuple(ours.shape)} numbers here, {tuple(theirs.shape)} there")
    differences = (ours - theirs).abs_()
    largest = float(differences.max()) if differences.numel() else 0.0
    if not largest <= TOLERANCE:  # written so that NaN is wrong
        row, column = (~(differences <= TOLERANCE)).nonzero()[0].tolist()
        raise Difference(
            f"{where} {row + 1}: {float(ours[row, column]):.6g} here, {float(theirs[row, column]):.6g} there, "
            f"{TOLERANCE:g} apart at most were allowed"
        )
    verification.largest[name] = max(verification.largest.get(name, 0.0), largest)
