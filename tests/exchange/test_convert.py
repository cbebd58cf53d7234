"""Models of every kind go into both libraries and come out equal; what a library cannot express is refused by name."""

import gzip
import json
import re
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import in_process
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

ODD = [
    *("", " ", "  two  spaces ", "\ttab\tend\t", "ﬁne ²"),
    *("emoji 😀👩‍👩‍👧", "line\u2028separator \u0085 x", "漢字 かな"),
    *("e\u0301 a\u0308", "</s> <unk> <pad> <s>", "a</s>b", "<0x41> <0xE2>", "▁x ▁▁", "\u200bzero\u200d width"),
    *("ÄÖÜß “quotes” … –", "a\x01b", "\u00a0no break\u00a0", "\r", "A" * 200, "\ufeffmark", "\ufffd"),
    *("[CLS] <mask>", "> > a << b"),
]

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses:UserWarning")
Exported = tuple[str, Path, list[str]]
BOTH = ["ctranslate2", "huggingface"]
KINDS: dict[str, dict[str, Any]] = {
    "post-norm": {"residual": "post"},
    "pre-norm": {"residual": "pre"},
    "post-norm, separate": {"residual": "post", "tie_embeddings": False, "joint": False},
    "pre-norm, separate": {"residual": "pre", "tie_embeddings": False, "joint": False},
    "post-norm, joint but untied": {"residual": "post", "tie_embeddings": False},
    "pre-norm, learned": {"residual": "pre", "positions": "learned"},
    "pre-norm, learned, separate": {"residual": "pre", "positions": "learned", "tie_embeddings": False, "joint": False},
    "smaller heads, gelu": {"residual": "pre", "d_k": 3, "d_v": 5, "activation": "gelu"},
    "silu": {"activation": "silu"},
}
CTRANSLATE2_ALONE: list[tuple[dict[str, Any], str]] = [
    ({"positions": "learned"}, "model.residual = 'post' and model.positions = 'learned'"),
    ({"positions": "rotary", "d_k": 6}, "model.residual = 'post' and model.positions = 'rotary'"),
    ({"d_k": 11}, "model.d_k = 11"),
    ({"residual": "pre", "d_k": 6, "d_v": 9}, "model.d_v = 9"),
    ({"activation": "swiglu"}, "model.activation = 'swiglu'"),
    ({"positions": "rotary", "norm": "rms", "activation": "swiglu", "residual": "pre"}, "model.norm = 'rms'"),
    ({"num_heads": 5, "d_k": 4, "d_v": 6}, "num_heads = 5"),
]
"""What transformers cannot express, and what is named."""


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


@pytest.mark.parametrize(("changes", "said"), CTRANSLATE2_ALONE)
@pytest.mark.usefixtures("short")
def test_ctranslate2_has_what_transformers_lacks(changes: dict[str, Any], said: str, made: Any, tmp_path: Path) -> None:
    model = made(**changes)
    with pytest.raises(ModelError, match=f"{said}.*--to ctranslate2"):
        export(model, "huggingface", tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    assert export(model, "ctranslate2", tmp_path / "out").verification.steps > 400


@pytest.fixture(scope="module", params=BOTH)
def exported(request: pytest.FixtureRequest, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The trained model, exported by the command, and what that said."""
    out = tmp_path_factory.mktemp(request.param) / "out"
    return request.param, out, in_process.warnings("export", trained, "--to", request.param, "--out", out)


def test_the_command_says_what_was_verified_and_what_differs(exported: Exported) -> None:
    to, out, said = exported
    assert said[0].startswith(f"wrote {out}: {to}, ")
    assert re.match(r"verified equal on \d\d sentences.*same token ids, same greedy output.*logits ", said[1])
    assert "length_penalty = 0.5 is nearest to ((5 + |Y|) / 6)^0.6" in said[2]
    assert said[3:] == [f"how to use it: {out / 'README.md'}"]


def test_files_of_the_folder(exported: Exported, trained: Path) -> None:
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
    exported: Exported, trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to, out, _ = exported
    monkeypatch.chdir(out)
    lines = ["one two three", "four"]
    code = usage_of(out).replace('["A line to translate.", "Another one."]', repr(lines))
    beams = {
        "ctranslate2": ("beam_size=4", "beam_size=1"),
        "huggingface": ("max_new_tokens", "num_beams=1, max_new_tokens"),
    }
    exec(code, {})
    assert capsys.readouterr().out.count("\n") == 2
    assert beams[to][0] in code
    exec(code.replace(*beams[to]), {})
    loaded, vocabulary = load_model(trained), Vocabulary.load(trained)
    greedy = run(loaded.model, [[*ids, EOS] for ids in vocabulary.source.encode(lines)], [30] * len(lines))
    assert capsys.readouterr().out.splitlines() == vocabulary.target.decode([output.tokens for output in greedy])


@pytest.mark.parametrize("to", BOTH)
@pytest.mark.parametrize("least", [0, 3])
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


def test_generation_follows_the_recipe(exported: Exported) -> None:
    to, out, _ = exported
    if to == "ctranslate2":
        assert "min_decoding_length=1," in usage_of(out)
        config = json.loads((out / "config.json").read_text(encoding="utf-8"))
        expected = {"decoder_start_token": "<s>", "add_source_eos": True, "layer_norm_epsilon": 1e-5}
        assert config.items() >= expected.items()
    else:
        config = json.loads((out / "generation_config.json").read_text(encoding="utf-8"))
        assert (config["num_beams"], config["length_penalty"], config["max_new_tokens"]) == (4, 0.5, 64)
        assert config["suppress_tokens"] == [0, 1, 2]
        assert config["min_new_tokens"] == 1
        assert config["decoder_start_token_id"] == 2


def test_the_nearest_length_penalty() -> None:
    assert nearest_length_penalty(0.0, gnmt) == 0.0
    assert nearest_length_penalty(0.6, gnmt) == 0.5
    assert nearest_length_penalty(1.2, gnmt) == pytest.approx(2 * 0.505, abs=0.02)
    assert nearest_length_penalty(0.6, average) == 1.0
    assert nearest_length_penalty(0.6, none) == 0.0


@pytest.mark.parametrize("to", BOTH)
def test_a_missing_library_is_named(to: str, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"huggingface": "transformers"}.get(to, to)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"pip install '{package}>="):
        export(made(), to, tmp_path / "out")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["model"]


def test_what_is_wrong_with_model_place_or_text_is_named(made: Any, tmp_path: Path) -> None:
    """Places that are somebody's: `cli/test_matrix.py`; damaged models: `cli/test_damage.py`."""
    model, out = made(), tmp_path / "out"
    (tmp_path / "file").write_text("\n \n" + "far too long " * 100 + "\n")
    with pytest.raises(ModelError, match="cannot write the export at"):
        export(model, "ctranslate2", tmp_path / "file" / "out")
    with pytest.raises(DataError, match=r"no line to compare: .* 60 tokens"):
        export(model, "ctranslate2", out, tmp_path / "file")
    with pytest.raises(UsageError, match=r"--to 'ctranslate': .*'ctranslate2'"):
        export(model, "ctranslate", out)
    assert not out.exists()


def test_given_lines_are_verified_besides_the_generated_ones(made: Any, tmp_path: Path, short: None) -> None:
    model = made()
    plain = export(model, "ctranslate2", tmp_path / "plain").verification
    with gzip.open(tmp_path / "text.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(["Anna reads.", "", "Ω ≈ 3 😀", "The dog sleeps."]))
    more = export(model, "ctranslate2", tmp_path / "out", tmp_path / "text.gz").verification
    assert more.sentences == plain.sentences + 3


def _write_copy(source_model: SourceModel, folder: Path) -> None:
    """An exporter from outside the package: CTranslate2's format, and a file beside it."""
    ctranslate2.write(source_model, folder)
    (folder / "COPY").write_text("written by a test")


COPY = Exporter(ctranslate2.check, _write_copy, ctranslate2.load_exported)


def test_an_own_exporter_is_used(trained: Path, tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPORTERS, "copy", f"{__name__}:COPY")
    assert export(trained, "copy", tmp_path / "out").verification.steps > 100
    assert (tmp_path / "out" / "COPY").read_text() == "written by a test"
