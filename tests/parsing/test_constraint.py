"""Parses: every output is a tree of exactly the words of its sentence, checked by a parser of its own and by brute force."""

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from both_arrays import TORCH
from engine_switch import without_engine
from in_memory import line_translator
from run_search import ALPHA, run_to_end, search_options
from small_models import needs_engine, section
from toy_decoder import Histories, ToyDecoder, toy_log_probs

from nmt_cli.data.tokenizer import BOS, EOS, PAD, TARGET, UNK, Tokenizer, learn_bpe, learn_from_words, learn_symbols
from nmt_cli.data.words import count_words
from nmt_cli.errors import UsageError
from nmt_cli.model.transformer import Transformer
from nmt_cli.parsing.constraint import MOST_OPENED, TreeConstraint
from nmt_cli.parsing.linearization import TERMINALS, delinearise, repaired
from nmt_cli.recipe import DataSection, DecodeSection
from nmt_cli.search.beam_search import BeamSearch
from nmt_cli.search.constraint import Step
from nmt_cli.search.constraints.prefix import Prefix
from nmt_cli.search.diverse_beam_search import DiverseBeamSearch
from nmt_cli.search.length_penalties import gnmt
from nmt_cli.search.mbr import MbrSearch
from nmt_cli.search.sampling import SamplingSearch
from nmt_cli.search.search import SearchOptions
from nmt_cli.search.sentence import Hypothesis, Sentence
from nmt_cli.translation.line import Translation

WORDS = ["the", "dog", "barks", "at", "/", "-LRB-", "cats", "."]
TAGS = ["DT", "NN", "VBZ", "."]
LABELS = ["S", "NP", "VP"]
LINE = "the dog barks ( zebra"
TOO_LOW = -1000
"""Scores below are those of outputs that break the rules."""
SEARCHES: Any = {"beam": BeamSearch, "sample": SamplingSearch, "diverse": DiverseBeamSearch, "mbr": MbrSearch}


@cache
def symbols(kind: str) -> Tokenizer:
    """A vocabulary of symbols. One label has no closing bracket, one no opening bracket."""
    terminals = {"xx": ["XX"], "tags": TAGS, "words": WORDS, "both": [*WORDS, *(f"/{tag}" for tag in TAGS)]}[kind]
    every = [*(f"({label}" for label in LABELS), *(f"){label}" for label in LABELS), "(HALF", ")OTHER", *terminals]
    data = DataSection(
        generator="teaching", joint_vocab=False, target_tokenization="words", target_vocab_size=4 + len(every)
    )
    return learn_symbols([(symbol, 100 - number) for number, symbol in enumerate(every)], data, TARGET)


def shown(kind: str, tokens: Sequence[int]) -> list[str]:
    """The symbols of an output; <unk> for an unknown word."""
    return [symbols(kind).table[token].lstrip("\u2581") for token in tokens]


def written(kind: str, word: str) -> list[str]:
    """The symbols that must stand for a word; * for any tag. A word may look like a tag."""
    word = word.replace("(", "-LRB-").replace(")", "-RRB-")
    known = word if word in WORDS or (kind == "both" and word == "/NN") else "<unk>"
    return {"xx": ["XX"], "tags": ["*"], "words": [known], "both": [known, "*"]}[kind]


def is_tree(output: Sequence[str], kind: str, words: Sequence[str]) -> bool:
    """Whether symbols are a tree of these words: brackets match, none is empty, and the terminals are those of the words."""
    expected = [symbol for word in words for symbol in written(kind, word)]
    tags = {f"/{tag}" for tag in TAGS} if kind == "both" else set(TAGS)
    stack: list[list[Any]] = []  # a label, and whether it has a word inside
    for symbol in output:
        in_word = kind == "both" and len(expected) % 2 == 1
        if symbol.startswith("("):
            if in_word or symbol == "(HALF":
                return False
            stack.append([symbol[1:], False])
        elif symbol.startswith(")"):
            if in_word or not stack or stack[-1] != [symbol[1:], True]:
                return False
            stack.pop()
        else:
            if not expected or not (symbol in tags if expected[0] == "*" else symbol == expected[0]):
                return False
            expected.pop(0)
            for bracket in stack:
                bracket[1] = True
    return not stack and not expected


def longest_chain(output: Sequence[str]) -> int:
    groups = itertools.groupby(output, lambda symbol: symbol.startswith("("))
    return max((len(list(group)) for opens, group in groups if opens), default=0)


def sentences(kind: str, lines: Sequence[str], longest: Sequence[int], prefix: Sequence[int] = ()) -> list[Sentence]:
    encoded = TreeConstraint(kind, symbols(kind)).encode(lines, symbols(kind), 1000)
    return [
        Sentence([number], most, {"tree": tokens, "prefix": prefix})
        for number, (tokens, most) in enumerate(zip(encoded, longest, strict=True))
    ]


def options(kind: str, beam: int, **more: Any) -> SearchOptions:
    rules = (Prefix(), TreeConstraint(kind, symbols(kind)))
    banned = (PAD, UNK, BOS)[:: 2 if rules[1].allows else 1]
    chosen = {"constraints": rules, "detokenize": symbols(kind).decode, "banned_tokens": banned}
    return search_options(beam, **{**chosen, "diverse_groups": min(beam, 2 if beam == 4 else 3), **more})


class Noise(Histories):
    """Random logits, the better the higher for some tokens."""

    def __init__(self, count: int, beam: int, size: int, liked: Sequence[int]) -> None:
        super().__init__(range(count), beam)
        self.size, self.liked, self.generator = size, list(liked), torch.Generator().manual_seed(1)

    def step(self, tokens: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        logits = 3 * torch.randn(len(rows), self.size, generator=self.generator)
        logits[:, self.liked] += 6
        return logits


KINDS_OF_NOISE: dict[str, str | tuple[str, ...]] = {
    "nothing": "",
    "open": "(",
    "close": ")",
    "end": ("<pad>", "<s>", "</s>"),
    "unknown": "<unk>",
}
"""The beginnings of the symbols that a model likes."""


def random_lines(count: int) -> list[str]:
    rng = random.Random(count)
    return [
        " ".join(rng.choices([*WORDS, "(", ")", "zebra", "/NN", "(NP"], k=rng.choice([1, 1, 2, 5, 9])))
        for _ in range(count)
    ]


@pytest.mark.parametrize("beam", [1, 4, 21])
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", TERMINALS)
def test_every_output_is_a_tree(kind: str, search: str, beam: int) -> None:
    """Whatever the model likes, and whatever the length, if all terminals fit."""
    lines = random_lines(8)
    rng = random.Random(beam)
    for what in KINDS_OF_NOISE:
        longest = [len(line.split()) * (1 + (kind == "both")) + rng.choice([0, 1, 2, 3, 10, 40]) for line in lines]
        found = searched(kind, lines, longest, beam, what, search=search)
        for line, most, hypotheses in zip(lines, longest, found, strict=True):
            assert hypotheses
            for hypothesis in hypotheses:
                output = shown(kind, hypothesis.tokens)
                assert is_tree(output, kind, line.split()), (line, output)
                assert len(output) <= most
                assert longest_chain(output) <= MOST_OPENED
                assert hypothesis.score > TOO_LOW


def every_tree(kind: str, words: Sequence[str], longest: int) -> Iterator[list[int]]:
    """Every tree of the labels S and NP, by trial of every sequence."""
    table = {symbol: number for number, symbol in enumerate(shown(kind, range(symbols(kind).vocab_size)))}
    expected = [symbol for word in words for symbol in written(kind, word)]
    tags = [f"/{tag}" if kind == "both" else tag for tag in TAGS]
    for length in range(len(expected), longest + 1):
        for shape in itertools.product(["(S", ")S", "(NP", ")NP", "terminal"], repeat=length):
            if shape.count("terminal") == len(expected):
                for chosen in itertools.product(*(tags if symbol == "*" else [symbol] for symbol in expected)):
                    terminals = iter(chosen)
                    output = [next(terminals) if symbol == "terminal" else symbol for symbol in shape]
                    if is_tree(output, kind, words):
                        yield [table[symbol] for symbol in output]


def adjusted(kind: str, sentence: int, tokens: Sequence[int], known: Sequence[int]) -> float:
    """The sum of log-probabilities where a word has that of all words."""
    table = shown(kind, range(symbols(kind).vocab_size))
    words = [n for n in known if table[n] in WORDS or n == UNK] if kind in ("words", "both") else []
    total = 0.0
    for index, token in enumerate([*tokens, EOS]):
        log_probs = toy_log_probs(sentence, tokens[:index], len(table), known)
        total += log_probs[words if token in words else [token]].logsumexp(0).item()
    return total


@pytest.mark.parametrize(
    ("kind", "line", "longest"),
    [("xx", "the dog", 8), ("words", "the zebra", 8), ("tags", "dog", 7), ("both", "dog", 6)],
)
def test_a_wide_beam_is_brute_force_over_all_trees(kind: str, line: str, longest: int) -> None:
    """With the score of each: a known or unknown word has the probability of all words. log P is the model's own."""
    size = symbols(kind).vocab_size
    table = shown(kind, range(size))
    known = [UNK, *(n for n, symbol in enumerate(table) if n > EOS and symbol not in ("(VP", ")VP"))]
    every = list(every_tree(kind, line.split(), longest))
    assert len(every) >= 28
    search = BeamSearch(ToyDecoder([0], 700, size, known), options(kind, 700))
    [found] = run_to_end(search, sentences(kind, [line], [longest]))
    found = [h for h in found if h.score > TOO_LOW]
    scores = {tuple(tokens): adjusted(kind, 0, tokens, known) / gnmt(len(tokens) + 1, ALPHA) for tokens in every}
    assert {tuple(h.tokens) for h in found} == set(scores)
    assert [h.score for h in found] == pytest.approx([scores[tuple(h.tokens)] for h in found], abs=1e-4)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    own = [
        sum(toy_log_probs(0, h.tokens[:i], size, known)[token].item() for i, token in enumerate([*h.tokens, EOS]))
        for h in found
    ]
    assert [h.log_prob for h in found] == pytest.approx(own, abs=1e-3)


def searched(
    kind: str,
    lines: Sequence[str],
    longest: Sequence[int],
    beam: int = 4,
    what: str = "nothing",
    prefix: Sequence[int] = (),
    search: str = "beam",
    **more: Any,
) -> list[list[Hypothesis]]:
    table, wanted = shown(kind, range(symbols(kind).vocab_size)), KINDS_OF_NOISE[what]
    liked = [number for number, symbol in enumerate(table) if wanted and symbol.startswith(wanted)]
    decoder = Noise(len(lines), beam, len(table), liked)
    return run_to_end(SEARCHES[search](decoder, options(kind, beam, **more)), sentences(kind, lines, longest, prefix))


@pytest.mark.parametrize("kind", TERMINALS)
def test_a_sentence_without_words_ends_at_once_and_a_too_short_output_is_the_first_terminals(kind: str) -> None:
    """With a score that says so."""
    found = searched(kind, ["", " "], [9, 9], what="open", min_length=1)
    assert [[h.tokens for h in row] for row in found] == [[[]], [[]]]
    for row in searched(kind, ["the dog barks at cats"], [3]):
        assert all(len(h.tokens) == 3 and h.score < TOO_LOW for h in row)
        assert not any(symbol.startswith(("(", ")")) for h in row for symbol in shown(kind, h.tokens))


def test_a_model_that_only_opens_brackets_opens_few_of_them_and_closes_all() -> None:
    """Of a deep tree as many as may be open at once."""
    for h in searched("words", ["the dog"], [300], what="open")[0]:
        assert longest_chain(shown("words", h.tokens)) == MOST_OPENED
    words = ["dog"] * 40
    for h in searched("words", [" ".join(words)], [1000], beam=1, what="open")[0]:
        output = shown("words", h.tokens)
        assert is_tree(output, "words", words)
        assert max(itertools.accumulate((symbol[0] == "(") - (symbol[0] == ")") for symbol in output)) == 256


@pytest.mark.parametrize(
    ("prefix", "sound"),
    [("(S (NP the", True), (")S )S )S", False), ("the dog barks at at at", False), ("(S " * 30, False)],
)
def test_a_prefix_begins_the_tree_and_none_makes_a_sentence_fail(prefix: str, sound: bool) -> None:
    tokens = symbols("words").encode([prefix])[0][:30]
    [row] = searched("words", ["the dog barks"], [30], prefix=tokens)
    assert row
    for h in row:
        assert h.tokens[: len(tokens)] == tokens
        assert not sound or is_tree(shown("words", h.tokens), "words", ["the", "dog", "barks"])


@cache
def subwords(kind: str) -> Tokenizer:
    """A joint vocabulary with few merges, so that most words have several tokens."""
    rng = random.Random(0)
    words = [word for word in WORDS if "-" not in word]
    tags = [f"/{tag}" for tag in TAGS] if kind == "both" else [""]
    pairs = [(word, label) for _ in range(300) for word in rng.choices([*words, "zebra"], k=4) for label in LABELS]
    every = [f"{word} {rng.choice(tags)} ({label} ){label}" for word, label in pairs]
    lines = [" ".join(every[start : start + 12]) for start in range(0, len(every), 12)]
    data = DataSection(generator="teaching", vocab_size=310, terminals=kind, byte_fallback=True)  # type: ignore[arg-type]
    return learn_from_words(count_words(lines).items(), data)


@pytest.mark.parametrize("what", ["nothing", "brackets", "words"])
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", ["words", "both"])
def test_with_subwords_every_output_is_a_tree(kind: str, search: str, what: str) -> None:
    """The subwords of a word stay together. Words may have characters that are only bytes in the vocabulary, or none at all."""
    tokenizer, lines = subwords(kind), [*random_lines(6), "d🙂g zebras", "the \u200b dog"]
    bracketed = [n > EOS and bool(set("()") & set(piece)) for n, piece in enumerate(tokenizer.table)]
    liked = [n for n, bracket in enumerate(bracketed) if n > EOS and what == ("brackets" if bracket else "words")]
    tree = TreeConstraint(kind, tokenizer)
    encoded = tree.encode(lines, tokenizer, 1000)
    assert len(encoded[0]) > len(lines[0].split()) * (2 if kind == "both" else 1)
    searched = [Sentence([number], len(tokens) + 9, {"tree": tokens}) for number, tokens in enumerate(encoded)]
    more = {"constraints": (tree,), "detokenize": tokenizer.decode, "banned_tokens": (PAD, BOS)}
    chosen = search_options(4, diverse_groups=2, **more)
    found = run_to_end(SEARCHES[search](Noise(len(lines), 4, tokenizer.vocab_size, liked), chosen), searched)
    for line, hypotheses in zip(lines, found, strict=True):
        words = [word.replace("(", "-LRB-").replace(")", "-RRB-").replace("\u200b", "\u2047") for word in line.split()]
        for text, score in zip(
            tokenizer.decode([h.tokens for h in hypotheses]), [h.score for h in hypotheses], strict=True
        ):
            terminals = [symbol for symbol in text.split() if symbol[0] not in "()"]
            assert terminals[:: 2 if kind == "both" else 1] == words
            assert not repaired(text, delinearise(text, line.split(), kind), kind)
            assert score > TOO_LOW


def test_the_first_subword_gets_the_probability_of_all_that_begin_a_word_and_the_others_follow() -> None:
    tokenizer = subwords("words")
    tree = TreeConstraint("words", tokenizer)
    [encoded] = tree.encode(["zebras"], tokenizer, 100)
    assert [inside for _, inside in encoded] == [False] + [True] * (len(encoded) - 1)
    assert len(encoded) > 1
    state = tree.start([Sentence([], 50, {"tree": encoded})], 1, TORCH)
    for index, (token, _) in enumerate(encoded):
        log_probs = torch.randn(1, tokenizer.vocab_size).log_softmax(1)
        before = log_probs.clone()
        lengths, remaining = torch.tensor([index]), torch.tensor([50 - index])
        tree.edit(state, Step(torch.tensor([0]), torch.zeros(1, 1, 50), lengths, remaining), log_probs)
        words = [n for n, piece in enumerate(tokenizer.table) if piece[0] == "\u2581" and not set("()") & set(piece)]
        expected = before[0, [UNK, *words]].logsumexp(0).item() if index == 0 else 0.0
        assert log_probs[0, token].item() == pytest.approx(expected, abs=1e-5)
        allowed = log_probs[0].isfinite().nonzero().flatten().tolist()
        opening = [n for n, piece in enumerate(tokenizer.table) if piece in {f"\u2581({label}" for label in LABELS}]
        assert allowed == sorted([token, *opening] if index == 0 else [token])
        state = tree.advance(state, torch.tensor([[token]]))


@cache
def source() -> Tokenizer:
    rng = random.Random(0)
    return learn_bpe(
        [" ".join(rng.choices([*WORDS, "zebra"], k=rng.randint(2, 9))) for _ in range(300)],
        DataSection(generator="teaching", vocab_size=305),
    )


@cache
def model(kind: str, positions: int = 64) -> Transformer:
    torch.manual_seed(0)
    config = section(encoder_layers=1, max_positions=positions, tie_embeddings=False)
    return Transformer(config, source().vocab_size, symbols(kind).vocab_size).eval()


def translated(
    kind: str, lines: Sequence[Any], search: str = "beam", tokens: int = 100_000, **more: Any
) -> list[Translation]:
    decode = DecodeSection(max_extra=6, batch_tokens=tokens, constraints=["tree"], diverse_groups=2)
    more = {"nbest": 3, "longest": 20, "constraints": {"tree": kind}, **more}
    translator = line_translator(model(kind), source(), symbols(kind), decode, search=search, **more)
    return list(translator.translate(lines))


def symbols_of(text: str) -> list[str]:
    return [symbol.replace("\u2047", "<unk>") for symbol in text.split()]


@needs_engine
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", TERMINALS)
def test_lines_in_trees_out(kind: str, search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are read from the line. A blank line stays blank. Neighbours change nothing, also if they come and go, nor does
    the engine."""
    lines = [LINE, "", "dog", *random_lines(6)]
    together = translated(kind, lines, search)
    for line, result in zip(lines, together, strict=True):
        assert not result.too_long
        for candidate in result.nbest:
            assert is_tree(symbols_of(candidate.text), kind, line.split())
            assert candidate.score > TOO_LOW
    assert [result for line in lines[:4] for result in translated(kind, [line], search)] == together[:4]
    assert translated(kind, lines, search, tokens=30, workers=2) == together
    without_engine(monkeypatch)
    by_torch = translated(kind, lines, search)
    assert [[c.text for c in result.nbest] for result in by_torch] == [[c.text for c in r.nbest] for r in together]


def test_a_line_is_never_split() -> None:
    """It may be longer than the lines that the model was trained on. One that the model cannot take is reported, and nothing else changes."""
    longer, too_long = "the dog barks " * 8, "the dog barks " * 30
    results = translated("words", [LINE, longer, too_long, "dog"], nbest=1)
    assert [result.too_long for result in results] == [False, False, True, False]
    assert is_tree(symbols_of(results[1].text), "words", longer.split())
    assert (results[2].text, results[2].length, len(results[2].nbest)) == ("", 0, 1)
    assert [results[0], results[3]] == translated("words", [LINE, "dog"], nbest=1)
    tagged = " ".join(["dog"] * 40)  # words and tags are twice as many tokens as words
    assert [translated(kind, [tagged])[0].too_long for kind in ("words", "both")] == [False, True]


def test_without_a_value_terminals_are_xx() -> None:
    for value in (None, ""):
        [encoded] = TreeConstraint(value, symbols("xx")).encode(["the dog"], symbols("xx"), 9)
        assert shown("xx", [token for token, _ in encoded]) == ["XX", "XX"]


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (None, "words", "XX.*kind of terminals"),
        ("xx", "tags", "tree 'xx'.* XX"),
        ("both", "xx", "tree 'both'.* tags"),
        ("leaves", "words", "tree 'leaves': expected xx, tags, words or both"),
    ],
)
def test_wrong_values_are_named(value: str | None, kind: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TreeConstraint(value, symbols(kind))
