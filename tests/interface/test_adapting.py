"""`nmt init --from MODEL`: every kind of vocabulary, the rate for a model without a schedule, whose model it is."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import printed
from untrained import write_untrained

import nmt_cli as nmt
from nmt_cli.data.demo_corpus import pairs
from nmt_cli.data.tokenizer import Vocabulary, learn_bpe
from nmt_cli.model.folder import weights_of
from nmt_cli.model.folder_files import read_metrics
from nmt_cli.model.transformer import Transformer
from nmt_cli.model.weights import write_model
from nmt_cli.recipe import Recipe, load_recipe
from nmt_cli.training.presets import HIGHEST_PEAK, adapted, peak, settings, size_of

pytestmark = pytest.mark.usefixtures("workdir")
KINDS: dict[str, dict[str, Any]] = {
    "joint": {"joint_vocab": True},
    "two vocabularies": {"joint_vocab": False, "target_vocab_size": 340},
    "two tokenizers": {"joint_vocab": True, "separate_tokenizers": True, "tokenizer": "elsewhere"},
}
SMALL = ["train.updates=4", "train.decay_updates=2", "train.valid_every=4", "train.batch_tokens=1100"]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 pairs of the demo corpus, 60 others as a test set."""
    folder = tmp_path_factory.mktemp("text")
    splits = pairs(train=460, valid=0, test=0)["train"]
    for name, part in (("text", splits[:400]), ("test", splits[400:])):
        for language, side in zip(("en", "de"), zip(*part, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return folder


def model(
    text: Path, folder: Path, kind: str, train: dict[str, Any] | None = None, language: str = "en", **metrics: str
) -> Path:
    """Make `folder` an untrained model with a vocabulary of that kind."""
    source_lines, target_lines = lines(text / "text.en"), lines(text / "text.de")
    data = {
        **{key: ["old"] for key in ("train_source", "train_target")},
        "vocab_size": 360,
        "source_language": language,
        **KINDS[kind],
    }
    tied = kind != "two vocabularies"
    form = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2}
    values = {"data": data, "model": {**form, "tie_embeddings": tied}, "train": train or {}, "decode": {"beam": 2}}
    recipe = Recipe.from_dict({"name": "old", **values}, "test")
    source = target = learn_bpe(source_lines + target_lines * tied, recipe.data)
    if kind == "two tokenizers":
        target = learn_bpe(source_lines + target_lines, recipe.data.model_copy(update={"normalization": "identity"}))
        assert source.model != target.model
    elif not tied:
        target = learn_bpe(target_lines, recipe.data.model_copy(update={"vocab_size": 340}))
    vocabulary = Vocabulary(source, target)
    assert vocabulary.shared is tied
    torch.manual_seed(0)
    sizes = vocabulary.source_size, vocabulary.target_size
    tokenizers = {name: tokenizer.model for name, tokenizer in vocabulary.files.items()}
    folder.mkdir()
    write_model(folder, weights_of(Transformer(recipe.model, *sizes)), recipe, sizes, tokenizers, metrics)
    return folder


def adapt(text: Path, folder: Path, name: str = "new", **options: Any) -> Any:
    test = {"test_source": text / "test.en", "test_target": text / "test.de"}
    sides: dict[str, Any] = {"source": text / "text.en", "target": text / "text.de", **test, **options}
    return nmt.init(name, **sides, from_model=folder, threads=1, progress=False)


def test_the_model_must_fit_the_text_and_what_it_says_is_in_no_command(text: Path, tmp_path: Path) -> None:
    write_untrained(tmp_path / "many", tags=["deu", "fra"], pair=("en", "mul"))
    model(text, tmp_path / "old", "joint")
    model(text, tmp_path / "strange", "joint", language="en; touch PWNED #\nnmt: done")
    printed("quantize old --out int8")
    for folder, target, said in (
        ("many", "ru", r"from 'en' to 'deu', 'fra', and the text is .* CODE, one of these\."),
        ("many", "mul", "'deu', 'fra'"),
        ("old", "fr", "from 'en' to 'de', and the text is 'en' to 'fr'"),
        ("int8", "de", "int8' is a model in int8"),
        ("strange", "de", r"^[^\n]*language 'en; touch PWNED #\\nnmt: done': expected[^\n]*$"),
    ):
        with pytest.raises(nmt.NmtError, match=said):
            adapt(text, tmp_path / folder, target_language=target)
    assert not Path("new.toml").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_vocabulary_is_adapted(kind: str, text: Path, tmp_path: Path) -> None:
    old = model(text, tmp_path / "old", kind, imported="old.zip", license="CC-BY 4.0")
    (old / "README.md").write_text("Ana made it.")
    adapt(text, old)
    recipe = load_recipe("new.toml")
    for key, value in KINDS[kind].items():
        if key not in ("tokenizer", "target_vocab_size"):
            assert getattr(recipe.data, key) == value
    assert recipe.model.tie_embeddings == (kind != "two vocabularies")
    assert (recipe.data.tokenizer, recipe.train.init) == (str(tmp_path / "old"),) * 2
    assert peak(recipe) == pytest.approx(HIGHEST_PEAK, rel=1e-3)
    nmt.preprocess("new.toml", progress=False)
    nmt.train("new.toml", overrides=[*SMALL, 'train.freeze=["encoder"]'], threads=1, progress=False)
    assert Vocabulary.load("runs/new/last").sha256 == Vocabulary.load("old").sha256
    assert nmt.load("runs/new").translate(["a cat"])[0].text is not None
    nmt.train("new.toml", overrides=[*SMALL, "train.updates=6", 'train.freeze=["encoder"]'], threads=1, progress=False)
    nmt.average("runs/new")
    nmt.quantize("runs/new", "small")
    for folder in ("runs/new/last", "runs/new/averaged", "small"):  # whose model it is
        metrics, card = read_metrics(Path(folder)), Path(folder, "README.md").read_text()
        assert (metrics["origin"], metrics["license"]) == ("old.zip", "CC-BY 4.0")
        assert "imported" not in metrics
        assert card.startswith("# A translation model that was made from another one")
        assert card.count("#") == 1
        assert card.endswith("Ana made it.")
    again = adapt(text, tmp_path / "runs/new", "again")  # now it has a schedule, and was not imported
    assert again.settings.size.peak == pytest.approx(HIGHEST_PEAK / 2, rel=1e-3)
    assert load_recipe("again.toml").train.freeze == []


def test_the_rate_is_half_of_the_models_own_and_that_of_an_imported_one_follows_from_its_width() -> None:
    files = {"train_source": ["a"], "train_target": ["b"]}
    for width, expected in ((512, 2e-4), (128, 1.6e-3), (64, 2e-3), (1024, 2e-4 / 8**0.5)):
        values = {"data": files, "model": {"d_model": width, "num_heads": 8}}
        recipe = Recipe.from_dict(values, "test")
        assert size_of(recipe, imported=True).peak == pytest.approx(expected)
        assert size_of(recipe).peak == pytest.approx(0.5 * peak(recipe))
    frozen = Recipe.from_dict({"data": files, "train": {"freeze": ["encoder"]}}, "test")
    chosen = settings(size_of(frozen), pairs=100, tokens=1000, total=1000)
    assert "freeze" not in adapted(frozen, Path("model"), chosen, files)["train"]


def test_the_recipe_has_the_commands_that_score_both_models(text: Path, tmp_path: Path) -> None:
    old = model(text, tmp_path / "old", "joint")
    adapt(text, old)
    head = Path("new.toml").read_text(encoding="utf-8").split("\n\n")[0]
    files = f"< {text}/test.en | nmt score - --ref {text}/test.de"
    assert re.findall(r"^# (Before|After) +nmt translate --model (.*)$", head, re.MULTILINE) == [
        ("Before", f"{old} {files}"),
        ("After", f"runs/new {files}"),
    ]
