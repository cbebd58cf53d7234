"""LibreTranslate's interface, as its own clients and raw requests use it."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest
from served import Served, get, httpx, post
from waiting import LIMIT

import nmt_cli as nmt
from nmt_cli.serving import files as kept

TEXT = "the cat sees a dog."


def answer_of(served: Served, path: str, **values: object) -> httpx.Response:
    return post(served.url + path, json=values)


def translated(translator: nmt.Translator, text: str, **options: Any) -> str:
    found: str = translator.translate([text], **options)[0].text
    return found


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/languages", 200),
        ("/ready", 200),
        ("/openapi.json", 200),
        ("/v2/usage", 200),
        ("/nowhere", 404),
        ("/v2/nowhere", 404),
    ],
)
def test_json_has_a_charset(served: Served, path: str, status: int) -> None:
    """Some clients take text without one for Latin-1."""
    answer = get(f"{served.url}{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json; charset=utf-8")


def test_errors_outside_of_the_interfaces_have_a_charset(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt_cli.serving.libretranslate.name_of", lambda _: 1 // 0)
    assert get(f"{served.url}/languages").headers["content-type"] == "application/json; charset=utf-8"
    with socket.create_connection((urlsplit(served.url).hostname, urlsplit(served.url).port)) as raw:
        raw.sendall(b"no HTTP\r\n\r\n")
        assert b"content-type: application/json; charset=utf-8\r\n" in raw.recv(4096)


@pytest.mark.slow
def test_a_text(served: Served, translator: nmt.Translator) -> None:
    expected = {"translatedText": translated(translator, TEXT)}
    values = {"q": TEXT, "source": "en", "target": "de"}
    url = f"{served.url}/translate"
    for answer in (
        post(url, json=values),
        post(url, data=values),
        post(url, params=values),
        post(url, files={name: (None, value) for name, value in values.items()}),
    ):
        assert (answer.status_code, answer.json()) == (200, expected)
        assert answer.headers["content-type"] == "application/json; charset=utf-8"


def test_several_texts_blank_ones_and_white_space(served: Served, translator: nmt.Translator) -> None:
    given = [TEXT, "", "  a small house.\n\n the red cat.\n"]
    answer = answer_of(served, "/translate", q=given, source="en", target="de")
    house, cat = (translated(translator, line) for line in ("a small house.", "the red cat."))
    assert answer.json() == {
        "translatedText": [translated(translator, TEXT), "", f"  {house.strip()}\n\n {cat.strip()}\n"]
    }


def test_html(served: Served, translator: nmt.Translator) -> None:
    html = "<p class='x'>the cat sees a dog.</p><script>the cat</script>"
    answer = answer_of(served, "/translate", q=html, source="en", target="de", format="html").json()["translatedText"]
    assert answer == translator.translate_document(html, "html")
    assert answer.startswith("<p class='x'>")
    assert answer.endswith("</p><script>the cat</script>")


def test_alternatives_and_detection(served: Served, translator: nmt.Translator) -> None:
    [best] = translator.translate([TEXT], beam=4, nbest=4)
    answer = answer_of(served, "/translate", q=TEXT, source="auto", target="de", alternatives=3).json()
    assert [answer["translatedText"], *answer["alternatives"]] == list(dict.fromkeys(one.text for one in best.nbest))
    assert answer["detectedLanguage"]["language"] == "en"
    assert 0 < answer["detectedLanguage"]["confidence"] <= 100
    batch = answer_of(served, "/translate", q=[TEXT, "a dog."], source="auto", target="de", alternatives=1).json()
    assert {name: len(values) for name, values in batch.items()} == {
        "translatedText": 2,
        "detectedLanguage": 2,
        "alternatives": 2,
    }


def test_languages_detection_and_settings(served: Served) -> None:
    assert get(f"{served.url}/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["pt-BR"]},
        {"code": "pt-BR", "name": "Portuguese (BR)", "targets": []},
    ]
    found = answer_of(served, "/detect", q="Die kleine Katze schläft unter dem großen Tisch.").json()
    assert found[0]["language"] == "de"
    settings = get(f"{served.url}/frontend/settings").json()
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert {name: settings[name] for name in ("charLimit", "keyRequired", "suggestions")} == {
        "charLimit": 500_000,
        "keyRequired": False,
        "suggestions": False,
    }
    assert get(f"{served.url}/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("values", "status", "message"),
    [
        ({"source": "en", "target": "de"}, 400, "Invalid request: missing q parameter"),
        ({"q": "a", "target": "de"}, 400, "Invalid request: missing source parameter"),
        ({"q": "a", "source": "en"}, 400, "Invalid request: missing target parameter"),
        ({"q": "a", "source": "fr", "target": "de"}, 400, "fr is not supported"),
        ({"q": "a", "source": "en", "target": "xx"}, 400, "xx is not supported"),
        (
            {"q": "a", "source": "en", "target": "pt-BR"},
            400,
            "Portuguese (BR) (pt-BR) is not available as a target language from English (en)",
        ),
        ({"q": "a", "source": "en", "target": "de", "format": "pdf"}, 400, "pdf format is not supported"),
        (
            {"q": 3, "source": "en", "target": "de"},
            400,
            "Invalid request: q parameter is neither a text nor a list of texts",
        ),
        (
            {"q": ["a", None], "source": "en", "target": "de"},
            400,
            "Invalid request: q parameter is neither a text nor a list of texts",
        ),
        (
            {"q": "a", "source": "en", "target": "de", "alternatives": "many"},
            400,
            "Invalid request: alternatives parameter is not a number",
        ),
        (
            {"q": "a", "source": "en", "target": "de", "alternatives": 99},
            400,
            "Invalid request: alternatives parameter must be <= 9",
        ),
    ],
)
def test_what_is_wrong_is_named(served: Served, values: dict[str, object], status: int, message: str) -> None:
    answer = answer_of(served, "/translate", **values)
    assert (answer.status_code, answer.json()) == (status, {"error": message})


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 100_000, b'"a"', b"\xff", b""])
def test_bodies_that_are_no_json_object(served: Served, body: bytes) -> None:
    answer = post(f"{served.url}/translate", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()) == (400, {"error": "Invalid JSON format"})


def test_unknown_paths_and_methods(served: Served) -> None:
    assert (get(f"{served.url}/nothing").status_code, get(f"{served.url}/nothing").json()) == (
        404,
        {"error": "Not Found"},
    )
    assert get(f"{served.url}/translate").status_code == 405
    assert post(f"{served.url}/suggest").status_code == 403


@pytest.mark.parametrize(
    ("name", "content"), [("a b.txt", "the cat.\n\na dog.\n"), ("ü.html", "<p>the <b>cat</b>.</p>")]
)
def test_files(served: Served, translator: nmt.Translator, name: str, content: str) -> None:
    answer = post(
        f"{served.url}/translate_file", data={"source": "en", "target": "de"}, files={"file": (name, content.encode())}
    )
    assert answer.status_code == 200, answer.text
    fetched = get(answer.json()["translatedFileUrl"])
    form = "html" if name.endswith("html") else "text"
    assert fetched.text == translator.translate_document(content, form)
    assert fetched.headers["content-type"] == (
        "text/html; charset=utf-8" if form == "html" else "text/plain; charset=utf-8"
    )
    assert fetched.headers["content-disposition"].startswith("attachment")
    assert get(f"{served.url}/download_file/..%2f{name}").status_code == 404


def test_files_have_an_end_and_empty_ones_count(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "CAPACITY", 3 * kept.LEAST)
    values = {"source": "en", "target": "de"}
    answers = [post(f"{served.url}/translate_file", data=values, files={"file": ("a.txt", b"")}) for _ in range(5)]

    def statuses() -> list[int]:
        return sorted(get(answer.json()["translatedFileUrl"]).status_code for answer in answers)

    assert statuses() == [200, 200, 200, 404, 404]
    monkeypatch.setattr(kept, "LIFETIME", -1)
    assert statuses() == [404] * 5


def test_files_that_are_refused(served: Served) -> None:
    values = {"source": "en", "target": "de"}
    for files, message in (
        ({"file": ("a.pdf", b"x")}, "file format not supported"),
        ({"other": ("a.txt", b"x")}, "missing file parameter"),
    ):
        answer = post(f"{served.url}/translate_file", data=values, files=files)
        assert (answer.status_code, answer.json()["error"]) == (400, f"Invalid request: {message}")


def test_libretranslatepy(served: Served, translator: nmt.Translator) -> None:
    libretranslatepy = pytest.importorskip("libretranslatepy")
    client = libretranslatepy.LibreTranslateAPI(served.url)
    assert client.translate(TEXT, "en", "de", timeout=LIMIT) == translated(translator, TEXT)
    assert {language["code"] for language in client.languages()} == {"en", "de", "pt-BR"}
    assert client.detect("Die Katze sieht einen Hund.")[0]["language"] == "de"
    with pytest.raises(HTTPError) as error:
        client.translate(TEXT, "de", "en", timeout=LIMIT)
    assert error.value.code == 400
    assert json.load(error.value) == {"error": "English (en) is not available as a target language from German (de)"}


def test_deep_translator(served: Served, translator: nmt.Translator) -> None:
    deep_translator = pytest.importorskip("deep_translator")
    client = deep_translator.LibreTranslator(source="en", target="de", custom_url=f"{served.url}/", api_key="unused")
    assert client.translate(TEXT) == translated(translator, TEXT)
    assert client.translate_batch([TEXT, "a house."]) == [translated(translator, text) for text in (TEXT, "a house.")]


def test_the_description_and_the_page(served: Served) -> None:
    paths = get(f"{served.url}/openapi.json").json()["paths"]
    assert {
        "/translate",
        "/languages",
        "/detect",
        "/translate_file",
        "/v2/translate",
        "/nmt/attention",
        "/metrics",
    } <= set(paths)
    assert get(f"{served.url}/docs").status_code == 404
    page = get(served.url)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert (
        get(f"{served.url}/page/index.html").headers["content-security-policy"]
        == page.headers["content-security-policy"]
    )
    assert get(f"{served.url}/page/../app.py").status_code == 404
