"""A second choice: which outputs have a fault, and that the best of four without one takes their place, for any company."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from few_words import model, sentence, tokenizer
from in_memory import line_translator

from nmt_cli.data.tokenizer import EOS
from nmt_cli.recipe import DecodeSection
from nmt_cli.search.running import RunningSearch
from nmt_cli.search.sentence import Sentence
from nmt_cli.translation.alignment import aligned
from nmt_cli.translation.line import Candidate, Translation
from nmt_cli.translation.second_choice import SecondChoice, faulty
from nmt_cli.translation.torch_forced import TorchForced
from nmt_cli.translation.translator import LineTranslator

LONGEST = 9


@pytest.mark.parametrize(
    ("source", "output", "has_fault"),
    [
        ("Hello", "Olá, óplicech", True),
        ("85.02", "85.02 (em inglês)", True),
        ("4.82", "4,2", True),
        ("14 May 2011", "14 de maio", True),
        ("rule", "Regra da regra", True),
        ("well", "bem, bem", True),
        ("No way", "não não não não", True),
        ("Thanks", "Obrigado por enviar uma edição", True),
        ("Name", "  ", True),
        ("Frank Sinatra.", "Frank Sinatra (em inglês).", True),
        ("Nelson Mandela", "纳尔逊·曼德拉（英语）", True),
        ("Red", "أحمر، أخضر", True),
        ("Hello", "Olá", False),
        ("Red, green", "أحمر، أخضر", False),
        ("1,234.5", "1.234,5", False),
        ("2.5 percent", "2,5 por cento", False),
        ("5/14/2011", "14/05/2011", False),
        ("12:30", "12:30", False),
        ("No, no", "Nein, nein", False),
        ("the man of the house", "l'homme de la maison", False),
        ("(see page 3)", "(ver página 3)", False),
        ("in the city", "em a cidade em", False),
        ("Rather not.", "Em vez disso, não.", False),
    ],
)
def test_faults_of_short_outputs(source: str, output: str, has_fault: bool) -> None:
    assert faulty(source, output) == has_fault


def translator(second_choice: int, **more: Any) -> LineTranslator:
    options = {"beam": 2, "max_extra": 3, "second_choice": second_choice, **more.pop("decode", {})}
    return line_translator(model(64), tokenizer(), tokenizer(), DecodeSection.model_validate(options), **more)


def lines() -> list[str]:
    rng = random.Random(5)
    return [sentence(rng, rng.randint(1, 8)) for _ in range(40)]


def odd(output: Sequence[int]) -> bool:
    return sum(output) % 2 == 1


def ids_of(candidate: Candidate) -> list[int]:
    return [tokenizer().table.index(piece) for piece in candidate.tokens]


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short outputs have a fault if `odd` says no."""

    def accepts(choice: SecondChoice, given: Sentence, output: Sequence[int]) -> bool:
        return len(given.tokens) > choice.longest or odd(output)

    monkeypatch.setattr(SecondChoice, "accepts", accepts)


def found(results: Sequence[Translation]) -> list[tuple[str, float]]:
    return [(result.text, result.log_prob) for result in results]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("engine", [True, False])
def test_the_best_without_a_fault_replaces_a_short_faulty_output(engine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not engine:
        monkeypatch.setenv("NMT_ENGINE", "off")
    texts = lines()
    usual, chosen = (list(translator(longest).translate(texts)) for longest in (0, LONGEST))
    four = translator(0, nbest=4, decode={"beam": 4, "length_penalty": "none", "lookahead": 0})
    kept = replaced = 0
    for line, before, after, others in zip(texts, usual, chosen, four.translate(texts), strict=True):
        [ids] = tokenizer().encode([line])
        good = [other for other in others.nbest if odd(ids_of(other))]
        if len(ids) > LONGEST or odd(ids_of(before)) or not good:
            assert after == before
            kept += 1
        else:
            assert (after.text, after.tokens, after.nbest) == (good[0].text, good[0].tokens, after.nbest[:1])
            assert after.log_prob == pytest.approx(good[0].log_prob, abs=1e-4)
            assert after.score == pytest.approx(after.log_prob / ((5 + len(after.tokens) + 1) / 6) ** 0.6)
            replaced += 1
    assert kept > 3
    assert replaced > 3


@pytest.mark.usefixtures("refusing")
def test_it_depends_on_nothing_but_the_line_and_asked_for_alignments_are_its_own() -> None:
    one, texts = translator(LONGEST, align=True), lines()
    together = list(one.translate(texts))
    assert found(one.submit(texts[::-1]).result(60)) == found(together[::-1])
    assert [found([*one.translate([text])])[0] for text in texts] == found(together)
    for line, result in zip(texts, together, strict=True):
        [source] = tokenizer().encode([line])
        expected = aligned(TorchForced(model(64)), [*source, EOS], ids_of(result))
        assert result.alignment == tuple((at, index) for index, at in enumerate(expected) if at < len(source))


@pytest.mark.usefixtures("refusing")
def test_what_is_searched_again_can_be_dropped() -> None:
    one = translator(LONGEST)
    sentences = one.prepare(lines(), "").sentences
    running = RunningSearch[int](one.models, one.search, one.models.in_engine(one.search))
    running.add(range(len(sentences)), sentences)
    while not running.doubted:
        running.step()
    assert running.load > 0
    running.drop(list(running.tasks))
    assert (running.tasks, running.doubted, running.load) == ({}, {}, 0)


def test_whoever_asks_for_several_outputs_gets_those_of_the_search() -> None:
    assert translator(LONGEST, nbest=2).search.accepts is None
    assert translator(LONGEST, decode={"search": "sample"}).search.accepts is None
    assert translator(0).search.accepts is None
