"""Write the two files of the demo corpus into a folder."""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

from demo_corpus import texts

for language, text in texts().items():
    path = Path(sys.argv[1], f"demo_corpus.{language}.xz")
    path.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
