"""Names of languages, and their codes, which recipes, tags of models and requests write in several ways.

A model's languages are the codes of its recipe (`data.source_language`), such as "en" or "pt-BR", or of its tags, such
as "deu" or "cmn_Hans" (`data.tags`). Codes are compared without regard to case; "-" and "_" are equal, and so are the
two letters of ISO 639-1 and the three letters of ISO 639-3 ("deu") and ISO 639-2 ("ger"). If a request names a region
("EN-US") that no model has, a model of the same language is used (see `find`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LANGUAGES = """\
af, Afrikaans, afr
ar, Arabic, ara arb
az, Azerbaijani, aze azj
be, Belarusian, bel
bg, Bulgarian, bul
bn, Bengali, ben
bo, Tibetan, bod tib
bs, Bosnian, bos
ca, Catalan, cat
cs, Czech, ces cze
cy, Welsh, cym wel
da, Danish, dan
de, German, deu ger
el, Greek, ell gre
en, English, eng
eo, Esperanto, epo
es, Spanish, spa
et, Estonian, est ekk
eu, Basque, eus baq
fa, Persian, fas pes per
fi, Finnish, fin
fr, French, fra fre
ga, Irish, gle
gl, Galician, glg
gu, Gujarati, guj
he, Hebrew, heb
hi, Hindi, hin
hr, Croatian, hrv
hu, Hungarian, hun
hy, Armenian, hye arm
id, Indonesian, ind
is, Icelandic, isl ice
it, Italian, ita
ja, Japanese, jpn
ka, Georgian, kat geo
kk, Kazakh, kaz
km, Khmer, khm
kn, Kannada, kan
ko, Korean, kor
ky, Kyrgyz, kir
la, Latin, lat
lt, Lithuanian, lit
lv, Latvian, lav lvs
mi, Maori, mri mao
mk, Macedonian, mkd mac
ml, Malayalam, mal
mn, Mongolian, mon khk
mr, Marathi, mar
ms, Malay, msa zsm may
mt, Maltese, mlt
my, Burmese, mya bur
nb, Norwegian Bokmål, nob
ne, Nepali, nep npi
nl, Dutch, nld dut
nn, Norwegian Nynorsk, nno
no, Norwegian, nor
pa, Punjabi, pan
pl, Polish, pol
ps, Pashto, pus
pt, Portuguese, por
ro, Romanian, ron rum
ru, Russian, rus
si, Sinhala, sin
sk, Slovak, slk slo
sl, Slovenian, slv
sq, Albanian, sqi alb
sr, Serbian, srp
sv, Swedish, swe
sw, Swahili, swa swh
ta, Tamil, tam
te, Telugu, tel
th, Thai, tha
tl, Tagalog, tgl
tr, Turkish, tur
uk, Ukrainian, ukr
ur, Urdu, urd
uz, Uzbek, uzb uzn
vi, Vietnamese, vie
xh, Xhosa, xho
zh, Chinese, zho cmn chi
zu, Zulu, zul
"""
"""The codes of ISO 639-1, each with its English name and its codes with three letters: of ISO 639-3, with the member of
a macrolanguage that is meant, and the bibliographic one of ISO 639-2."""
_ROWS = [line.split(", ") for line in LANGUAGES.splitlines()]
NAMES = {code: name for code, name, _ in _ROWS}
TWO_LETTERS = {three: code for code, _, several in _ROWS for three in several.split()}
VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
"""Variants of a language that DeepL's interface lists as targets, instead of the language itself."""

_CODE = r"(?:[a-z]{2,3}|[A-Z]{4,10})(?:_[A-Z][a-z]{3}|_[A-Z]{2})?"
_CODES = rf"{_CODE}(?:[+_]{_CODE})*"
PAIR = re.compile(rf"(?:^|.*?[-_])({_CODES})-({_CODES})")
"""The languages at the end of a model's name; groups of old models are in capitals, such as ROMANCE."""

SCRIPT = 4
"""Number of letters in the code of a script, as in zh-Hant. A model never serves a request for another script, because
its readers may not know the script."""


def normalized(code: str) -> str:
    """Return a code in the form in which codes are compared."""
    return code.strip().replace("_", "-").lower()


def canonical(code: str) -> str:
    """Return a normalised code whose language has two letters, if ISO 639-1 has it: "deu" is "de"."""
    return short(normalized(code))


def base(code: str) -> str:
    """Return a canonical code without its region or script."""
    return canonical(code).partition("-")[0]


def name_of(code: str) -> str:
    """Return the English name of a language; the code itself if the language is not known."""
    name = NAMES.get(base(code), code)
    region = normalized(code).partition("-")[2]
    return f"{name} ({region.upper()})" if region and name != code else name


def short(code: str) -> str:
    """Return a code with two letters for its language, if ISO 639-1 has it; the rest stays: "cmn_Hans" is "zh-Hans"."""
    language, _, rest = code.replace("_", "-").partition("-")
    two = TWO_LETTERS.get(language.lower())
    return code if two is None else f"{two}-{rest}" if rest else two


def languages_in(name: str) -> tuple[str, str]:
    """Return the codes in the name of a model, such as opus-mt-tc-big-gmq-en, deu+fra-eng or eng-ara_Arab; "" where it
    has none.

    Other names than those of OPUS-MT may end in words: only codes that ISO 639 has count.
    """
    found = PAIR.fullmatch(name)
    codes = re.findall(_CODE, f"{found[1]}-{found[2]}") if found else []
    if not found or not ("opus-mt" in name or all(base(code) in NAMES for code in codes)):
        return "", ""
    return found[1], found[2]


def single(codes: str) -> str:
    """Return the code of a language that is written as in a model's name, such as "ara_Arab"; "mul" if there are
    several, such as "deu+fra".
    """
    several = re.fullmatch(_CODES, codes) and len(re.findall(_CODE, codes)) > 1
    return "mul" if several else short(codes).replace("_", "-")


def find(code: str, served: Iterable[str]) -> str | None:
    """Return the served language for a code: the same code, else the language without a region, else the language with
    another region. None if there is none.
    """
    languages = list(served)
    for form, wanted in ((str, code), (normalized, code), (canonical, code), (canonical, base(code))):
        for language in languages:
            if form(language) == form(wanted):
                return language
    regional = (language for language in languages if base(language) == base(code) and not has_script(language))
    return None if has_script(code) else next(regional, None)


def has_script(code: str) -> bool:
    """Return whether a code names a script."""
    return any(len(part) == SCRIPT for part in normalized(code).split("-")[1:])
