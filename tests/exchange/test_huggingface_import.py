"""MarianMT models of transformers with random weights: imported, they compute what transformers computes with the same
positions, at lengths up to 500.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from marian_models import pieces, spm
from safetensors.numpy import load_file, save_file
from transformers import MarianConfig, MarianMTModel

from nmt_cli.data.normalization import replacing
from nmt_cli.data.tokenizer import BOS, EOS, PAD, Vocabulary
from nmt_cli.errors import ModelError, NmtError
from nmt_cli.exchange.importer import ImportOptions
from nmt_cli.exchange.importing import import_model
from nmt_cli.exchange.preprocess import MOSES
from nmt_cli.model.folder import load_model

pytestmark = pytest.mark.usefixtures("few_lines")

LENGTHS = (1, 3, 50, 499)
KINDS: dict[str, dict[str, Any]] = {
    "tied": {},
    "relu": {"activation_function": "relu", "encoder_layers": 3, "decoder_layers": 1},
    "untied": {"tie_word_embeddings": False},
    "untied, one matrix for source and target": {"tie_word_embeddings": False, "copies": True},
    "a start that is not zero": {"start": 0.3},
    "separate": {"separate": True, "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
}


def write(folder: Path, separate: bool = False, copies: bool = False, start: float = 0.0, **config: Any) -> Path:
    """Write a model of transformers with random weights. `start`: the size of the numbers of padding's embedding;
    `copies`: both embeddings are equal, if the library does not tie them.
    """
    sides = [["</s>", "<unk>", *pieces(spm(0))], ["</s>", "<unk>", *pieces(spm(1, 230))]]
    if not separate:
        sides = [list(dict.fromkeys([*sides[1], *sides[0]]))] * 2
    tables = [[*side[:2], "<pad>", *side[2:]] if separate else [*side, "<pad>"] for side in sides]
    size, target = len(tables[0]), len(tables[1])
    pad = tables[1].index("<pad>")
    settings = {
        **{"vocab_size": size, "decoder_vocab_size": target, "d_model": 32, "max_position_embeddings": 512},
        **{"activation_function": "swish", "scale_embedding": True, "static_position_embeddings": True},
        **{"pad_token_id": pad, "decoder_start_token_id": pad},
        **dict.fromkeys(("eos_token_id", "bos_token_id", "forced_eos_token_id"), 0),
        **config,
    }
    for side in ("encoder", "decoder"):
        settings = {f"{side}_layers": 2, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 48, **settings}
    torch.manual_seed(1)
    model = MarianMTModel(MarianConfig(**settings)).eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                noise = torch.randn_like(parameter) * (0.1 if parameter.ndim > 1 else 0.05)
                parameter.copy_(noise + ("layer_norm.weight" in name))
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias) * 0.5)
        if copies:
            model.model.encoder.embed_tokens.weight.copy_(model.model.decoder.embed_tokens.weight)
        embedding = model.model.decoder.embed_tokens.weight
        embedding[pad] = start * torch.randn(32)
        model.model.encoder.embed_tokens.weight[pad] = embedding[pad]
    folder.mkdir()
    model.generation_config.num_beams = 6
    model.save_pretrained(folder)
    for side, number, vocabulary in (("source", 0, 200), ("target", 1, 230)):
        (folder / f"{side}.spm").write_bytes(spm(number, vocabulary))
    names = ("vocab.json", "target_vocab.json") if separate else ("vocab.json",)
    for name, table in zip(names, tables, strict=False):
        ids = {piece: number for number, piece in enumerate(table)}
        (folder / name).write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    written = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    (folder / "tokenizer_config.json").write_text(json.dumps(written))
    return folder


class Theirs:
    """The model in transformers, with the ids of ours. With `marian` it gets Marian's positions and epsilon."""

    def __init__(self, folder: Path, vocabulary: Vocabulary, marian: bool) -> None:
        self.model: Any = MarianMTModel.from_pretrained(folder).eval()  # type: ignore[no-untyped-call]
        self.orders = []
        for tokenizer, name in ((vocabulary.source, "vocab.json"), (vocabulary.target, "target_vocab.json")):
            path = folder / name if (folder / name).exists() else folder / "vocab.json"
            ids = json.loads(path.read_text(encoding="utf-8"))
            self.orders.append(torch.tensor([ids.get(piece, ids["<pad>"]) for piece in tokenizer.table]))
        if not marian:
            return
        d = self.model.config.d_model
        angles = torch.arange(512).double()[:, None] * 10_000.0 ** (-torch.arange(d // 2).double() / (d / 2 - 1))
        for side in (self.model.model.encoder, self.model.model.decoder):
            side.embed_positions.weight.data.copy_(torch.cat([angles.sin(), angles.cos()], 1))
        for module in self.model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.eps = 1e-6

    @torch.inference_mode()
    def logits(self, source: list[int], read: list[int]) -> torch.Tensor:
        src, tgt = (order[torch.tensor([ids])] for order, ids in zip(self.orders, (source, read), strict=True))
        result: torch.Tensor = self.model(input_ids=src, decoder_input_ids=tgt).logits[0][:, self.orders[1]]
        return result


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("relu", "untied") or "," in kind)) for kind in KINDS],
)
@pytest.mark.parametrize("positions", ["marian", "huggingface"])
def test_logits_are_those_of_transformers(kind: str, positions: str, tmp_path: Path) -> None:
    """Which looks the decoder's first input up as the embedding of <pad>, and gives padding a probability."""
    folder = write(tmp_path / "theirs", **KINDS[kind])
    done = import_model(folder, tmp_path / "ours", "", ImportOptions(positions=positions))
    assert done.model.toolkit == "Hugging Face (MarianMT)"
    assert (done.recipe.decode.beam, done.recipe.decode.alpha) == (6, 1.0)
    assert bool(done.model.remarks) == (positions == "huggingface")
    loaded = load_model(tmp_path / "ours")
    assert (loaded.recipe.model.positions, loaded.recipe.model.epsilon) == (
        ("marian", 1e-6) if positions == "marian" else ("sinusoidal", 1e-5)
    )
    vocabulary = Vocabulary.load(tmp_path / "ours")
    theirs = Theirs(folder, vocabulary, positions == "marian")
    stored = load_file(tmp_path / "ours" / "model.safetensors")
    started = "start" in KINDS[kind]
    assert ("embeddings.shared" in stored) == (kind in ("tied", "relu") or started)
    assert done.recipe.model.zero_start != started
    generator = torch.Generator().manual_seed(3)
    sizes = vocabulary.source_size, vocabulary.target_size
    left_out = {BOS} if started and positions == "huggingface" else {BOS, PAD}
    compared = [number for number in range(sizes[1]) if number not in left_out]
    worst = 0.0
    for length in LENGTHS:
        source, target = (torch.randint(4, size, (length,), generator=generator).tolist() for size in sizes)
        with torch.inference_mode():
            ours = loaded.model.logits(
                loaded.model(torch.tensor([[*source, EOS]]), None, torch.tensor([[BOS, *target]]))
            )
        other = theirs.logits([*source, EOS], [BOS, *target])
        worst = max(worst, float((ours[0] - other)[:, compared].abs().max()))
    assert worst <= 1e-4


def test_texts_are_read_as_marian_did_or_as_transformers_does(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs")
    texts = ["the dog… ", "“a” 漢字 １", "the\x07cat"]
    for positions in ("marian", "huggingface"):
        import_model(folder, tmp_path / positions, "", ImportOptions(positions=positions))
    ours, theirs = (Vocabulary.load(tmp_path / name).source for name in ("marian", "huggingface"))
    change = replacing(MOSES, True)
    assert change is not None
    assert ours.encode(texts) == theirs.encode([change(text) for text in texts])
    from transformers import MarianTokenizer

    tokenizer = MarianTokenizer.from_pretrained(folder)
    order = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    ids = [order.get(piece) for piece in theirs.table]
    plain = ["the dog sees the cat", "no ~ 漢字 x", "Anna liest"]
    assert [[ids[number] for number in row] for row in theirs.encode(plain)] == [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in plain
    ]


Change = Callable[[Path], object]


def config(**keys: Any) -> Change:
    def changed(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**values, **keys}))

    return changed


def text(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content)


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def renamed(name: str, new: str, content: str = "") -> Change:
    return lambda folder: (folder / name).rename(folder / new).write_text(content)


def retyped(folder: Path, dtype: str) -> None:
    """Call the numbers of one tensor those of another type, which has as many bytes."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    name = next(name for name, form in header.items() if name != "__metadata__" and len(form["shape"]) == 1)
    count = header[name]["shape"][0]
    shape = [{"C64": count // 2, "I32": count, "F4": 8 * count}.get(dtype, 4 * count)]
    header[name] |= {"dtype": dtype, "shape": shape}
    stored = json.dumps(header).encode()
    path.write_bytes(len(stored).to_bytes(8, "little") + stored + content[8 + size :])


def tensors(change: Callable[[dict[str, Any]], object]) -> Change:
    def changed(folder: Path) -> None:
        stored = load_file(folder / "model.safetensors")
        change(stored)
        save_file({name: np.ascontiguousarray(one) for name, one in stored.items()}, folder / "model.safetensors")

    return changed


def put(**more: Any) -> Change:
    return tensors(lambda stored: stored.update(more))


def lost(name: str) -> Change:
    return tensors(lambda stored: stored.pop(name))


FC1 = "model.encoder.layers.0.fc1"
MANY_DIGITS = f"model.encoder.layers.{'9' * 5000}.fc1.bias"
POSITIONS = {f"embed_positions{number}": np.zeros(0, "f4") for number in range(20_000)}
FAULTS: dict[str, tuple[Change, str]] = {
    "an unknown key": (config(new_thing=3), "does not know: new_thing = 3"),
    "another type": (config(model_type="bart"), "the type 'bart'"),
    "no scaling": (config(scale_embedding=False), "scale_embedding = False"),
    "pre-norm": (config(normalize_before=True), "normalize_before = True"),
    "other heads": (config(decoder_attention_heads=2), "decoder_attention_heads = 2"),
    "two activations": (config(activation_function=["relu"]), r"activation_function = \['relu'\]"),
    "no layers": (config(encoder_layers=0), "encoder_layers"),
    "words for layers": (config(encoder_layers="two"), "encoder_layers = 'two', expected a number"),
    "layers without end": (config(encoder_layers=float("inf")), "'config.json' is damaged"),
    "words for positions": (config(max_position_embeddings="many"), "max_position_embeddings"),
    "another start": (config(decoder_start_token_id=0), "decoder_start_token_id = 0, and <pad>"),
    "a long list": (text("generation_config.json", f'{{"num_beams": {[[]] * 300_000}}}'), "config.json .*1,048,576"),
    "words for beams": (text("generation_config.json", '{"num_beams": "many"}'), "num_beams"),
    "beams without end": (text("generation_config.json", '{"num_beams": 1e999}'), "is damaged"),
    "not JSON": (text("vocab.json", "{"), "'vocab.json' is damaged"),
    "a list": (text("vocab.json", "[]"), "'vocab.json' is damaged: .*list"),
    "gaps": (text("vocab.json", '{"<pad>": 0, "</s>": 5, "<unk>": 6}'), "vocab.json is not a vocabulary"),
    "no padding": (text("vocab.json", '{"</s>": 0, "<unk>": 1}'), "vocab.json lacks <pad>"),
    "no vocabulary": (without("vocab.json"), "lacks vocab.json"),
    "no source.spm": (without("source.spm"), "lacks source.spm"),
    "no language": (without("tokenizer_config.json"), "do not say the source language"),
    **{
        dtype: (partial(retyped, dtype=dtype), f"the dtype {dtype}, expected F32|no such dtype")
        for dtype in ("C64", "F8_E8M0", "F4", "I32")
    },
    "damaged weights": (lambda folder: os.truncate(folder / "model.safetensors", 9999), "model.safetensors is not"),
    "a layer of many digits": (put(**{MANY_DIGITS: np.zeros(3, "f4")}), "does not know: 'encoder.layers.999"),
    "unknown": (put(**{"model.extra.weight": np.zeros(3, "f4")}), "does not know: 'extra.weight'"),
    "positions that are none": (put(**POSITIONS), "does not know: 'embed_positions"),
    "missing": (lost(f"{FC1}.weight"), "lack encoder.layers.0.fc1.weight"),
    "no embeddings": (lost("model.shared.weight"), "lack shared.weight"),
    "no bias": (lost("final_logits_bias"), "lack final_logits_bias"),
    "wrong shape": (put(**{f"{FC1}.weight": np.zeros((48, 7), "f4")}), "fc1.weight has the shape"),
    "few tokens": (put(**{"model.shared.weight": np.zeros((50, 32), "f4")}), "shared.weight has 50 tokens"),
    "NaN": (put(**{f"{FC1}.bias": np.full(48, np.nan, "f4")}), "fc1.bias .*not finite"),
    "other numbers": (
        tensors(lambda stored: stored.update({"lm_head.weight": stored["model.shared.weight"] + np.float32(1)})),
        "config.json ties lm_head.weight to shared.weight, and the file has other numbers",
    ),
    "an added token": (text("added_tokens.json", '{"<mask>": 9}'), "added_tokens.json has the token '<mask>'"),
    "quantized": (config(quantization_config={"bits": 4}), r"the weights are quantized \(\{'bits': 4\}\)"),
    "no index": (renamed("model.safetensors", "model.safetensors.index.json", "{}"), "has no weight_map"),
    "ONNX": (renamed("model.safetensors", "decoder_model.onnx"), "is a model in ONNX"),
    "PEFT": (renamed("config.json", "adapter_config.json"), "is an adapter of PEFT"),
    "wide": (
        tensors(lambda t: t.update({"model.shared.weight": np.zeros((len(t["model.shared.weight"]), 99), "f2")})),
        r"shared.weight .*\(\d+, 99\), expected \(\d+, 32\)",
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("whole") / "model", encoder_layers=1, decoder_layers=1)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault: str, whole: Path, tmp_path: Path) -> None:
    change, said = FAULTS[fault]
    folder = shutil.copytree(whole, tmp_path / "model")
    change(folder)
    with pytest.raises(NmtError) as error:
        import_model(folder, tmp_path / "out", "", ImportOptions())
    assert re.search(said, str(error.value)), error.value
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["opus-mt-fr-nl", "opus-mt-tc-big-fr-nl"])
def test_the_name_of_the_folder_says_the_languages_if_no_file_does(name: str, whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / name)
    (folder / "tokenizer_config.json").unlink()
    data = import_model(folder, tmp_path / "out", "", ImportOptions()).recipe.data
    assert (data.source_language, data.target_language) == ("fr", "nl")


@pytest.mark.slow
def test_the_command_that_rewrites_a_pickle_works(whole: Path, tmp_path: Path) -> None:
    """The one that the refusal prints, run as it is printed."""
    folder = shutil.copytree(whole, tmp_path / "model")
    torch.save(MarianMTModel.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="which needs pickle to be read, and could run any program") as error:
        import_model(folder, tmp_path / "out", "", ImportOptions())
    line = re.search(r"(python -c '.*?')", str(error.value))
    assert line, error.value
    line_of_shell = line[1].replace("python", sys.executable, 1).replace("DIR", str(folder))
    done = subprocess.run(["sh", "-c", line_of_shell], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    ours = import_model(folder, tmp_path / "out", "", ImportOptions())
    expected = import_model(whole, tmp_path / "expected", "", ImportOptions())
    first, second = (load_file(one.path / "model.safetensors") for one in (ours, expected))
    assert all(np.array_equal(first[name], second[name]) for name in second)


def split_in_shards(tensors: dict[str, Any], folder: Path) -> None:
    names = sorted(tensors)
    parts = {f"model-{i}.safetensors": names[i::2] for i in range(2)}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()


def add_rows(tensors: dict[str, Any], folder: Path) -> None:
    """As transformers pads a vocabulary, with rows that no token has."""
    for name in ("model.shared.weight", "final_logits_bias"):
        axis = -2 if name.startswith("model") else -1
        width = [(0, 0)] * 2
        width[axis] = (0, 5)
        tensors[name] = np.pad(tensors[name], width)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def keep_only_the_output(tensors: dict[str, Any], folder: Path) -> None:
    tensors["lm_head.weight"] = tensors.pop("model.shared.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("change", [split_in_shards, add_rows, keep_only_the_output])
def test_weights_as_others_store_them_are_the_same(change: Any, tmp_path: Path) -> None:
    plain = import_model(write(tmp_path / "plain"), tmp_path / "one", "", ImportOptions())
    folder = write(tmp_path / "other")
    change(load_file(folder / "model.safetensors"), folder)
    done = import_model(folder, tmp_path / "two", "", ImportOptions())
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert len(done.model.remarks) == len(plain.model.remarks) + (change is add_rows)
