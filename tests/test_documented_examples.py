"""What the demo model translates in README, docs, docstrings and pictures: sentences that the demo's grammar wrote.

So a reader who types an example gets what the page shows. Each sentence is one of the demo corpus, with the corpus's own
translation; no model is needed to check that.
"""

import json
import re
from collections.abc import Iterator

import pictures
import pytest
from documented import BLOCK, DOCUMENTS, ROOT, SPAN

import nmt_cli as nmt
from nmt_cli.data.demo_corpus import pairs

pytestmark = pytest.mark.skipif(not DOCUMENTS[0].exists(), reason="the documents are not here")
TRANSLATES = re.compile(r"\bnmt (translate|attend)\b")
BY_DEMO = re.compile(r"runs/demo|:8080|run\.path|\| nmt translate")
"""In a block of code, or in code in a sentence: the demo model translates here."""
PUBLISHED = re.compile(r"--model [a-z]{2}-[a-z]{2}\b")
"""Here a published model does, which is not at hand."""
QUOTED = re.compile(r"""(?<=["'])[A-Za-z][^"'\\]* [^"'\\]*[.?!](?=["'\\])""")
COMMENT = re.compile(r"# ([A-ZÄÖÜ].*[.?!])$", re.MULTILINE)
"""What a line of Python prints."""
PROMPT = re.compile(r"^\$ (.*)\n((?:(?!\$ ).+\n)+)", re.MULTILINE)
"""A command and what it prints."""
CONSTRAINED = re.compile(r"--(?:prefix|terms)-column")
"""The output is not the best one by itself."""


def code() -> Iterator[tuple[str, str]]:
    """Yield where code is in which the demo model translates, and the code."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        bodies = [block[2] if block[3] is None else block[3] for block in BLOCK.finditer(text)]
        for body in (*bodies, *(span[1] for span in SPAN.finditer(BLOCK.sub("", text)))):
            if BY_DEMO.search(body) and not PUBLISHED.search(body):
                yield document.name, body
    cells = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    yield "tour.ipynb", "\n".join("".join(cell["source"]) for cell in cells)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    yield "Makefile", "\n".join(line for line in makefile.splitlines() if "runs/demo" in line)
    yield "__init__.py", nmt.__doc__ or ""
    yield "pictures.py", "\n".join((*pictures.COMMANDS, f'"{pictures.SECOND}"'))


CODE = [(where, re.sub(r"</?\w+>", "", body)) for where, body in code()] if DOCUMENTS[0].exists() else []
TRANSLATIONS = {source: target for name in ("valid", "test") for source, target in pairs()[name]}
"""Of sentences that the model has not seen in training."""
SENTENCES = {(where, sentence) for where, body in CODE for sentence in QUOTED.findall(body)}
SHOWN = [(where, *found) for where, body in CODE for found in PROMPT.findall(body) if TRANSLATES.search(found[0])]
PLACES = "Makefile README.md __init__.py attention.md pictures.py python.md serving.md tour.ipynb translating.md"


def sources(where: str) -> list[str]:
    """Return the sentences of a document that are translated."""
    return sorted(sentence for place, sentence in SENTENCES if place == where and sentence in TRANSLATIONS)


def test_each_example_is_a_sentence_of_the_demo_corpus() -> None:
    assert {where for where, _ in SENTENCES} >= {*PLACES.split()}
    for where, sentence in sorted(SENTENCES):
        known = {*sources(where), *(TRANSLATIONS[source] for source in sources(where))}
        assert sentence in known, f"{where}: {sentence!r}: choose a line of data/demo/text/test.en, after `make demo`"


def test_each_output_that_is_shown_is_the_translation_of_the_corpus() -> None:
    assert len(SHOWN) > 5
    for where, command, output in SHOWN:
        if not CONSTRAINED.search(command):
            expected = [TRANSLATIONS[sentence] for sentence in QUOTED.findall(command)]
            assert output.splitlines() == expected, f"{where}: {command}"
    for where, body in CODE:
        for output in COMMENT.findall(body):
            assert output in [TRANSLATIONS[source] for source in sources(where)], f"{where}: {output}"
