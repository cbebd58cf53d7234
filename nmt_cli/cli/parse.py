"""`nmt parse`: sentences in, bracketed trees out, line by line.

    line ──▶ words, tokenised as treebanks do ──▶ model ──▶ linearised tree ──▶ delinearise ──▶ tree in brackets

It is `nmt translate` with words before and trees after: `interface.loading` loads the models, `translate_output` writes.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..console import say, warn
from ..errors import ModelError, UsageError
from ..interface.loading import check_precision, decode_changes, models_named
from ..parsing.brackets import between_spaces
from ..parsing.linearization import TERMINALS, delinearise, repaired
from . import translate_options as options
from .arguments import BeamSize, DecodeOverrides, Device, output_path
from .completion import runs
from .translate_input import InputFormat, read_requests
from .translate_output import translate_lines, writing

if TYPE_CHECKING:
    from ..decoding.translator import Line, Result, Translator

WHAT = "the trees"
TREE = "tree"
"""The constraint under which outputs are trees of the sentence."""
APOSTROPHE = re.compile(r"(?<=\w)’(?=\w)")
"""Inside a word. NLTK splits contractions at ' alone."""


def parse(
    model: Annotated[list[Path] | None, typer.Option("--model", "-m", metavar="DIR", autocompletion=runs, help="Folder of a model or run, trained with data.terminals in its recipe. Repeat it for an ensemble of models with the same vocabulary.  [env var: NMT_MODEL; default: runs/latest]", show_default=False)] = None,
    input_file: Annotated[Path | None, typer.Option("--input", "-i", metavar="FILE", help="Read from FILE (plain, .gz, .xz, .bz2) instead of stdin.", show_default=False)] = None,
    output_file: Annotated[Path | None, typer.Option("--output", "-o", parser=output_path, metavar="FILE", help="Write to FILE instead of stdout. FILE appears when everything is parsed; an existing file is replaced and keeps its mode. A device or pipe is written to directly.", show_default=False)] = None,
    tokenized: Annotated[bool, typer.Option("--tokenized", help="Words are separated by spaces already, as in .words of nmt data trees. Without it NLTK separates them: pip install 'nmt-cli[parse]'.")] = False,
    beam: BeamSize = None,
    overrides: DecodeOverrides = None,
    batch_tokens: options.BatchTokens = None,
    device: Device = "auto",
    devices: options.Devices = None,
    precision: options.Precision = "auto",
) -> None:
    """Parse sentences: N lines in, N lines out, in order, as soon as they are ready. The model is a parser (docs/parsing.md).

    A line is a sentence, and its tree is printed in brackets, as (TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))). The tree has exactly the sentence's words; brackets in words are written -LRB- and -RRB-. Parts of speech are the model's, or XX if it predicts none (data.terminals). A blank line stays blank.

    Without --tokenized, words are separated as in the Penn Treebank: do n't, dogs . Straight double quotes become two backquotes and two apostrophes, if the model's vocabulary has them. Each line should be one sentence.

    A sentence that is too long for the model gets a flat tree, (TOP (XX The) (XX dog) …), so that each sentence has a tree of its words; a warning gives its line and length. stderr also reports how many trees were repaired because the model's output was not a tree of the sentence (see nmt data trees --back).
    """
    from ..hardware import keep_freed_memory
    from ..model.contents import find_model
    from ..output_paths import check_output_file

    changes = decode_changes(overrides or [], {"beam": beam, "batch_tokens": batch_tokens})
    check_precision(precision)
    terminals = _terminals(find_model(models_named(model)[0]))
    tokenize = between_spaces if tokenized else treebank_words()
    if output_file:
        check_output_file(output_file, WHAT, [path for path in (input_file,) if path] + [find_model(path) for path in models_named(model)])

    from ..interface.loading import load
    from .inputs import say_model, typed_at_terminal

    keep_freed_memory()
    loaded = load(models_named(model), changes, device=device, devices=devices, chosen=say_model)
    translator = loaded.translator(precision=precision)
    if not tokenized and not any("``" in piece for piece in translator.source.table):
        tokenize = _with_plain_quotes(tokenize)
    parses = _Parses(translator, terminals, tokenize)
    replaced: Counter[str] = Counter()
    lines = parses.sentences(read_requests(InputFormat(input_file, False, None, False, None), replaced))
    with writing(output_file, WHAT) as sink:
        translate_lines(translator, lines, sink, parses.tree, replaced, "parsing", "one sentence per line, end with Ctrl-D" if typed_at_terminal(input_file) else "")
    if parses.repaired:
        say(f"{parses.repaired:,} of {parses.count:,} trees were repaired: the model's output was not a tree of the sentence.")


@dataclass
class _Parses:
    """Turns lines into sentences for the translator, and its results into trees."""

    translator: Translator
    terminals: str
    tokenize: Callable[[str], list[str]]
    repaired: int = 0
    count: int = 0
    """Trees."""
    pending: deque[list[str]] = field(default_factory=deque)
    """The words of the sentences that are being parsed. The translator reads ahead."""

    @property
    def longest(self) -> int:
        """Return the largest number of tokens of a sentence. With the constraint `tree` that is all that the model can read; longer ones are never split."""
        return self.translator.longest_output if TREE in self.translator.decode.constraints else self.translator.longest

    def sentences(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the sentence of each line, words between single spaces; "" if it certainly has too many tokens.

        A thread of the translator calls this, and may end with the process at any point: SentencePiece would not bear that.
        """
        for line in lines:
            words = self.tokenize(str(line))
            self.pending.append(words)
            yield " ".join(words) if len(words) <= self.longest else ""

    def tree(self, index: int, result: Result) -> str:
        """Return the tree of line `index` in brackets, "" if it is blank."""
        words = self.pending.popleft()
        if not words:
            return ""
        self.count += 1
        if not result.tokens or len(result.source_pieces) > self.longest:  # not translated, or in parts, which are no trees
            length = len(self.translator.source.encode([" ".join(words)])[0])
            warn(
                f"line {index + 1:,} is too long for the model: it has {len(words):,} words, {length:,} tokens; the model reads up to {self.longest:,} tokens "
                f"and writes up to {self.translator.longest_output:,} symbols{', two for each word' * (self.terminals == 'both')}. Its tree is flat."
            )
            return str(delinearise("", words))
        tree = delinearise(result.translation, words, self.terminals)
        self.repaired += repaired(result.translation, tree, self.terminals)
        return str(tree)


def _terminals(folder: Path) -> str:
    """Return the terminals of the parser in a model folder. Raises ModelError if it is no parser."""
    from ..model.contents import read_config

    data = read_config(folder).recipe.get("data")
    terminals = data.get("terminals") if isinstance(data, dict) else None
    if terminals in TERMINALS:
        return str(terminals)
    raise ModelError(
        f"the model {str(folder)!r} is not a parser: its recipe does not have data.terminals ({', '.join(TERMINALS)}), which names what a word is in the linearised trees. "
        "Train with it, as docs/parsing.md shows. For trees by a model that was trained without it: nmt translate, then nmt data trees --back."
    )


def treebank_words() -> Callable[[str], list[str]]:
    """Return what splits a sentence into words as in the Penn Treebank. Raises UsageError if NLTK is not installed."""
    try:
        from nltk.tokenize import NLTKWordTokenizer
    except ImportError as error:
        raise UsageError(f"nmt parse needs the extra package nltk to separate words ({error}): pip install 'nmt-cli[parse]'. Or separate them yourself, and give --tokenized.") from None
    tokenizer = NLTKWordTokenizer()
    return lambda line: [word for text in tokenizer.tokenize(APOSTROPHE.sub("'", line)) for word in between_spaces(text)]


def _with_plain_quotes(tokenize: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    return lambda line: ['"' if word in ("``", "''") else word for word in tokenize(line)]
