"""Plain beam search without torch: equal to the search with torch to the bit, used where it suffices, and never with a model that is not as it was kept."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from untrained import sentence, write_untrained

import nmt_cli.cache
import nmt_cli.hardware
from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK
from nmt_cli.decoding.beam_search import BeamSearch
from nmt_cli.decoding.ready import ReadySearch, is_plain, ready_model
from nmt_cli.decoding.search import Hypothesis, SearchOptions
from nmt_cli.decoding.sentence import Sentence
from nmt_cli.errors import UsageError
from nmt_cli.hardware import surely_cpu
from nmt_cli.kernels.choice import apply_kernels
from nmt_cli.kernels.cpu_decoding import stored
from nmt_cli.kernels.cpu_decoding.stored import StoredDecoder, StoredModel, stored_model
from nmt_cli.kernels.cpu_decoding.storing import store
from nmt_cli.kernels.cpu_decoding.whole_steps import WholeStepDecoder, WholeSteps
from nmt_cli.model.contents import ModelConfig, read_config
from nmt_cli.model.folder import load_model
from nmt_cli.model.precision import convert
from nmt_cli.recipe import DecodeSection
from nmt_cli.registry import ACTIVATIONS, NORMS, POSITIONS, RESIDUALS

FORMS = [
    dict(zip(("norm", "residual", "activation", "positions"), names, strict=True))
    for names in itertools.product(NORMS, RESIDUALS, ACTIVATIONS, POSITIONS)
]
SHAPES: list[dict[str, Any]] = [
    {"d_k": 8, "d_v": 24},
    {"num_heads": 1},
    {"encoder_layers": 3, "decoder_layers": 2, "d_model": 36, "d_ff": 52},
    {"tie_embeddings": False},
]
OPTIONS = SearchOptions(beam=3, alpha=0.6, bos=BOS, eos=EOS, banned_tokens=(PAD, UNK, BOS), steps=2)
SEARCHES = {
    "plain": OPTIONS,
    "greedy": replace(OPTIONS, beam=1),
    "wide": replace(OPTIONS, beam=7, nbest=5, alpha=1.1),
    "long": replace(OPTIONS, min_length=6, textless=(4, 9, 17), lookahead=3),
    "to the end": replace(OPTIONS, nbest=2, stop_early=False),
}


def torch_steps(folder: Path) -> WholeSteps:
    """The model in int8 with its compiled steps; skips where the processor has none."""
    steps = apply_kernels(convert(load_model(folder).model, "int8"), "decoding").whole_steps
    if steps is None:
        pytest.skip("no compiled steps in int8 on this processor")
    return steps


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """The models that are kept for this test alone; libraries are shared."""
    monkeypatch.setattr(
        stored, "FILES", replace(stored.FILES, name=f"ready-{tmp_path.parent.name}-{tmp_path.name}"[:80])
    )
    monkeypatch.setattr("nmt_cli.kernels.cpu_decoding.storing.FILES", stored.FILES)
    folder = nmt_cli.cache.subfolder(stored.FILES.name)
    assert folder is not None
    yield lambda: sorted(folder.glob("*"))  # type: ignore[misc]
    for path in folder.glob("*"):
        path.unlink()
    folder.rmdir()


def kept(folder: Path) -> tuple[WholeSteps, StoredModel, ModelConfig]:
    """The model of a folder, with torch, and as it was kept."""
    steps, config = torch_steps(folder), read_config(folder)
    store(steps, config, True)
    model = stored_model(config)
    assert model is not None
    return steps, model, config


def found(kind: Any, search: Any, options: SearchOptions, sources: list[list[int]]) -> dict[int, list[Hypothesis]]:
    """The hypotheses of each sentence; the sentences come at three different times."""
    results, decoder, running = dict[int, list[Hypothesis]](), None, None
    for step in range(200):
        entering = {0: range(5), 2: range(5, 7), 90: range(7, len(sources))}.get(step)
        if entering:
            batch = [[*sources[i], EOS] for i in entering]
            if decoder is None:
                decoder = kind(batch, options.beam)
                running = search(decoder, options)
            else:
                decoder.add(batch)
            running.add(entering, [Sentence(sources[i], len(sources[i]) + 6) for i in entering], torch.device("cpu"))
        if step == 1:
            running.drop([1])
        results.update(running.step())
    assert not running.busy
    return results


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("features", [{}, *SHAPES], ids=lambda features: "-".join(features))
def test_it_finds_what_the_search_with_torch_finds(
    features: dict[str, Any], search: str, tmp_path: Path, cache: Callable[[], list[Path]]
) -> None:
    compare(write_untrained(tmp_path / "model", **features), SEARCHES[search])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.values()))
def test_it_knows_all_forms(form: dict[str, str], tmp_path: Path, cache: Callable[[], list[Path]]) -> None:
    compare(write_untrained(tmp_path / "model", **form), OPTIONS)


def compare(folder: Path, options: SearchOptions) -> None:
    steps, model, _ = kept(folder)
    rng = random.Random(2)
    sources = [[rng.randrange(4, model.vocabulary) for _ in range(rng.randint(1, 12))] for _ in range(12)]
    theirs = found(
        lambda batch, beam: WholeStepDecoder(steps, batch, beam),
        BeamSearch,
        replace(options, extend_beam=lambda *_: pytest.fail("not a whole step")),
        sources,
    )
    ours = found(lambda batch, beam: StoredDecoder(model, batch, beam, 1), ReadySearch, options, sources)
    assert ours == theirs
    assert sorted(ours) == [0, *range(2, 12)]
    assert len({tuple(h.tokens) for hypotheses in ours.values() for h in hypotheses}) > 5


def test_a_kept_model_is_written_once_and_another_one_is_another_file(
    tmp_path: Path, cache: Callable[[], list[Path]]
) -> None:
    for _ in range(2):
        kept(write_untrained(tmp_path / f"model{len(list(tmp_path.iterdir()))}"))
    assert len(cache()) == 1
    kept(write_untrained(tmp_path / "other", seed=7))
    assert len(cache()) == 2


@pytest.mark.parametrize("fault", ["cut", "changed", "empty", "writable", "no model"])
def test_a_file_that_is_not_as_it_was_written_is_not_used(
    fault: str, tmp_path: Path, cache: Callable[[], list[Path]]
) -> None:
    _, _, config = kept(write_untrained(tmp_path / "model"))
    [path] = cache()
    data = path.read_bytes()
    if fault == "writable":
        path.chmod(0o666)
    elif fault == "no model":
        path.unlink()
        stored.FILES.write(stored.key_of(config), b"\x10\0\0\0\0\0\0\0" + b'{"a": 1}        ')
    else:
        path.write_bytes({"cut": data[:-7], "changed": data[:-1] + bytes([data[-1] ^ 1]), "empty": b""}[fault])
    assert stored_model(config) is None
    assert cache() == []


def test_another_compiler_has_a_file_of_its_own(
    tmp_path: Path, cache: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_untrained(tmp_path / "model")
    kept(folder)
    monkeypatch.setattr(stored.library(), "origin", "kernels-of-another-compiler")
    assert stored_model(read_config(folder)) is None
    kept(folder)
    assert len(cache()) == 2


@pytest.mark.parametrize(
    ("precision", "fastest", "expected"),
    [("auto", True, True), ("auto", False, False), ("int8", False, True), ("fp32", True, False), ("bf16", True, False)],
)
def test_it_is_used_in_int8_alone(
    precision: str,
    fastest: bool,
    expected: bool,
    tmp_path: Path,
    cache: Callable[[], list[Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = write_untrained(tmp_path / "model")
    store(torch_steps(folder), read_config(folder), fastest)
    assert (ready_model(read_config(folder), precision, 2) is not None) is expected
    monkeypatch.setenv("NMT_KERNELS", "off")
    assert ready_model(read_config(folder), precision, 2) is None


def test_other_searches_are_refused(tmp_path: Path, cache: Callable[[], list[Path]]) -> None:
    _, _, config = kept(write_untrained(tmp_path / "model"))
    model = ready_model(config, "int8", None)
    assert model is not None
    with pytest.raises(UsageError, match="'sample' needs torch"):
        model.search_class("sample")


@pytest.mark.parametrize(
    "changes",
    [
        {"search": "diverse"},
        {"coverage_penalty": 0.2},
        {"no_repeat_ngram": 3},
        {"repetition_penalty": 1.2},
        {"constraints": ["tree"]},
    ],
)
def test_what_is_not_plain(changes: dict[str, Any]) -> None:
    assert is_plain(DecodeSection(beam=7, alpha=1.0, min_length=4, length_penalty="average", lookahead=0))
    assert not is_plain(DecodeSection(**changes))


@pytest.mark.parametrize(
    ("build", "device", "files", "expected"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", "auto", True, True),
        ("cuda = '13.0'\nhip = None\n", "auto", True, False),
        ("cuda = None\nhip = '6.4'\n", "auto", True, False),
        ("cuda = '13.0'\nhip = None\n", "auto", False, sys.platform == "linux"),
        ("", "auto", True, False),
        ("cuda = '13.0'\n", "cpu", True, True),
        ("cuda = None\nhip = None\n", "cuda", True, False),
    ],
)
def test_when_the_device_is_surely_the_cpu(
    build: str, device: str, files: bool, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nmt_cli.hardware, "torch_build", lambda: build)
    monkeypatch.setattr(nmt_cli.hardware, "GPU_DEVICES", (str(tmp_path) if files else str(tmp_path / "none"),))
    assert surely_cpu(device) is expected


def translate(folder: Path, lines: list[str], *options: str, home: Path) -> tuple[bytes, bool]:
    """The output of `nmt translate`, and whether it loaded torch."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "nmt_cli",
        "translate",
        "--device",
        "cpu",
        "--model",
        str(folder),
        *options,
    ]
    done = subprocess.run(
        command, input="".join(f"{line}\n" for line in lines).encode(), capture_output=True, check=True, env=environment
    )
    return done.stdout, b"| torch\n" in done.stderr.replace(b" ", b"").replace(b"|torch\n", b"| torch\n")


@pytest.mark.parametrize("devices", ["1", "2"])
def test_the_command_needs_torch_at_the_first_use_only(devices: str, tmp_path: Path) -> None:
    folder = write_untrained(tmp_path / "model")
    torch_steps(folder)
    rng = random.Random(4)
    lines = [sentence(rng, rng.randint(1, 14)) for _ in range(300)] + ["", "  ", "the", "the cat " * 90, "\u2028", "😀"]
    options = ["--devices", devices, "--precision", "int8"]
    first, with_torch = translate(folder, lines, *options, home=tmp_path)
    assert with_torch
    for more in ([], ["--nbest", "2"], ["--json"], ["--scores", "--beam", "5", "--alpha", "0"]):
        ours, with_torch = translate(folder, lines, *options, *more, home=tmp_path)
        assert not with_torch
        assert ours == (
            first
            if not more
            else translate(
                folder,
                lines,
                *options,
                *more,
                "--set",
                "decode.repetition_penalty=1.0",
                "--prefix-file",
                str(blank(tmp_path, lines)),
                home=tmp_path,
            )[0]
        )
    for more in (
        [*options, "--json", "--alignment"],
        [*options, "--sample"],
        [*options, "--model", str(folder)],
        [*options, "--no-repeat-ngram", "2"],
        ["--devices", devices, "--precision", "fp32"],
    ):
        assert translate(folder, lines[:3], *more, home=tmp_path)[1]


def blank(folder: Path, lines: list[str]) -> Path:
    """A file of empty prefixes: the command then searches with torch, and finds the same."""
    path = folder / "prefixes"
    path.write_text("\n" * len(lines), encoding="utf-8")
    return path
