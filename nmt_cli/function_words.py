"""Frequent function words of 30 languages, by which a text is recognised."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from . import languages
from .scripts import HAN, KANA

HANGUL = "\uac00-\ud7af"
WORDS = {
    "en": "the of and to is in that for with it are was you this not be",
    "de": "der die und das ist nicht zu den mit ein eine auf sich für wird",
    "fr": "le la les et des est une dans du pour que pas qui à sur",
    "es": "el los que en y del es una por con las más para está",
    "it": "il di che la è per non una sono del con della le si i",
    "pt": "o que do da em um uma não os é com para no ao se",
    "nl": "het een van de en is dat niet op te zijn voor met er wordt",
    "sv": "och att det som är inte en för på av den ett med kan har",
    "da": "og at det er ikke en for på af den et med kan har til",
    "no": "og å det er ikke en for på av den et med kan har til",
    "fi": "ja on ei että se oli ole tämä mutta ovat hän niin kun voi tai",
    "pl": "nie i w na się z do jest to że jak od przez dla jest",
    "cs": "se na je že v z do není pro to by od nebo jako",
    "sk": "sa na je že v z do nie pre to by od alebo ako",
    "hu": "az és nem hogy egy is meg van ez ki vagy ezt",
    "ro": "și şi nu de să la în cu este pe că din un pentru sau",
    "tr": "bir ve bu için değil ile da olarak var ne çok daha mi",
    "id": "yang dan di ini itu tidak untuk dengan dari pada ke akan adalah dapat",
    "vi": "và là không của có được cho một các trong người này với đã tôi",
    "ru": "и в не на что с для как это по из или от",
    "uk": "і в не на що з для як це та до від або",
    "bg": "и в не на да за се от са е ще с или като",
    "el": "και το να είναι του η της την δεν για με ο τα θα",
    "ar": "في من على أن لا إلى هذا هذه ما التي مع عن هو لم",
    "he": "של את לא על הוא זה עם אני כי אם או כל היא יש",
    "fa": "و در به از که این را است با برای آن یک می های",
    "hi": "के है में की और को का से नहीं यह पर कर एक हैं",
    "ja": "の に は を た が で て と し れ さ い る",
    "zh": "的 一 是 不 了 在 有 个 我 这 他 你 们 为 個 這 們 為",
    "ko": "이 는 다 을 에 의 가 를 은 하 지 고 로 습",
}
"""ISO 639-1 codes → words in lower case; for Chinese, Japanese and Korean, characters."""
LANGUAGES = {code: frozenset(words.split()) for code, words in WORDS.items()}
MACRO = {"nb": "no", "nn": "no"}
_WORD = re.compile(rf"[{HAN}{KANA}{HANGUL}]|(?:(?![{HAN}{KANA}{HANGUL}])[^\W\d_][\u0900-\u097f]*)+")


def base(code: str) -> str:
    """Return the language of a code, such as "pt" for "pt-BR" and "no" for "nb"."""
    language = languages.base(code)
    return MACRO.get(language, language)


def known(code: str) -> str:
    """Return the language of a code if it is one of LANGUAGES, else ""."""
    return base(code) if base(code) in LANGUAGES else ""


def function_word_shares(lines: Iterable[str]) -> dict[str, float]:
    """Return the share of each language's function words among the words of the lines, 0 to 1."""
    counts = Counter(word for line in lines for word in _WORD.findall(line.lower()))
    total = counts.total() or 1
    return {code: sum(counts[word] for word in words) / total for code, words in LANGUAGES.items()}
