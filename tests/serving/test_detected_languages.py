"""Texts whose language the client does not name: what is translated, what comes back as it is, what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served, get, httpx, post, running
from untrained import write_untrained
from waiting import LIMIT, wait_until

from nmt_cli.documents import Document
from nmt_cli.documents.segment import Written
from nmt_cli.serving.settings import Limits

EN = "The dog sleeps in the kitchen today and does not want to go out."
DE = "Der Hund schläft heute in der Küche und möchte nicht nach draußen gehen."
PT = "O cachorro dorme hoje na cozinha e não quer sair para a rua."
FR = "Le chien dort aujourd'hui dans la cuisine et ne veut pas sortir."
SCRIPTS = {"el": "Γειά σου", "ko": "안녕하세요", "th": "สวัสดี", "ja": "こんにちは", "he": "שלום", "am": "ሰላም ለዓለም"}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, other: Path) -> Iterator[Served]:
    """English and German to Portuguese."""
    english = write_untrained(tmp_path_factory.mktemp("models") / "en", seed=2, max_extra=10, pair=("en", "pt-BR"))
    with running(english, other, cors=("*",)) as one:
        yield one


def ask(served: Served, q: Any, source: str = "auto", target: str = "pt", **more: Any) -> httpx.Response:
    return post(f"{served.url}/translate", json={"q": q, "source": source, "target": target, **more})


def translated(served: Served, text: str, source: str) -> str:
    return str(ask(served, text, source).json()["translatedText"])


def test_each_text_of_a_batch_has_its_own_language(two: Served) -> None:
    sources = {DE: "de", EN: "en", "OK": "en", "12:30": "en"}
    texts = [DE, FR, EN, "", PT, "OK", DE, "12:30", *SCRIPTS.values()]
    answer = ask(two, texts, alternatives=1).json()
    expected = [translated(two, text, sources[text]) if text in sources else text for text in texts]
    assert answer["translatedText"] == expected != texts
    found = answer["detectedLanguage"]
    assert [found[n]["language"] for n in (0, 1, 2, 4, *range(8, len(texts)))] == ["de", "fr", "en", "pt-BR", *SCRIPTS]
    assert [text for text, one in zip(texts, found, strict=True) if one["confidence"] < 50] == ["", "OK", "12:30"]
    assert [bool(others) for others in answer["alternatives"][:5]] == [True, False, True, False, False]


def test_a_single_text_that_no_model_translates_is_refused(two: Served) -> None:
    pair = {"source": "auto", "target": "pt"}
    file = post(f"{two.url}/translate_file", data=pair, files={"file": ("a.txt", FR.encode())})
    for answer in (ask(two, FR), file, post(f"{two.url}/nmt/attention", json={"q": FR, **pair})):
        assert (answer.status_code, answer.json()) == (400, {"error": "French (fr) is not supported"})
    assert ask(two, [FR]).json()["translatedText"] == [FR]
    assert ask(two, EN, target="de").json()["error"].startswith("German (de) is not available as a target language")
    deepl = post(f"{two.url}/v2/translate", data={"text": FR, "target_lang": "PT"})
    assert deepl.json()["message"].startswith("Value for 'source_lang' not supported")


def test_markup_shows_no_language_and_files_come_back_too(two: Served) -> None:
    html = f'<p title="{EN} {EN}">{PT}</p><script>{EN}</script>'
    file = {"file": ("a.html", html)}
    answer = post(f"{two.url}/translate_file", data={"source": "auto", "target": "pt"}, files=file).json()
    assert get(answer["translatedFileUrl"]).text == html == ask(two, html, format="html").json()["translatedText"]


def test_a_language_that_the_client_names_is_obeyed(two: Served) -> None:
    assert len({translated(two, DE, "de"), translated(two, DE, "EN_gb"), DE}) == 3
    for pair in (("en", "en"), ("EN_gb", "eng"), ("pt", "pt-PT")):
        assert ask(two, DE, *pair).json() == {"translatedText": DE}
    assert ask(two, FR, "fr", "fr").json() == {"error": "fr is not supported"}


def test_clients(two: Served) -> None:
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(two.url)
    assert [client.translate(text, "auto", "pt", timeout=LIMIT) for text in (DE, PT)] == [translated(two, DE, "de"), PT]
    assert [client.detect(text)[0]["language"] for text in (FR, PT, "...")] == ["fr", "pt-BR", "en"]
    deepl = pytest.importorskip("deepl").DeepLClient("key", server_url=two.url, send_platform_info=False)
    before = deepl.get_usage().character.count
    found = deepl.translate_text([DE, FR, PT], target_lang="PT-BR")
    assert [one.text for one in found] == [translated(two, DE, "de"), FR, PT]
    assert [f"{one.detected_source_lang}{one.billed_characters}" for one in found] == [f"DE{len(DE)}", "FR0", "PT0"]
    assert deepl.get_usage().character.count == before + 2 * len(DE)  # asked for twice


def test_restored_placeholders_are_counted(two: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Document, "write", lambda self, translations: Written("x", 2))
    for path, name in (("translate", "q"), ("v2/translate", "text")):
        values = {name: [DE, EN, FR], "source": "auto", "target": "pt", "target_lang": "PT"}
        headers = post(f"{two.url}/{path}", json=values, headers={"Origin": "x"}).headers
        assert headers["x-restored-placeholders"] == "4"
        assert "X-Restored-Placeholders" in headers["access-control-expose-headers"]


def test_the_searches_of_all_models_end_with_their_request(two: Served) -> None:
    with running(*two.models.settings.models, limits=Limits(max_seconds=0.1)) as served:
        assert ask(served, [f"{text} {number}." for number in range(500) for text in (EN, DE)]).status_code == 503
        wait_until(served.idle)


def test_a_model_of_many_source_languages(tmp_path: Path) -> None:
    with running(write_untrained(tmp_path / "m", max_extra=10, pair=("mul", "en"))) as served:
        answer = ask(served, [FR, EN], target="en").json()
    assert [one["language"] for one in answer["detectedLanguage"]] == ["fr", "en"]
    assert [text in (FR, EN) for text in answer["translatedText"]] == [False, True]
