"""A model that the engine has packed, and what it computes with it. Arrays are NumPy's; torch is not loaded.

    arrays by name ──▶ EngineModel ─┬─▶ search ──▶ EngineSearch: plain beam search
                                    ├─▶ decoder ─▶ EngineDecoder: one step at a time
                                    └─▶ forced: log-probabilities and attention of given translations

    B sentences   W beam   N rows of a step   V target vocabulary   S source tokens   T target tokens
    C candidates   K n-best

src/nmt.h has the functions. A model may be used by many threads, a search or a decoder by one at a time. Every method
raises ModelError for what the engine refuses, and MemoryError.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError, printable
from ..registry import ACTIVATIONS, NORMS, POSITIONS, RESIDUALS
from .library import CArray, CConfig, CSearchOptions, library, missing

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
        self.handle = self.checked(functions.nmt_model_new(ctypes.byref(described), len(kept), given))

    def checked(self, result: int | None) -> int:
        """Return the result of a function. Raises ModelError, or MemoryError, if it failed."""
        return _checked(self.library, result)

    def search(self, options: SearchRequest) -> EngineSearch:
        """Return a plain beam search, without sentences."""
        return EngineSearch(self, options)

    def decoder(self, beam: int) -> EngineDecoder:
        """Return a decoder for a search of the caller, without sentences."""
        return EngineDecoder(self, beam)

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
        _expect("translations", len(targets), len(sources))
        if attention:
            _expect("pairs of which attention is asked for", len(sources), 1)
        if following is not None:
            _expect("tokens that follow", [*map(len, following)], [*map(len, targets)])
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
        self.checked(
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
            )
        )
        parts = [] if log_probs is None else np.split(log_probs, lengths[1].cumsum()[:-1])
        return parts, {kind: values.swapaxes(1, 2) for kind, values in weights.items()}


def _checked(functions: ctypes.CDLL, result: int | None) -> int:
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


def _expect(what: str, found: object, expected: object) -> None:
    """Raise ModelError if a number or a shape is not the expected one."""
    if found != expected:
        raise ModelError(f"{what}: {found}, expected {expected}.")


def _integers(values: Any) -> Array:
    return np.ascontiguousarray(values, np.int64)


def _tokens(sources: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """Return the lengths of the sources, and their tokens one source after another."""
    return (
        np.array([len(source) for source in sources], np.int64),
        np.array([token for source in sources for token in source], np.int64),
    )


@dataclass(frozen=True)
class SearchRequest:
    """The options of a plain beam search; see `search.SearchOptions`."""

    beam: int
    nbest: int
    bos: int
    eos: int
    lookahead: int
    """0: no hypothesis is given up."""
    min_length: int
    banned: tuple[int, ...]
    textless: tuple[int, ...]
    paths: bool
    """Whether results have the log-probability of the output up to each token."""


@dataclass(frozen=True)
class Finished:
    """Sentences that left a search: F of them, K hypotheses each, best first; arrays of their own."""

    ids: Array  # (F,)
    lengths: Array  # (F, K) without end symbol
    tokens: Array  # (F, K, L)
    log_probs: Array  # (F, K)
    scores: Array  # (F, K); -inf: there is no such hypothesis
    paths: Array | None = None  # (F, K, L)


class EngineSearch(Owner):
    """See `EngineModel.search`."""

    def __init__(self, model: EngineModel, options: SearchRequest) -> None:
        self.model, self.library, self.paths = model, model.library, options.paths
        banned, textless = _integers(options.banned), _integers(options.textless)
        described = CSearchOptions(
            options.beam,
            options.nbest,
            options.bos,
            options.eos,
            options.lookahead,
            options.min_length,
            options.paths,
            len(banned),
            len(textless),
            address(banned),
            address(textless),
        )
        self.delete = self.library.nmt_search_delete
        self.handle = model.checked(self.library.nmt_search_new(model.handle, ctypes.byref(described)))

    @property
    def sentences(self) -> int:
        """B."""
        return int(self.library.nmt_search_sentences(self.handle))

    @property
    def open_hypotheses(self) -> int:
        """N, the hypotheses that the next step extends."""
        return int(self.library.nmt_search_open(self.handle))

    def add(
        self, ids: Sequence[int], sources: Sequence[Sequence[int]], max_lengths: Sequence[int], penalties: Array
    ) -> None:
        """Add sentences: their ids, sources with end symbols, and longest outputs without them.

        `penalties` are the length penalties of outputs of 0, 1, … tokens, end symbol counted, fp32.
        """
        numbers, longest, (lengths, tokens) = _integers(ids), _integers(max_lengths), _tokens(sources)
        penalties = np.ascontiguousarray(penalties, np.float32)
        _expect("ids and longest outputs", (len(numbers), len(longest)), (len(lengths), len(lengths)))
        self.model.checked(
            self.library.nmt_search_add(
                self.handle,
                len(numbers),
                *map(address, (numbers, lengths, tokens, longest)),
                len(penalties),
                address(penalties),
            )
        )

    def step(self, steps: int, stay: float) -> Finished | None:
        """Take up to `steps` steps.

        Stop when at most the share `stay` of the sentences is unfinished; then the finished ones leave.
        """
        found = self.library.nmt_search_step(self.handle, steps, stay)
        if not found:
            self.model.checked(None)
        results = found.contents
        if not results.count:
            return None
        of_outputs = (results.count, results.nbest)
        shapes = {
            "ids": (results.count,),
            "lengths": of_outputs,
            "tokens": (*of_outputs, results.longest),
            "log_probs": of_outputs,
            "scores": of_outputs,
        }
        if self.paths:
            shapes["paths"] = shapes["tokens"]
        return Finished(**{name: _copied(getattr(results, name), shape) for name, shape in shapes.items()})

    def drop(self, ids: Sequence[int]) -> None:
        """Remove these sentences without results. Ids that are not in the search are ignored."""
        numbers = _integers(ids)
        self.model.checked(self.library.nmt_search_drop(self.handle, len(numbers), address(numbers)))


def _copied(pointer: Any, shape: tuple[int, ...]) -> Array:
    """Return a copy of the numbers at a pointer, which may be null if the shape has no numbers."""
    return np.ctypeslib.as_array(pointer, shape).copy() if pointer else np.zeros(shape, np.int64)


class EngineDecoder(Owner):
    """See `EngineModel.decoder`. Hypothesis w of sentence b is number b * W + w."""

    def __init__(self, model: EngineModel, beam: int) -> None:
        self.model, self.library, self.sentences, self.beam = model, model.library, 0, beam
        self.rows = 0  # of the last step
        self.delete = self.library.nmt_decoder_delete
        self.handle = model.checked(self.library.nmt_decoder_new(model.handle, beam))

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Add sentences behind the others; sources have end symbols."""
        lengths, tokens = _tokens(sources)
        self.model.checked(self.library.nmt_decoder_add(self.handle, len(lengths), address(lengths), address(tokens)))
        self.sentences += len(lengths)

    def step(self, tokens: Array, rows: Array) -> Array:
        """Return logits (N, V) after the newest tokens (B, W) of the open hypotheses `rows` (N,), ascending."""
        opened, newest = self._opened(tokens, rows)
        logits = np.empty((len(opened), self.model.vocabulary), np.float32)
        self.model.checked(
            self.library.nmt_decoder_step(self.handle, len(opened), address(opened), address(newest), address(logits))
        )
        self.rows = len(opened)
        return logits

    def best(
        self,
        tokens: Array,
        rows: Array,
        so_far: Array,
        count: int,
        banned: Sequence[int],
        only: Array | None,
        banned_counts: Array | None,
    ) -> tuple[Array, Array]:
        """Take a step. Return what `rank` returns for its logits."""
        opened, newest = self._opened(tokens, rows)
        ranking = _Ranking(so_far, (self.sentences, self.beam), len(opened), count, banned, only, banned_counts)
        self.model.checked(
            self.library.nmt_decoder_best(
                self.handle, len(opened), address(opened), address(newest), *ranking.arguments
            )
        )
        self.rows = len(opened)
        return ranking.values, ranking.numbers

    def reorder(self, parents: Array) -> None:
        """Hypothesis w of sentence b continues its former hypothesis parents[b, w]."""
        numbers = _integers(parents)
        _expect("parents", numbers.shape, (self.sentences, self.beam))
        self.model.checked(self.library.nmt_decoder_reorder(self.handle, address(numbers)))

    def keep(self, sentences: Array) -> None:
        """Keep the sentences at these indices, ascending, and drop the others."""
        numbers = _integers(sentences)
        self.model.checked(self.library.nmt_decoder_keep(self.handle, len(numbers), address(numbers)))
        self.sentences, self.rows = len(numbers), 0

    def record_attention(self, layer: int) -> None:
        """Record the attention to the source in this layer, from 0, at each step from now on."""
        self.model.checked(self.library.nmt_decoder_record(self.handle, layer))

    def attention(self) -> Array:
        """Return the recorded weights of the last step, the mean over heads: (N, S) fp64, with zeros behind a shorter
        source.
        """
        longest = self.library.nmt_decoder_attention(self.handle, None)
        weights = np.zeros((self.rows, longest))
        self.library.nmt_decoder_attention(self.handle, address(weights))
        return weights

    def _opened(self, tokens: Array, rows: Array) -> tuple[Array, Array]:
        """Return the numbers of the open hypotheses, and their newest tokens."""
        _expect("newest tokens", np.shape(tokens), (self.sentences, self.beam))
        opened = _integers(rows)
        inside = opened.clip(0, max(0, np.size(tokens) - 1))  # the engine refuses what is not
        return opened, _integers(np.ravel(tokens)[inside]) if np.size(tokens) else np.zeros_like(opened)


class _Ranking:
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
        _expect("log-probabilities so far", np.shape(so_far), shape)
        for values in (only, banned_counts):
            _expect("one number per open hypothesis", rows if values is None else len(values), rows)
        self.values = np.empty((len(so_far), max(0, count)), np.float32)
        self.numbers = np.empty((len(so_far), max(0, count)), np.int64)
        ids = _integers(banned)
        limits = [None if values is None else _integers(values) for values in (banned_counts, only)]
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
    ranking = _Ranking(so_far, np.shape(so_far), len(rows), count, banned, only, banned_counts)
    opened, logits = _integers(rows), np.ascontiguousarray(logits, np.float32)
    _expect("rows of logits", len(logits), len(opened))
    done = functions.nmt_rank(
        *np.shape(so_far),
        len(opened),
        address(opened),
        logits.shape[1],
        address(logits),
        normalized,
        *ranking.arguments,
    )
    _checked(functions, done)
    return ranking.values, ranking.numbers


def log_softmax(logits: Array) -> Array:
    """Return the log-softmax of logits (N, V), which may be overwritten."""
    functions = library()
    assert functions is not None
    values = np.ascontiguousarray(logits, np.float32)
    _checked(functions, functions.nmt_log_softmax(*values.shape, address(values)))
    return values
