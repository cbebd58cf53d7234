"""The compiled passes against torch's operators, one by one; and what happens where there are none."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from waiting import alive, wait_until

from nmt_cli import console
from nmt_cli.decoding.batches import Batch
from nmt_cli.decoding.beam_search import BeamSearch
from nmt_cli.decoding.cached_decoder import CachedDecoder
from nmt_cli.decoding.candidates import top_candidates
from nmt_cli.decoding.model_workers import ModelWorker
from nmt_cli.decoding.search import SearchOptions
from nmt_cli.decoding.sentence import Sentence
from nmt_cli.files import sha256
from nmt_cli.kernels.choice import apply_kernels
from nmt_cli.kernels.cpu_decoding import compiling, on_tensors
from nmt_cli.kernels.cpu_decoding import functions as module
from nmt_cli.kernels.cpu_decoding.decoder import NativeDecoder
from nmt_cli.kernels.cpu_decoding.functions import FUNCTIONS, library
from nmt_cli.kernels.cpu_decoding.on_tensors import DTYPES
from nmt_cli.model.attention import attend_plain
from nmt_cli.model.precision import convert, quantize
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection

needed = pytest.mark.skipif(library() is None, reason="there is no C++ compiler here")


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(ours: Tensor, theirs: Tensor, step: float) -> None:
    """`theirs` is fp32; in bf16 and int8 a last step may fall to the other side."""
    if ours.dtype == torch.int8:
        assert (ours.int() - quantize(theirs, step).int()).abs().max() <= 1
    else:
        torch.testing.assert_close(
            ours.float(),
            theirs,
            atol=2e-6 if ours.dtype == torch.float32 else 0.01,
            rtol=1e-6 if ours.dtype == torch.float32 else 0.01,
        )


@needed
@pytest.mark.parametrize("size", [1, 24, 64, 100, 512])
@pytest.mark.parametrize("kind", list(DTYPES))
@pytest.mark.parametrize("given", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("post", [False, True])
def test_norm(size: int, kind: torch.dtype, given: torch.dtype | None, post: bool) -> None:
    x, weight, bias, step = 3 * drawn(7, size), drawn(size, seed=2), drawn(size, seed=3), 0.02
    before, add = x.clone(), drawn(7, size, seed=4).to(given) if given else None
    out = torch.empty(7, size, dtype=kind)
    module.library().nmt_norm(  # type: ignore[union-attr]
        7,
        size,
        x.data_ptr(),
        add.data_ptr() if add is not None else None,
        DTYPES[given] if given else 0,
        weight.data_ptr(),
        bias.data_ptr(),
        1e-5,
        post,
        out.data_ptr(),
        DTYPES[kind],
        step,
    )
    total = before + add.float() if add is not None else before
    normed = F.layer_norm(total, (size,), weight, bias)
    same(out, normed, step)
    torch.testing.assert_close(x, normed if post else total, atol=2e-6, rtol=1e-6)


@needed
@pytest.mark.parametrize("kind", list(DTYPES))
def test_without_a_norm_rows_are_converted(kind: torch.dtype) -> None:
    x, out = 3 * drawn(5, 40), torch.empty(5, 40, dtype=kind)
    module.library().nmt_norm(5, 40, x.data_ptr(), None, 0, None, None, 0.0, 1, out.data_ptr(), DTYPES[kind], 0.02)  # type: ignore[union-attr]
    assert torch.equal(out, quantize(x, 0.02) if kind == torch.int8 else x.to(kind))
    assert kind != torch.int8 or out.min() == -128 or out.max() == 127  # some lie beyond the steps


@needed
@pytest.mark.parametrize(("key", "value"), [(64, 64), (32, 32), (128, 128), (8, 24), (5, 5)])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", list(DTYPES))
def test_attention_over_ranges(key: int, value: int, given: torch.dtype, kind: torch.dtype) -> None:
    """Each row over the rows of its own sentence, of 1 to 40; a row of no sentence gets zeros."""
    lengths, heads, step = [1, 2, 40, 17, 5], 3, 0.02
    tokens, width = sum(lengths), heads * (2 * key + value)
    rows = drawn(tokens + 1, width).to(given)
    first = torch.tensor([sum(lengths[:i]) for i, n in enumerate(lengths) for _ in range(n)] + [0])
    count = torch.tensor([n for n in lengths for _ in range(n)] + [0])
    out, size = torch.full((tokens + 1, heads * value), 9.0).to(kind), rows.element_size()
    module.library().nmt_attend_range(  # type: ignore[union-attr]
        tokens + 1,
        heads,
        key,
        value,
        key**-0.5,
        rows.data_ptr(),
        rows.data_ptr() + heads * key * size,
        rows.data_ptr() + 2 * heads * key * size,
        DTYPES[given],
        width,
        width,
        first.data_ptr(),
        count.data_ptr(),
        out.data_ptr(),
        DTYPES[kind],
        step,
    )
    parts = [
        part.view(tokens + 1, heads, -1).transpose(0, 1)[None]
        for part in rows.float().split([heads * key, heads * key, heads * value], 1)
    ]
    begin = 0
    for n in lengths:
        q, k, v = (part[:, :, begin : begin + n] for part in parts)
        same(out[begin : begin + n], attend_plain(q, k, v)[0].transpose(0, 1).flatten(1), step)
        begin += n
    assert not out[tokens].float().any()


def continuations(
    kind: object,
    logits: Tensor,
    so_far: Tensor,
    rows: Tensor,
    count: int,
    only: Tensor | None = None,
    banned: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Finite ones alone."""
    values, flat = kind(
        logits.clone(), so_far, rows, count, (0, 1, 2) if banned is None else (0, 1, 2, 3, 5, 6), only, banned
    )  # type: ignore[operator]
    size = min(count, values.size(1))
    return values[:, :size], flat[:, :size].masked_fill(values[:, :size].isneginf(), 0)


@needed
@pytest.mark.parametrize("size", [7, 64, 100, 1000])
@pytest.mark.parametrize(("beam", "count"), [(1, 1), (4, 8), (5, 10), (10, 20)])
@pytest.mark.parametrize("ties", [False, True])
def test_top_candidates(size: int, beam: int, count: int, ties: bool) -> None:
    """Open hypotheses here and there, one token alone for some, more banned for some, equals among them: values to 1e-5, the same tokens."""
    batch = 6
    so_far = (
        drawn(batch, beam, seed=2)
        .sort(1, descending=True)
        .values.masked_fill(torch.rand(batch, beam, generator=torch.Generator().manual_seed(3)) < 0.3, float("-inf"))
    )
    so_far[:, 0] = 0.0
    so_far[2] = float("-inf")
    rows = so_far.flatten().isfinite().nonzero().flatten()
    logits = drawn(len(rows), size)
    if ties:
        logits, so_far = (
            logits.round(),
            so_far.clamp(-1e9, 0).masked_fill(so_far.isfinite(), 0.0).masked_fill(so_far.isneginf(), float("-inf")),
        )
        logits[:] = logits[:1]  # all rows are equal, and so are many tokens
    only = torch.full((len(rows),), -1)
    only[::3] = 4
    some_more = torch.tensor([3, 6, 4])[torch.arange(len(rows)) % 3]
    for bound, banned in itertools.product((None, only), (None, some_more)):
        values, flat = continuations(on_tensors.top_candidates, logits, so_far, rows, count, bound, banned)
        plain_values, plain_flat = continuations(top_candidates, logits, so_far, rows, count, bound, banned)
        values, flat = values[:, : plain_values.size(1)], flat[:, : plain_values.size(1)]
        torch.testing.assert_close(values, plain_values, atol=1e-5, rtol=1e-6)
        assert torch.equal(flat, plain_flat)
        assert values[2].isneginf().all()


@needed
def test_the_forced_token_may_be_one_that_is_never_generated() -> None:
    logits, so_far, rows = drawn(1, 50), torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64)
    for kind in (on_tensors.top_candidates, top_candidates):
        values, flat = kind(logits.clone(), so_far, rows, 1, (0, 1, 2), torch.tensor([1]))
        assert flat.tolist() == [[1]]
        torch.testing.assert_close(values[0], logits.log_softmax(1)[0, 1:2])


@needed
def test_what_is_banned_keeps_its_share_of_the_probability() -> None:
    """The first ids of `never`, as many as each row says; the others' log-probabilities stay what they were."""
    logits, so_far, rows = drawn(3, 9), torch.zeros(3, 1), torch.arange(3)
    whole, never = logits.log_softmax(1), (0, 1, 8, 4)
    for kind in (on_tensors.top_candidates, top_candidates):
        values, flat = kind(logits.clone(), so_far, rows, 9, never, None, torch.tensor([0, 3, 4]))
        for row, count in enumerate((0, 3, 4)):
            left = sorted(set(range(9)) - set(never[:count]), key=lambda token: -float(whole[row, token]))
            assert flat[row, : 9 - count].tolist() == left
            torch.testing.assert_close(values[row, : 9 - count], whole[row, left])
            assert values[row, 9 - count :].isneginf().all()


@needed
def test_what_is_not_a_number_comes_first() -> None:
    logits, so_far = drawn(4, 50), torch.zeros(2, 2)
    logits[1, 20] = float("nan")
    values, _ = on_tensors.top_candidates(logits, so_far, torch.arange(4), 4, (0,), None)
    assert values[0, 0].isnan()
    assert values[1].isfinite().all()


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The cache's folder, empty; kernels are looked for again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NMT_KERNELS", raising=False)
    library.cache_clear()
    console.WARNED.clear()
    yield tmp_path / "cache" / "nmt"
    library.cache_clear()
    console.WARNED.clear()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library, compiled here."""
    folder = tmp_path_factory.mktemp("compiled")
    sources = {part.name: part.read_bytes() for part in compiling.PARTS}
    (folder / "kernels.so").write_bytes(compiling._Compiler(folder).compile(sources, list(FUNCTIONS)[:1], folder))
    return folder / "kernels.so"


def script(path: Path, text: str) -> str:
    """A program, and a compiler if $out is written to."""
    path.write_text(f'#!/bin/sh\nfor word; do [ "$last" = -o ] && out=$word; last=$word; done\n{text}\n')
    path.chmod(0o700)
    return str(path)


@pytest.fixture
def quick(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that has the library ready; the file that it returns has a line for each time."""
    count = tmp_path / "count"
    count.touch()
    copy = f"cat >/dev/null; [ -z $out ] && exec echo macros; echo >> {count}; cp {compiled} $out"
    monkeypatch.setenv("CXX", script(tmp_path / "quick", copy))
    return count


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def worker() -> ModelWorker:
    torch.manual_seed(0)
    model = Transformer(
        ModelSection(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, num_heads=2, max_positions=64), 60, 60
    ).eval()
    return ModelWorker(
        [apply_kernels(convert(model, "fp32"), "decoding")],
        SearchOptions(beam=3, alpha=0.6, bos=2, eos=3, banned_tokens=(0, 1, 2)),
        1000,
        BeamSearch,
        False,
    )


def searched() -> tuple[type, list[list[int]]]:
    """The decoder that a worker takes, and what it finds."""
    some, batch = worker(), Batch([Sentence([5, 6, 7], 4), Sentence([8], 4)])
    kind = type(some.decoder([[*sentence.tokens, 3] for sentence in batch.sentences]))
    some.search_one(batch)
    return kind, [found.hypotheses[0].tokens for found in batch.done.result()]


@pytest.fixture(scope="module")
def expected() -> tuple[type, list[list[int]]]:
    found = searched()
    assert issubclass(found[0], NativeDecoder if library() else CachedDecoder)
    return found


START = [
    sys.executable,
    "-c",
    "from nmt_cli.kernels.cpu_decoding.functions import library; print(library() is not None)",
]


@needed
def test_they_are_compiled_once_and_kept(
    anew: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert library() is not None
    [file] = anew.iterdir()
    assert file.name.endswith(f"-{sha256(file)}.so")
    assert (file.stat().st_mode & 0o7777, anew.stat().st_mode & 0o7777) == (0o600, 0o700)
    library.cache_clear()
    monkeypatch.setattr(compiling._Compiler, "compile", lambda *_: pytest.fail("compiled again"))
    assert library() is not None
    assert list(anew.iterdir()) == [file]
    assert printed(capsys) == []


@needed
def test_a_library_that_was_cut_off_does_not_end_the_process(anew: Path, quick: Path) -> None:
    """Its code beyond the file's end would be a bus error, at every start."""
    assert library() is not None
    [file] = anew.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    done = subprocess.run(START, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n")
    [line] = done.stderr.splitlines()
    assert line.startswith(
        f"the compiled kernels are compiled again: {str(file)!r}: its content is not what was compiled"
    )
    assert file.read_bytes() == whole


PLANTED = """
#include <cstdio>
#include <cstdlib>
__attribute__((constructor)) static void planted() { if (std::FILE* file = std::fopen(std::getenv("NMT_PLANTED"), "w")) std::fclose(file); }
"""


@needed
@pytest.mark.parametrize(
    "fault",
    [
        "planted",
        "a link",
        "a link to itself",
        "writable by the group",
        "writable by all",
        "a flipped bit",
        "empty",
        "a pipe",
    ],
)
def test_what_is_not_the_library_that_was_compiled_is_not_loaded(
    fault: str,
    anew: Path,
    quick: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NMT_PLANTED", str(tmp_path / "ran"))
    assert library() is not None
    [file] = anew.iterdir()
    whole = file.read_bytes()
    if fault == "planted":
        (tmp_path / "planted.cpp").write_text(PLANTED)
        subprocess.run(["c++", "-shared", "-fPIC", "-o", file, tmp_path / "planted.cpp"], check=True)
        file.chmod(0o600)
    elif fault == "a link":
        file.rename(tmp_path / "kernels.so")
        file.symlink_to(tmp_path / "kernels.so")
    elif fault == "a link to itself":
        file.unlink()
        file.symlink_to(file)
    elif fault == "a pipe":
        file.unlink()
        os.mkfifo(file, 0o600)
    elif fault == "a flipped bit":
        file.write_bytes(whole[:70000] + bytes([whole[70000] ^ 1]) + whole[70001:])
    elif fault == "empty":
        file.write_bytes(b"")
    else:
        file.chmod(0o660 if fault == "writable by the group" else 0o602)
    library.cache_clear()
    printed(capsys)
    assert library() is not None
    assert len(quick.read_text()) == 2
    assert [
        line.startswith(f"the compiled kernels are compiled again: {str(file)!r}: it") for line in printed(capsys)
    ] == [True]
    assert [path.read_bytes() for path in anew.iterdir()] == [whole]
    assert not file.is_symlink()
    assert not (tmp_path / "ran").exists()
    library.cache_clear()
    assert library() is not None
    assert printed(capsys) == []


@needed
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="there is no sealed memory here")
def test_a_loaded_library_depends_on_no_file(anew: Path, quick: Path) -> None:
    loaded = library()
    assert loaded is not None
    [file] = anew.iterdir()
    with file.open("r+b") as stream:
        stream.truncate(100)
    file.unlink()
    test_norm(24, torch.float32, None, False)
    assert loaded.nmt_multiplies(0) in (0, 1)
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert any(f"memfd:{file.name}" in line for line in maps)
    assert not any(line.endswith(str(file)) for line in maps)


@needed
def test_without_sealed_memory_the_file_is_loaded(anew: Path, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert library() is not None
    assert list(anew.iterdir()) != []


@needed
def test_another_processor_or_compiler_has_another_library(
    anew: Path, quick: Path, tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start() -> int:
        library.cache_clear()
        assert library() is not None
        return len(list(anew.iterdir()))

    assert (start(), start()) == (1, 1)
    with monkeypatch.context() as patched:
        patched.setattr(compiling, "cpu_flags", lambda: {"another"})
        assert start() == 2
    with monkeypatch.context() as patched:
        patched.setattr(compiling, "FLAGS", (*compiling.FLAGS, "-O2"))
        assert start() == 3
    with monkeypatch.context() as patched:
        patched.setenv(
            "CXX", script(tmp_path / "newer", f"[ -z $out ] && exec echo macros of a newer one; cp {compiled} $out")
        )
        assert start() == 4
    assert start() == 4
    assert len(quick.read_text()) == 3
    monkeypatch.setenv("CXX", "no-such-compiler")  # what was compiled earlier is as good as ever
    assert start() == 4


@needed
def test_processes_compile_at_once(anew: Path, quick: Path) -> None:
    processes = [subprocess.Popen(START, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(3)]
    assert [process.communicate()[0] for process in processes] == ["True\n"] * 3
    assert len(list(anew.iterdir())) == 1


@needed
@pytest.mark.parametrize("moment", ["compiling", "writing"])
def test_what_killed_processes_left_is_removed(
    moment: str, anew: Path, quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = "import os, pathlib; pathlib.Path.replace = lambda *_: os.kill(os.getpid(), 9)\n" * (moment == "writing")
    with monkeypatch.context() as patched:
        if moment == "compiling":
            patched.setenv("CXX", script(tmp_path / "killer", "[ -z $out ] && exec echo macros; kill -9 $PPID"))
        assert subprocess.run([*START[:2], killed + START[2]]).returncode == -9
    assert [name for name in os.listdir(anew) if ".partial-" in name]
    (anew / ".kernels-earlier.so.partial-99999999").touch()
    (anew / ".kernels-mine").mkdir()
    (anew / "notes").touch()
    for number in range(40):
        (anew / f"kernels-{number}.so").touch()
        os.utime(anew / f"kernels-{number}.so", (number, number))
    assert library() is not None
    left = {path.name for path in anew.iterdir()}
    assert left >= {".kernels-mine", "notes", "kernels-39.so", "kernels-25.so"}
    assert "kernels-24.so" not in left
    assert not [name for name in left if ".partial-" in name]
    assert len(left) == 2 + compiling.MOST_KEPT


FAULTS = {
    "no compiler": "there is no C++ compiler (no-such-compiler)",
    "no such compiler": "$CXX = '/no/such/c++ -O3': there is no such compiler",
    "an open quotation": '$CXX = "c++ \'" is not a command: No closing quotation',
    "a shell's command": "$CXX = 'c++; touch ran': there is no such compiler",
    "a compiler that fails": "failed with exit status 1: fatal error: no header?[0m",
    "a compiler that is killed": "was ended by signal 9",
    "a compiler that hangs": "did not end within 0 seconds",
    "a compiler that hangs later": "did not end within 1 seconds",
    "a compiler that prints without end": "was stopped, because it prints without end",
    "a compiler that writes nothing": "succeeds but writes no library",
    "a compiler that writes garbage": "the test of the compiled library failed with exit status 1",
    "a full disk": "No space left on device",
    "a file in the way": "it is not a folder",
    "a folder for all": "has mode 777",
    "no home": "the home folder '/nonexistent' does not exist",
}


@pytest.mark.parametrize("fault", ["off", *FAULTS])
def test_without_them_the_same_is_found(
    fault: str,
    expected: tuple[type, list[list[int]]],
    anew: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And one warning says why."""
    program = tmp_path / "compiler"
    scripts = {
        "a compiler that fails": "printf 'hello\\n fatal error: no header\\033[0m\\n'; exit 1",
        "a compiler that is killed": "kill -9 $$",
        "a compiler that hangs": "sleep 600 & wait",
        "a compiler that hangs later": "[ -z $out ] && exec echo macros; sleep 600",
        "a compiler that prints without end": "exec yes",
        "a compiler that writes nothing": "echo macros",
        "a compiler that writes garbage": "[ -z $out ] && exec echo macros; echo garbage > $out",
        "a full disk": "[ -z $out ] && exec echo macros; cat $0 > /dev/full",
    }
    commands = {
        "off": "c++",
        "no such compiler": "/no/such/c++ -O3",
        "an open quotation": "c++ '",
        "a shell's command": "c++; touch ran",
    }
    if fault in scripts:
        script(program, scripts[fault])
    monkeypatch.setenv("CXX", str(program) if fault in scripts else commands.get(fault, ""))
    monkeypatch.setattr(compiling, "SHORT_PATIENCE", 0.3 if fault == "a compiler that hangs" else 60.0)
    if fault == "off":
        monkeypatch.setenv("NMT_KERNELS", "off")
    elif fault == "no compiler":
        monkeypatch.setattr(compiling, "COMPILERS", ("no-such-compiler",))
    elif fault == "a compiler that hangs later":
        monkeypatch.setattr(compiling, "PATIENCE", 1.0)
    elif fault == "a file in the way":
        anew.parent.mkdir()
        anew.write_text("a file where the folder would be")
    elif fault == "a folder for all":
        anew.mkdir(parents=True)
        anew.chmod(0o777)
    elif fault == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/nonexistent")
    assert library() is None
    assert worker().kernels[0].native is None
    assert searched() == (CachedDecoder, expected[1])
    lines = printed(capsys)
    assert len(lines) == (fault != "off")
    assert all(line.startswith("warning: ") and FAULTS[fault] in line for line in lines)
    assert not anew.is_dir() or list(anew.iterdir()) == []


def test_a_command_gets_no_input_and_leaves_nothing_running(tmp_path: Path) -> None:
    """Standard input is the text to translate."""
    reads, sleeps = (
        script(tmp_path / name, text)
        for name, text in (("reads", "cat; pwd"), ("sleeps", f"sleep 3600 & echo $! > {tmp_path}/child; wait"))
    )
    code = f"from pathlib import Path; from nmt_cli.kernels.cpu_decoding.compiling import _run; print(_run('it', [{reads!r}], Path({str(tmp_path)!r}), 60)); print(input())"
    done = subprocess.run(
        [sys.executable, "-c", code], input="a line\n", capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout == f"{f'{tmp_path}{chr(10)}'.encode()}\na line\n"
    child = tmp_path / "child"
    for limit in (1, 10, 100):  # a busy machine may need long to start the child
        with pytest.raises(OSError, match=f"it was stopped, because it did not end within {limit} seconds"):
            compiling._run("it", [sleeps], tmp_path, limit)
        if child.exists() and child.read_text().strip():
            break
    wait_until(lambda: not alive(int(child.read_text())))


STUBS = 'extern "C" {{ {} }}'


@needed
@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (
            {"nmt_norm": "{}"},
            "the test of the compiled library failed with exit status 1: error: nmt_norm computes 0.0 at position 0, expected",
        ),
        ({"nmt_norm": "{ __builtin_trap(); }"}, "the test of the compiled library was ended by signal"),
        ({"nmt_top_candidates": "{}"}, "error: the library lacks nmt_norm"),
    ],
)
def test_a_library_that_computes_something_else_is_refused(
    functions: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong flag, say: one for another processor ends the process at the first call, here that of the test."""
    monkeypatch.delenv("CXX", raising=False)
    source = STUBS.format(" ".join(f"void {name}() {body}" for name, body in functions.items()))
    with pytest.raises(OSError, match=re.escape(message)):
        compiling._Compiler(tmp_path).compile({"kernels.cpp": source.encode()}, ["nmt_norm"], tmp_path)
    assert list(tmp_path.iterdir()) == []


@needed
def test_flags_of_the_users_that_break_infinities_are_undone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "c++ -Ofast -ffast-math")
    macros = compiling._run(
        "it", [*compiling._Compiler(tmp_path).command, "-dM", "-E", "-x", "c++", os.devnull], tmp_path, 60
    ).decode()
    assert "#define __FINITE_MATH_ONLY__ 0" in macros
    assert "__FAST_MATH__" not in macros
