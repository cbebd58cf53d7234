"""Constraints: rules about the outputs that a search may build, for every search and any number of rules at once.

    B sentences   W hypotheses per sentence   N open hypotheses   V vocabulary   C candidates   E proposals

    Search.add  ──▶ Constraint.start: the state of new sentences, tensors (B, …) and (B, W, …)
    each step   ──▶ required: the one token that may follow       edit: log-probabilities (N, V), -inf forbids a token
                ──▶ (beam search) proposals, progress, missing: which candidates come nearer to the demands of the rule
                ──▶ the state follows the hypotheses that were chosen, then `advance` by their new tokens

A constraint overrides the methods that it needs; `nmt_cli.registry.CONSTRAINTS` lists the constraints by name. A search without
constraints does none of this. The effect of a rule on a sentence does not depend on the other sentences.

A constraint never makes a sentence fail: where it leaves no token at all, the end symbol may follow, with a very low
log-probability. A required token may follow even if another rule forbids it. Outputs that do not meet all
demands of the rules rank behind outputs that do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from ..data.tokenizer import Tokenizer
from .search_state import FREE, Rows
from .sentence import Sentence

LAST_RESORT = -1e4
"""Added to the log-probability of an end symbol that breaks a rule, so that outputs that obey the rules rank before such an output."""


@dataclass(frozen=True)
class Step:
    """The open hypotheses that a step of the search extends."""

    rows: Tensor
    """(N,) the numbers b * W + w of the open hypotheses, ascending."""
    tokens: Tensor
    """(B, W, L) the outputs; only the first `lengths` tokens mean anything."""
    lengths: Tensor
    """(B,) number of tokens of an open output; any number for a sentence without open hypotheses."""
    remaining: Tensor
    """(B,) number of tokens that an output may still get, end symbol not counted."""

    @property
    def width(self) -> int:
        """W, the hypotheses per sentence."""
        return self.tokens.size(1)

    @property
    def sentences(self) -> Tensor:
        """(N,) the sentence of each open hypothesis."""
        return self.rows // self.width

    def of_rows(self, values: Tensor) -> Tensor:
        """Return the values of the open hypotheses: (B, W, …) -> (N, …)."""
        return values.flatten(0, 1).index_select(0, self.rows)


class Movable(Protocol):
    """An object with tensors."""

    def to(self, device: torch.device) -> Self:
        """Return a copy of the object on a device."""
        ...


Tables = TypeVar("Tables", bound=Movable)


class OnDevices(Generic[Tables]):
    """Tables of a constraint, copied to each device once."""

    def __init__(self, tables: Tables) -> None:
        self.tables, self.copies = tables, dict[torch.device, Tables]()

    def on(self, device: torch.device) -> Tables:
        """Return the tables on a device."""
        if device not in self.copies:
            self.copies[device] = self.tables.to(device)
        return self.copies[device]


@dataclass
class Stateless(Rows):
    """The state of a constraint that needs no state."""


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
    """Whether the input is the text of the line if users give no input. The line is then never split into parts. If the line
    is too long for the model, or `encode` returns nothing for it, it is not translated."""
    allows: tuple[int, ...] = ()
    """Tokens that no output has without this constraint, such as UNK. `edit` forbids them where they may not follow."""

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer, longest: int) -> list[Any]:
        """Return the `Sentence.inputs` of lines, given the users' inputs for these lines; an empty one: no constraint on this line.

        `tokenizer` is the target's; an output has at most `longest` tokens.
        """
        return list(values)

    def added_length(self, value: Any) -> int:
        """Return how many more tokens an output may have because of its input, which `encode` returned."""
        return 0

    def start(self, sentences: Sequence[Sentence], width: int, device: torch.device) -> Rows:
        """Return the state of new sentences, whose W = `width` hypotheses are empty."""
        return Stateless()

    def rests(self, state: Any) -> bool:
        """Return whether the constraint does nothing for the sentences of this state: they are then searched without it."""
        return False

    def required(self, state: Any, step: Step) -> Tensor | None:
        """Return the one token that may follow each open hypothesis, (N,), or FREE; None: any token may follow all of them."""
        return None

    def edit(self, state: Any, step: Step, log_probs: Tensor) -> None:
        """Change the log-probabilities (N, V) of the next token of each open hypothesis, in place; -inf forbids a token."""

    def advance(self, state: Any, tokens: Tensor) -> Any:
        """Return the state after the hypotheses got the tokens (B, W). Tokens of closed hypotheses mean nothing."""
        return state

    def proposals(self, state: Any, step: Step, log_probs: Tensor) -> Tensor:
        """Return tokens with which each hypothesis makes or keeps progress, (B, W, E), or FREE; log_probs (N, V)."""
        raise NotImplementedError

    def progress(self, state: Any, parents: Tensor, tokens: Tensor) -> Tensor:
        """Return how far the hypotheses `parents` (B, C) meet the rule's demands after `tokens` (B, C): int64, (B, C)."""
        raise NotImplementedError

    def demands(self, state: Any) -> Tensor:
        """Return whether the rule demands anything of a sentence's outputs: bool, (B,)."""
        raise NotImplementedError

    def missing(self, state: Any) -> Tensor:
        """Return how much a hypothesis lacks if it ends now: int64, (B, W); 0: it may end."""
        raise NotImplementedError


class States(Rows):
    """The states of several constraints."""

    def __init__(self, states: Sequence[Rows]) -> None:
        self.states = list(states)

    def select(self, rows: Tensor) -> Self:
        """See `Rows`."""
        return type(self)([state.select(rows) for state in self.states])

    def concat(self, other: Self) -> Self:
        """See `Rows`."""
        return type(self)([mine.concat(theirs) for mine, theirs in zip(self.states, other.states, strict=True)])

    def reorder(self, parents: Tensor) -> Self:
        """See `Rows`."""
        return type(self)([state.reorder(parents) for state in self.states])


class Constraints:
    """All constraints of a search as one."""

    def __init__(self, members: Sequence[Constraint]) -> None:
        self.members = members
        self.edits = any(member.edits for member in members)
        self.adjusts = any(member.adjusts for member in members)
        self.progresses = any(member.progresses for member in members)

    def start(self, sentences: Sequence[Sentence], width: int, device: torch.device) -> States:
        """See `Constraint.start`."""
        return States([member.start(sentences, width, device) for member in self.members])

    def rest(self, states: States) -> bool:
        """Return whether all constraints rest, see `Constraint.rests`."""
        return all(member.rests(state) for member, state in zip(self.members, states.states, strict=True))

    def required(self, states: States, step: Step) -> Tensor | None:
        """See `Constraint.required`. If several constraints require a token, the first constraint wins."""
        required: Tensor | None = None
        for member, state in zip(self.members, states.states, strict=True):
            own = member.required(state, step)
            required = (
                own if required is None else required if own is None else torch.where(required == FREE, own, required)
            )
        return required

    def edit(self, states: States, step: Step, log_probs: Tensor, required: Tensor | None, eos: int) -> None:
        """See `Constraint.edit`. The tokens `required` (N,), or FREE, may follow in any case.

        A hypothesis may end if no other token may follow it.
        """
        own = log_probs[:, eos].clone()
        wanted = None if required is None else required.clamp_min(0)[:, None]
        kept = None if wanted is None else log_probs.gather(1, wanted)
        for member, state in zip(self.members, states.states, strict=True):
            if member.edits:
                member.edit(state, step, log_probs)
        nothing, last_resort = log_probs.amax(1).isneginf(), LAST_RESORT if self.adjusts else 0.0
        log_probs[:, eos] = torch.where(nothing, own + last_resort, log_probs[:, eos])
        if required is not None and wanted is not None and kept is not None:
            edited = log_probs.gather(1, wanted)
            forbidden = edited.isneginf() & (required >= 0)[:, None]
            log_probs.scatter_(1, wanted, torch.where(forbidden, kept + last_resort * (wanted == eos), edited))
        log_probs[:, 0].masked_fill_(own.isnan(), float("nan"))  # a model whose output is not a number must be noticed

    def advance(self, states: States, tokens: Tensor) -> States:
        """See `Constraint.advance`."""
        return States(
            [member.advance(state, tokens) for member, state in zip(self.members, states.states, strict=True)]
        )

    def proposals(self, states: States, step: Step, log_probs: Tensor) -> Tensor:
        """See `Constraint.proposals`."""
        return torch.cat(
            [member.proposals(state, step, log_probs) for member, state in self._progressing(states)], dim=2
        )

    def progress(self, states: States, parents: Tensor, tokens: Tensor) -> Tensor:
        """See `Constraint.progress`: the sum over all constraints."""
        return sum(
            (member.progress(state, parents, tokens) for member, state in self._progressing(states)),
            torch.zeros_like(tokens),
        )

    def demands(self, states: States) -> Tensor:
        """See `Constraint.demands`: whether any constraint demands something."""
        first, *others = (member.demands(state) for member, state in self._progressing(states))
        return reduce(torch.logical_or, others, first)

    def missing(self, states: States) -> Tensor:
        """See `Constraint.missing`: the sum over all constraints."""
        first, *others = (member.missing(state) for member, state in self._progressing(states))
        return sum(others, first)

    def _progressing(self, states: States) -> list[tuple[Constraint, Rows]]:
        return [(member, state) for member, state in zip(self.members, states.states, strict=True) if member.progresses]
