"""A model of several target languages serves several pairs: in all interfaces, with one set of workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served, get, post, running
from untrained import write_untrained

import nmt_cli as nmt
from nmt_cli.errors import UsageError
from nmt_cli.serving.models import load_pairs
from nmt_cli.serving.settings import Settings

TAGS = ["fra", "deu", "cmn_Hans", "nds", "ara", "arb"]
TEXT = "the cat sees a dog."
NAMES = {"de": "deu", "fr": "fra", "zh-Hans": "cmn_Hans", "nds": "nds", "ar": "ara", "arb": "arb"}
"""The code for clients → the tag."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "many", max_extra=10, tags=TAGS)


@pytest.fixture(scope="module")
def many(folder: Path, other: Path) -> Iterator[Served]:
    with running(folder, other) as one:
        assert one.models.reload()  # all pairs stay
        yield one


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, str]:
    """The translation of TEXT into each language, by tag."""
    with nmt.load(folder, device="cpu", devices=1, precision="fp32") as one:
        return {tag: one.translate([TEXT], target_language=tag)[0].text for tag in TAGS}


def translate(served: Served, **values: Any) -> Any:
    return post(f"{served.url}/translate", json={"q": TEXT, "source": "en", **values})


def test_the_languages_of_the_interfaces(many: Served) -> None:
    listed = {one["code"]: one for one in get(f"{many.url}/languages").json()}
    assert listed["en"] == {"code": "en", "name": "English", "targets": sorted(NAMES)}
    assert listed["de"]["targets"] == ["pt-BR"]
    assert (listed["nds"]["name"], listed["zh-Hans"]["name"]) == ("nds", "Chinese (HANS)")
    targets = get(f"{many.url}/v2/languages?type=target", headers={"Authorization": "DeepL-Auth-Key k"}).json()
    assert [one["language"] for one in targets] == ["DE", "FR", "ZH-HANS", "NDS", "AR", "ARB", "PT-BR"]
    assert get(f"{many.url}/frontend/settings").json()["language"]["target"]["code"] == "de"
    assert "en-zh-Hans" in get(f"{many.url}/ready").json()["pairs"]
    assert any(line.startswith("en → de, fr, zh-Hans, nds, ar, arb: ") for line in many.said)
    assert len({id(model.translator) for model in many.models.pairs.models.values()}) == 2


def test_the_target_of_a_request(many: Served, expected: dict[str, str]) -> None:
    assert len(set(expected.values())) > 3
    others = {"DE": "deu", "deu": "deu", "ger": "deu", "fr-CA": "fra", "fre-FR": "fra", "zh": "cmn_Hans"}
    for code, tag in {**NAMES, **others}.items():
        assert translate(many, target=code).json() == {"translatedText": expected[tag]}
    for code in ("it", "zh-Hant", "zh-TW"):
        assert translate(many, target=code).status_code == 400
    assert translate(many, source="auto", target="fr").json()["translatedText"] == expected["fra"]
    answers = translate(many, q=[TEXT, f">>deu<< {TEXT}"], target="fr", alternatives=1).json()
    assert answers["translatedText"] == [expected["fra"], expected["deu"]]
    refused = translate(many, q=[TEXT, f">>rus<< {TEXT}"], target="fr")
    assert refused.status_code == 400
    assert "'>>rus<<'" in refused.json()["error"]


def test_the_other_interfaces(many: Served, expected: dict[str, str]) -> None:
    for code, tag in {"DE": "deu", "FR": "fra", "ZH-HANS": "cmn_Hans"}.items():
        answer = post(f"{many.url}/v2/translate", json={"text": [TEXT], "target_lang": code, "source_lang": "EN"})
        assert [one["text"] for one in answer.json()["translations"]] == [expected[tag]]
        own = post(f"{many.url}/nmt/attention", json={"q": TEXT, "source": "en", "target": code}).json()["sentences"]
        assert [one["translation"] for one in own] == [expected[tag]]
        assert "".join(own[0]["source_tokens"]).replace("▁", " ") == f" {TEXT}"
        assert {len(row) for row in own[0]["weights"]} == {len(own[0]["source_tokens"])}


def test_a_pair_that_two_models_have(folder: Path, model: Path) -> None:
    with pytest.raises(UsageError, match="en → de"):
        load_pairs(Settings(models=(model, folder), device="cpu", devices=1, precision="fp32"), lambda _: None)


def test_a_recipe_with_another_language(tmp_path: Path) -> None:
    folder = write_untrained(tmp_path / "m", tags=["deu", "fra"], pair=("en", "mul"))
    with running(folder) as one:
        assert [target for _, target in one.models.pairs.models] == ["de", "fr"]
        assert translate(one, target="de").status_code == 200
