"""Models of every kind go into both libraries and come out equal; what a library cannot express is refused by name."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import stat
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from in_memory import line_translator
from safetensors.torch import load_file

from nmt_cli.data.tokenizer import EOS, Vocabulary
from nmt_cli.errors import DataError, ModelError, UsageError
from nmt_cli.exchange import ctranslate2
from nmt_cli.exchange.convert import export
from nmt_cli.exchange.exporter import Exporter, SourceModel, nearest_length_penalty
from nmt_cli.exchange.verification import run, verify
from nmt_cli.model.folder import load_model, weights_of
from nmt_cli.model.weights import write_model
from nmt_cli.registry import EXPORTERS, NORMS, load
from nmt_cli.search.length_penalties import average, gnmt, none

SHARED = Path(os.environ.get("NMT_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
MULTI30K = SHARED / "multi30k"

ODD = [
    "",
    " ",
    "  two  spaces ",
    "\ttab\tend\t",
    "ﬁne ²",
    "emoji 😀👩‍👩‍👧",
    "line\u2028separator \u0085 x",
    "漢字 かな",
    "e\u0301 a\u0308",
    "</s> <unk> <pad> <s>",
    "a</s>b",
    "<0x41> <0xE2>",
    "▁x ▁▁",
    "\u200bzero\u200d width",
    "ÄÖÜß “quotes” … –",
    "a\x01b",
    "\u00a0no break\u00a0",
    "\r",
    "A" * 200,
    "\ufeffmark",
    "\ufffd",
    "[CLS] <mask>",
    "> > a << b",
]

BOTH = ["ctranslate2", "huggingface"]
KINDS: dict[str, dict[str, Any]] = {
    "post-norm": {"residual": "post"},
    "pre-norm": {"residual": "pre"},
    "post-norm, separate": {"residual": "post", "tie_embeddings": False, "joint": False},
    "pre-norm, separate": {"residual": "pre", "tie_embeddings": False, "joint": False},
    "post-norm, joint but untied": {"residual": "post", "tie_embeddings": False},
    "pre-norm, joint but untied": {"residual": "pre", "tie_embeddings": False},
    "pre-norm, learned": {"residual": "pre", "positions": "learned"},
    "pre-norm, learned, separate": {"residual": "pre", "positions": "learned", "tie_embeddings": False, "joint": False},
    "smaller heads": {"residual": "pre", "d_k": 3, "d_v": 5},
    "gelu": {"activation": "gelu"},
    "pre-norm, silu": {"residual": "pre", "activation": "silu"},
}
CTRANSLATE2_ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "post-norm, learned": (
        {"residual": "post", "positions": "learned"},
        "model.residual = 'post' and model.positions = 'learned'",
    ),
    "larger keys": ({"residual": "post", "d_k": 11}, r"model\.d_k = 11 exceeds d_model / num_heads = 8"),
    "larger values": ({"residual": "pre", "d_k": 6, "d_v": 9}, r"model\.d_v = 9 exceeds d_model / num_heads = 8"),
    "swiglu": (
        {"activation": "swiglu"},
        r"model\.activation = 'swiglu', and models of transformers have 'relu' or 'gelu' or 'silu'",
    ),
    "rms": ({"norm": "rms"}, r"model\.norm = 'rms', and models of transformers have 'layer'"),
    "rotary": ({"positions": "rotary"}, "model.residual = 'post' and model.positions = 'rotary'"),
    "rotary, rms, swiglu, pre-norm": (
        {"positions": "rotary", "norm": "rms", "activation": "swiglu", "residual": "pre"},
        r"model\.norm = 'rms', and models of transformers have 'layer'",
    ),
    "rotary, smaller keys": (
        {"positions": "rotary", "d_k": 6},
        "model.residual = 'post' and model.positions = 'rotary'",
    ),
    "uneven heads": ({"num_heads": 5, "d_k": 4, "d_v": 6}, "d_model = 32 is not a multiple of num_heads = 5"),
}


@pytest.mark.slow
@pytest.mark.parametrize("to", BOTH)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("short")
def test_every_kind_of_model_is_verified_equal(to: str, kind: str, made: Any, tmp_path: Path) -> None:
    verification = export(made(**KINDS[kind]), to, tmp_path / "out").verification
    assert verification.sentences >= 30
    assert verification.steps > 400
    assert set(verification.largest) == {"logits", "log-probabilities"} | (
        {"encoder states"} if to == "huggingface" else set()
    )
    assert all(0 <= difference < 1e-4 for difference in verification.largest.values())


@pytest.mark.parametrize("kind", ["post-norm", "pre-norm", "pre-norm, separate", "pre-norm, learned"])
@pytest.mark.usefixtures("short")
def test_transformers_finds_every_tensor_and_saves_the_model_again(kind: str, made: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM

    exported = export(made(**KINDS[kind]), "huggingface", tmp_path / "out")
    reader = load(EXPORTERS, "huggingface", "--to").read(tmp_path / "out")
    _, loading = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    positions = {f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")}  # Marian's are never stored
    assert set(loading["missing_keys"]) <= (positions if "post" in kind else set())
    assert not loading["unexpected_keys"]
    assert not loading["mismatched_keys"]
    for part in (reader.model, reader.tokenizer):
        part.save_pretrained(tmp_path / "again")
    shutil.rmtree(tmp_path / "out")
    texts = ["Anna reads a book.", "The dog sleeps."]
    again = load(EXPORTERS, "huggingface", "--to").read(tmp_path / "again")
    assert verify(exported.source_model, again, texts, "the copy").sentences == 2


def test_a_part_of_another_package_is_refused(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NORMS, "scale", "nmt_cli.model.norms:rms_norm")
    model = made(norm="scale")
    for to in EXPORTERS:
        with pytest.raises(ModelError, match=r"has model\.norm = 'scale' of another package, which the export to"):
            export(model, to, tmp_path / to)


@pytest.mark.parametrize("kind", CTRANSLATE2_ALONE)
@pytest.mark.usefixtures("short")
def test_what_transformers_cannot_express_ctranslate2_can(kind: str, made: Any, tmp_path: Path) -> None:
    changes, said = CTRANSLATE2_ALONE[kind]
    model = made(**changes)
    with pytest.raises(ModelError, match=f"{said}.*--to ctranslate2"):
        export(model, "huggingface", tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    assert export(model, "ctranslate2", tmp_path / "out").verification.steps > 400


@pytest.fixture(scope="module", params=BOTH)
def exported(
    request: pytest.FixtureRequest, trained: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Any]:
    """The trained model, exported."""
    out = tmp_path_factory.mktemp(request.param) / "out"
    return request.param, out, export(trained, request.param, out).verification


@pytest.mark.slow
def test_a_trained_model_is_verified_equal(exported: tuple[str, Path, Any]) -> None:
    _, _, verification = exported
    assert verification.sentences > 60
    assert verification.ties <= 1
    assert max(verification.largest.values()) < 5e-5


def test_files_of_the_folder(exported: tuple[str, Path, Any], trained: Path) -> None:
    to, out, _ = exported
    names = {
        "ctranslate2": {"model.bin", "shared_vocabulary.json", "tokenizer.model"},
        "huggingface": {"model.safetensors", "generation_config.json", "tokenizer_config.json"}
        | {"source.spm", "target.spm", "vocab.json"},
    }
    assert {item.name for item in out.iterdir()} == names[to] | {"config.json", "README.md"}
    assert len({stat.S_IMODE(item.stat().st_mode) for item in out.iterdir()}) == 1
    for item in out.glob("*.json"):  # it may be moved
        assert str(out.parent) not in item.read_text(encoding="utf-8")
    if to == "ctranslate2":
        assert (out / "tokenizer.model").read_bytes() == (trained / "tokenizer.model").read_bytes()
    else:
        assert "model.shared.weight" in load_file(out / "model.safetensors")  # tied matrices once
        assert "lm_head.weight" not in load_file(out / "model.safetensors")


def usage_of(out: Path) -> str:
    """The Python of the folder's README."""
    return (out / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]


def test_the_readme_s_lines_translate(
    exported: tuple[str, Path, Any], trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to, out, _ = exported
    monkeypatch.chdir(out)
    lines = ["The doctor reads a book.", "Anna lives in Bonn."]
    code = usage_of(out).replace('["A line to translate.", "Another one."]', repr(lines))
    beams = {
        "ctranslate2": ("beam_size=4", "beam_size=1"),
        "huggingface": ("max_new_tokens", "num_beams=1, max_new_tokens"),
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses", UserWarning)
        exec(code, {})
        assert capsys.readouterr().out.count("\n") == 2
        assert beams[to][0] in code
        exec(code.replace(*beams[to]), {})
    loaded, vocabulary = load_model(trained), Vocabulary.load(trained)
    greedy = run(loaded.model, [[*ids, EOS] for ids in vocabulary.source.encode(lines)], [30] * len(lines))
    assert capsys.readouterr().out.splitlines() == vocabulary.target.decode([output.tokens for output in greedy])


@pytest.mark.parametrize("to", BOTH)
@pytest.mark.parametrize("least", [0, 1, 3])
@pytest.mark.usefixtures("short")
def test_the_shortest_output_is_the_recipe_s(
    to: str, least: int, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that ends as soon as it may: the README's lines write as many tokens as `nmt translate`, and the same."""
    loaded, vocabulary = load_model(made()), Vocabulary.load(tmp_path / "model")
    with torch.no_grad():
        norm: Any = loaded.model.decoder[-1].around_feed_forward.norm
        norm.bias += 40 * torch.nn.functional.normalize(loaded.model.output_weight[EOS], dim=0)
    recipe = loaded.recipe.model_copy(
        update={"decode": loaded.recipe.decode.model_copy(update={"min_length": least, "beam": 1})}
    )
    sizes = vocabulary.source_size, vocabulary.target_size
    files = {name: part.model for name, part in vocabulary.files.items()}
    (tmp_path / "brief").mkdir()
    write_model(tmp_path / "brief", weights_of(loaded.model), recipe, sizes, files, {})
    export(tmp_path / "brief", to, tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    lines = ["The doctor reads a book.", "Anna lives in Bonn."]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses", UserWarning)
        exec(usage_of(Path()).replace('["A line to translate.", "Another one."]', repr(lines)), {})
    ours = list(line_translator(loaded.model, vocabulary.source, vocabulary.target, recipe.decode).translate(lines))
    assert [result.length for result in ours] == [least + 1] * 2
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [result.text.strip() for result in ours]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.usefixtures("short")
def test_auto_tokenizer_gives_our_ids_on_odd_lines(joint: bool, made: Any, tmp_path: Path) -> None:
    model = made(joint=joint, tie_embeddings=joint)
    export(model, "huggingface", tmp_path / "out")
    reader, vocabulary = load(EXPORTERS, "huggingface", "--to").read(tmp_path / "out"), Vocabulary.load(model)
    assert type(reader.tokenizer).__name__ == "MarianTokenizer"
    assert reader.encode(ODD) == [[*ids, EOS] for ids in vocabulary.source.encode(ODD)]
    rows = vocabulary.target.encode(ODD)
    assert [text.strip() for text in reader.decode(rows)] == [
        _without_unknown(text) for text in vocabulary.target.decode(rows)
    ]


def _without_unknown(text: str) -> str:
    """transformers passes over <unk>, which search never generates; SentencePiece shows it."""
    return text.replace(" ⁇ ", "").strip()


@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"needs Multi30k below {SHARED} (set NMT_SHARED_DATA)")
@pytest.mark.usefixtures("short")
def test_auto_tokenizer_gives_our_ids_on_real_text(made: Any, tmp_path: Path) -> None:
    model = made()
    export(model, "huggingface", tmp_path / "out")
    reader, vocabulary = load(EXPORTERS, "huggingface", "--to").read(tmp_path / "out"), Vocabulary.load(model)
    for language in ("en", "de", "fr"):
        lines = gzip.decompress((MULTI30K / f"test_2016_flickr.{language}.gz").read_bytes()).decode().splitlines()
        rows = vocabulary.source.encode(lines)
        assert reader.encode(lines) == [[*ids, EOS] for ids in rows]
        assert reader.decode(rows) == vocabulary.target.decode(rows)


@pytest.mark.usefixtures("short")
def test_ids_that_the_target_does_not_have_are_never_likely(made: Any, tmp_path: Path) -> None:
    model = made(**KINDS["pre-norm, separate"])
    export(model, "huggingface", tmp_path / "out")
    bias = load_file(tmp_path / "out" / "model.safetensors")["final_logits_bias"][0]
    target = Vocabulary.load(model).target_size
    assert torch.equal(bias[:target], torch.zeros(target))
    sizes = Vocabulary.load(model).source_size, target
    assert bias.numel() == max(sizes)
    assert bool((bias[target:] < -1e8).all())


def test_generation_follows_the_recipe(exported: tuple[str, Path, Any]) -> None:
    to, out, _ = exported
    if to == "ctranslate2":
        assert "min_decoding_length=1," in usage_of(out)
        config = json.loads((out / "config.json").read_text(encoding="utf-8"))
        expected = {"decoder_start_token": "<s>", "add_source_eos": True, "layer_norm_epsilon": 1e-5}
        assert config.items() >= expected.items()
    else:
        config = json.loads((out / "generation_config.json").read_text(encoding="utf-8"))
        assert (config["num_beams"], config["length_penalty"], config["max_new_tokens"]) == (4, 0.5, 73)
        assert config["suppress_tokens"] == [0, 1, 2]
        assert config["min_new_tokens"] == 1
        assert config["decoder_start_token_id"] == 2


def test_the_nearest_length_penalty() -> None:
    assert nearest_length_penalty(0.0, gnmt) == 0.0
    assert nearest_length_penalty(0.6, gnmt) == 0.5
    assert nearest_length_penalty(1.2, gnmt) == pytest.approx(2 * 0.505, abs=0.02)
    assert nearest_length_penalty(0.6, average) == 1.0
    assert nearest_length_penalty(0.6, none) == 0.0

    def spread(beta: float) -> float:
        """How unevenly the two penalties differ over the lengths."""
        ratios = [0.6 * math.log((5 + n) / 6) - beta * math.log(n) for n in range(10, 61)]
        mean = sum(ratios) / len(ratios)
        return sum((ratio - mean) ** 2 for ratio in ratios)

    assert min([0.4, 0.45, 0.49, 0.5, 0.51, 0.55, 0.6, 1.0], key=spread) in (0.5, 0.51)


# Faults


@pytest.mark.parametrize("to", BOTH)
def test_a_missing_library_is_named(to: str, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"huggingface": "transformers"}.get(to, to)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"pip install '{package}>="):
        export(made(), to, tmp_path / "out")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["model"]


def test_a_folder_that_holds_something_is_left_alone(made: Any, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    with pytest.raises(UsageError, match=r"'.*full' is not replaced: it is not empty"):
        export(made(), "ctranslate2", tmp_path / "full")
    assert (tmp_path / "full" / "mine").read_text() == "mine"
    with pytest.raises(UsageError, match=r"the export is a folder, and .* is a file"):
        export(tmp_path / "model", "ctranslate2", tmp_path / "full" / "mine")


def test_an_empty_folder_is_taken_and_a_damaged_model_refused(made: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    model = made()
    (model / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ModelError, match="was changed or damaged"):
        export(model, "ctranslate2", tmp_path / "out")


def test_a_place_that_cannot_be_written_is_named(made: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot write the export at"):
        export(made(), "ctranslate2", tmp_path / "file" / "out")


def test_text_without_a_line_to_compare_is_refused(made: Any, tmp_path: Path) -> None:
    (tmp_path / "blank").write_text("\n \n" + "far too long " * 100 + "\n")
    with pytest.raises(DataError, match="has no line to compare: its lines are blank, or longer than the 60 tokens"):
        export(made(), "ctranslate2", tmp_path / "out", tmp_path / "blank")
    with pytest.raises(DataError, match="nowhere"):
        export(tmp_path / "model", "ctranslate2", tmp_path / "out", tmp_path / "nowhere")
    assert not (tmp_path / "out").exists()


def test_given_lines_are_verified_besides_the_generated_ones(trained: Path, tmp_path: Path, short: None) -> None:
    plain = export(trained, "ctranslate2", tmp_path / "plain").verification
    with gzip.open(tmp_path / "text.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(["Anna reads.", "", "Ω ≈ 3 😀", "The dog sleeps."]))
    more = export(trained, "ctranslate2", tmp_path / "out", tmp_path / "text.gz").verification
    assert more.sentences == plain.sentences + 3


def _write_copy(source_model: SourceModel, folder: Path) -> None:
    """An exporter from outside the package: CTranslate2's format, and a file beside it."""
    ctranslate2.write(source_model, folder)
    (folder / "COPY").write_text("written by a test")


COPY = Exporter(ctranslate2.check, _write_copy, ctranslate2.load_exported)


def test_an_exporter_from_outside_is_used(
    trained: Path, tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPORTERS, "copy", f"{__name__}:COPY")
    exported = export(trained, "copy", tmp_path / "out")
    assert (tmp_path / "out" / "COPY").read_text() == "written by a test"
    assert exported.verification.steps > 100
    with pytest.raises(
        UsageError,
        match=r"--to 'cop': expected ctranslate2, huggingface, marian, argos or copy\. Did you mean 'copy'\?",
    ):
        export(trained, "cop", tmp_path / "other")


@pytest.mark.parametrize("name", EXPORTERS)
def test_every_exporter_of_the_registry_can_be_loaded(name: str) -> None:
    assert isinstance(load(EXPORTERS, name, "--to"), Exporter)
