"""LibreTranslate's interface, as its own clients and raw requests use it."""

import json
import re
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from served import Served, get, httpx, post
from translation_site import FOLDER
from waiting import LIMIT

import nmt_cli as nmt
from nmt_cli.serving import files as kept

TEXT = "the cat sees a dog."
PAIR = {"source": "en", "target": "de"}


def answer_of(served: Served, path: str, **values: object) -> httpx.Response:
    return post(served.url + path, json=values)


def translated(translator: nmt.Translator, text: str, **options: Any) -> str:
    found: str = translator.translate([text], **options)[0].text
    return found


def test_json_has_a_charset(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some clients take text without one for Latin-1."""
    expected = "application/json; charset=utf-8"
    ok = ("languages", "ready", "openapi.json", "v2/usage")
    for path, status in {**dict.fromkeys(ok, 200), "nowhere": 404, "v2/nowhere": 404}.items():
        answer = get(f"{served.url}/{path}")
        assert (answer.status_code, answer.headers["content-type"]) == (status, expected)
    monkeypatch.setattr("nmt_cli.serving.libretranslate.name_of", lambda _: 1 // 0)
    failed = get(f"{served.url}/languages")
    assert (failed.status_code, failed.headers["content-type"]) == (500, expected)
    with served.connect() as raw:
        raw.sendall(b"no HTTP\r\n\r\n")
        assert f"content-type: {expected}\r\n".encode() in raw.recv(4096)


def test_a_text(served: Served, translator: nmt.Translator) -> None:
    expected = {"translatedText": translated(translator, TEXT)}
    values = {"q": TEXT, **PAIR}
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
    answer = answer_of(served, "/translate", q=given, **PAIR)
    house, cat = (translated(translator, line) for line in ("a small house.", "the red cat."))
    assert answer.json() == {
        "translatedText": [translated(translator, TEXT), "", f"  {house.strip()}\n\n {cat.strip()}\n"]
    }


def test_html(served: Served, translator: nmt.Translator) -> None:
    html = "<p class='x'>the cat sees a dog.</p><script>the cat</script>"
    answer = answer_of(served, "/translate", q=html, **PAIR, format="html").json()["translatedText"]
    assert answer == translator.translate_document(html, "html")
    assert answer.startswith("<p class='x'>")
    assert answer.endswith("</p><script>the cat</script>")


def test_alternatives(served: Served, translator: nmt.Translator) -> None:
    [best] = translator.translate([TEXT], beam=4, nbest=4)
    answer = answer_of(served, "/translate", q=TEXT, **PAIR, alternatives=3).json()
    assert [answer["translatedText"], *answer["alternatives"]] == list(dict.fromkeys(one.text for one in best.nbest))


def test_languages_and_settings(served: Served) -> None:
    assert get(f"{served.url}/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["pt-BR"]},
        {"code": "pt-BR", "name": "Portuguese (BR)", "targets": []},
    ]
    settings = get(f"{served.url}/frontend/settings").json()
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    expected = {"charLimit": 500_000, "keyRequired": False, "suggestions": False}
    assert settings == settings | expected
    assert get(f"{served.url}/health").json() == {"status": "ok"}


def test_unknown_methods(served: Served) -> None:
    assert get(f"{served.url}/translate").status_code == 405
    assert post(f"{served.url}/suggest").status_code == 403


@pytest.mark.parametrize(
    ("name", "content"), [("a b.txt", "the cat.\n\na dog.\n"), ("ü.html", "<p>the <b>cat</b>.</p>")]
)
def test_files(served: Served, translator: nmt.Translator, name: str, content: str) -> None:
    answer = post(f"{served.url}/translate_file", data=PAIR, files={"file": (name, content.encode())})
    assert answer.status_code == 200, answer.text
    fetched = get(answer.json()["translatedFileUrl"])
    form, kind = ("html", "html") if name.endswith("html") else ("text", "plain")
    assert fetched.text == translator.translate_document(content, form)
    assert fetched.headers["content-type"] == f"text/{kind}; charset=utf-8"
    assert fetched.headers["content-disposition"].startswith("attachment")
    assert get(f"{served.url}/download_file/..%2f{name}").status_code == 404


def test_files_have_an_end_and_empty_ones_count(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "CAPACITY", 3 * kept.LEAST)
    answers = [post(f"{served.url}/translate_file", data=PAIR, files={"file": ("a.txt", b"")}) for _ in range(5)]

    def statuses() -> list[int]:
        return sorted(get(answer.json()["translatedFileUrl"]).status_code for answer in answers)

    assert statuses() == [200, 200, 200, 404, 404]
    monkeypatch.setattr(kept, "LIFETIME", -1)
    assert statuses() == [404] * 5


def test_the_folder_of_files_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(kept.Files()) as files:
        files.add("a.txt", b"")
        [folder] = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_files_that_are_refused(served: Served) -> None:
    for files, message in (
        ({"file": ("a.pdf", b"x")}, "file format not supported"),
        ({"other": ("a.txt", b"x")}, "missing file parameter"),
    ):
        answer = post(f"{served.url}/translate_file", data=PAIR, files=files)
        assert (answer.status_code, answer.json()["error"]) == (400, f"Invalid request: {message}")


def test_libretranslatepy(served: Served, translator: nmt.Translator) -> None:
    libretranslatepy = pytest.importorskip("libretranslatepy")
    client = libretranslatepy.LibreTranslateAPI(served.url)
    assert client.translate(TEXT, "en", "de", timeout=LIMIT) == translated(translator, TEXT)
    assert {language["code"] for language in client.languages()} == {"en", "de", "pt-BR"}
    with pytest.raises(HTTPError) as error:
        client.translate(TEXT, "de", "en", timeout=LIMIT)
    assert error.value.code == 400
    assert json.load(error.value) == {"error": "English (en) is not available as a target language from German (de)"}


def test_deep_translator(served: Served, translator: nmt.Translator) -> None:
    deep_translator = pytest.importorskip("deep_translator")
    client = deep_translator.LibreTranslator(**PAIR, custom_url=f"{served.url}/", api_key="unused")
    assert client.translate(TEXT) == translated(translator, TEXT)
    assert client.translate_batch([TEXT, "a house."]) == [translated(translator, text) for text in (TEXT, "a house.")]


def test_the_description_and_the_page(served: Served) -> None:
    described = {*get(f"{served.url}/openapi.json").json()["paths"]}
    assert {"/translate", "/languages", "/detect", "/translate_file", "/metrics"} <= described
    assert {"/v2/translate", "/nmt/attention"} <= described
    assert get(f"{served.url}/docs").status_code == 404
    page = get(served.url)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for answer in (page, get(f"{served.url}/page/index.html")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert get(f"{served.url}/page/../app.py").status_code == 404
    for file in FOLDER.iterdir():  # nothing from elsewhere, and nothing inline
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        forbidden = r"https?://|[\"'(]//|console\.|innerHTML|\sstyle=|\son\w+=\"|<style|<script>"
        assert not re.search(forbidden, text), file.name
