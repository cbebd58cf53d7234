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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError, printable
from ..registry import ACTIVATIONS, NORMS, POSITIONS, RESIDUALS
from .library import CArray, CConfig, library, missing

if TYPE_CHECKING:
    from ..recipe import ModelSection

Array = npt.NDArray[Any]

DTYPES = {"float32": 0, "uint16": 1, "int8": 2}
"""NumPy's dtypes and their numbers in src/nmt.h; uint16 are the bits of bf16."""
PRECISIONS = {"fp32": 0, "int8": 2}
"""The precisions in which the engine computes."""
MODEL = "nmt_cli.model"
FORMS = (
    ("norm", NORMS, {f"{MODEL}.norms:layer_norm": 0, f"{MODEL}.norms:rms_norm": 1}),
    ("residual", RESIDUALS, {f"{MODEL}.residuals:PreNorm": 0, f"{MODEL}.residuals:PostNorm": 1}),
    (
        "activation",
        ACTIVATIONS,
        {
            f"{MODEL}.activations:relu": 0,
            f"{MODEL}.activations:gelu": 1,
            f"{MODEL}.activations:silu": 2,
            f"{MODEL}.activations:SwiGLU": 3,
        },
    ),
    (
        "positions",
        POSITIONS,
        {f"{MODEL}.positions:Sinusoidal": 0, f"{MODEL}.positions:Learned": 1, f"{MODEL}.positions:Rotary": 2}
        | {f"{MODEL}.positions:Marian": 3},
    ),
)
"""Keys of [model], their registries, and the entries that the engine has, with their numbers."""


def unsupported(config: ModelSection, precision: str) -> str:
    """Return why the engine does not take such a model in this precision; "" if it does."""
    if reason := missing():
        return reason
    if precision not in PRECISIONS:
        return f"the engine has no {precision}"
    for key, registry, known in FORMS:
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


class Owner:
    """Owns what `handle` names in the library: `delete` frees it when the object is collected, in any thread.

    An object whose method a thread runs is referred to, so nothing is freed with which a thread computes when Python
    exits.
    """

    handle = 0
    delete: Any

    def __del__(self) -> None:
        if self.handle:
            self.delete(self.handle)


class EngineModel(Owner):
    """A model in `precision`. Its arrays have the names of a model folder; they are copied.

    Raises ModelError if `unsupported`, or if the arrays do not fit.
    """

    def __init__(
        self, config: ModelSection, vocabularies: tuple[int, int], arrays: Mapping[str, Array], precision: str
    ) -> None:
        if reason := unsupported(config, precision):
            raise ModelError(f"{reason}.")
        functions = library()
        assert functions is not None
        self.library, self.config, self.precision = functions, config, precision
        self.vocabulary, self.max_positions = vocabularies[1], config.max_positions
        form = {key: known[registry[getattr(config, key)]] for key, registry, known in FORMS}
        described = CConfig(
            d_model=config.d_model,
            heads=config.num_heads,
            key_size=config.key_size,
            value_size=config.value_size,
            d_ff=config.d_ff,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            max_positions=config.max_positions,
            source_vocab=vocabularies[0],
            target_vocab=vocabularies[1],
            norm=form["norm"],
            activation=form["activation"],
            positions=form["positions"],
            post_norm=form["residual"],
            tied=config.tie_embeddings,
            monotonic=config.monotonic_attention,
            output_bias=config.output_bias,
            precision=PRECISIONS[precision],
            epsilon=config.epsilon,
        )
        kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        given = (CArray * len(kept))(
            *(_described(name, array, isinstance(arrays[name], np.memmap)) for name, array in kept.items())
        )
        self.delete = functions.nmt_model_delete
        self.handle = checked(functions, functions.nmt_model_new(ctypes.byref(described), len(kept), given))

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
        lengths = [np.array([len(ids) for ids in side], np.int64) for side in (sources, targets)]
        ids = [
            np.array([token for one in side for token in one], np.int64) for side in (sources, targets, following or [])
        ]
        log_probs = np.empty(len(ids[1]), np.float32) if following is not None else None
        rows, columns, heads = len(ids[1]), len(ids[0]), self.config.num_heads
        shapes = {
            "encoder": (self.config.encoder_layers, columns, heads, columns),
            "decoder": (self.config.decoder_layers, rows, heads, rows),
            "cross": (self.config.decoder_layers, rows, heads, columns),
        }
        weights = {kind: np.zeros(shapes[kind], np.float32) for kind in attention}
        checked(
            self.library,
            self.library.nmt_pass(
                self.handle,
                len(sources),
                address(lengths[0]),
                address(ids[0]),
                address(lengths[1]),
                address(ids[1]),
                address(ids[2]),
                address(log_probs),
                *(address(weights.get(kind)) for kind in shapes),
            ),
        )
        parts = [] if log_probs is None else np.split(log_probs, lengths[1].cumsum()[:-1])
        return parts, {kind: values.swapaxes(1, 2) for kind, values in weights.items()}


def checked(functions: ctypes.CDLL, result: int | None) -> int:
    """Return the result of a function. Raises ModelError, or MemoryError, if it failed."""
    if result is None or result == -1:
        reason = printable(functions.nmt_error().decode("utf-8", "replace"))
        raise MemoryError(reason) if reason == "out of memory" else ModelError(f"{reason}.")
    return result


def _described(name: str, array: Array, mapped: bool) -> CArray:
    """Return the description of an array. Raises ModelError for a dtype or a shape that no model has."""
    if array.dtype.name not in DTYPES or array.ndim not in (1, 2) or not all(array.shape[1:]):
        raise ModelError(
            f"{printable(name)} has the dtype {array.dtype.name} and the shape {array.shape}: no model has "
            "such an array."
        )
    columns = array.shape[1] if array.ndim == 2 else 0
    return CArray(name.encode(), DTYPES[array.dtype.name], array.shape[0], columns, address(array), mapped)


def address(array: Array | None) -> int | None:
    """Return the address of an array's numbers; None if there is no array."""
    return None if array is None else array.ctypes.data


def expect(what: str, found: object, expected: object) -> None:
    """Raise ModelError if a number or a shape is not the expected one."""
    if found != expected:
        raise ModelError(f"{what}: {found}, expected {expected}.")


def integers(values: Any) -> Array:
    """Return the values as the engine reads them."""
    return np.ascontiguousarray(values, np.int64)


def flattened(sources: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """Return the lengths of sequences of tokens, and their tokens one sequence after another."""
    return (
        np.array([len(source) for source in sources], np.int64),
        np.array([token for source in sources for token in source], np.int64),
    )


class Ranking:
    """The arguments of a function that ranks, and its results."""

    def __init__(
        self,
        so_far: Array,
        shape: tuple[int, ...],
        rows: int,
        count: int,
        banned: Sequence[int],
        only: Array | None,
        banned_counts: Array | None,
    ) -> None:
        expect("log-probabilities so far", np.shape(so_far), shape)
        for values in (only, banned_counts):
            expect("one number per open hypothesis", rows if values is None else len(values), rows)
        self.values = np.empty((len(so_far), max(0, count)), np.float32)
        self.numbers = np.empty((len(so_far), max(0, count)), np.int64)
        ids = integers(banned)
        limits = [None if values is None else integers(values) for values in (banned_counts, only)]
        self.kept = np.ascontiguousarray(so_far, np.float32), ids, limits
        self.arguments = (
            address(self.kept[0]),
            len(ids),
            *map(address, (ids, *limits)),
            count,
            address(self.values),
            address(self.numbers),
        )


def rank(
    logits: Array,
    so_far: Array,
    rows: Array,
    count: int,
    banned: Sequence[int],
    only: Array | None,
    banned_counts: Array | None,
    normalized: bool,
) -> tuple[Array, Array]:
    """Return the C largest of so_far (B, W) + log-softmax(logits (N, V)) of each sentence: values and w * V + v, (B,
    C). See nmt_rank in src/nmt.h.
    """
    functions = library()
    assert functions is not None
    ranking = Ranking(so_far, np.shape(so_far), len(rows), count, banned, only, banned_counts)
    opened, logits = integers(rows), np.ascontiguousarray(logits, np.float32)
    expect("rows of logits", len(logits), len(opened))
    done = functions.nmt_rank(
        *np.shape(so_far),
        len(opened),
        address(opened),
        logits.shape[1],
        address(logits),
        normalized,
        *ranking.arguments,
    )
    checked(functions, done)
    return ranking.values, ranking.numbers


def log_softmax(logits: Array) -> Array:
    """Return the log-softmax of logits (N, V), which may be overwritten."""
    functions = library()
    assert functions is not None
    values = np.ascontiguousarray(logits, np.float32)
    checked(functions, functions.nmt_log_softmax(*values.shape, address(values)))
    return values
