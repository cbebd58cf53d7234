"""Run a search over the sentences that a decoder holds."""

from __future__ import annotations

from collections.abc import Sequence

from nmt_cli.search.beam_search import BeamSearch
from nmt_cli.search.protocols import Decoder
from nmt_cli.search.sampling import SamplingSearch
from nmt_cli.search.search import SearchOptions, StepSearch
from nmt_cli.search.sentence import Hypothesis, Sentence


def beam_search(
    decoder: Decoder,
    max_lengths: Sequence[int],
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Return the `nbest` best hypotheses of each sentence."""
    return run_to_end(BeamSearch(decoder, options), plain_sentences(max_lengths, prefixes))


def sample(
    decoder: Decoder,
    max_lengths: Sequence[int],
    options: SearchOptions,
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Return `options.beam` samples of each sentence, the best `options.nbest` of them."""
    return run_to_end(SamplingSearch(decoder, options), plain_sentences(max_lengths, prefixes, sources))


def run_to_end(search: StepSearch, sentences: Sequence[Sentence]) -> list[list[Hypothesis]]:
    """Return the hypotheses of each sentence that the decoder of a new search holds; see `Search.add`."""
    search.add(range(len(sentences)), sentences)
    results = dict[int, list[Hypothesis]]()
    while search.busy:
        results.update(search.step())
    return [results[number] for number in range(len(sentences))]


def plain_sentences(
    max_lengths: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
    sources: Sequence[Sequence[int]] | None = None,
) -> list[Sentence]:
    """Return sentences with these largest output lengths (B,), prefixes and source tokens."""
    none: list[Sequence[int]] = [()] * len(max_lengths)
    return [
        Sentence(tokens, longest, {"prefix": prefix} if prefix else {})
        for tokens, longest, prefix in zip(sources or none, max_lengths, prefixes or none, strict=True)
    ]
