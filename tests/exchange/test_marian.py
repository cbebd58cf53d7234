"""Marian's models: forms, files, exact numbers of models that Marian trained, export back, and what is refused."""

import gzip
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from in_process import printed, warnings
from marian_models import ABOUT, SHARED, container, imported, marian, needs_marian, written
from run_search import search_options
from safetensors.numpy import load_file
from shared import shared
from small_models import needs_engine, searched

import nmt_cli as nmt
from nmt_cli.data.tokenizer import BOS, EOS, Vocabulary
from nmt_cli.exchange import importing, verification
from nmt_cli.exchange.convert import export
from nmt_cli.exchange.quantizing import quantize
from nmt_cli.model.folder import load_model
from nmt_cli.search.engine import EngineSearch
from nmt_cli.search.length_penalties import none, power
from nmt_cli.search.sentence import Sentence
from nmt_cli.translation.models import engine_model
from nmt_cli.translation.torch_forced import TorchForced

pytestmark = pytest.mark.usefixtures("few_lines")


# --- forms ---

FORMS: dict[str, dict[str, Any]] = {
    "OPUS-MT's": {},
    "separate vocabularies, 1 + 3 layers": {"separate": True, "ties": "none", "activation": "relu", "layers": (1, 3)},
    "tied source and target": {"ties": "src"},
    "untied, as earlier versions name it": {"ties": "none", "older": True},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_verified_and_comes_back_from_an_export_bit_for_bit(form: str, tmp_path: Path) -> None:
    """The verification compares with Marian's formulas in NumPy, from Marian's own arrays."""
    original = marian(**FORMS[form])
    done = imported(original.save(tmp_path / "original"), tmp_path / "model")
    assert done.verification.sentences >= 30
    assert done.verification.steps > 300
    assert set(done.verification.largest) == {"logits", "log-probabilities", "encoder states"}
    assert all(0 < difference < 5e-5 for difference in done.verification.largest.values())
    export(tmp_path / "model", "marian", tmp_path / "back")
    with np.load(tmp_path / "back" / "model.npz") as stored:
        back = dict(stored)
    config = yaml.safe_load(back.pop("special:model.yml").tobytes().rstrip(b"\0"))
    kept = (*(key for key in original.options if key.startswith("transformer-")), "dim-emb", "enc-depth", "dec-depth")
    assert {key: config[key] for key in kept} == {key: original.options[key] for key in kept}
    if not FORMS[form].get("older") and FORMS[form].get("ties") != "src":
        assert {key: config[key] for key in config if "tied" in key} == {
            key: value for key, value in original.options.items() if "tied" in key
        }
        assert back.keys() == original.arrays.keys()
        for name, array in original.arrays.items():
            np.testing.assert_array_equal(back[name], array, name)
    imported(tmp_path / "back", tmp_path / "again", source_language="en", target_language="de")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "again"))
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], name)
    one, two = (Vocabulary.load(tmp_path / name) for name in ("model", "again"))
    text = ["the dog ， sees？ 漢字", "no y ~ 。  a", "x…y\x07z\u200b"]
    assert one.source.encode(text) == two.source.encode(text)
    assert one.target.table == two.target.table


@pytest.mark.parametrize("kind", ["zip", "zip with a folder", "npz", "packed npz", "bin", "dots"])
def test_every_container_gives_the_same_weights(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = marian()
    (tmp_path / "unpacked").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "unpacked"))
    folder = original.save(tmp_path / "folder")
    expected = imported(folder, tmp_path / "expected").path
    source = folder / "model.npz"
    if kind.startswith("zip"):
        source = original.zip(tmp_path / "opus-2020-02-26.zip", "en-de/" if "folder" in kind else "")
    if kind == "packed npz":
        with np.load(source) as stored:
            arrays = dict(stored)
        np.savez_compressed(source, **arrays)
    if kind == "bin":
        source = folder / "model.bin"
        source.write_bytes(container(original.arrays, original.config))
    if kind == "dots":
        source = folder
        (folder / "model.npz").rename(folder / "opus.spm32k-spm32k.transformer.npz.best-perplexity.npz")
        named = (folder / "decoder.yml").read_text().replace("model.npz", "/home/x/opus.x.npz")
        (folder / "decoder.yml").write_text(named)
    done = imported(source, tmp_path / "model")
    assert not [*(tmp_path / "unpacked").iterdir()]
    weights, theirs = (load_file(path / "model.safetensors") for path in (done.path, expected))
    assert all(np.array_equal(weights[name], theirs[name]) for name in theirs)
    for name in ("tokenizer.source.model", "tokenizer.target.model"):
        assert (done.path / name).read_bytes() == (expected / name).read_bytes()


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_what_the_files_say_becomes_the_recipe_the_card_and_what_info_says(precision: str, tmp_path: Path) -> None:
    original = marian(layers=(1, 1))
    original.decoder = {"beam-size": 5, "normalize": 0.7, "word-penalty": -0.25}
    done = imported(original.zip(tmp_path / "opus.zip"), tmp_path / "model", safe_length=40)
    data, model, decode = done.recipe.data, done.recipe.model, done.recipe.decode
    assert (data.source_language, data.target_language) == ("en", "de")
    assert (data.joint_vocab, data.separate_tokenizers) == (True, True)
    assert (model.positions, model.output_bias, model.zero_start, model.epsilon) == ("marian", True, True, 1e-6)
    assert (decode.beam, decode.length_penalty, decode.alpha, decode.min_length) == (5, "power", 0.7, 1)
    assert decode.word_penalty == -0.25
    assert done.safe_length == 40
    card = (done.path / "README.md").read_text(encoding="utf-8")
    assert "- Licence: CC-BY 4.0." in card
    assert ABOUT.strip() in card
    folder = done.path if precision == "fp32" else quantize(done.path, tmp_path / "int8").path
    said = printed("info", folder)
    assert re.search(r"^  imported +opus\.zip$\n^  toolkit +Marian$\n^  license +", said, re.MULTILINE), said
    assert not re.search("update|train|dropout", said.replace(str(tmp_path), "")), said  # nobody did that here
    assert set(json.loads(printed("info --json", folder))["recipe"]) == {"name", "data", "model", "decode"}


def test_a_word_penalty_goes_back_to_marian_and_is_missed_elsewhere(tmp_path: Path) -> None:
    original = marian(layers=(1, 1))
    original.decoder = {"beam-size": 5, "normalize": 0.7, "word-penalty": 0.2}
    source, folder = original.save(tmp_path / "opus"), tmp_path / "model"
    said = " ".join(warnings("import", source, "--out", folder))
    assert "beam 5, word penalty 0.2, score / length^0.7" in said
    said = " ".join(warnings("export", folder, "--to", "marian", "--out", tmp_path / "back"))
    assert "word penalty" not in said
    decoder = yaml.safe_load((tmp_path / "back" / "decoder.yml").read_text(encoding="utf-8"))
    assert (decoder["normalize"], decoder["word-penalty"]) == (0.7, 0.2)
    said = " ".join(warnings("export", folder, "--to", "ctranslate2", "--out", tmp_path / "other"))
    assert "There is no word penalty, which is 0.2 in nmt." in said
    assert "word penalty, 0.2 for each token" in (tmp_path / "other" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [({"beam-size": 3}, (3, "none", 0.6)), ({"normalize": 1}, (12, "power", 1.0)), ({}, (12, "none", 0.6))],
)
def test_the_defaults_are_marians(decoder: dict[str, int], expected: tuple[int, str, float], tmp_path: Path) -> None:
    original = marian(layers=(1, 1))
    original.decoder = decoder
    decode = imported(original.save(tmp_path / "opus"), tmp_path / "model").recipe.decode
    assert (decode.beam, decode.length_penalty, decode.alpha) == expected


def test_the_models_of_an_ensemble_become_folders_that_translate_together(tmp_path: Path) -> None:
    first, second = (marian(layers=(1, 1), seed=seed) for seed in (1, 2))
    first.decoder = {"beam-size": 3, "models": ["/x/model.npz", "model2.npz"], "weights": [0.5, 0.5]}
    source, out = first.save(tmp_path / "opus"), tmp_path / "out"
    (source / "model2.npz").write_bytes(second.files()["model.npz"])
    said = warnings("import", source, "--out", out)
    assert "they are an ensemble of 2 models: Marian adds up their log-probabilities" in said[0]
    assert [line.split(":")[0] for line in said if line.startswith("wrote")] == [f"wrote {out}/1", f"wrote {out}/2"]
    assert said[-1] == f"next: nmt translate --model {out}/1 --model {out}/2 < input"
    for number, one in enumerate((first, second), 1):
        one.decoder = {"beam-size": 3}
        alone = imported(one.save(tmp_path / f"original{number}"), tmp_path / f"alone{number}").path
        ours, theirs = (load_file(path / "model.safetensors") for path in (out / str(number), alone))
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    done = imported(source, out)
    assert [one.path for one in (done, *done.others)] == [out / "1", out / "2"]
    with nmt.load([done.path, done.others[0].path], device="cpu") as translator:
        assert len(translator.translate(["a dog"])) == 1
    assert not imported(source / "model2.npz", tmp_path / "one").others


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model folder of the model that Marian trained."""

    def build(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(importing, "LINES", 1000)
            patch.setattr(verification, "LONGEST_OUTPUT", 24)
            imported(SHARED, folder / "model", source_language="en", target_language="de")

    return shared(tmp_path_factory, "of-marian", build) / "model"


def lines(name: str) -> list[str]:
    return gzip.decompress((SHARED / name).read_bytes()).decode().split("\n")[:-1]


@needs_marian
@pytest.mark.parametrize("decoder", ["self_attention", "ssru"])
def test_marians_scores_of_given_translations(decoder: str, theirs: Path, tmp_path: Path) -> None:
    if decoder == "ssru":
        files = [SHARED / one for one in ("decoder.yml", "vocab.yml", "source.spm", "target.spm", "ssru/model.npz")]
        source = written(tmp_path / "source", {one.name: one.read_bytes() for one in files}) / "model.npz"
        theirs = imported(source, tmp_path / "model", source_language="en", target_language="de").path
    model, vocabulary = TorchForced(load_model(theirs).model), Vocabulary.load(theirs)
    sources = [[*row, EOS] for row in vocabulary.source.encode(lines("all.en.gz"))]
    targets = [[*row, EOS] for row in vocabulary.target.encode(lines("all.de.gz"))]
    scores = [float(line.split()[-1]) for line in lines("ssru/scores.txt.gz" if decoder == "ssru" else "scores.txt.gz")]
    found, _ = model.forced(sources, [[BOS, *target[:-1]] for target in targets], targets)
    for ours, target, score in zip(found, targets, scores, strict=True):
        assert abs(float(np.sum(np.asarray(ours, np.float64))) - score) <= 1e-5 * len(target)


@needs_marian
@needs_engine
@pytest.mark.parametrize(("name", "penalty", "alpha"), [("nbest.0.gz", none, 0.0), ("nbest.0.6.gz", power, 0.6)])
def test_the_best_translation_is_marians(theirs: Path, name: str, penalty: Any, alpha: float) -> None:
    """Marian's beam becomes narrower with each hypothesis that ends, and stops when it is empty; ours stops when no
    other could win. So a few lines might differ: none does."""
    model, vocabulary = engine_model(load_model(theirs).model, "fp32"), Vocabulary.load(theirs)
    sources = [[*row, EOS] for row in vocabulary.source.encode(lines("all.en.gz"))]
    ids = {piece: number for number, piece in enumerate(vocabulary.target.table)}
    options = search_options(4, nbest=1, alpha=alpha, textless=vocabulary.target.textless, length_penalty=penalty)
    search = EngineSearch(model, options)
    found = searched(search, [Sentence(source[:-1], 3 * len(source), {}) for source in sources])
    best: dict[int, tuple[list[int], float]] = {}
    for line in lines(name):
        fields = line.split(" ||| ")
        best.setdefault(int(fields[0]), ([ids[piece] for piece in fields[1].split()], float(fields[2].split()[-1])))
    equal = [number for number, (text, _) in best.items() if [i for i in found[number][0].tokens if i != EOS] == text]
    assert len(best) == 216
    assert len(equal) >= 0.98 * len(best), sorted(set(best) - set(equal))
    for number in equal:
        text, log_prob = best[number]
        assert abs(found[number][0].log_prob - log_prob) <= 1e-5 * (len(text) + 1), number
