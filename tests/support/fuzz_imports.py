"""Models of other toolkits with random faults: an import succeeds or names what is wrong, in bounded time and memory.

    python tests/support/fuzz_imports.py SECONDS [SEED]

valid files ──▶ some of their bytes, numbers, names and files change by the seed ──▶ `nmt import` in a process of its own

The process has LIMIT seconds and MEMORY bytes. What ends in another way than by NmtError is printed with its seed, and
the exit status is 1. The model of a seed is always the same.
"""

import gzip
import importlib
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from marian_models import container, marian, student, students_files, written

from nmt_cli.errors import NmtError
from nmt_cli.exchange import importing
from nmt_cli.interface.commands import import_model

LIMIT, MEMORY, TAR = 60, 6 * 2**30, "opus.tar.gz"
importing.LINES = 100  # of 10,000: most of the time of an import that succeeds
WORDS = [
    *(b"1e999", b"-1", b"99999999999999999999", b"9" * 5000, b"NaN", b"null", b"[]", b"{}", b"~", b"true", b"\xff\xfe"),
    *(b"[" * 3000, b"{" * 3000, b"- " * 3000, b"&a [*a,*a]", b"!!python/object:os.system x", b"a: &a [x]\nb: *a\n"),
    *(b"'", b'"', b"|" * 500, b"$(touch PWNED)", b"`x`", b"\\", b"\n", b"#", b"\0", b" | tr a b |"),
    *(b"sed -e 's/a/b/g' |", b"../../x", b">>de<<", b"</s>", b"<pad>", b"F4", b"F8_E8M0", b"C64", b"(9999999999,)"),
    *(b"'<f4'", b"'|O'", b"<f8", b"<s>: 7\n", b"? ", b"\n: 3\n", b"\xc2\x85", b"\xed\xa0\x80", b"\r\n"),
    *(b": ", b"\\ud800"),
]
"""What is put into a file."""
NUMBERS = [n.to_bytes(8, "little") for n in (0, 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1)]


def changed(content: bytes, rng: random.Random) -> bytes:
    """Return a content with one change."""
    at = rng.randrange(len(content) + 1) if rng.random() < 0.6 else min(len(content), rng.randrange(1 + 400))
    size = int(2 ** rng.uniform(0, 10))
    changes: list[Callable[[], bytes]] = [
        lambda: content[:at] + bytes(rng.randbytes(min(size, 9))) + content[at + min(size, 9) :],
        lambda: content[:at] + content[at + size :],
        lambda: content[:at] + content[at : at + size] * rng.randint(2, 40) + content[at + size :],
        lambda: content[:at] + rng.choice(WORDS) + content[at:],
        lambda: content[: at // 8 * 8] + rng.choice(NUMBERS) + content[at // 8 * 8 + 8 :],
        lambda: content[:at],
    ]
    return rng.choice(changes)()


def inside(content: bytes, rng: random.Random) -> bytes:
    """Return a zip or .npz one of whose files has a change, with a right checksum."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as new:
        names = old.namelist()
        chosen = rng.choice(names)
        for name in names:
            new.writestr(name, changed(old.read(name), rng) if name == chosen else old.read(name))
    return stream.getvalue()


def inside_tar(content: bytes, rng: random.Random) -> bytes:
    """Return a .tar.gz of which a header or a file has a change, with a right checksum; if it is whole."""
    with suppress(OSError, EOFError, zlib.error):
        content = gzip.compress(changed(gzip.decompress(content), rng), 1)
    return content


def whole_zip(path: Path) -> bool:
    """Return whether an earlier change has left a zip that can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:
        return False


def spoil(folder: Path, rng: random.Random) -> None:
    """Change a folder's files."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        path = rng.choice(sorted(path for path in folder.iterdir() if path.is_file()))
        kind = rng.random()
        if kind < 0.04 and len([*folder.iterdir()]) > 1:
            path.unlink()
        elif kind < 0.08:
            path.write_bytes(rng.choice(sorted(path for path in folder.iterdir() if path.is_file())).read_bytes())
        elif kind < 0.8 and path.name == TAR:
            path.write_bytes(inside_tar(path.read_bytes(), rng))
        elif kind < 0.5 and whole_zip(path):
            path.write_bytes(inside(path.read_bytes(), rng))
        else:
            path.write_bytes(changed(path.read_bytes(), rng))


def sources(folder: Path) -> list[Path]:
    """Write the valid models."""
    model = marian(layers=(1, 1))
    found = [model.save(folder / "npz"), marian(layers=(1, 1), separate=True, ties="target").save(folder / "separate")]
    binary = model.save(folder / "container")
    (binary / "model.npz").unlink()
    (binary / "model.bin").write_bytes(container(model.arrays, model.config))
    sys.path.insert(0, str(Path(__file__).parents[1] / "exchange"))
    importlib.import_module("test_huggingface_import").write(folder / "huggingface")
    converted = importlib.import_module("test_ctranslate2_import").converted(folder, "int8")
    argos = shutil.copytree(converted, folder / "argos")
    (argos / "metadata.json").write_text('{"from_code": "en", "to_code": "de", "type": "translate"}')
    shutil.copy(argos / "source.spm", argos / "sentencepiece.model")
    (folder / "tar").mkdir()
    model.tar(folder / "tar" / TAR)
    info = '{"src": "English", "trgTag": "de"}'
    firefox = written(folder / "firefox", students_files(student(layers=(1, 1)), model_info__json=info))
    return [*found, binary, converted, argos, firefox, folder / "huggingface", folder / "tar"]


def attempt(source: Path, place: Path) -> None:
    """Import a model and end this process: with 0 if that works, or if the reason is named."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.alarm(LIMIT)
    try:
        named = next((source / name for name in ("model.bin", TAR) if (source / name).exists()), source)
        import_model(named, place / "out", source_language="en", target_language="de")
    except NmtError as error:
        os._exit(0 if "out of memory" not in str(error) else 2)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def isolated(work: Callable[[], None]) -> int:
    """Return the exit status of `work` in a process of its own; -N: signal N ended it."""
    process = os.fork()
    if not process:
        work()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def main(seconds: float, seed: int) -> int:
    failures, end = 0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name:
        valid = sources(Path(name))
        first = seed
        while time.monotonic() < end:
            rng, place = random.Random(seed), Path(name) / "place"
            source = shutil.copytree(rng.choice(valid), place / "model")
            spoil(source, rng)
            if status := isolated(lambda source=source, place=place: attempt(source, place)):  # type: ignore[misc]
                failures += 1
                print(f"seed {seed}: exit status {status}", file=sys.stderr)
            if (Path.cwd() / "PWNED").exists():
                raise SystemExit(f"seed {seed}: something of a model ran")
            shutil.rmtree(place)
            seed += 1
    print(f"{seed - first:,} imports of changed models from seed {first} on, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
