"""BLEU's default tokenizer, by codes of languages and by texts."""

import pytest
from sacrebleu.metrics.bleu import BLEU

from nmt_cli.evaluation.tokenizers import LANGUAGES, default_tokenizer

TEXTS = {
    "Chinese": "今天天气很好，我们一起去公园散步吧。",
    "Chinese, traditional": "他昨天在臺北買了一臺筆記型電腦。",
    "Japanese": "今日は天気がいいので、公園を散歩しましょう。",
    "Japanese, half-width": "ｺﾝﾆﾁﾊ ｾｶｲ",
    "Thai": "วันนี้อากาศดีมาก เราไปเดินเล่นกันเถอะ",
    "Burmese": "ဒီနေ့ ရာသီဥတု သာယာတယ်",
    "Tibetan": "དེ་རིང་གནམ་གཤིས་ཡག་པོ་འདུག",
    "Korean": "오늘은 날씨가 정말 좋네요.",
    "Russian": "Сегодня очень хорошая погода.",
    "Arabic": "الطقس جميل جدا اليوم",
    "Hindi": "आज मौसम बहुत अच्छा है।",
    "English": "The weather is very good today.",
}
SPACED = ("Korean", "Russian", "Arabic", "Hindi", "English")


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        *((code, "zh") for code in ("zh", "ZH", "zh-CN", "zh_Hant", "zho_Hans", "zh_CN", "yue", "cmn", "chi", " zh ")),
        *(
            (code, "char")
            for code in ("ja", "ja_XX", "jpn_Jpan", "th", "th-TH", "lo", "khm_Khmr", "my", "bur", "tib", "dz")
        ),
        *((code, "13a") for code in ("en", "ko", "vi", "target", "", "zhx", "tha-x-latn", "zh-Latn-pinyin")),
    ],
)
def test_a_known_code_decides_whatever_the_text(language: str, tokenizer: str) -> None:
    assert default_tokenizer(language, [TEXTS["English"]]) == tokenizer


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("language", ["target", "", "en"])
def test_otherwise_the_script_decides(language: str, name: str) -> None:
    tokenizer = "zh" if name.startswith("Chinese") else "13a" if name in SPACED else "char"
    assert default_tokenizer(language, [TEXTS[name], "", "1 000 …"]) == tokenizer


@pytest.mark.parametrize(
    ("lines", "tokenizer"),
    [
        ([], "13a"),
        (["", " ", "12:30 !?"], "13a"),
        (["我 ab"], "13a"),  # one letter of three
        (["我们 ab"], "13a"),  # one half is not more than one half
        (["我们的 ab"], "zh"),
        (["这个日本品牌叫做の", "今天天气很好，我们去公园散步。"], "zh"),  # one kana of 24 letters
        (["東京都知事選挙", "候補者の一覧"], "char"),  # one kana of 13
        (iter(["ไทย", "ไทย"]), "char"),
    ],
)
def test_shares_of_letters(lines: list[str], tokenizer: str) -> None:
    assert default_tokenizer("target", lines) == tokenizer


def test_the_names_are_sacrebleus() -> None:
    assert set(LANGUAGES) | {"13a"} <= set(BLEU.TOKENIZERS)
