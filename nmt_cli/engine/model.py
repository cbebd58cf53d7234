"""A model that the engine has packed, and what it computes with it. Arrays are NumPy's; torch is not loaded.

    arrays by name ──▶ EngineModel ─┬─▶ search.engine: plain beam search, and a decoder for other searches
                                    └─▶ forced: log-probabilities and attention of given translations

    B sentences   W beam   N rows of a step   V target vocabulary   S source tokens   T target tokens
    C candidates

src/nmt.h has the functions. A model may be used by many threads at once. Every method raises ModelError for what the
engine refuses, and MemoryError.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ModelError, printable
from ..registry import ACTIVATIONS, NORMS, POSITIONS, RESIDUALS
from .library import CArray, CConfig, Owner, flattened, integers, library, missing

if TYPE_CHECKING:
    from ..recipe import ModelSection

Array = npt.NDArray[Any]

DTYPES = {"float32": 0, "uint16": 1, "int8": 2}
"""NumPy's dtypes and their numbers in src/nmt.h; uint16 are the bits of bf16."""
PRECISIONS = {"fp32": 0, "int8": 2}
"""The precisions in which the engine computes."""
DECODERS = ("self_attention", "ssru")
"""Values of model.decoder, by their numbers in src/nmt.h."""
FORMS = {
    key: (registry, [f"nmt_cli.model.{name}" for name in names])
    for key, registry, names in (
        ("norm", NORMS, ("norms:layer_norm", "norms:rms_norm")),
        ("residual", RESIDUALS, ("residuals:PreNorm", "residuals:PostNorm")),
        ("activation", ACTIVATIONS, ("activations:relu", "activations:gelu", "activations:silu", "activations:SwiGLU")),
        ("positions", POSITIONS, ("positions:Sinusoidal", "positions:Learned", "positions:Rotary", "positions:Marian")),
    )
}
"""Keys of [model] → their registries, and the entries that the engine has, by their numbers in src/nmt.h."""


def unsupported(config: ModelSection, precision: str) -> str:
    """Return why the engine does not take such a model in this precision; "" if it does."""
    if reason := missing():
        return reason
    if precision not in PRECISIONS:
        return f"the engine has no {precision}"
    for key, (registry, known) in FORMS.items():
        if registry.get(getattr(config, key)) not in known:
            return f"the engine has no model.{key} = {getattr(config, key)!r}"
    if precision == "int8" and (
        odd := [width for width in (config.d_model, config.d_ff, config.num_heads * config.value_size) if width % 4]
    ):
        return f"the engine multiplies int8 in fours, and the model has a width of {odd[0]}"
    return ""


def use_threads(count: int) -> None:
    """Let the engine share the work of this thread among `count` threads from now on. A new thread has one."""
    if functions := library():
        functions.nmt_use_threads(count)


class EngineModel(Owner):
    """A model in `precision`. Its arrays have the names of a model folder; they are copied.

    Raises ModelError if `unsupported`, or if the arrays do not fit.
    """

    def __init__(
        self, config: ModelSection, vocabularies: tuple[int, int], arrays: Mapping[str, Array], precision: str
    ) -> None:
        if reason := unsupported(config, precision):
            raise ModelError(f"{reason}.")
        self.library, self.config, self.precision = library(), config, precision
        self.vocabulary, self.max_positions = vocabularies[1], config.max_positions
        values = {key: known.index(registry[getattr(config, key)]) for key, (registry, known) in FORMS.items()}
        values["decoder"] = DECODERS.index(config.decoder)
        values |= {"source_vocab": vocabularies[0], "target_vocab": vocabularies[1], "precision": PRECISIONS[precision]}
        names = [field[0] for field in CConfig._fields_]
        described = CConfig(*(values[name] if name in values else getattr(config, name) for name in names))
        kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        given = (CArray * len(kept))(
            *(_described(name, array, isinstance(arrays[name], np.memmap)) for name, array in kept.items())
        )
        self.delete = self.library.nmt_model_delete
        self.handle = self.library.nmt_model_new(ctypes.byref(described), len(kept), given)

    def forced(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        following: Sequence[Sequence[int]] | None = None,
        *,
        attention: Sequence[str] = (),
    ) -> tuple[list[Array], dict[str, Array]]:
        """Run the model over pairs of sources (S,) with their end symbols, and targets (T,), which begin with the begin
        symbol.

        Return log P of each token of `following` (T,), the tokens that come after those of the targets, (T,) for each
        pair; and the weights of each kind of `attention`: "encoder" (layers, H, S, S), "decoder" (layers, H, T, T) and
        "cross" (layers, H, T, S), of a single pair.
        """
        expect("translations", len(targets), len(sources))
        if attention:
            expect("pairs of which attention is asked for", len(sources), 1)
        if following is not None:
            expect("tokens that follow", [*map(len, following)], [*map(len, targets)])
        (columns, source_ids), (rows, target_ids) = flattened(sources), flattened(targets)
        log_probs = None if following is None else np.empty(len(target_ids), np.float32)
        longest, read, heads = len(source_ids), len(target_ids), self.config.num_heads
        shapes = {
            "encoder": (self.config.encoder_layers, longest, heads, longest),
            "decoder": (self.config.decoder_layers, read, heads, read),
            "cross": (self.config.decoder_layers, read, heads, longest),
        }
        weights = {kind: np.zeros(shapes[kind], np.float32) for kind in attention}
        self.library.nmt_pass(
            self.handle,
            len(sources),
            *(columns, source_ids, rows, target_ids, flattened(following or [])[1], log_probs),
            *map(weights.get, shapes),
        )
        parts = [] if log_probs is None else np.split(log_probs, rows.cumsum()[:-1])
        return parts, {kind: values.swapaxes(1, 2) for kind, values in weights.items()}


def _described(name: str, array: Array, mapped: bool) -> CArray:
    """Return the description of an array. Raises ModelError for a dtype or a shape that no model has."""
    if array.dtype.name not in DTYPES or array.ndim not in (1, 2) or not all(array.shape[1:]):
        raise ModelError(
            f"{printable(name)} has the dtype {array.dtype.name} and the shape {array.shape}: no model has "
            "such an array."
        )
    columns = array.shape[1] if array.ndim == 2 else 0
    return CArray(name.encode(), DTYPES[array.dtype.name], array.shape[0], columns, array.ctypes.data, mapped)


def expect(what: str, found: object, expected: object) -> None:
    """Raise ModelError if a number or a shape is not the expected one."""
    if found != expected:
        raise ModelError(f"{what}: {found}, expected {expected}.")


class Bans(NamedTuple):
    """Tokens that may not follow: the first counts[n] of `tokens` for hypothesis n; all of them if `counts` is None."""

    tokens: Sequence[int]
    counts: Any = None

    def of(self, rows: Any) -> Bans:
        """Return the bans of some hypotheses, by their indices or a slice."""
        return self if self.counts is None else Bans(self.tokens, self.counts[rows])


def ranked(
    function: Callable[..., object], so_far: Array, rows: int, count: int, bans: Bans, only: Array | None
) -> tuple[Array, Array]:
    """Call a function that ranks with the last of its arguments. Return the values and the numbers that it has written,
    (B, C).
    """
    for numbers in (only, bans.counts):
        expect("one number per open hypothesis", rows if numbers is None else len(numbers), rows)
    shape, banned = (len(so_far), max(0, count)), integers(bans.tokens)
    values, numbers = np.empty(shape, np.float32), np.empty(shape, np.int64)
    limits = [None if limit is None else integers(limit) for limit in (bans.counts, only)]
    function(np.ascontiguousarray(so_far, np.float32), len(banned), banned, *limits, count, values, numbers)
    return values, numbers


def rank(
    logits: Array, so_far: Array, rows: Array, count: int, bans: Bans, only: Array | None, normalized: bool
) -> tuple[Array, Array]:
    """Return the C largest of so_far (B, W) + log-softmax(logits (N, V)) of each sentence: values and w * V + v, (B,
    C). See nmt_rank in src/nmt.h.
    """
    opened, logits = integers(rows), np.ascontiguousarray(logits, np.float32)
    expect("rows of logits", len(logits), len(opened))
    shape = *np.shape(so_far), len(opened)
    function = partial(library().nmt_rank, *shape, opened, logits.shape[1], logits, normalized)
    return ranked(function, so_far, len(opened), count, bans, only)


def log_softmax(logits: Array) -> Array:
    """Return the log-softmax of logits (N, V), which may be overwritten."""
    values = np.ascontiguousarray(logits, np.float32)
    library().nmt_log_softmax(*values.shape, values)
    return values
