"""What a server does with texts whose language nobody names, by their length, through LibreTranslate's interface.

    nmt serve --model EN_PT --model PT_EN --port 8123
    python benchmarks/detection.py FOLDER --url http://127.0.0.1:8123

FOLDER has LANG.txt for some languages, a text a line. Every second line is sent, into each target language of the server: the
threshold was chosen on the others. A text in a source language is to be translated (from this language), one in the target language
to be left alone, one in any other language to be refused; "named": the answer names its language.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx2
from common import print_rows

LENGTHS = {20: "≤ 20", 50: "≤ 50", 150: "≤ 150", 10**9: "more"}
COLUMNS = ("texts", "translated", "left alone", "refused", "named")


def outcome(client: httpx2.Client, language: str, target: str, text: str) -> list[str]:
    """Return the columns that count what becomes of a text."""
    answer = client.post("/translate", json={"q": text, "source": "auto", "target": target}).json()
    if "error" in answer:
        return ["texts", "refused", *["named"] * (f"({language})" in answer["error"])]
    found = answer["detectedLanguage"]["language"]
    return ["texts", "left alone" if found == target else "translated", *["named"] * (found == language)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    options = parser.parse_args()
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    with httpx2.Client(base_url=options.url, timeout=600) as client, ThreadPoolExecutor(4) as pool:
        served = {one["code"]: one["targets"] for one in client.get("/languages").json()}
        for file in sorted(options.folder.glob("*.txt")):
            language, texts = file.stem, file.read_text(encoding="utf-8").splitlines()[1::2]
            for target in sorted({target for targets in served.values() for target in targets}):
                kind = "target" if language == target else "source" if target in served.get(language, ()) else "other"
                found = pool.map(partial(outcome, client, language, target), texts)
                for text, columns in zip(texts, found, strict=True):
                    counts[kind, next(name for most, name in LENGTHS.items() if len(text) <= most)].update(columns)
    groups = [(kind, length) for kind in ("source", "target", "other") for length in LENGTHS.values()]
    rows = [[*group, *(str(counts[group][column]) for column in COLUMNS)] for group in groups]
    print_rows([["language", "characters", *COLUMNS], *rows], markdown=True)


if __name__ == "__main__":
    main()
