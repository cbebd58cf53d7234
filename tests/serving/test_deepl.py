"""DeepL's interface, as its own clients and raw requests use it."""

from pathlib import Path
from typing import Any

import pytest
from served import Served, get, post, running
from waiting import LIMIT

import nmt_cli as nmt
from nmt_cli.serving.keys import read_keys
from nmt_cli.serving.settings import Limits

deepl = pytest.importorskip("deepl")
deepl.http_client.min_connection_timeout = LIMIT
TEXT = "the cat sees a dog."
KEY = "a-key-of-some-length"


@pytest.fixture(scope="module")
def client(served: Served) -> Any:
    return deepl.DeepLClient(KEY, server_url=served.url, send_platform_info=False)


def translated(translator: nmt.Translator, text: str) -> str:
    return translator.translate([text])[0].text


def test_texts(client: Any, translator: nmt.Translator) -> None:
    result = client.translate_text(TEXT, target_lang="DE")
    found = result.text, result.detected_source_lang, result.billed_characters
    assert found == (translated(translator, TEXT), "EN", len(TEXT))
    several = client.translate_text([TEXT, "a house."], source_lang="EN", target_lang="DE")
    assert [one.text for one in several] == [translated(translator, text) for text in (TEXT, "a house.")]


def test_forms_and_variants(served: Served, translator: nmt.Translator) -> None:
    values = {"text": [TEXT, "a house."], "target_lang": "de", "source_lang": "EN"}
    answer = post(f"{served.url}/v2/translate", data=values).json()["translations"]
    assert [one["text"] for one in answer] == [translated(translator, text) for text in (TEXT, "a house.")]
    for target in ("PT-BR", "PT", "pt-pt"):
        answer = post(f"{served.url}/v2/translate", json={"text": ["a"], "target_lang": target}).json()
        assert answer["translations"][0]["detected_source_language"] == "DE"


def test_markup_and_sentences(client: Any, translator: nmt.Translator) -> None:
    markup = {"html": "<p>the <b>cat</b> sees.</p>", "xml": "<a><b/>the cat sees a dog.</a>"}
    for kind, text in markup.items():
        found = client.translate_text(text, target_lang="DE", tag_handling=kind).text
        assert found == translator.translate_document(text, kind)
    text = "the cat sees. a dog\nlikes the house."
    for split in ("0", "1", "nonewlines"):
        found = client.translate_text(text, target_lang="DE", split_sentences=split).text
        assert found == translator.translate_document(text, split_sentences=split)


def test_languages_and_usage(client: Any) -> None:
    assert [(one.code, one.name) for one in client.get_source_languages()] == [("EN", "English"), ("DE", "German")]
    targets = client.get_target_languages()
    assert [one.code for one in targets] == ["DE", "PT-BR"]
    assert not any(one.supports_formality for one in targets)
    before = client.get_usage().character.count
    client.translate_text(TEXT, target_lang="DE")
    assert client.get_usage().character.count == before + len(TEXT)
    assert not client.get_usage().any_limit_reached
    assert client.get_glossary_languages() == []


def test_what_has_no_effect_is_ignored(client: Any, translator: nmt.Translator) -> None:
    ignored = {"formality": "prefer_more", "context": "at home", "model_type": "latency_optimized"}
    result = client.translate_text(TEXT, target_lang="DE", preserve_formatting=True, **ignored)
    assert result.text == translated(translator, TEXT)
    with pytest.raises(deepl.DeepLException, match="target_lang"):
        client.translate_text(TEXT, target_lang="FR")


def test_keys_and_quota(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{KEY} anna\n# nobody\nanother-key\n", encoding="utf-8")
    with running(model, keys=read_keys(path), limits=Limits(quota=30)) as served:
        with pytest.raises(deepl.AuthorizationException):
            deepl.Translator("wrong-key", server_url=served.url).translate_text(TEXT, target_lang="DE")
        client = deepl.Translator(KEY, server_url=served.url)
        assert client.translate_text(TEXT, target_lang="DE").text
        usage = client.get_usage().character
        assert (usage.count, usage.limit) == (len(TEXT), 30)
        with pytest.raises(deepl.QuotaExceededException):
            client.translate_text(TEXT, target_lang="DE")
        assert deepl.Translator("another-key", server_url=served.url).translate_text(TEXT, target_lang="DE").text
        url = f"{served.url}/translate"
        values = {"q": "a", "source": "en", "target": "de"}
        assert post(url, json=values).json() == {"error": "Please contact the server operator to get an API key"}
        wrong = post(url, json={**values, "api_key": "wrong-key"})
        assert (wrong.status_code, wrong.json()) == (403, {"error": "Invalid API key"})
        assert post(url, json={**values, "api_key": "another-key"}).status_code == 200
        for value in (["another-key"], 5, ""):  # no text: then the header counts
            assert post(url, json={**values, "api_key": value}).status_code == 400
            header = {"Authorization": "Bearer another-key"}
            assert post(url, json={**values, "api_key": value}, headers=header).status_code == 200
        assert get(f"{served.url}/frontend/settings").json()["keyRequired"]
        assert get(f"{served.url}/metrics").status_code == 400
        assert get(f"{served.url}/metrics", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
