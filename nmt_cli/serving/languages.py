"""Names of languages, and the codes that the interfaces give them.

A model's languages are the codes of its recipe (`data.source_language`), such as "en" or "pt-BR". Codes of requests are
compared without regard to case and to the difference of "-" and "_". A request may name a region ("EN-US") that the model
does not: then the model of the language serves it.
"""

from __future__ import annotations

from collections.abc import Iterable

NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali", "bs": "Bosnian", "ca": "Catalan",
    "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian",
    "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian",
    "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ko": "Korean", "ky": "Kyrgyz", "la": "Latin", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian",
    "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian Bokmål", "ne": "Nepali", "nl": "Dutch",
    "nn": "Norwegian Nynorsk", "no": "Norwegian", "pa": "Punjabi", "pl": "Polish", "ps": "Pashto", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "te": "Telugu",
    "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "xh": "Xhosa", "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip
VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
"""Variants that DeepL's interface lists as targets in place of the language."""

SCRIPT = 4
"""Letters of a script's code, as in zh-Hant: another script is not understood by the same readers."""


def normalized(code: str) -> str:
    """Return a code as codes are compared."""
    return code.strip().replace("_", "-").lower()


def base(code: str) -> str:
    """Return a code without its region or script."""
    return normalized(code).partition("-")[0]


def name_of(code: str) -> str:
    """Return the English name of a language; the code itself if it is not known."""
    name = NAMES.get(base(code), code)
    region = normalized(code).partition("-")[2]
    return f"{name} ({region.upper()})" if region and name != code else name


def find(code: str, served: Iterable[str]) -> str | None:
    """Return the served language that a code names: the same one, else its language without a region, else in another region; None: there is none."""
    by_code = {normalized(language): language for language in reversed(list(served))}
    requested = normalized(code)
    if requested in by_code or base(code) in by_code:
        return by_code.get(requested, by_code.get(base(code)))
    if any(len(part) == SCRIPT for part in requested.split("-")[1:]):
        return None
    others = [language for language in served if base(language) == base(code) and not any(len(part) == SCRIPT for part in normalized(language).split("-")[1:])]
    return others[0] if others else None
