"""The compiled decoder without torch: a model that `storing` wrote, read back within a few hundredths of a second.

    B sentences   W beam   D d_model   P slots

    file ──▶ StoredModel: one block of memory, and the structures of the compiled functions with addresses in it
    StoredDecoder: add(sources) ──▶ encoder's states ──▶ keys and values of each layer       search(beam) ──▶ steps of plain beam search

It does the same as `whole_steps` with the same functions, so the results are equal bit for bit. Arrays are NumPy's. It searches in int8,
and by plain beam search only; `decoding.ready` says when it is used.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import platform
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import __version__
from ...hardware import cpu_flags, torch_build
from ...model.contents import WEIGHTS, ModelConfig
from ...model.kept_files import KeptFiles
from .functions import Beam, Map, Norm, Stack, Sublayer, library

FILES = KeptFiles("ready", 16, 1 << 31)
ALIGNMENT = 64
"""Arrays begin at a multiple of this number of bytes, a line of the cache."""
FIRST_SLOTS = 256
"""Slots of a new cache. The number doubles when more slots are needed."""
SOURCES = (Path(__file__).parents[2] / "model" / "precision.py", *sorted(Path(__file__).parent.glob("*.py")))
"""The code that computes the arrays; the compiled functions are in the library."""

Array = npt.NDArray[Any]


def key_of(config: ModelConfig) -> str:
    """Return a hash of everything that a stored model depends on; "" if there are no compiled functions."""
    functions = library()
    if functions is None:
        return ""
    code = hashlib.sha256(b"\0".join(path.read_bytes() for path in SOURCES)).hexdigest()
    parts = [
        config.sha256[WEIGHTS],
        config.recipe.get("model"),
        config.vocabularies,
        __version__,
        code,
        functions.origin,
        torch_build(),
        platform.machine(),
        sorted(cpu_flags()),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


def stored_model(config: ModelConfig) -> StoredModel | None:
    """Return the model from the cache folder; None if it is not there, or if there are no compiled functions."""
    key = key_of(config)
    return FILES.read(key, StoredModel) if key else None


def is_stored(config: ModelConfig) -> bool:
    """Return whether `stored_model` has a file to read, damaged or not."""
    key = key_of(config)
    return bool(key) and FILES.has(key)


class StoredModel:
    """A model in the form that the compiled functions read. Several decoders may use it. Raises OSError and ValueError for a file that `storing` did not write."""

    def __init__(self, path: Path) -> None:
        functions = library()
        assert functions is not None
        self.library = functions
        self._block, addresses, description = _read(path)
        self._structures: list[Any] = []  # kept alive, because their addresses are used
        self.is_fastest: bool = description["is_fastest"]
        self.max_positions: int = description["max_positions"]
        self.width, self.cache_dtype = description["width"], np.dtype(f"V{description['cache_bytes']}")
        for number, fields in enumerate(description["maps"]):
            addresses[f"map.{number}"] = self._address(Map, fields, addresses)
        self.encoder, self.size = (
            self._stack(description["encoder"], addresses),
            description["encoder"]["stack"]["size"],
        )
        self.decoder = self._stack(description["decoder"], addresses)
        self.memory_maps = self._array(ctypes.c_void_p, [addresses[name] for name in description["memory_maps"]])
        self.layers = len(self.memory_maps)
        self.vocabulary: int = description["maps"][int(description["decoder"]["stack"]["output"].split(".")[1])][
            "d_out"
        ]

    def _stack(self, side: dict[str, Any], addresses: dict[str, int]) -> int:
        """Return the address of the `Stack` of the encoder or the decoder."""
        arrays = {
            "sublayers": self._array(Sublayer, [_made(Sublayer, fields, addresses) for fields in side["sublayers"]]),
            "norms": self._array(Norm, [_made(Norm, fields, addresses) for fields in side["norms"]]),
        }
        stack = _made(Stack, side["stack"], addresses)
        for name, array in arrays.items():
            setattr(stack, name, ctypes.addressof(array))
        self._structures.append(stack)
        return ctypes.addressof(stack)

    def _address(self, kind: type[ctypes.Structure], fields: dict[str, Any], addresses: dict[str, int]) -> int:
        self._structures.append(_made(kind, fields, addresses))
        return ctypes.addressof(self._structures[-1])

    def _array(self, kind: Any, values: Sequence[Any]) -> Any:
        self._structures.append((kind * len(values))(*values))
        return self._structures[-1]


def _made(kind: type[ctypes.Structure], fields: dict[str, Any], addresses: dict[str, int]) -> ctypes.Structure:
    """Return a structure with these fields; a text is the name of an array or a structure with an address."""
    return kind(**{name: addresses[value] if isinstance(value, str) else value for name, value in fields.items()})


def _read(path: Path) -> tuple[mmap.mmap, dict[str, int], dict[str, Any]]:
    """Return the content of a safetensors file in one block of memory, the address of each array, and the description of the model."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header_size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_size))
        data = size - 8 - header_size
        block = mmap.mmap(-1, max(1, data))  # begins with a page, so that arrays are aligned
        if hasattr(mmap, "MADV_HUGEPAGE"):
            block.madvise(mmap.MADV_HUGEPAGE)
        if file.readinto(memoryview(block)[:data]) != data:
            raise OSError(f"{str(path)!r} is shorter than it was")
    if "__metadata__" not in header:
        raise ValueError(f"{str(path)!r} describes no model")
    description = json.loads(header.pop("__metadata__")["model"])
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    return block, {name: start + array["data_offsets"][0] for name, array in header.items()}, description


class StoredDecoder:
    """A decoder over sentences whose ids, end symbols included, are `sources`. It computes with `threads` threads."""

    def __init__(self, model: StoredModel, sources: Sequence[Sequence[int]], beam: int, threads: int) -> None:
        self.model, self.library, self.threads = model, model.library, threads
        self.history = self.library.nmt_history_new(beam)
        weakref.finalize(self, self.library.nmt_history_delete, self.history)
        self.memories: list[
            list[Array]
        ] = []  # one per sub-batch (sentences that were added together); empty: all its sentences have left
        self.caches = [np.empty((FIRST_SLOTS, model.width), model.cache_dtype) for _ in range(model.layers)]
        self.add(sources)

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Add sentences after those that the decoder holds."""
        sub_batch, first = (
            next((number for number, memory in enumerate(self.memories) if not memory), len(self.memories)),
            0,
        )
        self.memories[sub_batch : sub_batch + 1] = [self._memory(self._encode(sources))]
        for source in sources:
            self.library.nmt_history_add(self.history, sub_batch, first, len(source))
            first += len(source)
        self._update_addresses()

    def _encode(self, sources: Sequence[Sequence[int]]) -> Array:
        """Return the encoder's states of packed sentences, (tokens, D)."""
        lengths = np.array([len(source) for source in sources], np.int64)
        count = np.repeat(lengths, lengths)
        first = np.repeat(lengths.cumsum() - lengths, lengths)
        ids = np.array([token for source in sources for token in source], np.int64)
        states, positions = np.empty((len(ids), self.model.size), np.float32), np.arange(len(ids)) - first
        self.library.nmt_stack_encode(
            self.model.encoder, len(ids), *map(address, (ids, positions, first, count)), self.threads, address(states)
        )
        return states

    def _memory(self, states: Array) -> list[Array]:
        """Return the encoder's states, projected for each decoder layer: keys and values."""
        model = self.model
        layers = [np.empty((len(states), model.width), model.cache_dtype) for _ in range(model.layers)]
        self.library.nmt_stack_memory(
            model.decoder,
            model.layers,
            model.memory_maps,
            len(states),
            address(states),
            self.threads,
            _addresses(layers),
        )
        return layers

    def _update_addresses(self) -> None:
        layers = [
            _addresses([memory[layer] if memory else None for memory in self.memories])
            for layer in range(self.model.layers)
        ]
        self._by_layer = layers  # kept alive
        self._memories = (ctypes.c_void_p * len(layers))(*map(ctypes.addressof, layers))

    def search(self, beam: Beam, steps: int, stay: float) -> None:
        """Take up to `steps` steps of beam search; see `protocols.SearchingDecoder`."""
        needed = ctypes.c_int64(1)
        while needed.value:
            steps -= self.library.nmt_search(
                self.model.decoder,
                self.history,
                ctypes.addressof(beam),
                _addresses(self.caches),
                self._memories,
                len(self.caches[0]),
                self.threads,
                steps,
                stay,
                ctypes.addressof(needed),
            )
            self._reserve(needed.value)

    def _reserve(self, slots: int) -> None:
        """Grow the caches to at least `slots` slots."""
        have = len(self.caches[0])
        if slots > have:
            for number, cache in enumerate(self.caches):
                self.caches[number] = np.empty((max(slots, 2 * have), self.model.width), cache.dtype)
                self.caches[number][:have] = cache

    def keep(self, sentences: Array) -> None:
        """Keep the sentences at these indices, ascending, and drop the others."""
        left = np.empty(len(self.memories), np.int64)
        self.library.nmt_history_keep(self.history, len(sentences), address(sentences), len(left), address(left))
        self.memories = [
            memory if still_here else [] for memory, still_here in zip(self.memories, left.tolist(), strict=True)
        ]
        self._update_addresses()


def address(array: Array | None) -> int | None:
    """Return the address of an array's numbers, for a compiled function; None if `array` is None."""
    return None if array is None else array.ctypes.data


def _addresses(arrays: Sequence[Array | None]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*map(address, arrays))
