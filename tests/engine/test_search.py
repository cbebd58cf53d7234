"""The engine's beam search finds what `BeamSearch` finds step by step, and a sentence's result depends on nothing else."""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from run_search import over
from small_models import OPTIONS, VOCABULARY, needs_engine, searched, small, sources
from waiting import LIMIT

from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.engine.model import use_threads
from nmt_cli.errors import ModelError
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.beam_search import BeamSearch
from nmt_cli.search.engine import EngineDecoder, EngineSearch
from nmt_cli.search.length_penalties import average, none
from nmt_cli.search.search import SearchOptions
from nmt_cli.search.sentence import Hypothesis, Sentence
from nmt_cli.translation.cached_decoder import CachedDecoder
from nmt_cli.translation.models import EngineModels, engine_model

pytestmark = needs_engine

SEARCHES = {
    "paper": OPTIONS,
    "greedy": replace(OPTIONS, beam=1),
    "wide": replace(OPTIONS, beam=12, nbest=12, alpha=1.2),
    "no penalty": replace(OPTIONS, nbest=2, length_penalty=none),
    "average": replace(OPTIONS, nbest=4, length_penalty=average),
    "one ahead": replace(OPTIONS, nbest=2, alpha=1.2, lookahead=1),
    "three ahead": replace(OPTIONS, nbest=2, alpha=1.2, lookahead=3),
    "all ahead": replace(OPTIONS, nbest=2, alpha=1.2),
    "to the end": replace(OPTIONS, nbest=2, alpha=1.2, lookahead=0),
    "words cost": replace(OPTIONS, nbest=2, word_penalty=0.7, lookahead=12),
    "words are wanted": replace(OPTIONS, nbest=2, word_penalty=-0.7, lookahead=12),
    "words, two ahead": replace(OPTIONS, nbest=2, word_penalty=-0.2, alpha=1.2, lookahead=2),
    "words, all ahead": replace(OPTIONS, nbest=2, word_penalty=-0.2, alpha=1.2),
    "long": replace(OPTIONS, min_length=6),
    "long in text": replace(OPTIONS, min_length=6, textless=tuple(range(4, VOCABULARY, 2))),
    "longer than allowed": replace(OPTIONS, beam=1, min_length=50, textless=(4, 9, 17)),
    "no token with text": replace(OPTIONS, min_length=3, textless=tuple(range(4, VOCABULARY))),
    "many banned": replace(OPTIONS, banned_tokens=(*range(3), *range(20, 55), 20)),
    "token by token": replace(OPTIONS, nbest=3, token_log_probs=True),
    "one step a call": replace(OPTIONS, steps=1, compact_below=0.0),
}
FORMS: dict[str, dict[str, Any]] = {"unsure": {}, "sure": {"sure": True}, "ssru": {"decoder": "ssru", "sure": True}}
LENGTHS = {1: 0, 3: 1, 20: 2, 70: 70, 8: 14, 5: 6, 12: 20, 2: 8, 9: 15, 30: 40}
"""The longest output by the length of the source."""
SENTENCES = [Sentence(tokens, LENGTHS[len(tokens)]) for tokens in sources(*LENGTHS)]
ENTERING = [(0, [0, 1, 2, 3]), (1, [4, 5]), (7, [6]), (60, [7, 8, 9])]


def model(sure: bool = False, seed: int = 3, **changes: Any) -> Transformer:
    """A model whose outputs end after any number of tokens; one that is `sure` of its next token ends many outputs early."""
    one = small(seed=seed, **changes)
    shift: Any = one.decoder[-1].around_feed_forward.norm
    with torch.no_grad():
        table = one.embeddings["shared"]
        table.mul_(5.0 if sure else 2.5)
        direction = shift.bias if hasattr(shift, "bias") else shift.weight
        table[EOS] = 0.3 * table[EOS] + (18.0 if sure else 4.0) * direction / direction.square().sum()
    return one


def same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    """The same tokens, and nearly the same numbers."""
    assert [[h.tokens for h in one] for one in ours] == [[h.tokens for h in one] for one in theirs]
    for left, right in zip(*([h for one in found for h in one] for found in (ours, theirs)), strict=True):
        numbers = [(h.log_prob, h.score, *h.token_log_probs) for h in (left, right)]
        assert numbers[0] == pytest.approx(numbers[1], abs=1e-4)


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_search_is_beam_search(options: SearchOptions, precision: str, form: dict[str, Any]) -> None:
    """Bit for bit that over the engine's decoder, and in fp32 nearly that in torch, also if sentences enter later."""
    torch_model = model(**form)
    packed = engine_model(torch_model, precision)
    ours = searched(EngineSearch(packed, options), SENTENCES, ENTERING)
    assert ours == searched(over(lambda: EngineDecoder(packed, options.beam), options), SENTENCES, ENTERING)
    assert all(len(one[0].tokens) <= sentence.max_length for one, sentence in zip(ours, SENTENCES, strict=True))
    if precision == "fp32":
        same(ours, searched(over(lambda: CachedDecoder(torch_model, [], options.beam), options), SENTENCES, ENTERING))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_without_scores_the_outputs_are_the_same(precision: str, form: dict[str, Any]) -> None:
    """Of one hypothesis, log P and scores are then 0; wider beams, and the numbers of tokens, need them."""
    packed = engine_model(model(**form), precision)
    for options in (*SEARCHES.values(), replace(OPTIONS, beam=1, token_log_probs=True)):
        expected = searched(EngineSearch(packed, options), SENTENCES, ENTERING)
        if options.beam == 1 and not options.token_log_probs:
            expected = [[Hypothesis(h.tokens, 0.0, 0.0) for h in one] for one in expected]
        assert searched(EngineSearch(packed, replace(options, scores=False)), SENTENCES, ENTERING) == expected


@pytest.mark.parametrize(("beam", "vocabulary"), [(1, VOCABULARY), (4, VOCABULARY), (12, VOCABULARY), (12, 7)])
def test_equal_scores_and_small_vocabularies(beam: int, vocabulary: int) -> None:
    """If all logits are 0, the order is that of hypotheses and tokens. A vocabulary may be smaller than the beam."""
    torch_model, options = small(vocabulary), replace(OPTIONS, beam=beam, nbest=beam)
    if vocabulary == VOCABULARY:
        with torch.no_grad():
            torch_model.embeddings["shared"].zero_()
    texts = sources(3, 9, 5, vocabulary=vocabulary)
    sentences = [Sentence(tokens, longest) for tokens, longest in zip(texts, [0, 1, 9], strict=True)]
    ours = searched(EngineSearch(engine_model(torch_model, "fp32"), options), sentences)
    same(ours, searched(over(lambda: CachedDecoder(torch_model, [], beam), options), sentences))
    if vocabulary < beam:
        assert [len(one) for one in ours] == [1, 4, 12]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"num_heads": 1, "activation": "swiglu", "norm": "rms"}, {"decoder": "ssru", "sure": True}],
    ids=["paper", "other", "ssru"],
)
def test_a_result_does_not_depend_on_other_sentences_nor_on_threads(changes: dict[str, Any], precision: str) -> None:
    """Alone, together in any order, joining at any step, and with other threads: the same bits."""
    packed = engine_model(model(**changes), precision)
    options = replace(OPTIONS, nbest=2, token_log_probs=True)
    alone = [searched(EngineSearch(packed, options), [sentence])[0] for sentence in SENTENCES]
    for threads in (1, 2, 3, 4):
        use_threads(threads)
        try:
            for more in (replace(options, steps=1), replace(options, steps=100, compact_below=0.3)):
                assert searched(EngineSearch(packed, more), SENTENCES, ENTERING) == alone
                assert searched(EngineSearch(packed, more), SENTENCES[::-1]) == alone[::-1]
                assert searched(EngineSearch(packed, more), SENTENCES * 3) == alone * 3
        finally:
            use_threads(1)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_threads_change_no_bit_of_large_products(precision: str) -> None:
    """Vocabulary and layers are large enough to be shared among threads; several callers at once."""
    packed = engine_model(small(20_000, d_model=128, d_ff=512, encoder_layers=1, decoder_layers=1), precision)
    sentences = [Sentence(tokens, 3) for tokens in sources(9, 2, 30, vocabulary=20_000)]
    alone, found = searched(EngineSearch(packed, OPTIONS), sentences), list[list[list[Hypothesis]]]()

    def search(threads: int) -> None:
        use_threads(threads)
        for _ in range(5):
            found.append(searched(EngineSearch(packed, OPTIONS), sentences))

    callers = [threading.Thread(target=search, args=(threads,)) for threads in (2, 3, 4, 1)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == [alone] * 20


def test_dropped_sentences_leave_without_results() -> None:
    packed = engine_model(model(), "fp32")
    expected = searched(EngineSearch(packed, OPTIONS), SENTENCES)
    search, found = EngineSearch(packed, replace(OPTIONS, steps=1)), dict[int, list[Hypothesis]]()
    search.add(range(10), SENTENCES)
    for dropped in ([3, 99], [], [8, 7]):
        search.drop(dropped)
        found.update(search.step())
    while search.busy:
        found.update(search.step())
    assert found == {number: expected[number] for number in range(10) if number not in (3, 7, 8)}


def test_sentences_with_inputs_of_constraints_are_searched_step_by_step() -> None:
    packed = engine_model(model(), "fp32")
    sentences = [replace(one, inputs={"prefix": [7, 8]} if i % 2 else {}) for i, one in enumerate(SENTENCES)]
    models = EngineModels([packed], 1, 1)
    assert isinstance(models.new_search(OPTIONS, models.in_engine(OPTIONS))[0], EngineSearch)
    assert isinstance(models.new_search(OPTIONS, False)[0], BeamSearch)
    ours = [result.hypotheses for result in models.client(OPTIONS).submit(sentences).result(LIMIT)]
    step_by_step = over(lambda: EngineDecoder(packed, OPTIONS.beam), OPTIONS)
    assert ours == searched(step_by_step, sentences, ENTERING)
    assert [one[0].tokens[:2] for one in ours[5::2]] == [[7, 8]] * 3


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_log_probabilities_of_a_pass_are_those_of_the_search(precision: str) -> None:
    """Bit for bit the differences of its sums."""
    packed = engine_model(model(), precision)
    options = replace(OPTIONS, nbest=4, token_log_probs=True)
    results = searched(EngineSearch(packed, options), SENTENCES)
    outputs = [(s, h) for s, found in zip(SENTENCES, results, strict=True) for h in found]
    log_probs, _ = packed.forced(
        [[*sentence.tokens, EOS] for sentence, _ in outputs],
        [[BOS, *h.tokens] for _, h in outputs],
        [[*h.tokens, EOS] for _, h in outputs],
    )
    for (_, hypothesis), found in zip(outputs, log_probs, strict=True):
        sums = found.cumsum(dtype=np.float32).tolist()
        assert sums[-1] == hypothesis.log_prob
        path = zip([0.0, *sums], sums, strict=False)
        assert hypothesis.token_log_probs == tuple(after - before for before, after in path)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "where", ["embeddings.shared", "decoder.1.feed_forward.outer.bias", "encoder.0.self_attention.output.weight"]
)
def test_weights_that_are_no_numbers_are_an_error(where: str, value: float, precision: str) -> None:
    torch_model = small()
    with torch.no_grad():
        torch_model.state_dict()[where].view(-1)[::7] = value
    packed = engine_model(torch_model, precision)
    for options in (OPTIONS, replace(OPTIONS, beam=1, scores=False)):
        with pytest.raises(ModelError, match="the model's output is not a number"):
            searched(EngineSearch(packed, options), SENTENCES)
