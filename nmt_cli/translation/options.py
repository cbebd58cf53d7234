"""The options of a translation: one object, made once from a recipe and what a caller asks for, then only read.

recipe, keywords ──▶ TranslationOptions ──▶ LineTranslator: lengths, alignments, confidence
                                        └─▶ search_options: what a search needs of them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ..data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from ..recipe import DecodeSection
from ..registry import CONSTRAINTS, LENGTH_PENALTIES, SEARCHES, load
from ..search.search import UNLIMITED, Accepts, MbrOptions, SamplingOptions, SearchOptions

if TYPE_CHECKING:
    from ..search.constraint import Constraint
    from .confidence import Calibration


@dataclass(frozen=True, kw_only=True)
class TranslationOptions:
    """What a translator is asked for. `decode` is the recipe's section, with the caller's changes.

    Raises UsageError for an unknown search or constraint, or a wrong value, when they are first used.
    """

    decode: DecodeSection
    nbest: int = 1
    """Candidates per line, at most `decode.beam`. The search "sample" draws `decode.beam` outputs per line, "mbr"
    chooses among `decode.beam` hypotheses."""
    sampling: SamplingOptions | None = None
    """None: those that the search has by default."""
    mbr: MbrOptions = field(default_factory=MbrOptions)
    constraints: Mapping[str, Any] = field(default_factory=dict)
    """Values of constraints, by names of the registry's CONSTRAINTS: of those in `decode.constraints`, and of more."""
    scores: bool = True
    """Whether somebody reads scores and log-probabilities; see `SearchOptions`."""
    align: bool = False
    """Whether translations have alignments."""
    calibration: Calibration | None = None
    """With one, translations have words and quality."""
    target_language: str = ""
    """The recipe's, for a model with tags (`data.tags`)."""
    longest: int = 0
    """A sentence of more tokens is translated in parts; 0: the largest length that the model can take."""
    safe_length: int = 0
    """A line of more tokens is translated sentence by sentence, unless a constraint reads whole lines (`split`); 0: the
    same as `longest`."""

    def search_options(self, source: Tokenizer, target: Tokenizer) -> SearchOptions:
        """Return what a search needs of these options, given the tokenizers of the lines and of the outputs.

        A key of [decode] that `SearchOptions` has too is taken as it is.
        """
        decode = self.decode
        search = None if decode.search == "beam" else load(SEARCHES, decode.search, "search")
        rules = self.rules(target)
        allowed = {token for rule in rules for token in rule.allows}
        names = {field.name for field in fields(SearchOptions)} & DecodeSection.model_fields.keys()
        same = {name: getattr(decode, name) for name in names}
        more: dict[str, Any] = {
            "search": search,
            "nbest": self.nbest,
            "align": self.align,
            "bos": BOS,
            "eos": EOS,
            "banned_tokens": tuple(t for t in (PAD, UNK, BOS, *target.tags.values()) if t not in allowed),
            "textless": target.textless,
            "sampling": self.sampling or getattr(search, "SAMPLING", None) or SamplingOptions(),
            "lookahead": decode.lookahead or UNLIMITED,
            "mbr": self.mbr,
            "accepts": self.accepts(source, target) if search is None else None,
            "detokenize": target.decode,
            "length_penalty": load(LENGTH_PENALTIES, decode.length_penalty, "length penalty"),
            "constraints": rules,
            "token_log_probs": self.calibration is not None,
            "scores": self.scores or self.calibration is not None,
        }
        return SearchOptions(**{**same, **more})

    def accepts(self, source: Tokenizer, target: Tokenizer) -> Accepts | None:
        """Return which outputs stay; None: all do. Whoever asks for several outputs sees the others anyway."""
        if self.nbest > 1 or not self.decode.second_choice:
            return None
        from .second_choice import SecondChoice

        return SecondChoice(source, target, self.decode.second_choice).accepts

    def rules(self, target: Tokenizer) -> tuple[Constraint, ...]:
        """Return the prefix constraint, the constraints of the recipe's section, and those of `constraints`.

        A key of [decode] that has a constraint's name holds its value.
        """
        named = dict.fromkeys(["prefix", *self.decode.constraints])
        values = {**named, **self.decode.constraint_options, **self.constraints}
        return tuple(load(CONSTRAINTS, name, "constraint")(value, target) for name, value in values.items())
