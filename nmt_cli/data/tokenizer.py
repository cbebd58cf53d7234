"""Text to subword ids and back: one SentencePiece BPE for both languages, or one for each.

    text ── normalise ──▶ pieces ──▶ ids        ids ──▶ pieces ──▶ text

The ids of the four special symbols are the same in every vocabulary and are defined here, once. Normalisation is part
of the model file, hence alike in training and in translation: `nmt_nfkc` (the default) is Unicode NFKC, which replaces
characters by their compatible form (the ligature fi by two letters, a superscript two by 2, full width by ASCII),
drops control characters and makes every kind of white space a plain space. Under every rule, `identity` too, runs of
spaces become one and those at the ends go. What a text is after that, encoding and decoding give back exactly; with
byte fallback so they do for characters that training never saw. A tokenizer is identified by the SHA-256 of its file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ..errors import DataError
from ..recipe import DataSection
from .lines import write_aside

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}

SAMPLE = 10_000_000
"""Sentences, about, that BPE is learned from at most. SentencePiece's own sampling differs from run to run: ours does not."""
SEED = 1
THREADS = 16
"""Of BPE learning. SentencePiece writes the number into the model file: were it that of the machine, so would be the hash."""


class Tokenizer:
    """One SentencePiece model with our special ids; pickled as its bytes."""

    def __init__(self, model: bytes, where: str = "tokenizer") -> None:
        """`where` names the model in error messages."""
        import sentencepiece

        damaged = DataError(f"{where!r} is not a SentencePiece model, or a damaged one ({len(model):,} bytes).")
        if not model:
            raise damaged
        try:
            self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise damaged from None
        self.model = model
        self.vocab_size: int = self._processor.get_piece_size()
        if not self.vocab_size:
            raise damaged
        self.sha256 = hashlib.sha256(model).hexdigest()
        self._check_specials(where)

    def _check_specials(self, where: str) -> None:
        found = {name: getattr(self._processor, f"{name}_id")() for name in SPECIALS}
        if found != SPECIALS:
            has, needs = (", ".join(f"{name} = {value}" for name, value in ids.items()) for ids in (found, SPECIALS))
            raise DataError(
                f"the tokenizer {where!r} has the special ids {has}; expected {needs}. Train it with "
                "--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3, or leave data.tokenizer empty to have one learned."
            )

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        try:
            return cls(Path(path).read_bytes(), str(path))
        except FileNotFoundError:
            raise DataError(f"there is no tokenizer at {str(path)!r}; expected a SentencePiece model file.") from None
        except OSError as error:
            raise DataError(f"cannot read the tokenizer {str(path)!r}: {error.strerror}.") from None

    @classmethod
    def learn(cls, sentences: Iterable[str], data: DataSection, count: int = 0) -> Tokenizer:
        """See `learn_bpe`."""
        return learn_bpe(sentences, data, count)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return Tokenizer, (self.model,)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without begin and end symbols."""
        encoded: list[list[int]] = self._processor.encode(list(texts), num_threads=1) if texts else []
        return encoded

    def decode(self, ids: Iterable[Iterable[int]]) -> list[str]:
        r"""The text of each sequence. Padding, begin and end symbols are passed over; <unk> shows as ⁇.

        A text is a line: should a model spell a `\n` in bytes, it becomes a space.
        """
        rows = [[int(i) for i in row if i not in (PAD, BOS, EOS)] for row in ids]
        texts: list[str] = self._processor.decode(rows, num_threads=1) if rows else []
        return [text.replace("\n", " ") for text in texts]

    def pieces(self, text: str) -> list[str]:
        """The subwords of a text as SentencePiece writes them (▁ begins a word)."""
        pieces: list[str] = self._processor.encode(text, out_type=str)
        return pieces

    @property
    def table(self) -> list[str]:
        """The pieces by id."""
        pieces: list[str] = self._processor.id_to_piece(list(range(self.vocab_size)))
        return pieces

    def save(self, path: str | Path) -> None:
        write_aside(Path(path), self.model, "the tokenizer")


def learn_bpe(sentences: Iterable[str], data: DataSection, count: int = 0, sample: int = SAMPLE) -> Tokenizer:
    """Learn byte-pair encoding (section 5.1) from a stream of sentences; the same text gives the same bytes.

    `count`: how many sentences there are, where known; of more than `sample`, a random sample of about that size is taken.
    """
    import io

    import sentencepiece

    model, stream = io.BytesIO(), _Guarded(_sampled(sentences, sample / count if count else 1.0))
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(stream),
            model_writer=model,
            model_type="bpe",
            vocab_size=data.vocab_size,
            normalization_rule_name=data.normalization,
            character_coverage=data.character_coverage,
            byte_fallback=data.byte_fallback,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            num_threads=THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        stream.raise_kept()
        raise _explained(str(error), data) from None
    stream.raise_kept()
    return Tokenizer(model.getvalue(), "learned tokenizer")


def _sampled(sentences: Iterable[str], share: float) -> Iterable[str]:
    random = Random(SEED)
    return sentences if share >= 1 else (sentence for sentence in sentences if random.random() < share)


class _Guarded:
    """Sentences for SentencePiece, which turns what its iterator raises into text: kept here, raised afterwards."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._sentences = sentences
        self._kept: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._sentences
        except BaseException as error:
            self._kept = error
            raise

    def raise_kept(self) -> None:
        if self._kept is not None:
            raise self._kept


def _explained(message: str, data: DataSection) -> DataError:
    """SentencePiece's complaint in the recipe's terms."""
    asked = f"data.vocab_size = {data.vocab_size}"
    if largest := re.search(r"Please set it to a value <= (\d+)", message):
        limit = largest.group(1)
        return DataError(f"{asked} is more than this text supports: the largest possible is {limit}. Give --set data.vocab_size={limit} or less, or more text.")
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        needed = smallest.group(1)
        return DataError(f"{asked} is too small: the characters of this text alone need {needed}. Give --set data.vocab_size={needed} or more, or lower data.character_coverage.")
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return DataError("the training text is empty: a vocabulary cannot be learned from it.")
    return DataError(f"SentencePiece could not learn a vocabulary of {data.vocab_size} pieces: {message.strip()}")


JOINT_FILE, SOURCE_FILE, TARGET_FILE = "tokenizer.model", "tokenizer.source.model", "tokenizer.target.model"


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizers of the two sides: the same object when the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target

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
        """File names in a folder, and what each holds."""
        return {JOINT_FILE: self.source} if self.joint else {SOURCE_FILE: self.source, TARGET_FILE: self.target}

    @classmethod
    def load(cls, folder: str | Path) -> Vocabulary:
        folder = Path(folder)
        if (folder / JOINT_FILE).exists():
            both = Tokenizer.load(folder / JOINT_FILE)
            return cls(both, both)
        if (folder / SOURCE_FILE).exists() or (folder / TARGET_FILE).exists():
            return cls(Tokenizer.load(folder / SOURCE_FILE), Tokenizer.load(folder / TARGET_FILE))
        raise DataError(f"{str(folder)!r} holds no tokenizer; expected {JOINT_FILE}, or {SOURCE_FILE} and {TARGET_FILE}.")

    @classmethod
    def learn(cls, pairs: Callable[[], Iterator[tuple[str, str]]], data: DataSection, count: int = 0) -> Vocabulary:
        """Learn from `count` pairs of text: both sides together, or each by itself in a reading of its own."""
        if data.joint_vocab:
            both = learn_bpe((text for pair in pairs() for text in pair), data, 2 * count)
            return cls(both, both)
        source = learn_bpe((source for source, _ in pairs()), data, count)
        return cls(source, learn_bpe((target for _, target in pairs()), data, count))

    def save(self, folder: str | Path) -> None:
        for name, tokenizer in self.files.items():
            tokenizer.save(Path(folder) / name)
