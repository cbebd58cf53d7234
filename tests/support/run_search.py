"""Run a search over the sentences that a decoder holds."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from small_models import searched

from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK
from nmt_cli.search.beam_search import BeamSearch
from nmt_cli.search.protocols import Decoder, GrowingDecoder
from nmt_cli.search.sampling import SamplingSearch
from nmt_cli.search.search import Search, SearchOptions
from nmt_cli.search.sentence import Hypothesis, Sentence

ALPHA = 0.6


def search_options(beam: int, **more: Any) -> SearchOptions:
    """Return options with as many hypotheses per sentence as the beam has, unless `more` says otherwise."""
    symbols = {"bos": BOS, "eos": EOS, "banned_tokens": (PAD, UNK, BOS)}
    return SearchOptions(**{"beam": beam, "nbest": beam, "alpha": ALPHA, **symbols, **more})


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


class Whole:
    """A search that adds its sentences to its decoder too."""

    def __init__(self, search: Search, decoder: GrowingDecoder | None) -> None:
        self.search, self.decoder = search, decoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.search, name)

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        if self.decoder:
            self.decoder.add([[*sentence.tokens, EOS] for sentence in sentences])
        self.search.add(sentence_ids, sentences)


def over(new: Callable[[], GrowingDecoder], options: SearchOptions, kind: Callable[..., Search] = BeamSearch) -> Search:
    """A search over a new decoder."""
    decoder = new()
    return cast(Search, Whole(kind(decoder, options), decoder))


def run_to_end(search: Search, sentences: Sequence[Sentence]) -> list[list[Hypothesis]]:
    """Return the hypotheses of each sentence that the decoder of a new search holds; see `Search.add`."""
    return searched(search, sentences)


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
