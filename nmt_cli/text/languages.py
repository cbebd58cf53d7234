"""Names of languages, and their codes, which recipes, tags of models and requests write in several ways.

A model's languages are the codes of its recipe (`data.source_language`), such as "en" or "pt-BR", or of its tags, such
as "deu" or "cmn_Hans" (`data.tags`). Codes are compared without regard to case; "-" and "_" are equal, and so are all
codes that the library langcodes knows for a language: two letters and three ("de", "deu", "ger"), the member of a
macrolanguage that is meant ("cmn"), withdrawn ones ("iw"). If a request names a region ("EN-US") that no model has, a
model of the same language is used (see `find`).

langcodes is imported for codes that are not in NAMES, which takes 0.1 s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

LANGUAGES = """\
af Afrikaans, am Amharic, ar Arabic, as Assamese, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali,
bo Tibetan, br Breton, bs Bosnian, ca Catalan, cs Czech, cy Welsh, da Danish, de German, el Greek, en English,
eo Esperanto, es Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, fo Faroese, fr French, fy Frisian,
ga Irish, gd Scottish Gaelic, gl Galician, gu Gujarati, ha Hausa, he Hebrew, hi Hindi, hr Croatian,
ht Haitian Creole, hu Hungarian, hy Armenian, id Indonesian, ig Igbo, is Icelandic, it Italian, ja Japanese,
jv Javanese, ka Georgian, kk Kazakh, km Khmer, kn Kannada, ko Korean, ku Kurdish, ky Kyrgyz, la Latin,
lb Luxembourgish, lo Lao, lt Lithuanian, lv Latvian, mg Malagasy, mi Maori, mk Macedonian, ml Malayalam,
mn Mongolian, mr Marathi, ms Malay, mt Maltese, my Burmese, nb Norwegian Bokmål, ne Nepali, nl Dutch,
nn Norwegian Nynorsk, no Norwegian, oc Occitan, om Oromo, or Odia, pa Punjabi, pl Polish, ps Pashto, pt Portuguese,
ro Romanian, ru Russian, rw Kinyarwanda, sd Sindhi, si Sinhala, sk Slovak, sl Slovenian, sn Shona, so Somali,
sq Albanian, sr Serbian, st Sotho, su Sundanese, sv Swedish, sw Swahili, ta Tamil, te Telugu, tg Tajik, th Thai,
tk Turkmen, tl Tagalog, tr Turkish, tt Tatar, ug Uyghur, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese, xh Xhosa,
yi Yiddish, yo Yoruba, zh Chinese, zu Zulu"""
NAMES: dict[str, str] = dict(re.findall(r"([a-z]{2}) ([^,]+)", LANGUAGES))
"""Codes of ISO 639-1 with their English names."""
VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
"""Variants of a language that DeepL's interface lists as targets, instead of the language itself."""

_CODE = r"(?:[a-z]{2,3}|[A-Z]{4,10})(?:_[A-Z][a-z]{3}|_[A-Z]{2})?"
_CODES = rf"{_CODE}(?:[+_]{_CODE})*"
PAIR = re.compile(rf"(?:^|.*?[-_])({_CODES})-({_CODES})")
"""The languages at the end of a model's name; groups of old models are in capitals, such as ROMANCE."""

SCRIPT, REGION = "[a-z]{4}", r"[a-z]{2}|\d{3}"
"""The forms of a script and of a region in a code, as in zh-Hant and zh-TW. A model never serves a request for another
script, because its readers may not know the script."""


def normalized(code: str) -> str:
    """Return a code in the form in which codes are compared."""
    return code.strip().replace("_", "-").lower()


def canonical(code: str) -> str:
    """Return a normalised code whose language has the code of ISO 639-1, if there is one: "deu" is "de"."""
    return normalized(short(normalized(code)))


def base(code: str) -> str:
    """Return a canonical code without its region or script."""
    return canonical(code).partition("-")[0]


def name_of(code: str) -> str:
    """Return the English name of a language; the code itself if the language is not known."""
    language, _, region = canonical(code).partition("-")
    name = NAMES.get(language, code)
    return f"{name} ({region.upper()})" if region and name != code else name


def short(code: str) -> str:
    """Return a code with two letters for its language, if ISO 639-1 has it; the rest stays: "cmn_Hans" is "zh-Hans"."""
    language, _, rest = code.replace("_", "-").partition("-")
    known = _standard(language.lower())
    return code if known == language.lower() else f"{known}-{rest}" if rest else known


@lru_cache(maxsize=4096)
def _standard(language: str) -> str:
    """Return the code by which langcodes knows a language: "deu" and "ger" are "de", "sh" is "sr-Latn"."""
    if language in NAMES or not re.fullmatch("[a-z]{2,3}", language):
        return language
    from langcodes import standardize_tag

    known: str = standardize_tag(language, macro=True)
    return "tl" if known == "fil" else known  # Filipino is Tagalog


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
    """Return the served language for a code: the same code, else the same language in the same script, in the nearest
    region. None if there is none. A served code without a script stands for all scripts of its language.
    """
    languages = list(served)
    for form in (str, normalized, canonical):
        for language in languages:
            if form(language) == form(code):
                return language
    script, region = _subtag(code, SCRIPT), _subtag(code, REGION)
    scripts = {language: _subtag(language, SCRIPT) for language in languages if _kin(language) == _kin(code)}
    if any(scripts.values()):
        script = script or _likely_script(base(code), region)
        scripts = {language: own for language, own in scripts.items() if own in (script, "")}

    def farness(language: str) -> tuple[bool, int, str]:
        other = _subtag(language, REGION)
        return scripts[language] != script, _distance(base(code), region, other), other

    return min(scripts, key=farness, default=None)


def _kin(code: str) -> str:
    """Return the language of a code; that of Bokmål is Norwegian."""
    return "no" if base(code) == "nb" else base(code)


def _subtag(code: str, form: str) -> str:
    """Return the part of a code behind its language that has this form; else ""."""
    return next((part for part in canonical(code).split("-")[1:] if re.fullmatch(form, part)), "")


def _likely_script(language: str, region: str) -> str:
    """Return the script in which a language is usually written in a region: "hant" for "zh" and "tw"."""
    from langcodes import Language

    return str(Language.make(language, territory=region.upper() or None).maximize().script).lower()


def _distance(language: str, region: str, other: str) -> int:
    """Return how far a language in a region is from that in another one; "" is its usual region."""
    from langcodes import tag_distance

    return tag_distance(f"{language}-{region}".strip("-"), f"{language}-{other}".strip("-"))
