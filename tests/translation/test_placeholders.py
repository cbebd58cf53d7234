"""Lines with placeholders, and with characters that the model lacks: what comes back, from a copier, a bad model and a real search."""

import io
import random
import re
from collections import Counter

import pytest
from few_words import WORDS, sentence
from in_memory import line_translator
from small_models import section

from nmt_cli.cli.translate_output import plain_text, write_windows
from nmt_cli.data.tokenizer import Tokenizer, learn_bpe
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DataSection, DecodeSection
from nmt_cli.search.sentence import Hypothesis, SearchResult
from nmt_cli.translation.line import Line, Translation
from nmt_cli.translation.translator import LineTranslator

PARTS = [
    "%s",
    ":count",
    "{0}",
    "http://a.b/?x",
    "🎉",
    "→",
    "Łódź",
    "東京",
    "👍🏽",
    r"\n",
    "&amp;",
    "<b>",
    "`a b`",
    "1️⃣",
    "%1",
    "C:\\new",
]
MESSAGE = "{n, plural, one {the dog sees %s} other {# dogs 🎉 sleep}}"


def vocabulary() -> Tokenizer:
    rng = random.Random(1)
    texts = [
        " ".join([sentence(rng, 6), *(str(rng.randrange(1000)) for _ in range(4)), "( ), - ' \" : ; ?"])
        for _ in range(300)
    ]
    return learn_bpe(texts, DataSection(generator="teaching", vocab_size=120, byte_fallback=False))


@pytest.fixture(scope="module")
def translator() -> LineTranslator:
    pieces = vocabulary()
    model = Transformer(section(encoder_layers=1, max_positions=64), pieces.vocab_size, pieces.vocab_size).eval()
    return line_translator(model, pieces, pieces, DecodeSection(beam=3, max_extra=3), nbest=3)


def lines() -> list[str]:
    rng = random.Random(2)
    blanks = [" ", " ", " ", ", ", "  "]
    made = [[rng.choice([*WORDS, *PARTS]) + rng.choice(blanks) for _ in range(rng.randint(1, 9))] for _ in range(200)]
    return [
        *map("".join, made),
        MESSAGE,
        f"the cat sees {MESSAGE} and {{0}}.",
        f"E&xit\t{MESSAGE}🎉",
        "the _dog, &cat",
        "",
        "🎉",
    ]


def counts(text: str) -> Counter[str]:
    """Its placeholders, longest first."""
    return Counter(re.findall("|".join(map(re.escape, sorted(PARTS, key=len, reverse=True))), text))


def written(translator: LineTranslator, texts: list[str], order: int) -> list[Translation]:
    """What becomes of a model's output that is the line (1), or the line backwards and without its stand-ins (-1)."""
    prepared = translator.prepare(texts)
    digits = {number for number, piece in enumerate(translator.source.table) if any(map(str.isdigit, piece))}
    results = []
    for one in prepared.sentences:
        kept = [index for index, token in enumerate(one.tokens) if order > 0 or token not in digits][::order]
        results.append(SearchResult([Hypothesis([one.tokens[index] for index in kept], 0.0, 0.0)], [kept]))
    return translator.results(prepared, results)


def test_a_copy_comes_back_byte_for_byte(translator: LineTranslator) -> None:
    for line, result in zip(lines(), written(translator, lines(), 1), strict=True):
        assert result.text == (line if counts(line) else " ".join(line.split()))
    off = line_translator(translator.models, translator.source, translator.target, DecodeSection(placeholders=False))
    assert not off.prepare(lines()).documents


def test_what_a_model_does_not_copy_is_put_back_once(translator: LineTranslator) -> None:
    for line, result in zip(lines(), written(translator, lines(), -1), strict=True):
        assert counts(result.text) == counts(line), line
        assert (
            result.restored
            >= sum(count for part, count in counts(line.strip()).items() if part in ("%s", "{0}", "`a b`")) - 2
        )


def test_a_search_and_each_of_its_candidates(translator: LineTranslator) -> None:
    texts = lines()[:40] + lines()[-6:]
    results = list(translator.translate(texts))
    for line, result in zip(texts, results, strict=True):
        for candidate in result.nbest:
            assert counts(candidate.text) >= counts(line), line
    assert results == list(translator.translate(texts))  # whatever was seen before
    [plain, begun] = translator.translate(["the cat sees %s", Line("the cat sees %s", prefix="the")])
    assert (plain.text.count("%s"), len(plain.nbest), begun.restored) == (1, 3, 0)


def test_the_command_says_how_many(translator: LineTranslator, capsys: pytest.CaptureFixture[str]) -> None:
    sink, results = io.BytesIO(), written(translator, ["the cat sees %s", "a {0} dog and {0}"], -1)
    write_windows((part for part in [results]), sink, plain_text, Counter(), "")
    assert Counter(re.findall(rb"%s|\{0\}", sink.getvalue())) == {b"%s": 1, b"{0}": 2}
    assert "put back where the alignment says: 3 placeholders or symbols" in capsys.readouterr().err
