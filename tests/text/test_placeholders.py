"""What is a placeholder, in spellings of real catalogues, and what looks like one."""

import pytest

from nmt_cli.text.placeholders import MARK, find_placeholders

WORDS = r"""
:total :count: %total% %1$s %(name)s {0} {} ${name} {{name}} {n,number} %{name} $HOME @user %1 %2% %n %L1 %@ %d %lu %.*s %'d %-10s
%<PRIu32> %Y-%m %dx%d %s%s %% $1 $2 http://a.b/?x=1&y=2 me@a.org && AT&amp;T &apt; <file> C:\dir\new `code`"""
NONE = r"100% sure|50 % of|100%-a|AT&T, R&D, Q&A|12:30, a:b and a: b|my_file|5$, $5 and $10.50|:-) x < y > z|a @ b|&One of &two|_a _b|'{'"


def test_words_for_the_model() -> None:
    for word in WORDS.split():
        text = f"See {word} here" if word != "$2" else "$1 See $2 here"
        found = find_placeholders(text)
        assert not any(part.hidden for part in found)
        assert MARK.search(text)
        rest = "".join(" " if any(a <= i < b for a, b, *_ in found) else c for i, c in enumerate(text))
        assert rest.split() in (["See", "here"], ["See", "-", "here"], ["See", "x", "here"]), text


@pytest.mark.parametrize("text", NONE.split("|"))
def test_other_text(text: str) -> None:
    assert not find_placeholders(text)


@pytest.mark.parametrize(
    "text", ["~&~File", "E~&~xit", "Save ~_~As", r"one~\n~two ~\"~three", "a ~<b>~b~</b>~ ~&lt;~c"]
)
def test_hidden(text: str) -> None:
    found = find_placeholders(text.replace("~", ""))
    assert [text.replace("~", "")[part.start : part.end] for part in found if part.hidden] == text.split("~")[1::2]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("{n, plural, offset:1 =0 {no} one {# file} other {a {b} '}' it''s}}", ["no", "# file", "a {b} '}' it''s"]),
        ("{n,select,a{x{m, plural, other{y}}}b{}}", ["x{m, plural, other{y}}", ""]),
        ("{n, plural, one {x}", None),
        ("{n, plural, one x}", []),
        ("{n, plural}", []),
    ],
)
def test_messages(text: str, texts: list[str] | None) -> None:
    found = find_placeholders(f"You {text} here")
    whole = [part for part in found if part[:2] == (4, 4 + len(text))]
    assert [[f"You {text}"[a:b] for a, b in part.texts] for part in whole] == ([] if texts is None else [texts])


def test_symbols_and_words_that_a_model_lacks() -> None:
    text = "Die 👩‍❤️‍👩 von Łódź Muñoz – 1️⃣ 🇩🇪, €50 (don’t) 東京 {👍🏽} ★"
    found = find_placeholders(text, set(text) - set(map(chr, range(128))) - set("\u200d\ufe0f❤"))
    parts = [(text[part.start : part.end], part.hidden) for part in found]
    assert parts == [
        *(
            ("👩‍❤️‍👩", False),
            ("Łódź Muñoz", False),
            ("–", False),
            ("1️⃣ 🇩🇪", True),
            ("€", False),
            ("’", True),
            ("東京", False),
        ),
        *(("{👍🏽}", False), ("★", True)),
    ]
