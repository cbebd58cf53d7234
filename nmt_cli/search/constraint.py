"""Constraints: rules about the outputs that a search may build, for every search and any number of rules at once.

    B sentences   W hypotheses per sentence   N open hypotheses   V vocabulary   C candidates   E proposals

    Search.add  ──▶ Constraint.start: the state of new sentences, arrays (B, …) and (B, W, …)
    each step   ──▶ required: the one token that may follow       edit: log-probabilities (N, V), -inf forbids a token
                ──▶ (beam search) proposals, progress, missing: which candidates come nearer to the demands of the rule
                ──▶ the state follows the hypotheses that were chosen, then `advance` by their new tokens

A constraint overrides the methods that it needs; `nmt_cli.registry.CONSTRAINTS` lists the constraints by name. A search
without constraints does none of this. The effect of a rule on a sentence does not depend on the other sentences.

A constraint never makes a sentence fail: where it leaves no token at all, the end symbol may follow, with a very low
log-probability. A required token may follow even if another rule forbids it. Outputs that do not meet all
demands of the rules rank behind outputs that do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from .arrays import NONE, Array, Arrays, arrays_of, merged
from .search_state import FREE, Rows
from .sentence import Sentence

if TYPE_CHECKING:
    from ..data.tokenizer import Tokenizer

LAST_RESORT = -1e4
"""Added to the log-probability of an end symbol that breaks a rule, so that outputs that obey the rules rank before
such an output."""


@dataclass(frozen=True)
class Step:
    """The open hypotheses that a step of the search extends."""

    rows: Array
    """(N,) the numbers b * W + w of the open hypotheses, ascending."""
    tokens: Array
    """(B, W, L) the outputs; only the first `lengths` tokens mean anything."""
    lengths: Array
    """(B,) number of tokens of an open output; any number for a sentence without open hypotheses."""
    remaining: Array
    """(B,) number of tokens that an output may still get, end symbol not counted."""

    @property
    def width(self) -> int:
        """W, the hypotheses per sentence."""
        return int(self.tokens.shape[1])

    @cached_property
    def sentences(self) -> Array:
        """(N,) the sentence of each open hypothesis."""
        return self.rows // self.width

    def of_rows(self, values: Array) -> Array:
        """Return the values of the open hypotheses: (B, W, …) -> (N, …)."""
        return arrays_of(values).take(merged(values), self.rows)


Tables = TypeVar("Tables", bound=Any)


class OnDevices(Generic[Tables]):
    """Tables of a constraint, a dataclass with arrays of NumPy. Each kind of arrays gets one copy on each device."""

    def __init__(self, tables: Tables) -> None:
        self.tables, self.copies = tables, dict[Arrays, Tables]()

    def on(self, arrays: Arrays) -> Tables:
        """Return the tables as arrays of this kind."""
        if arrays not in self.copies:
            own = {name: arrays.array(x) for name, x in vars(self.tables).items() if isinstance(x, np.ndarray)}
            self.copies[arrays] = replace(self.tables, **own)
        return self.copies[arrays]


States = list[Any]
"""The states of several constraints."""


class Constraint:
    """A rule. Its methods get the state that `start` returned; methods that are not overridden change nothing."""

    name = ""
    """The constraint's name in the registry, and the key of its input in `Sentence.inputs`."""
    edits = False
    """Whether the constraint has `edit`."""
    adjusts = False
    """Whether `edit` changes the log-probabilities of tokens that it allows, or may leave a hypothesis no token.
    Hypotheses are then ranked by the changed log-probabilities, and keep the model's own beside them."""
    progresses = False
    """Whether the constraint has `proposals`, `progress`, `demands` and `missing`; only beam search can use them."""
    reads_source = False
    """Whether the input is the text of the line if users give no input. The line is then never split into parts. If the
    line is too long for the model, or `encode` returns nothing for it, it is not translated."""
    allows: tuple[int, ...] = ()
    """Tokens that no output has without this constraint, such as UNK. `edit` forbids them where they may not follow."""

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer, longest: int) -> list[Any]:
        """Return the `Sentence.inputs` of lines, given the users' inputs for these lines; an empty one: no constraint
        on this line.

        `tokenizer` is the target's; an output has at most `longest` tokens.
        """
        return list(values)

    def added_length(self, value: Any) -> int:
        """Return how many more tokens an output may have because of its input, which `encode` returned."""
        return 0

    def start(self, sentences: Sequence[Sentence], width: int, arrays: Arrays) -> Rows | None:
        """Return the state of new sentences, whose W = `width` hypotheses are empty; None: the rule needs no state."""
        return None

    def required(self, state: Any, step: Step) -> Array | None:
        """Return the one token that may follow each open hypothesis, (N,), or FREE; None: all of them are free."""
        return None

    def edit(self, state: Any, step: Step, log_probs: Array) -> None:
        """Change log-probabilities (N, V) of the next token of open hypotheses, in place; -inf forbids a token."""

    def advance(self, state: Any, tokens: Array) -> Any:
        """Return the state after the hypotheses got the tokens (B, W). Tokens of closed hypotheses mean nothing."""
        return state

    def proposals(self, state: Any, step: Step, log_probs: Array) -> Array:
        """Return tokens with which each hypothesis makes or keeps progress, (B, W, E), or FREE; log_probs (N, V)."""
        raise NotImplementedError

    def progress(self, state: Any, parents: Array, tokens: Array) -> Array:
        """Return how far hypotheses `parents` (B, C) meet the rule's demands after `tokens` (B, C): int64, (B, C)."""
        raise NotImplementedError

    def demands(self, state: Any) -> Array:
        """Return whether the rule demands anything of a sentence's outputs: bool, (B,)."""
        raise NotImplementedError

    def missing(self, state: Any) -> Array:
        """Return how much a hypothesis lacks if it ends now: int64, (B, W); 0: it may end."""
        raise NotImplementedError


class Constraints:
    """All constraints of a search as one. `exhausts`: whether they may leave a hypothesis no token."""

    def __init__(self, members: Sequence[Constraint]) -> None:
        self.members = members
        editing = [member for member in members if member.edits]
        self.edits = bool(editing)
        self.adjusts = any(member.adjusts for member in editing)
        self.exhausts = self.adjusts or len(editing) > 1
        self.progresses = any(member.progresses for member in members)

    def start(self, sentences: Sequence[Sentence], width: int, arrays: Arrays) -> States:
        return [member.start(sentences, width, arrays) for member in self.members]

    def required(self, states: States, step: Step) -> Array | None:
        """See `Constraint.required`. If several constraints require a token, the first constraint wins."""
        required: Array | None = None
        for member, state in zip(self.members, states, strict=True):
            own = member.required(state, step)
            if required is None or own is None:
                required = own if required is None else required
            else:
                required = arrays_of(own).where(required == FREE, own, required)
        return required

    def edit(self, states: States, step: Step, log_probs: Array, required: Array | None, eos: int) -> None:
        """See `Constraint.edit`. The tokens `required` (N,), or FREE, may follow in any case.

        A hypothesis may end if no other token may follow it.
        """
        arrays = arrays_of(log_probs)
        end = log_probs[:, eos]
        own = arrays.copy(end)
        if required is not None:
            bound = arrays.nonzero(required >= 0)[0]
            wanted = required[bound]
            kept = log_probs[bound, wanted]
        for member, state in zip(self.members, states, strict=True):
            if member.edits:
                member.edit(state, step, log_probs)
        last_resort = LAST_RESORT if self.adjusts else 0.0
        if self.exhausts:
            end[:] = arrays.where(arrays.amax(log_probs, 1) == NONE, own + last_resort, end)
        if required is not None:
            edited = log_probs[bound, wanted]
            penalties = arrays.astype(wanted == eos, edited.dtype) * last_resort
            log_probs[bound, wanted] = arrays.where(edited == NONE, kept + penalties, edited)
        # a model whose output is not a number must be noticed
        log_probs[:, 0] = arrays.where(own != own, own, log_probs[:, 0])

    def advance(self, states: States, tokens: Array, parents: Array | None = None) -> States:
        """See `Constraint.advance`. With `parents`, hypotheses continued others before, see `Rows.reorder`."""
        if parents is not None:
            states = [state and state.reorder(parents) for state in states]
        return [member.advance(state, tokens) for member, state in zip(self.members, states, strict=True)]

    def proposals(self, states: States, step: Step, log_probs: Array) -> Array:
        every = [member.proposals(state, step, log_probs) for member, state in self._progressing(states)]
        return arrays_of(log_probs).concat(every, 2)

    def progress(self, states: States, parents: Array, tokens: Array) -> Array:
        """See `Constraint.progress`: the sum over all constraints."""
        return sum(member.progress(state, parents, tokens) for member, state in self._progressing(states))

    def demands(self, states: States) -> Array:
        """See `Constraint.demands`: whether any constraint demands something."""
        return reduce(or_, (member.demands(state) for member, state in self._progressing(states)))

    def missing(self, states: States) -> Array:
        """See `Constraint.missing`: the sum over all constraints."""
        return sum(member.missing(state) for member, state in self._progressing(states))

    def _progressing(self, states: States) -> list[tuple[Constraint, Any]]:
        return [(member, state) for member, state in zip(self.members, states, strict=True) if member.progresses]
