"""What a terminal shows in the first seconds of each long command.

    python benchmarks/screens.py --model RUN --data-dir MULTI30K [--only NAME …] [--seconds 5] [--show]

Every command runs on a terminal of 100 columns that the library pyte emulates (`pip install pyte`), for so many seconds; then
Ctrl-C stops it. The table has the seconds until the first character, how many different screens were seen, and the longest time
for which nothing changed while the command was running. --show prints the screen at its last moment too. RUN is a trained
model's run folder; the text is that of the recipe multi30k_en_de. All output goes to a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, field
from fcntl import ioctl
from itertools import islice, pairwise
from pathlib import Path

from nmt_cli.lines import read_parallel

COLUMNS, ROWS = 100, 30
LINES = 4000
"""Of the text that is translated and scored."""


@dataclass
class Seen:
    """What a terminal showed."""

    first: float = 0.0
    """Seconds until the first character."""
    changes: list[float] = field(default_factory=list)
    """When the screen became another one, in seconds."""
    screen: list[str] = field(default_factory=list)
    """The lines of the last one."""
    ended: float = 0.0
    """When the command ended by itself; 0: it was stopped."""

    @property
    def longest_pause(self) -> float:
        """The longest time without a change, in seconds, up to the end."""
        times = [0.0, *self.changes, *([self.ended] if self.ended else [])]
        return max((after - before for before, after in pairwise(times)), default=0.0)


def watch(command: list[str], folder: Path, seconds: float) -> Seen:
    """Run a command on a terminal for so many seconds."""
    import pyte

    seen, screen = Seen(), pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "nmt_cli", *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        start_new_session=True,
    )
    os.close(slave)
    try:
        while (left := begin + seconds - time.monotonic()) > 0:
            if not select.select([master], [], [], left)[0]:
                break
            try:
                data = os.read(master, 1 << 16)
            except OSError:  # the command has ended
                seen.ended = time.monotonic() - begin
                break
            now = time.monotonic() - begin
            seen.first = seen.first or now
            stream.feed(data)
            shown = [line.rstrip() for line in screen.display]
            if shown != seen.screen:
                seen.changes.append(now)
                seen.screen = shown
        if not seen.ended:
            seen.changes.append(seconds)  # a pause that goes on counts
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        os.close(master)
    return seen


def commands(model: Path, text: Path, out: Path) -> dict[str, list[str]]:
    """Return the arguments of each command, by name."""
    source, hypothesis, other, reference = (
        str(out / name) for name in ("source.en", "hypothesis.de", "other.de", "reference.de")
    )
    return {
        "init": ["init", "mine", "--source", source, "--target", reference],
        "preprocess": ["preprocess", "multi30k_en_de", "--data-dir", str(text), "--out", str(out / "new-shards")],
        "train": ["train", "multi30k_en_de", "--data", str(out / "shards"), "--run", str(out / "run")],
        "train, base": [
            "train",
            "multi30k_en_de",
            "--data",
            str(out / "shards"),
            "--run",
            str(out / "base"),
            *(
                f"--set=model.{key}"
                for key in ("encoder_layers=6", "decoder_layers=6", "d_model=512", "d_ff=2048", "num_heads=8")
            ),
        ],
        "train --dry-run": [
            "train",
            "multi30k_en_de",
            "--data",
            str(out / "shards"),
            "--run",
            str(out / "dry"),
            "--dry-run",
        ],
        "info --probe": ["info", "wmt14_en_de_base", "--probe"],
        "average": ["average", str(model), "--out", str(out / "averaged")],
        "translate": [
            "translate",
            "--model",
            str(model),
            "--input",
            source,
            "--output",
            str(out / "translated.de"),
            "--beam",
            "12",
            "--precision",
            "fp32",
        ],
        "score, significance": [
            "score",
            hypothesis,
            other,
            "--ref",
            reference,
            "--significance",
            "bootstrap",
            "--samples",
            "10000",
            "--metric",
            "chrf",
        ],
        "score --model": ["score", "--model", str(model), "--src", source, "--ref", reference],
        "quantize": ["quantize", str(model), "--out", str(out / "int8")],
        "export": ["export", str(model), "--to", "ctranslate2", "--out", str(out / "ctranslate2")],
        "calibrate": [
            "calibrate",
            "--model",
            str(model),
            "--src",
            source,
            "--ref",
            reference,
            "--out",
            str(out / "calibration.json"),
        ],
    }


def write_text(model: Path, text: Path, out: Path) -> None:
    """Write the files that the commands read."""
    pairs = list(islice(read_parallel([text / "train.en.gz"], [text / "train.de.gz"]), LINES))
    source, reference = ([f"{pair[side]}\n" for pair in pairs] for side in (0, 1))
    for name, lines in (
        ("source.en", source),
        ("reference.de", reference),
        ("hypothesis.de", reference[1:] + reference[:1]),
        ("other.de", reference[2:] + reference[:2]),
    ):
        (out / name).write_text("".join(lines), encoding="utf-8")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "nmt_cli",
            "preprocess",
            "multi30k_en_de",
            "--data-dir",
            str(text),
            "--out",
            str(out / "shards"),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    """Watch the commands and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="run folder of a trained model")
    parser.add_argument(
        "--data-dir", type=Path, required=True, help="folder with the text of the recipe multi30k_en_de"
    )
    parser.add_argument("--only", nargs="+", default=[], help="names of the table's rows")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each command is watched")
    parser.add_argument("--show", action="store_true", help="print the last screen of each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nmt-screens-") as name:
        out = Path(name)
        write_text(options.model.resolve(), options.data_dir.resolve(), out)
        print(f"{'command':<22} {'first s':>8} {'screens':>8} {'longest pause s':>16} {'ended s':>8}")
        for what, command in commands(options.model.resolve(), options.data_dir.resolve(), out).items():
            if options.only and what not in options.only:
                continue
            seen = watch(command, out, options.seconds)
            print(
                f"{what:<22} {seen.first:>8.1f} {len(seen.changes):>8} {seen.longest_pause:>16.1f} {f'{seen.ended:.1f}' if seen.ended else '-':>8}"
            )
            if options.show:
                print("\n".join(f"    {line}" for line in seen.screen if line), end="\n\n")


if __name__ == "__main__":
    main()
