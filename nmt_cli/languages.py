"""Names of languages, and their codes, which recipes, tags of models and requests write in several ways.

A model's languages are the codes of its recipe (`data.source_language`), such as "en" or "pt-BR", or of its tags, such
as "deu" or "cmn_Hans" (`data.tags`). Codes are compared without regard to case; "-" and "_" are equal, and so are the
two letters of ISO 639-1 and the three letters of ISO 639-3 ("deu") and ISO 639-2 ("ger"). If a request names a region
("EN-US") that no model has, a model of the same language is used (see `find`).
"""

from __future__ import annotations

from collections.abc import Iterable

NAMES = {
    "af": "Afrikaans",
    "ar": "Arabic",
    "az": "Azerbaijani",
    "be": "Belarusian",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "bo": "Tibetan",
    "bs": "Bosnian",
    "ca": "Catalan",
    "cs": "Czech",
    "cy": "Welsh",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "eo": "Esperanto",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "ga": "Irish",
    "gl": "Galician",
    "gu": "Gujarati",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "hy": "Armenian",
    "id": "Indonesian",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "ka": "Georgian",
    "kk": "Kazakh",
    "km": "Khmer",
    "kn": "Kannada",
    "ko": "Korean",
    "ky": "Kyrgyz",
    "la": "Latin",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mi": "Maori",
    "mk": "Macedonian",
    "ml": "Malayalam",
    "mn": "Mongolian",
    "mr": "Marathi",
    "ms": "Malay",
    "mt": "Maltese",
    "my": "Burmese",
    "nb": "Norwegian Bokmål",
    "ne": "Nepali",
    "nl": "Dutch",
    "nn": "Norwegian Nynorsk",
    "no": "Norwegian",
    "pa": "Punjabi",
    "pl": "Polish",
    "ps": "Pashto",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "si": "Sinhala",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sq": "Albanian",
    "sr": "Serbian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "tl": "Tagalog",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "uz": "Uzbek",
    "vi": "Vietnamese",
    "xh": "Xhosa",
    "zh": "Chinese",
    "zu": "Zulu",
}
THREE_LETTERS = {
    "af": "afr",
    "ar": "ara arb",
    "az": "aze azj",
    "be": "bel",
    "bg": "bul",
    "bn": "ben",
    "bo": "bod tib",
    "bs": "bos",
    "ca": "cat",
    "cs": "ces cze",
    "cy": "cym wel",
    "da": "dan",
    "de": "deu ger",
    "el": "ell gre",
    "en": "eng",
    "eo": "epo",
    "es": "spa",
    "et": "est ekk",
    "eu": "eus baq",
    "fa": "fas pes per",
    "fi": "fin",
    "fr": "fra fre",
    "ga": "gle",
    "gl": "glg",
    "gu": "guj",
    "he": "heb",
    "hi": "hin",
    "hr": "hrv",
    "hu": "hun",
    "hy": "hye arm",
    "id": "ind",
    "is": "isl ice",
    "it": "ita",
    "ja": "jpn",
    "ka": "kat geo",
    "kk": "kaz",
    "km": "khm",
    "kn": "kan",
    "ko": "kor",
    "ky": "kir",
    "la": "lat",
    "lt": "lit",
    "lv": "lav lvs",
    "mi": "mri mao",
    "mk": "mkd mac",
    "ml": "mal",
    "mn": "mon khk",
    "mr": "mar",
    "ms": "msa zsm may",
    "mt": "mlt",
    "my": "mya bur",
    "nb": "nob",
    "ne": "nep npi",
    "nl": "nld dut",
    "nn": "nno",
    "no": "nor",
    "pa": "pan",
    "pl": "pol",
    "ps": "pus",
    "pt": "por",
    "ro": "ron rum",
    "ru": "rus",
    "si": "sin",
    "sk": "slk slo",
    "sl": "slv",
    "sq": "sqi alb",
    "sr": "srp",
    "sv": "swe",
    "sw": "swa swh",
    "ta": "tam",
    "te": "tel",
    "th": "tha",
    "tl": "tgl",
    "tr": "tur",
    "uk": "ukr",
    "ur": "urd",
    "uz": "uzb uzn",
    "vi": "vie",
    "xh": "xho",
    "zh": "zho cmn chi",
    "zu": "zul",
}
"""The codes with three letters for those of ISO 639-1: of ISO 639-3, with the member of a macrolanguage that is meant,
and the bibliographic one of ISO 639-2."""
TWO_LETTERS = {three: two for two, several in THREE_LETTERS.items() for three in several.split()}
VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
"""Variants of a language that DeepL's interface lists as targets, instead of the language itself."""

SCRIPT = 4
"""Number of letters in the code of a script, as in zh-Hant. A model never serves a request for another script, because
its readers may not know the script."""


def normalized(code: str) -> str:
    """Return a code in the form in which codes are compared."""
    return code.strip().replace("_", "-").lower()


def canonical(code: str) -> str:
    """Return a normalised code whose language has two letters, if ISO 639-1 has it: "deu" is "de"."""
    language, hyphen, rest = normalized(code).partition("-")
    return f"{TWO_LETTERS.get(language, language)}{hyphen}{rest}"


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


def find(code: str, served: Iterable[str]) -> str | None:
    """Return the served language for a code: the same code, else the language without a region, else the language with
    another region. None if there is none.
    """
    languages = list(served)
    for form in (str, normalized, canonical):
        for language in languages:
            if form(language) == form(code):
                return language
    same = [language for language in languages if base(language) == base(code)]
    if whole := [language for language in same if canonical(language) == base(code)]:
        return whole[0]
    others = [] if has_script(code) else [language for language in same if not has_script(language)]
    return others[0] if others else None


def has_script(code: str) -> bool:
    """Return whether a code names a script."""
    return any(len(part) == SCRIPT for part in normalized(code).split("-")[1:])
