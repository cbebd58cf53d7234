"""Sentences per second of `nmt serve`, and how long a client waits, beside CTranslate2 behind FastAPI.

    python benchmarks/serve.py --model DIR --input FILE [--precision int8] [--clients 64] [--seconds 20] [--rounds 5]
                               [--peer ctranslate2] [--soak MINUTES]

Each client sends one sentence of FILE after another to POST /translate over a connection that stays open; all of them are
tasks of this process. Beside them stands `nmt translate` on the same file (within the process: the model is loaded). The
sides alternate in rounds, because other programs may use the machine; rates are medians. `--peer ctranslate2` serves the
exported model by the simplest FastAPI handler, with the beam of the model's recipe. `--soak` asks for minutes and prints how
the memory of the server grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from common import NMT, memory, print_rows
from decode_side import tokenizers

import nmt_cli as nmt
from nmt_cli import Translator
from nmt_cli.device.processor import cores

PEER = """\
import ctranslate2, sentencepiece, uvicorn
from fastapi import FastAPI
source, target = (sentencepiece.SentencePieceProcessor(model_file=file) for file in {files!r})
translator = ctranslate2.Translator({folder!r}, device="cpu", compute_type={precision!r}, inter_threads={threads}, intra_threads=1)
app = FastAPI()
@app.post("/translate")
def translate(request: dict):
    pieces = source.encode(request["q"], out_type=str)
    [result] = translator.translate_batch([pieces], beam_size={beam}, max_decoding_length=len(pieces) + 50)
    return {{"translatedText": target.decode(result.hypotheses[0])}}
uvicorn.run(app, port={port}, log_level="warning", access_log=False)
"""
WARMUP = 2
"""Seconds of load before the first round."""


def request_of(line: str) -> bytes:
    """Return the bytes of a request."""
    body = json.dumps({"q": line, "source": "en", "target": "de"}).encode()
    head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    return f"{head}{len(body)}\r\n\r\n".encode() + body


async def client(url: str, requests: Callable[[], bytes], until: float, waits: list[float]) -> None:
    """Send requests until the time has come; note how long each answer took."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    while time.perf_counter() < until:
        began = time.perf_counter()
        writer.write(requests())
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if not head.startswith(b"HTTP/1.1 200") or length is None:
            raise SystemExit(f"the server answered {head[:200]!r}")
        await reader.readexactly(int(length[1]))
        waits.append(time.perf_counter() - began)
    writer.close()


def load(url: str, lines: Sequence[str], clients: int, seconds: float) -> tuple[float, list[float]]:
    """Return sentences per second, and the waits, of so many clients."""
    requests, number = [request_of(line) for line in lines], -1

    def following() -> bytes:
        nonlocal number
        number += 1
        return requests[number % len(requests)]

    async def run() -> list[float]:
        waits: list[float] = []
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(url, following, until, waits) for _ in range(clients)))
        return waits

    began = time.perf_counter()
    waits = asyncio.run(run())
    return len(waits) / (time.perf_counter() - began), waits


@dataclass
class Measured:
    """Sentences per second in each round, and how long each answer took, in seconds."""

    rates: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def add(self, rate: float, waits: Sequence[float] = ()) -> None:
        """Add a round."""
        self.rates.append(rate)
        self.waits += waits

    def row(self, name: str) -> list[str]:
        """Return the median of the rates and percentiles of the waits as a row."""
        quantiles = statistics.quantiles(self.waits, n=100) if self.waits else []
        waits = [f"{quantiles[i] * 1e3:.1f}" for i in (49, 94, 98)] if quantiles else ["", "", ""]
        return [name, f"{statistics.median(self.rates):,.1f}", *waits]


@contextmanager
def our_server(model: Path, precision: str) -> Iterator[tuple[str, int]]:
    """Run `nmt serve`. Yield its address and process id."""
    options = ["--port", "0", "--precision", precision, "--device", "cpu"]
    process = subprocess.Popen([*NMT, "serve", "--model", str(model), *options], stderr=subprocess.PIPE, text=True)
    assert process.stderr
    with tempfile.TemporaryFile("w") as log:
        try:
            address = None
            while address is None:
                line = process.stderr.readline()
                if not line:
                    raise SystemExit(f"nmt serve ended with exit status {process.wait()}")
                address = re.search(r"http://\S+", line)
            drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=log)  # the log of requests
            yield address[0], process.pid
        finally:
            process.terminate()
            process.wait()
            drain.wait()


@contextmanager
def peer_server(folder: Path, precision: str, beam: int, threads: int, port: int) -> Iterator[str]:
    """Run CTranslate2 behind a handler of a few lines. Yield its address."""
    values = {"precision": precision, "threads": threads, "beam": beam, "port": port}
    code = PEER.format(files=tokenizers(str(folder)), folder=str(folder), **values)
    process = subprocess.Popen([sys.executable, "-c", code])
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            try:
                load(url, ["A dog."], 1, 0.01)
                break
            except OSError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def translate_rate(translator: Translator, lines: Sequence[str], seconds: float) -> float:
    """Return sentences per second of `Translator.translate`, which `nmt translate` calls, over the file again and again."""
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        count += len(translator.translate(list(lines)))
    return count / (time.perf_counter() - began)


def soak(url: str, pid: int, lines: Sequence[str], clients: int, minutes: float) -> None:
    """Ask for so long; print the memory ten times, and its growth after the first time: until then caches fill, and pages that were shared are written to."""
    load(url, lines, clients, 5)
    sizes = [memory(pid)[0]]
    print(f"soak: {sizes[0]:.1f} MiB at the start", flush=True)
    for part in range(10):
        rate, _ = load(url, lines, clients, minutes * 6)
        sizes.append(memory(pid)[0])
        after = f"after {(part + 1) * minutes / 10:.1f} minutes, {rate:.1f} sentences/s"
        print(f"soak: {sizes[-1]:.1f} MiB {after}", flush=True)
    print(f"soak: {100 * (sizes[-1] / sizes[1] - 1):+.1f} % since minute {minutes / 10:.1f}", flush=True)


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20, help="of each side, in all rounds; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="the sides alternate; default: %(default)s")
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    parser.add_argument("--peer", choices=["ctranslate2"])
    options = parser.parse_args()
    lines = [line for line in options.input.read_text(encoding="utf-8").split("\n") if line.strip()]
    if options.soak:
        with our_server(options.model, options.precision) as (url, pid):
            soak(url, pid, lines, options.clients, options.soak)
        return
    with ExitStack() as stack:
        translator = stack.enter_context(nmt.load(options.model, device="cpu", precision=options.precision))
        translator.translate(lines[:100])
        urls = {"nmt serve": stack.enter_context(our_server(options.model, options.precision))[0]}
        if options.peer:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "peer"
            nmt.export(options.model, "ctranslate2", folder)
            precision = options.precision.replace("fp32", "float32")
            peer = peer_server(folder, precision, translator.recipe_beam, cores(), 18080)
            urls["ctranslate2"] = stack.enter_context(peer)
        compare(urls, translator, lines, options.clients, options.seconds, options.rounds)


def compare(
    urls: Mapping[str, str], translator: Translator, lines: Sequence[str], clients: int, seconds: float, rounds: int
) -> None:
    """Measure servers and translator alternately, and print a row for each."""
    counts = {"1 client": 1, f"{clients} clients": clients}
    sides = {f"{name}, {of}": (url, count) for name, url in urls.items() for of, count in counts.items()}
    measured = {name: Measured() for name in (*sides, "nmt translate")}
    for url in urls.values():
        load(url, lines, clients, WARMUP)
    for _ in range(rounds):
        for name, (url, count) in sides.items():
            measured[name].add(*load(url, lines, count, seconds / rounds))
        measured["nmt translate"].add(translate_rate(translator, lines, seconds / rounds))
    rows = [side.row(name) for name, side in measured.items()]
    print_rows([["", "sentences/s", "p50, ms", "p95, ms", "p99, ms"], *rows])
    served, whole = (measured[name].rates for name in (f"nmt serve, {clients} clients", "nmt translate"))
    ratios = [ours / theirs for ours, theirs in zip(served, whole, strict=True)]
    print(f"nmt serve with {clients} clients ÷ nmt translate: {statistics.median(ratios):.3f}, the median of ", end="")
    print(*(f"{ratio:.2f}" for ratio in ratios), sep=", ")


if __name__ == "__main__":
    main()
