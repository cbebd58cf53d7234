"""Text to subword ids and back: one SentencePiece BPE model for both languages, or one for each. A symbol is one token.

    text ── leave out what no reader sees ── normalise ──▶ subwords ──▶ ids        ids ──▶ subwords ──▶ text

The ids of the four special symbols are the same in every vocabulary and are defined here. The model file contains the
normalisation, so training, translation and every export use the same one. The default rule `nfc` keeps the text
(`normalization`). SentencePiece's own rules rewrite it: `nmt_nfkc` replaces characters by their compatible form (the
ligature fi by two letters, a superscript two by 2, full width by ASCII), and joiners by a space. Under every rule, also
`identity`, a run of spaces becomes one space, and spaces at the ends are removed. Encoding and then decoding a text
gives exactly the normalised text; with byte fallback this also holds for characters that are not in the training text.
A tokenizer is identified by the SHA-256 of its file.

A tokenizer that others trained may read pieces that its vocabulary does not have, and replace characters before it
normalises a text (`sentencepiece_model.Extension`).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import DataError, reading
from ..recipe import DataSection
from ..registry import TOKENIZERS, load, tree_function
from ..storage.files import read_bounded, write_named
from .normalization import META_SPACE, kept, leaving_out, nfc, replacing
from .sentencepiece_model import RAW_BYTES, TAG, bytes_of, settings_of

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}


def ended(ids: Sequence[int], end: bool = True) -> list[int]:
    """Return ids with the end symbol; without it if `end` is false (`model.source_end`) and there is any."""
    return [*ids, EOS] if end or not ids else [*ids]


BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""SentencePiece's string for a byte, in hexadecimal."""
LARGEST = 1 << 28
"""Largest size of a model file, in bytes: ten million tokens, the most that a recipe allows."""
FEW = 8
"""Up to this number, texts are encoded or decoded one by one. For a list SentencePiece starts a thread, which takes as
long as a few texts."""
THREADS = 16
"""Threads that learn BPE. SentencePiece writes this number into the model file; a fixed number gives the same hash on
every machine."""


SOURCE, TARGET = "", "target_"
"""The sides, by what their own keys of [data] begin with."""


def key_of(side: str, key: str, data: DataSection) -> str:
    """Return the side's own key of [data] if it is set, else the `key` for both sides."""
    return side + key if getattr(data, side + key) else key


class Tokenizer:
    """A SentencePiece model with the special ids above; pickled as its bytes."""

    def __init__(self, model: bytes, where: str = "tokenizer") -> None:
        """`where` names the model in error messages."""
        import sentencepiece

        damaged = DataError(
            f"{where!r} is not a SentencePiece model, or a damaged one ({len(model):,} bytes). Restore it from "
            "a copy, or take another one."
        )
        if not model:
            raise damaged
        try:
            self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
            pieces: list[str] = self._processor.id_to_piece(list(range(self._processor.get_piece_size())))
            self._settings = settings_of(model)
        except (RuntimeError, ValueError):  # a ValueError: tokens that are not UTF-8, or settings that cannot be read
            raise damaged from None
        self.model, self.extension = model, self._settings.extension
        self.vocab_size = self.extension.known or len(pieces)
        if not 0 < self.vocab_size <= len(pieces):
            raise damaged
        self.table = pieces[: self.vocab_size]
        """SentencePiece's string of every token, by id."""
        self.sha256 = hashlib.sha256(model).hexdigest()
        self._check_specials(where)
        left_out = leaving_out(self._lacks)
        replaced = replacing(self.extension.replacements, self.extension.controls)
        self._visible = (lambda text: left_out(replaced(text))) if replaced else left_out

    def _check_specials(self, where: str) -> None:
        ids = {name: getattr(self._processor, f"{name}_id")() for name in SPECIALS}
        if ids != SPECIALS:
            has, needs = (
                ", ".join(f"{name} = {value}" for name, value in special.items()) for special in (ids, SPECIALS)
            )
            raise DataError(
                f"the tokenizer {where!r} has the special ids {has}; expected {needs}. Train it with "
                "--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3, or leave data.tokenizer empty to have one learned."
            )

    def _lacks(self, character: str) -> bool:
        """Return whether the vocabulary has no token for a character, and no rule that replaces it."""
        return any(number == UNK or self._processor.is_byte(number) for number in self._processor.encode(character))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a model file. Raises DataError."""
        with reading(path, " Expected a SentencePiece model file."):
            return cls(read_bounded(Path(path), LARGEST), str(path))

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return Tokenizer, (self.model,)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without begin and end symbols.

        If the tokens are whole words, every unknown word is one <unk>.
        """
        if self._words is not None:  # SentencePiece would join unknown words that follow each other
            return [[self._words.get(word, UNK) for word in text.split(" ") if word] for text in texts]
        visible = [self._visible(text) for text in texts]
        encoded: list[list[int]] = _each(self._processor.encode, visible)
        if self.extension.known:
            for number, (text, ids) in enumerate(zip(visible, encoded, strict=True)):
                if UNK in ids or max(ids, default=0) >= self.vocab_size:
                    encoded[number] = [*map(self._named, self._processor.encode(text, out_type=str))]
        return encoded

    def _named(self, piece: str) -> int:
        """Return the id of the token with this string, if the vocabulary has it and a text may have it, else UNK."""
        number: int = self._processor.piece_to_id(piece)
        return number if number < self.vocab_size and not RAW_BYTES.search(piece) else UNK

    def normalized(self, text: str) -> str:
        """Return the text that the subwords of `text` spell, where the vocabulary has all of its characters."""
        if self._words is not None:
            return text
        normalized: str = self._processor.normalize(self._visible(text))
        return normalized.replace(META_SPACE, " ").strip(" ")

    @cached_property
    def _words(self) -> dict[str, int] | None:
        """The id of each word if the tokens are whole words, else None."""
        if not self._settings.of_words:
            return None
        return {piece.removeprefix(META_SPACE): i for i, piece in enumerate(self.table) if i not in self.not_text}

    def decode(self, ids: Iterable[Iterable[int]]) -> list[str]:
        r"""Return the text of each sequence. Padding, begin and end symbols are skipped; <unk> becomes ⁇.

        A text is one line: a `\n` that a model spells in bytes becomes a space.
        """
        rows = [[int(i) for i in row if i not in (PAD, BOS, EOS)] for row in ids]
        texts = _each(self._processor.decode, rows)
        if self.extension.known:
            texts = [bytes_of(text).decode("utf-8", "replace") for text in texts]
        return [text.replace("\n", " ") for text in texts]

    def pieces(self, text: str) -> list[str]:
        """Return the subwords of a text as SentencePiece writes them (▁ begins a word)."""
        pieces: list[str] = self._processor.encode(self._visible(text), out_type=str)
        return pieces

    @cached_property
    def scores(self) -> list[float]:
        """Return SentencePiece's score of every token, by id; BPE first merges the pair whose result scores highest."""
        scores: list[float] = self._processor.get_score(list(range(self.vocab_size)))
        return scores

    @cached_property
    def not_text(self) -> frozenset[int]:
        """Return the ids of tokens whose string is not their text: control symbols, <unk> and single bytes."""
        special = (self._processor.is_control, self._processor.is_unknown, self._processor.is_byte)
        return frozenset(number for number in range(self.vocab_size) if any(kind(number) for kind in special))

    @cached_property
    def textless(self) -> tuple[int, ...]:
        """Return the ids of tokens without text: white space, also as single bytes, and control symbols.

        A sequence with any other id has a text that is not blank. A byte counts as white space if it occurs in the
        UTF-8 of any white-space character.
        """
        spaces = "".join(filter(str.isspace, map(chr, range(0x3001))))  # U+3000 is the last one
        bytes_of, blank = {f"<0x{byte:02X}>" for byte in spaces.encode()}, spaces + META_SPACE
        ids, processor = list(range(self.vocab_size)), self._processor
        kinds = zip(self.table, processor.is_control(ids), processor.is_byte(ids), strict=True)
        return tuple(
            number
            for number, (piece, is_control, is_byte) in enumerate(kinds)
            if is_control or (piece in bytes_of if is_byte else not piece.strip(blank))
        )

    @cached_property
    def tags(self) -> dict[str, int]:
        """The code of each target language that the model of this tokenizer has a tag for → the tag's id."""
        tags = ((TAG.fullmatch(piece), number) for number, piece in enumerate(self.table) if piece.startswith(">>"))
        return {match[1]: number for match, number in tags if match and self._processor.is_control(number)}

    @cached_property
    def by_words(self) -> bool:
        """Return whether the subwords of a text are those of its words, one after another: BPE within words.

        The settings in the model file and the vocabulary decide this.
        """
        return self._settings.stays_in_words and not any(META_SPACE in piece[1:] for piece in self.table)

    def save(self, path: str | Path) -> None:
        write_named(Path(path), self.model, "the tokenizer")


def _each(function: Callable[..., Any], items: list[Any]) -> Any:
    """Return what a function of SentencePiece returns for each item."""
    return function(items, num_threads=1) if len(items) > FEW else [function(item) for item in items]


def learn_bpe(sentences: Iterable[str], data: DataSection) -> Tokenizer:
    """Learn byte-pair encoding (section 5.1) from a stream of sentences. The same text gives the same bytes."""
    texts = list(sentences)
    return _learn(texts, data, _bpe(data, Counter(word for text in texts for word in text.split(" ")).items()), SOURCE)


def learn_from_words(words: Iterable[tuple[str, int]], data: DataSection, side: str = SOURCE) -> Tokenizer:
    """Learn byte-pair encoding from the words of a text and their counts.

    The result has the same subwords as `learn_bpe`; it is faster and needs less memory.

    The words contain no spaces, tabs or line ends. A word that is too long for SentencePiece (4,192 bytes) is skipped;
    `learn_bpe` skips sentences of that length. For a parser (`data.terminals`), each bracket and tag of the trees is
    one token.
    """
    counted = list(words)
    symbols = tree_function("symbols")((word for word, _ in counted), data.terminals) if data.terminals else []
    whole = {"user_defined_symbols": [META_SPACE + symbol for symbol in symbols]} if symbols else {}
    return learn(counted, data, side, **whole, **_bpe(data, counted, side))


def learn_symbols(words: Iterable[tuple[str, int]], data: DataSection, side: str = SOURCE) -> Tokenizer:
    """Return a tokenizer with one token for each of the most frequent words. Fewer words give a smaller vocabulary.

    This tokenizer is for symbols, such as linearised trees. Nothing is normalised, and any other word becomes <unk>.
    """
    return learn(
        words,
        data,
        side,
        model_type="word",
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        character_coverage=1.0,
        byte_fallback=False,
    )


def learn(words: Iterable[tuple[str, int]], data: DataSection, side: str, **options: Any) -> Tokenizer:
    """Return the tokenizer that SentencePiece learns from words and their counts, with its own `options`.

    Raises DataError, in terms of the recipe's keys.
    """
    return _learn([f"{word}\t{count}" for word, count in words], data, {"input_format": "tsv", **options}, side)


def _bpe(data: DataSection, words: Iterable[tuple[str, int]], side: str = SOURCE) -> dict[str, Any]:
    return {
        "model_type": "bpe",
        **(
            {"normalizer": nfc(kept(words))}
            if data.normalization == "nfc"
            else {"normalization_rule_name": data.normalization}
        ),
        "character_coverage": getattr(data, key_of(side, "character_coverage", data)),
        "byte_fallback": data.byte_fallback,
    }


def _learn(lines: Sequence[str], data: DataSection, options: dict[str, Any], side: str) -> Tokenizer:
    """Return the tokenizer that SentencePiece learns with `options`.

    If the text has fewer pieces than asked for, it gets all of them.
    """
    size = getattr(data, key_of(side, "vocab_size", data))
    try:
        return _learn_exactly(lines, size, options)
    except RuntimeError as error:
        if largest := re.search(r"Please set it to a value <= (\d+)", str(error)):
            return _learn_exactly(lines, int(largest.group(1)), options)
        raise _explained(str(error), data, side) from None


def _learn_exactly(lines: Sequence[str], size: int, options: dict[str, Any]) -> Tokenizer:
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        num_threads=THREADS,
        minloglevel=2,
        **options,
    )
    return Tokenizer(model.getvalue(), "learned tokenizer")


def _explained(message: str, data: DataSection, side: str) -> DataError:
    """Return a DataError that explains SentencePiece's error with the keys of the recipe."""
    key, coverage = key_of(side, "vocab_size", data), key_of(side, "character_coverage", data)
    size = getattr(data, key)
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        needed = smallest.group(1)
        return DataError(
            f"data.{key} = {size} is too small: the characters of this text alone need {needed}. "
            f"Give --set data.{key}={needed} or more, or lower data.{coverage}."
        )
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return DataError("the training text is empty: a vocabulary cannot be learned from it.")
    return DataError(f"SentencePiece could not learn a vocabulary of {size} tokens: {message.strip()}")


JOINT_FILE, SOURCE_FILE, TARGET_FILE = "tokenizer.model", "tokenizer.source.model", "tokenizer.target.model"


def files_of(source: bytes, target: bytes) -> dict[str, bytes]:
    """Return the models of both sides by file name: one file if they are equal."""
    return {JOINT_FILE: source} if source == target else {SOURCE_FILE: source, TARGET_FILE: target}


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizers of source and target: the same object if the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target

    @property
    def shared(self) -> bool:
        """Whether both sides have the same tokens with the same ids, with one tokenizer or with two."""
        return self.joint or self.source.table == self.target.table

    @property
    def source_size(self) -> int:
        return self.source.vocab_size

    @property
    def target_size(self) -> int:
        return self.target.vocab_size

    @property
    def sha256(self) -> str:
        return self.source.sha256 if self.joint else hashlib.sha256(self.source.model + self.target.model).hexdigest()

    @property
    def files(self) -> dict[str, Tokenizer]:
        """Return the tokenizers by file name."""
        return {JOINT_FILE: self.source} if self.joint else {SOURCE_FILE: self.source, TARGET_FILE: self.target}

    @classmethod
    def load(
        cls, folder: str | Path, sizes: tuple[int, int] | None = None, files: Collection[str] | None = None
    ) -> Vocabulary:
        """Read the vocabulary of a folder. `sizes` are the vocabulary sizes of the weights or shards beside it.

        `files` are the names of the tokenizers; other files are not read. None: those that exist. Raises DataError if
        there is no vocabulary, or if it has other sizes.
        """
        folder = Path(folder)
        if files is None:
            files = [path.name for path in folder.glob("tokenizer*.model")]
        if JOINT_FILE in files:
            both = Tokenizer.load(folder / JOINT_FILE)
            vocabulary = cls(both, both)
        elif SOURCE_FILE in files or TARGET_FILE in files:
            vocabulary = cls(Tokenizer.load(folder / SOURCE_FILE), Tokenizer.load(folder / TARGET_FILE))
        else:
            raise DataError(
                f"{str(folder)!r} holds no tokenizer; expected {JOINT_FILE}, or {SOURCE_FILE} and {TARGET_FILE}."
            )
        actual = (vocabulary.source_size, vocabulary.target_size)
        if sizes is not None and actual != sizes:
            raise DataError(
                f"the tokenizer in {str(folder)!r} has {actual[0]:,} source and {actual[1]:,} target tokens, what it "
                f"belongs to has {sizes[0]:,} and {sizes[1]:,}: it was exchanged. Restore the folder from a copy."
            )
        return vocabulary

    @classmethod
    def learn(cls, words: Sequence[Iterable[tuple[str, int]]], data: DataSection) -> Vocabulary:
        """Learn the tokenizers from words and their counts: one sequence for both sides together, or one for each."""
        both, *others = words
        source = learn_from_words(both, data)
        if not others:
            return cls(source, source)
        learn_target = load(TOKENIZERS, data.target_tokenization, "data.target_tokenization")
        return cls(source, learn_target(others[0], data, TARGET))

    def save(self, folder: str | Path) -> None:
        """Write the files into `folder`. Raises DataError."""
        for name, tokenizer in self.files.items():
            tokenizer.save(Path(folder) / name)
