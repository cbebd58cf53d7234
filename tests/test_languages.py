"""Codes of languages: which are the same, and which language serves a request."""

from __future__ import annotations

import pytest

from nmt_cli.languages import NAMES, THREE_LETTERS, TWO_LETTERS, base, canonical, find, name_of, short


@pytest.mark.parametrize(
    ("code", "served", "expected"),
    [
        ("de", ["fr", "de"], "de"),
        ("DE", ["fr", "de"], "de"),
        ("de", ["fra", "deu"], "deu"),
        ("deu", ["fr", "de"], "de"),
        ("zh", ["yue", "cmn"], "cmn"),
        ("zh", ["cmn", "zho"], "cmn"),
        ("zho", ["cmn", "zho"], "zho"),
        ("cmn", ["zho"], "zho"),
        ("zh-hans", ["cmn", "cmn_Hans"], "cmn_Hans"),
        ("zh_Hant", ["cmn", "cmn_Hans"], "cmn"),
        ("zh", ["cmn_Hans", "cmn_Hant"], None),
        ("sr_Cyrl", ["srp_Cyrl", "srp_Latn"], "srp_Cyrl"),
        ("nds", ["deu", "nds"], "nds"),
        ("EN-US", ["en"], "en"),
        ("fre-FR", ["deu", "fra"], "fra"),
        ("de", ["ger"], "ger"),
        ("pt", ["pt-BR"], "pt-BR"),
        ("pt-PT", ["pt-BR"], "pt-BR"),
        ("es-419", ["spa"], "spa"),
        ("xx", ["de"], None),
        ("", ["de"], None),
        ("de", [], None),
    ],
)
def test_the_language_for_a_code(code: str, served: list[str], expected: str | None) -> None:
    assert find(code, served) == expected


def test_forms_of_codes() -> None:
    assert set(THREE_LETTERS) == set(NAMES)
    old = [
        "sqi",
        "hye",
        "eus",
        "mya",
        "zho",
        "ces",
        "nld",
        "fra",
        "kat",
        "deu",
        "ell",
        "isl",
        "mkd",
        "mri",
        "msa",
        "fas",
        "ron",
        "slk",
        "bod",
        "cym",
    ]
    new = [
        "alb",
        "arm",
        "baq",
        "bur",
        "chi",
        "cze",
        "dut",
        "fre",
        "geo",
        "ger",
        "gre",
        "ice",
        "mac",
        "mao",
        "may",
        "per",
        "rum",
        "slo",
        "tib",
        "wel",
    ]
    assert [canonical(code) for code in new] == [canonical(code) for code in old] != old
    assert len(TWO_LETTERS) == sum(len(three.split()) for three in THREE_LETTERS.values())
    assert (canonical("DEU"), canonical("cmn_Hans"), base("por_BR"), canonical("nds")) == ("de", "zh-hans", "pt", "nds")
    assert (short("deu"), short("cmn_Hans"), short("nds"), short("fr_BE")) == ("de", "zh-Hans", "nds", "fr_BE")
    assert (name_of("deu"), name_of("pt-BR"), name_of("nds")) == ("German", "Portuguese (BR)", "nds")
