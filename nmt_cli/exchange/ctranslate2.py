"""CTranslate2: a fast engine for CPUs and GPUs, with int8.

    embeddings, sqrt(d_model), the table of positions as it is ──▶ encoder, decoder ──▶ projection
    query | key | value and key | value stay one matrix product each; tied matrices are stored once

It supports every residual, norm, activation and kind of positions, tied or untied embeddings, and any head size. Where
keys and values differ in size, the smaller ones are padded with zeros. The engine adds the source's end symbol
(`add_source_eos`).

The engine returns logits and log-probabilities, but not the encoder's output. It differs from nmt in these points: beam
search divides by |Y| ** length_penalty; max_decoding_length is one number for a batch; min_decoding_length counts every
token, our min_length only those that are not white space; max_input_length cuts inputs at 1024 tokens unless it is 0;
PAD, UNK and BOS must be listed in suppress_sequences.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.tokenizer import BOS, EOS, PAD, UNK, Vocabulary, ended
from ..errors import ModelError, extra_module, shown_name
from .exporter import BANNED, Exporter, Output, SourceModel, check_form
from .layout import PARTS, projections

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}
"""CTranslate2's names of our activations; swiglu is its gated feed-forward network."""
NORM = {"weight": "gamma", "bias": "beta"}
"""CTranslate2's names of the parameters of a norm."""
README = """\
# A translation model for CTranslate2

Written by `nmt export` and verified: it computes the same as the model that it comes from.

```python
import ctranslate2, sentencepiece

source = sentencepiece.SentencePieceProcessor(model_file="{source}")
target = sentencepiece.SentencePieceProcessor(model_file="{target}")
translator = ctranslate2.Translator(".", compute_type="default")  # or "int8", on a GPU "float16"

lines = ["A line to translate.", "Another one."]  # blank lines: leave them out
pieces = source.encode(lines, out_type=str)
results = translator.translate_batch(
    pieces,
    beam_size={beam},
    length_penalty={penalty},
    max_decoding_length=max(map(len, pieces)) + {extra},
    min_decoding_length={least},
    max_input_length=0,
    suppress_sequences={never},
)
print(*(target.decode(result.hypotheses[0]) for result in results), sep="\\n")
```

{notes}
"""


def check(source_model: SourceModel) -> None:
    """Raise ModelError if CTranslate2 cannot express the model, UsageError if it is not installed."""
    extra_module("ctranslate2", "ctranslate2", "--to ctranslate2")
    check_form(source_model.recipe.model, "CTranslate2", source_end=(True, False))


def write(source_model: SourceModel, folder: Path) -> None:
    """Write the model, its vocabularies, the tokenizers and a README. Raises OSError."""
    spec = _specification(source_model)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    source_model.vocabulary.save(folder)
    decode, files = source_model.recipe.decode, list(source_model.vocabulary.files)
    table = source_model.vocabulary.target.table
    text = README.format(
        source=files[0],
        target=files[-1],
        beam=decode.beam,
        penalty=source_model.length_penalty,
        extra=decode.max_extra,
        least=decode.min_length,
        never=json.dumps([[table[i]] for i in BANNED], ensure_ascii=False),
        notes=source_model.notes("CTranslate2", "beam_size=1", "max_decoding_length", "min_decoding_length"),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def _specification(source_model: SourceModel) -> Any:
    """Return CTranslate2's specification of the model, with all weights."""
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec, common_spec

    model, config, vocabulary = source_model.model, source_model.recipe.model, source_model.vocabulary
    form = {
        "pre_norm": config.residual == "pre",
        "rms_norm": config.norm == "rms",
        "activation": getattr(common_spec.Activation, ACTIVATIONS[config.activation]),
        "ffn_glu": config.activation == "swiglu",
        "rotary_dim": config.key_size if config.positions == "rotary" else None,
    }
    spec = TransformerSpec(
        TransformerEncoderSpec(config.encoder_layers, config.num_heads, **form),
        TransformerDecoderSpec(config.decoder_layers, config.num_heads, **form),
    )
    spec.encoder.embeddings[0].weight = _array(model.matrix("source"))
    spec.decoder.embeddings.weight = _array(model.matrix("target"))
    spec.decoder.projection.weight = _array(model.output_weight)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    for side, positions in ((spec.encoder, model.source_positions), (spec.decoder, model.target_positions)):
        side.scale_embeddings = True
        if hasattr(side, "position_encodings"):
            rows = positions(config.max_positions).expand(config.max_positions, config.d_model)
            side.position_encodings.encodings = _array(rows)
    _set_layers(spec, source_model)
    spec.register_source_vocabulary(vocabulary.source.table)
    spec.register_target_vocabulary(vocabulary.target.table)
    table = vocabulary.target.table
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = table[UNK], table[BOS], table[EOS]
    spec.config.decoder_start_token, spec.config.add_source_eos = table[BOS], config.source_end
    spec.config.layer_norm_epsilon = config.epsilon
    return spec


def _set_layers(spec: Any, source_model: SourceModel) -> None:
    """Set the parameters of the layers, and of the norms after them."""
    config, weights = source_model.recipe.model, source_model.weights
    for place, parts in projections(
        weights, source_model.parameters, config.num_heads, max(config.key_size, config.value_size)
    ):
        layer, array = getattr(spec, place.side).layer[place.layer], np.ascontiguousarray(np.concatenate(parts))
        target = layer
        for step in PARTS[place.part].ctranslate2.split("."):
            target = target[int(step)] if step.isdigit() else getattr(target, step)
        if place.part == "feed_forward.inner" and config.activation == "swiglu":
            array, up = np.split(array, 2)  # the gate is first
            setattr(layer.ffn.linear_0_noact, place.kind, up)
        setattr(target, NORM[place.kind] if place.part.endswith(".norm") else place.kind, array)
        if place.part.endswith("_attention.output") and {config.key_size, config.value_size} != {
            config.d_model // config.num_heads
        }:
            attention = layer.self_attention if place.part.startswith("self") else layer.attention
            attention.queries_scale = config.key_size**-0.5
    for side in ("encoder", "decoder"):
        for kind, name in NORM.items():
            if f"{side}_norm.{kind}" in weights:
                setattr(getattr(spec, side).layer_norm, name, weights[f"{side}_norm.{kind}"])


def _array(tensor: Tensor) -> Any:
    return np.ascontiguousarray(tensor.detach().numpy())


class CTranslate2Reader:
    """A folder in CTranslate2, fp32 on the CPU. Its inputs and outputs are pieces."""

    def __init__(
        self,
        folder: Path,
        encode: Callable[[str], list[str]],
        decode: Callable[[list[str]], str],
        tables: Sequence[Sequence[str]],
        order: Sequence[int],
        reads_end: bool = True,
        adds_end: bool = True,
    ) -> None:
        """`tables`: CTranslate2's token at each id of nmt, of source and target, "" where it has none; `order`: its ids
        of the target's; `reads_end`: whether the encoder reads an end symbol, `adds_end`: whether CTranslate2 adds it.
        """
        import ctranslate2

        self.translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
        self.pieces, self.text, self.order, self.adds_end = encode, decode, torch.tensor(order), adds_end
        self.reads_end = reads_end
        self.source_table, self.target_table = tables
        self.source_ids, self.target_ids = ({piece: i for i, piece in enumerate(table) if piece} for table in tables)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows = [[self.source_ids.get(piece, UNK) for piece in self.pieces(text)] for text in texts]
        return [ended(row, self.reads_end) for row in rows]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return [self.text([self.target_table[i] for i in row if i not in (PAD, BOS, EOS)]) for row in rows]

    def run(self, sources: Sequence[list[int]], targets: Sequence[list[int]], limit: int) -> list[Output]:
        src = [[self.source_table[i] for i in (row[:-1] if self.adds_end else row)] for row in sources]
        tgt = [[self.target_table[i] for i in row[:-1]] for row in targets]
        try:
            scored = self.translator.score_batch(src, tgt, max_input_length=0)
            results = self.translator.translate_batch(
                src,
                beam_size=1,
                max_decoding_length=limit,
                min_decoding_length=0,
                max_input_length=0,
                return_end_token=True,
                suppress_sequences=[[self.target_table[i]] for i in BANNED if self.target_table[i]],
                return_logits_vocab=True,
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"CTranslate2 itself cannot run the model: {shown_name(str(error))}.") from None
        return [self._output(result, score) for result, score in zip(results, scored, strict=True)]

    def _output(self, result: Any, score: Any) -> Output:
        logits = torch.from_numpy(np.stack([np.array(row) for row in result.logits[0]]))  # (T, V)
        return Output(
            [self.target_ids[token] for token in result.hypotheses[0]],
            logits[:, self.order.clamp(min=0)],
            torch.tensor(score.log_probs),
        )


def load_exported(folder: Path) -> CTranslate2Reader:
    """Load an exported folder, with its tokenizers."""
    vocabulary = Vocabulary.load(folder)
    ids = {piece: i for i, piece in enumerate(vocabulary.target.table)}
    decode = vocabulary.target.decode
    return reader_of(folder, vocabulary.source.pieces, lambda pieces: decode([[ids[piece] for piece in pieces]])[0])


def reader_of(
    folder: Path, encode: Callable[[str], list[str]], decode: Callable[[list[str]], str]
) -> CTranslate2Reader:
    """Return the reader of an exported folder, whose ids are those of the model folder."""
    tables = [_table(folder, side) for side in ("source", "target")]
    ends = json.loads((folder / "config.json").read_text(encoding="utf-8"))["add_source_eos"]
    return CTranslate2Reader(folder, encode, decode, tables, range(len(tables[1])), ends, ends)


def _table(folder: Path, side: str) -> list[str]:
    """Return the engine's vocabulary, by id."""
    separate = folder / f"{side}_vocabulary.json"
    path = separate if separate.exists() else folder / "shared_vocabulary.json"
    table: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return table


EXPORTER = Exporter(check, write, load_exported)
