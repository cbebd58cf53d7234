"""The engine's matrix products on one core, for each library that this processor runs: billions of multiplications and additions a second.

    python benchmarks/products.py

Rows are multiplied with a matrix (2048, 512), as in the feed-forward network of the base model. "highest" is what the processor
does with the same instructions when all numbers stay in registers. The code is that of the engine, compiled here by $CXX with the
flags of each library.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nmt_cli.engine.library import NEEDS, path_of
from nmt_cli.hardware import cpu_flags

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from engine_flags import FLAGS, SETS  # noqa: E402

ROWS = (1, 4, 16, 64)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        sys.exit("products.py needs a C++ compiler: install g++ or clang++, or name one in $CXX")
    print("  library         KB  precision" + "".join(f" {f'{rows} rows':>9}" for rows in ROWS) + f" {'highest':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name in (name for name, needs in NEEDS.items() if needs <= cpu_flags()):
            program = Path(folder, name)
            sources: list[str | Path] = [
                f"-I{ROOT / 'nmt_cli/engine/src'}",
                Path(__file__).with_suffix(".cpp"),
                "-o",
                program,
            ]
            subprocess.run(
                [*compiler.split(), *FLAGS.split(), "-O3", "-w", "-Wno-psabi", *SETS[name].split(), *sources],
                check=True,
            )
            size = path_of(name).stat().st_size / 1024 if path_of(name).is_file() else 0
            lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
            for precision, line in zip(("fp32", "int8"), lines, strict=True):
                highest, *rates = map(float, line.split())
                print(
                    f"  {name:<12} {size:>5,.0f}  {precision:<9}"
                    + "".join(f" {rate:>9,.1f}" for rate in (*rates, highest))
                )


if __name__ == "__main__":
    main()
