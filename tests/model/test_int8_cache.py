"""The int8 form of models in the cache folder: made once, read afterwards, and never used if it is not what was written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import nmt_cli.cache
from nmt_cli.files import sha256
from nmt_cli.model import int8_cache
from nmt_cli.model.contents import read_config
from nmt_cli.model.folder import read_tensors, weights_of, write_model
from nmt_cli.model.int8_cache import int8_model
from nmt_cli.model.precision import in_int8, int8
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import Recipe

V = 20
RECIPE = Recipe.from_dict(
    {
        "name": "tiny",
        "data": {"generator": "teaching", "max_length": 40},
        "model": {
            "encoder_layers": 1,
            "decoder_layers": 1,
            "d_model": 16,
            "d_ff": 32,
            "num_heads": 2,
            "max_positions": 50,
        },
    },
    "test",
)


class Stored:
    """A model folder, and how often its fp32 model was read."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.model, self.loads = Transformer(RECIPE.model, V, V).eval(), 0
        folder.mkdir()
        write_model(folder, weights_of(self.model), RECIPE, (V, V), {"tokenizer.model": b"a tokenizer"}, {})
        self.config = read_config(folder)

    def load(self) -> Transformer:
        self.loads += 1
        return self.model

    def int8(self) -> dict[str, Tensor]:
        """The tensors and scales of the model in int8."""
        model = int8_model(self.config, RECIPE, self.load)
        assert in_int8(model)
        assert not model.training
        return numbers(model)


def numbers(model: Transformer) -> dict[str, Tensor]:
    named = {
        f"{name}.{key}": value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, Tensor)
    }
    scales = {
        f"{name}.input_scale": torch.tensor(module.input_scale)
        for name, module in model.named_modules()
        if hasattr(module, "input_scale")
    }
    return {**named, **scales, **dict(model.named_buffers()), **model.state_dict()}


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """A cache folder of the test's own, which keeps small models too; the files in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(int8_cache, "LEAST_PARAMETERS", 0)
    return lambda: sorted((tmp_path / "cache" / "nmt" / "int8").glob("*"))


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "model")


def test_it_is_made_once_and_has_the_numbers_of_the_conversion(cache: Callable[[], list[Path]], stored: Stored) -> None:
    first, second = stored.int8(), stored.int8()
    assert stored.loads == 1
    assert len(cache()) == 1
    assert same(first, second)
    assert same(first, numbers(int8(stored.model)))


def test_its_tensors_do_not_share_memory(cache: Callable[[], list[Path]], stored: Stored) -> None:
    stored.int8()
    tensors = read_tensors(cache()[0])
    expected = load_file(cache()[0])
    assert same(tensors, expected)
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors.values()}) == len(
        tensors
    )  # each is freed alone
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors.values())


def test_the_hash_of_a_file_that_has_not_changed_is_not_computed_again(
    cache: Callable[[], list[Path]], stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []
    monkeypatch.setattr(nmt_cli.cache, "SETTLED", -(10**12))  # the file is new
    monkeypatch.setattr(nmt_cli.cache, "sha256", lambda path: hashed.append(path) or sha256(path))
    for _ in range(4):
        stored.int8()
    assert stored.loads == 1
    assert hashed.count(cache()[0]) == 1


def test_another_model_has_another_file(cache: Callable[[], list[Path]], stored: Stored, tmp_path: Path) -> None:
    other = Stored(tmp_path / "other", seed=2)
    assert not same(stored.int8(), other.int8())
    assert len(cache()) == 2
    assert other.loads == 1


@pytest.mark.parametrize("stale", ["cpu_flags", "__version__"])
def test_another_processor_or_version_makes_its_own(
    stale: str, cache: Callable[[], list[Path]], stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.int8()
    monkeypatch.setattr(int8_cache, stale, (lambda: frozenset({"other"})) if stale == "cpu_flags" else "9.9")
    stored.int8()
    assert stored.loads == 2
    assert len(cache()) == 2


@pytest.mark.parametrize("fault", ["cut", "changed", "empty", "link", "writable", "folder"])
def test_what_is_not_as_it_was_written_is_made_again(
    fault: str, cache: Callable[[], list[Path]], stored: Stored, tmp_path: Path
) -> None:
    expected = stored.int8()
    [path] = cache()
    data = path.read_bytes()
    if fault == "cut":
        path.write_bytes(data[:-7])
    elif fault == "changed":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif fault == "empty":
        path.write_bytes(b"")
    elif fault == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
    elif fault == "writable":
        path.chmod(0o666)
    else:
        path.unlink()
        path.mkdir()
    assert same(stored.int8(), expected)
    assert stored.loads == 2
    if fault != "folder":  # nothing that is no file of ours is removed
        assert same(stored.int8(), expected)
        assert stored.loads == 2
        assert cache()[0].read_bytes() == data
    if fault == "link":
        assert (tmp_path / "elsewhere").read_bytes() == data


def test_without_a_cache_folder_it_is_converted(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(int8_cache, "LEAST_PARAMETERS", 0)
    assert same(stored.int8(), stored.int8())
    assert stored.loads == 2


def test_a_small_model_is_not_kept(
    cache: Callable[[], list[Path]], stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8_cache, "LEAST_PARAMETERS", stored.config.parameters + 1)
    stored.int8()
    assert cache() == []


@pytest.mark.parametrize("limit", ["MOST_FILES", "MOST_BYTES"])
def test_those_that_were_not_used_for_longest_make_room(
    limit: str, cache: Callable[[], list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [Stored(tmp_path / f"model{number}", seed=number) for number in range(3)]
    models[0].int8()
    [first] = cache()
    monkeypatch.setattr(int8_cache, limit, 2 if limit == "MOST_FILES" else 2 * first.stat().st_size + 100)
    os.utime(first, (1, 1))
    models[1].int8()
    [second] = [path for path in cache() if path != first]
    os.utime(second, (2, 2))
    models[0].int8()  # used again
    models[2].int8()
    assert first in cache()
    assert second not in cache()
    assert len(cache()) == 2
