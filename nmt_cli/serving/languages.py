"""Names of languages, and the codes that the interfaces give them.

A model's languages are the codes of its recipe (`data.source_language`), such as "en" or "pt-BR". Codes of requests are
compared without regard to case, and "-" and "_" are equal. If a request names a region ("EN-US") that no model has, a
model of the same language is used (see `find`).
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
    "mk": "Macedonian",
    "ml": "Malayalam",
    "mn": "Mongolian",
    "mr": "Marathi",
    "ms": "Malay",
    "mt": "Maltese",
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


def base(code: str) -> str:
    """Return a code without its region or script."""
    return normalized(code).partition("-")[0]


def name_of(code: str) -> str:
    """Return the English name of a language; the code itself if the language is not known."""
    name = NAMES.get(base(code), code)
    region = normalized(code).partition("-")[2]
    return f"{name} ({region.upper()})" if region and name != code else name


def find(code: str, served: Iterable[str]) -> str | None:
    """Return the served language for a code: the same code, else the language without a region, else the language with
    another region. None if there is none.
    """
    by_code = {normalized(language): language for language in reversed(list(served))}
    requested = normalized(code)
    if requested in by_code or base(code) in by_code:
        return by_code.get(requested, by_code.get(base(code)))
    if any(len(part) == SCRIPT for part in requested.split("-")[1:]):
        return None
    others = [
        language
        for language in served
        if base(language) == base(code) and not any(len(part) == SCRIPT for part in normalized(language).split("-")[1:])
    ]
    return others[0] if others else None
