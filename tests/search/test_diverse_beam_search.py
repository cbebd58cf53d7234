"""Diverse beam search against the published algorithm in plain lists, plain beam search and itself, over a toy model."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from run_search import beam_search, plain_sentences, search_options
from small_models import searched
from toy_decoder import Toy, toy_logits

from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.errors import UsageError
from nmt_cli.search.constraints.no_repeat_ngram import NoRepeatNgram
from nmt_cli.search.constraints.prefix import Prefix
from nmt_cli.search.constraints.repetition_penalty import RepetitionPenalty
from nmt_cli.search.diverse_beam_search import DiverseBeamSearch
from nmt_cli.search.length_penalties import gnmt
from nmt_cli.search.search import SearchOptions
from nmt_cli.search.sentence import Hypothesis

SIZE, SPREAD = 9, 1.5


def toy(sentences: list[int], beam: int) -> Toy:
    return Toy(sentences, beam, SIZE, SPREAD)


def options(beam: int, groups: int, penalty: float = 0.5, **more: Any) -> SearchOptions:
    return search_options(beam, diverse_groups=groups, diversity_penalty=penalty, **more)


def diverse(
    sentences: list[int], opts: SearchOptions, prefixes: list[list[int]] | None = None, limits: list[int] | None = None
) -> list[list[Hypothesis]]:
    given = plain_sentences(limits or [2 + s * 5 % 9 for s in sentences], prefixes)
    return searched(DiverseBeamSearch(toy(sentences, opts.beam), opts), given)


def published(
    sentence: int, limit: int, opts: SearchOptions, prefix: Sequence[int] = ()
) -> list[tuple[tuple[int, ...], float]]:
    """The algorithm for one sentence, written out: outputs, each with log P / lp, best first."""
    groups, width, longest = opts.diverse_groups, opts.beam // opts.diverse_groups, gnmt(limit + 1, opts.alpha)
    beams: list[list[tuple[float, float, tuple[int, ...]]]] = [[(0.0, 0.0, ())] for _ in range(groups)]
    finished: list[list[tuple[float, float, tuple[int, ...]]]] = [[] for _ in range(groups)]

    def hopeless(total: float, group: int) -> bool:
        return len(finished[group]) >= width and total / longest <= finished[group][width - 1][0]

    for length in range(limit + 1):
        chosen: Counter[int] = Counter()
        for group in range(groups):
            candidates = []
            for total, own, tokens in beams[group]:
                log_probs = toy_logits(sentence, (BOS, *tokens), SIZE, SPREAD).log_softmax(-1).tolist()
                only = [prefix[length]] if length < len(prefix) else [EOS] if length == limit else []
                for token in only or range(EOS, SIZE):
                    penalty = 0.0 if only else opts.diversity_penalty * chosen[token]
                    candidates.append((total + log_probs[token] - penalty, own + log_probs[token], (*tokens, token)))
            best = sorted(candidates, reverse=True)[: 2 * width if width > 1 else 1]
            beams[group] = [candidate for candidate in best if candidate[2][-1] != EOS][:width]
            chosen.update(tokens[-1] for total, _, tokens in beams[group] if not hopeless(total, group))
            penalty = gnmt(length + 1, opts.alpha)
            finished[group] += [
                (total / penalty, own / penalty, tokens[:-1]) for total, own, tokens in best if tokens[-1] == EOS
            ]
            finished[group].sort(reverse=True)
            beams[group] = [candidate for candidate in beams[group] if not hopeless(candidate[0], group)]
    merged = sorted({(score, tokens) for rows in finished for _, score, tokens in rows[:width]}, reverse=True)
    return [(tokens, score) for score, tokens in merged][: opts.nbest]


@pytest.mark.parametrize("penalty", [0.0, 0.3, 3.0])
@pytest.mark.parametrize(
    ("beam", "groups", "alpha"),
    [(4, 1, 0.6), (4, 2, 0.6), (4, 4, 0.6), (6, 3, 0.0), (6, 2, 1.5), (9, 3, 0.6), (2, 2, 0.6), (2, 4, 0.6)],
)
def test_it_is_the_published_algorithm(beam: int, groups: int, alpha: float, penalty: float) -> None:
    """A token of a prefix is not penalised: it is nobody's choice. There are no more groups than hypotheses."""
    opts, limits = options(beam, groups, penalty, alpha=alpha), [s % 9 for s in range(20)]
    none: list[list[int]] = [[]] * 20
    for prefixes in (none, [[5 + s % 3] * min(s % 4, s % 9) for s in range(20)]):
        for sentence, found in enumerate(diverse(list(range(20)), opts, prefixes, limits)):
            of_groups = replace(opts, diverse_groups=min(beam, groups))
            expected = published(sentence, limits[sentence], of_groups, prefixes[sentence])
            assert [tuple(h.tokens) for h in found] == [tokens for tokens, _ in expected]
            assert [h.score for h in found] == pytest.approx([score for _, score in expected], abs=1e-4)


@pytest.mark.parametrize(("groups", "penalty", "beam"), [(1, 0.5, 4), (1, 0.0, 3), (2, 0.0, 2)])
def test_one_group_or_no_penalty_is_plain_beam_search(groups: int, penalty: float, beam: int) -> None:
    """Byte for byte; without a penalty all groups find the same."""
    sentences, limits = list(range(30)), [1 + s * 7 % 12 for s in range(30)]
    opts = options(beam * groups, groups, penalty, nbest=beam, token_log_probs=True)
    plain = options(beam, 1, nbest=beam, token_log_probs=True)
    assert diverse(sentences, opts, limits=limits) == beam_search(toy(sentences, beam), limits, plain)


def own_path(sentence: int, hypothesis: Hypothesis) -> list[float]:
    """The model's own log P of each token."""
    tokens = [BOS, *hypothesis.tokens, EOS]
    return [
        toy_logits(sentence, tuple(tokens[:i]), SIZE, SPREAD).log_softmax(-1)[tokens[i]].item()
        for i in range(1, len(tokens))
    ]


@pytest.mark.parametrize("more", [{}, {"min_length": 2, "textless": (5, 7)}, {"token_log_probs": True}])
def test_numbers_are_the_models_own(more: dict[str, Any]) -> None:
    for sentence, found in enumerate(diverse(list(range(20)), options(6, 3, 1.0, **more))):
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({tuple(h.tokens) for h in found}) == len(found)
        for h in found:
            path = own_path(sentence, h)
            assert h.log_prob == pytest.approx(sum(path), abs=1e-4)
            assert h.score == pytest.approx(h.log_prob / gnmt(len(h.tokens) + 1, 0.6), rel=1e-5)
            assert h.token_log_probs == (pytest.approx(path, abs=1e-4) if "token_log_probs" in more else ())


def test_fewer_hypotheses_are_the_first_of_more_and_stopping_early_changes_nothing() -> None:
    sentences = list(range(40))
    every = diverse(sentences, options(6, 2, 0.7))
    for nbest in (1, 2, 5):
        assert diverse(sentences, options(6, 2, 0.7, nbest=nbest)) == [row[:nbest] for row in every]
    assert diverse(sentences, options(6, 2, 0.7, lookahead=0)) == every


def test_constraints_hold_in_every_group_and_log_prob_is_the_models_own() -> None:
    rules = (Prefix(), NoRepeatNgram(1), RepetitionPenalty(1.5))
    for sentence, found in enumerate(diverse(list(range(20)), options(6, 3, 1.0, constraints=rules))):
        assert found == diverse([sentence], options(6, 3, 1.0, constraints=rules))[0]
        for h in found:
            assert len(set(h.tokens)) == len(h.tokens)
            assert h.log_prob == pytest.approx(sum(own_path(sentence, h)), abs=1e-4)


def test_what_it_does_not_take_is_named() -> None:
    with pytest.raises(UsageError, match="multiple of 4"):
        DiverseBeamSearch(toy([0], 6), options(6, 4))
