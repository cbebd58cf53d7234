"""COMET: which file is its model, what is missing, and, where the package is installed, the numbers of COMET's own `predict`."""

import importlib.util
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.errors import DataError, ModelError, UsageError
from nmt_cli.evaluation.comet import Comet, find_checkpoint, model_name
from nmt_cli.evaluation.metric import MetricOptions
from nmt_cli.evaluation.metrics import Scorer, compute

INSTALLED = importlib.util.find_spec("comet") is not None
needs_comet = pytest.mark.skipif(not INSTALLED, reason="needs unbabel-comet: pip install '.[comet]'")

SOURCE = ["Die Katze schläft.", "Ein Hund bellt laut.", "Ja", ""]
HYPOTHESES = ["The cat sleeps.", "A dog barks.", "yes", "x"]
REFERENCE = ["The cat is asleep.", "A dog barks loudly.", "Yes", "z"]


def layout(folder: Path, *checkpoints: str, hparams: str = "hparams.yaml") -> Path:
    for name in (*checkpoints, hparams):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_the_checkpoint_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = layout(tmp_path / "wmt22-comet-da", "checkpoints/model.ckpt")
    files = ("snapshots/a1b2/checkpoints/model.ckpt", "snapshots/a1b2/hparams.yaml")
    cached = layout(tmp_path / "models--Unbabel--wmt22-comet-da", files[0], hparams=files[1])
    monkeypatch.chdir(plain / "checkpoints")
    for path, expected, name in (
        (plain, plain / "checkpoints/model.ckpt", "wmt22-comet-da"),
        (Path("model.ckpt"), plain / "checkpoints/model.ckpt", "wmt22-comet-da"),
        (cached, cached / files[0], "Unbabel/wmt22-comet-da"),
        (cached / "snapshots/a1b2", cached / files[0], "Unbabel/wmt22-comet-da"),
    ):
        assert find_checkpoint(path) == expected
        assert model_name(expected) == name


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    for folder, said in (
        (Path("missing"), r"'missing'\. It is not downloaded"),
        (tmp_path, r"has 0 COMET checkpoints, .*hparams\.yaml and checkpoints/model\.ckpt"),
        (layout(tmp_path / "two", "checkpoints/a.ckpt", "checkpoints/b.ckpt"), "has 2 COMET checkpoints"),
        (Path("/proc/self/status"), r"lacks its hparams\.yaml"),
        (layout(tmp_path / "bare", "checkpoints/model.ckpt", hparams="other.yaml"), r"lacks its hparams\.yaml"),
    ):
        with pytest.raises(ModelError, match=said):
            find_checkpoint(folder)


def test_a_model_that_cannot_be_read_is_named_with_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt_cli.evaluation.comet.version", lambda _: "2.2.7")
    folder, opened = layout(tmp_path / "locked", "checkpoints/model.ckpt"), Path.open

    def locked(path: Path, *given: Any) -> Any:
        if path.suffix == ".ckpt":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *given)

    monkeypatch.setattr(Path, "open", locked)  # root may read everything
    for model, said in ((Path("x" * 300), "'x+': File name too long"), (folder, r"model\.ckpt': Permission denied")):
        with pytest.raises(DataError, match=f"^the metric 'comet' cannot be used: .*{said}"):
            compute("comet", HYPOTHESES, [REFERENCE], MetricOptions(comet_model=model))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A COMET model of random weights over an encoder of two layers and sixteen features, all its files on this disk."""
    root = tmp_path_factory.mktemp("comet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        import yaml
        from comet.models import RegressionMetric
        from tokenizers import Tokenizer, models, pre_tokenizers, processors
        from transformers import XLMRobertaConfig, XLMRobertaTokenizerFast  # type: ignore[attr-defined]

        letters = [(letter, -1.0) for letter in "▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,'äöüß"]
        pieces = [(special, 0.0) for special in ("<s>", "<pad>", "</s>", "<unk>")] + letters + [("<mask>", 0.0)]
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
        encoder = root / "encoder"
        XLMRobertaTokenizerFast(tokenizer_object=tokenizer).save_pretrained(encoder)
        sizes: Any = {"hidden_size": 16, "intermediate_size": 32}
        sizes |= dict.fromkeys(("num_hidden_layers", "num_attention_heads"), 2)
        XLMRobertaConfig(vocab_size=len(pieces), max_position_embeddings=130, **sizes).save_pretrained(encoder)
        torch.manual_seed(0)
        model = RegressionMetric(
            pretrained_model=str(encoder), hidden_sizes=[8], load_pretrained_weights=False, local_files_only=True
        )
        folder = layout(root / "tiny", "checkpoints/model.ckpt")
        hyper = dict(model.hparams)
        (folder / "hparams.yaml").write_text(yaml.dump({**hyper, "class_identifier": "regression_metric"}))
        saved = {"state_dict": model.state_dict(), "hyper_parameters": hyper, "epoch": 0, "global_step": 0}
        torch.save({**saved, "pytorch-lightning_version": "2.0.0"}, folder / "checkpoints/model.ckpt")
    return folder


def predicted(folder: Path, hypotheses: list[str]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import comet

        model = comet.load_from_checkpoint(str(folder / "checkpoints/model.ckpt"), local_files_only=True)
        samples = [
            {"src": src, "mt": mt, "ref": ref} for src, mt, ref in zip(SOURCE, hypotheses, REFERENCE, strict=True)
        ]
        return model.predict(samples, gpus=0, progress_bar=False)


@needs_comet
def test_it_is_the_mean_of_comets_own_predictions(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = predicted(tiny, HYPOTHESES)
    capfd.readouterr()
    scorer = Scorer("comet", [REFERENCE], MetricOptions(source=SOURCE, comet_model=tiny))
    score = scorer.score(HYPOTHESES)
    assert [row[0] for row in scorer.rows(HYPOTHESES)] == pytest.approx(expected["scores"], abs=1e-7)
    assert score.value == pytest.approx(expected["system_score"], abs=1e-7)
    assert score.name == "COMET"
    assert score.signature.startswith("nrefs:1|model:tiny|sha256:")
    assert scorer.score(HYPOTHESES, [1]).value == pytest.approx(expected["scores"][1], abs=1e-7)
    assert capfd.readouterr() == ("", "")
    with pytest.raises(UsageError, match="--ref was given 2 times"):
        compute("comet", HYPOTHESES, [REFERENCE, REFERENCE], MetricOptions(source=SOURCE, comet_model=tiny))
    assert "HF_HUB_OFFLINE" not in os.environ


@needs_comet
def test_a_model_whose_encoder_is_not_on_this_disk_is_named_and_not_fetched(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "copy")
    hidden = tiny.parent / "hidden"
    (tiny.parent / "encoder").rename(hidden)
    try:
        with pytest.raises(ModelError, match=r"model\.ckpt.*hparams\.yaml .*Nothing is downloaded"):
            Comet(tmp_path / "copy", SOURCE).rows(HYPOTHESES, [REFERENCE])
    finally:
        hidden.rename(tiny.parent / "encoder")


class Trap:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@needs_comet
def test_no_code_of_a_checkpoint_is_run(tiny: Path, tmp_path: Path) -> None:
    import torch

    shutil.copytree(tiny, tmp_path / "evil")
    checkpoint = tmp_path / "evil/checkpoints/model.ckpt"
    torch.save({**torch.load(checkpoint, weights_only=True), "trap": Trap(tmp_path / "sprung")}, checkpoint)
    with pytest.raises(ModelError, match=r"COMET cannot load .*Is it a COMET checkpoint of tensors and plain values"):
        Comet(tmp_path / "evil", SOURCE).rows(HYPOTHESES, [REFERENCE])
    assert not (tmp_path / "sprung").exists()
    torch.load(checkpoint, weights_only=False)  # and the trap would have sprung
    assert (tmp_path / "sprung").exists()
