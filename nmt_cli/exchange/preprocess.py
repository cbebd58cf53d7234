r"""OPUS-MT's preprocess.sh: the steps that change a text before SentencePiece. Nothing is run.

    script ──▶ `steps_in`: programs with arguments ──▶ `replacements_in` ──▶ what a tokenizer's `Extension` replaces
    Extension ──▶ `preprocess_script`

Of the shell's language it knows quotes, escapes, pipes, comments and the ends of commands. `CONTROL` and `SILENT` do
not change a text. Every other program is a step: one that nmt does not know is refused by name, or left out if the user
says so.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ..data.sentencepiece_model import LONGEST_REPLACEMENT, Extension
from ..errors import ModelError, shown

LARGEST_SCRIPT = 1 << 15
"""Bytes of the largest preprocess.sh: real ones have 3,000. Each of its rules is tried on each line."""
TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r]|\\\r?\n)+)|(?P<comment>\#[^\n]*)|(?P<end>\|\||&&?|;;?|[()]|\n)|(?P<pipe>\|)
    |(?P<single>'[^']*')|(?P<double>"(?:[^"\\]|\\.)*")|(?P<run>`[^`]*`|\$\([^()]*\))|(?P<escaped>\\.)
    |(?P<plain>\d?[<>]+&?\d*|[^\s'"\\`|;&()<>#$]+|\$)|(?P<open>.)""",
    re.VERBOSE | re.DOTALL,
)
CONTROL = {"if", "elif", "then", "else", "fi", "{", "}", "!"}
SILENT = {"[", "[[", "test", "echo", "exit", "export", "set", "shift"}
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
SED_RULE = re.compile(r"s/([^].*[^$\\/\n])( \*)?/((?:\\[^\w\n]|[^&/\\\n])*)/g")
MOSES = {
    **dict.fromkeys("“”《》」「１", '"'),
    **dict(zip("０２３４５６７８９", "023456789", strict=True)),
    **dict(zip("，、∶：？）！（；～’━〈〉【】％", ",,::?)!(;~'-<>[]%", strict=True)),
    "…": "...",
    "。 ": ". ",
    "． ": ". ",
}
"""The rules of Moses' replace-unicode-punctuation.perl. The digit 1 is an oversight; models were trained with it."""
PROGRAMS = {
    "replace-unicode-punctuation.perl": "punctuation",
    "remove-non-printing-char.perl": "controls",
    "spm_encode": "",
    "${SPMENCODE}": "",
    "$SPMENCODE": "",
}
"""Programs that are known whatever their arguments are, and what they do."""
CODE = {
    r"s/(?!\n)\p{C}/ /g": "controls",
    r"s/\p{C}/ /g": "controls",
    r"s/[\x{2060}\x{200B}\x{feff}]//g": "",
    "s/  */ /g;s/^ *//g;s/ *$//g": "",
    "s/^/>>$2<< /": "",
}
"""What sed and perl are told, without a last semicolon, and what it does. SentencePiece removes spaces, and the
translator adds tags."""


class ScriptWord(NamedTuple):
    """A word of a command, without its quotes."""

    text: str
    expands: bool
    """Whether the shell would replace a part of it."""


Step = list[ScriptWord]


class Rule(NamedTuple):
    """A replacement by sed."""

    old: str
    spaces: bool
    """Whether all spaces after it are replaced too."""
    new: str


def steps_in(script: str, skipped: Collection[str] = ()) -> tuple[list[Step], list[str]]:
    """Return the programs of a preprocess.sh through which the text goes, and the names of those that are left out,
    because they are in `skipped`.

    Raises ModelError for a quote that is not closed, and for a step that is run under a condition.
    """
    steps, left_out, depth = [], set[str](), 0
    for step in _commands(script):
        depth += (step[0].text == "if") - (step[0].text == "fi")
        while step and step[0].text in CONTROL:
            del step[0]
        if not step or step[0].text in SILENT or all(ASSIGNMENT.fullmatch(word.text) for word in step):
            continue
        if program(step) in skipped:
            left_out.add(program(step))
            continue
        if depth:
            raise ModelError(f"preprocess.sh runs {shown(program(step))} under a condition, which nmt does not know.")
        steps.append(step)
    return steps, sorted(left_out)


def program(step: Step) -> str:
    """Return the name of a step's program, without its folder. A perl that runs a file has the name of the file."""
    named = step[1] if step[0].text == "perl" and len(step) > 1 and step[1].text.endswith(".perl") else step[0]
    return named.text.rpartition("/")[2]


def _commands(script: str) -> Iterator[Step]:
    """Yield the commands of a script. Raises ModelError."""
    step, text, expands, piped, at = Step(), None, False, False, 0
    while at < len(script):
        found = TOKEN.match(script, at)
        assert found is not None
        assert found.lastgroup is not None
        kind, token = found.lastgroup, found[0]
        if kind == "comment" and text is not None:  # within a word, as in $#
            kind, token = "plain", "#"
        at += len(token)
        if kind == "open":
            raise ModelError(f"preprocess.sh has a quote that is not closed: {shown(script[at - 1 : at + 60])}.")
        if part := _part(kind, token):
            text, expands = (text or "") + part.text, expands or part.expands
            continue
        if text is not None:
            step.append(ScriptWord(text, expands))
            text, expands = None, False
        if kind in ("end", "pipe") and step and not (token == "\n" and piped):
            yield step
            step = Step()
        piped = kind == "pipe" or (piped and (kind in ("space", "comment") or token == "\n"))
    if text is not None:
        step.append(ScriptWord(text, expands))
    if step:
        yield step


def _part(kind: str, token: str) -> ScriptWord | None:
    """Return what a token adds to a word; None: it ends the word."""
    if kind == "single":
        return ScriptWord(token[1:-1], False)
    if kind == "double":
        inner = token[1:-1]
        return ScriptWord(re.sub(r'\\([$`"\\])', r"\1", inner), bool(re.search(r"(?<!\\)[$`]", inner)))
    if kind == "escaped":
        return ScriptWord(token[1], False)
    return ScriptWord(token, "$" in token or kind == "run") if kind in ("plain", "run") else None


def rules_of(step: Step) -> list[Rule] | None:
    """Return the replacements of a sed, in their order; None if the step is another one, or does more."""
    if step[0].text != "sed" or len(step) < 2:
        return None
    arguments = step[1:] if len(step) > 2 else [ScriptWord("-e", False), step[1]]
    rules = []
    for option, code in zip(arguments[::2], arguments[1::2], strict=False):
        found = None if code.expands or option.text != "-e" else SED_RULE.fullmatch(code.text)
        if not found:
            return None
        rules.append(Rule(found[1], bool(found[2]), re.sub(r"\\(.)", r"\1", found[3])))
    return rules if len(arguments) == 2 * len(rules) else None


def effect_of(step: Step) -> str | None:
    """Return what a step that is no replacement does: "punctuation", "controls" or "" for nothing; None: unknown."""
    if program(step) in PROGRAMS:
        return PROGRAMS[program(step)]
    options = [word.text for word in step[1:-1]]
    if step[0].text == "perl" and options[-1:] == ["-pe"] and all(one.startswith("-C") for one in options[:-1]):
        return CODE.get(step[-1].text.strip().removesuffix(";"))
    return CODE.get(step[-1].text) if step[0].text == "sed" and options in ([], ["-e"]) else None


def replacements_in(steps: Sequence[Step]) -> tuple[dict[str, str], bool]:
    """Return what steps replace before SentencePiece, and whether control characters become spaces.

    Raises ModelError for a step that is not known, and for one that replaces what an earlier one makes.
    """
    replaced: dict[str, str] = {}
    made, first, controls = set[str](), set[str](), False
    for step in steps:
        if any(word.text.endswith("apply_bpe.py") for word in step):
            raise ModelError(
                "preprocess.sh uses BPE codes of subword-nmt, which nmt does not have: take a model with SentencePiece."
            )
        rules, effect = rules_of(step), effect_of(step)
        if effect is None and rules is None:
            raise ModelError(
                f"preprocess.sh has a step that nmt does not know: {shown(shlex.join(word.text for word in step))}. "
                f"The model was trained on text after it. --skip-step {shlex.quote(program(step))} leaves it out: "
                "then translations are worse where it matters."
            )
        if effect == "punctuation":
            rules = [Rule(old[0], len(old) > 1, new) for old, new in MOSES.items()]
        for old, spaces, new in rules or ():
            if len(new) > LONGEST_REPLACEMENT:
                raise ModelError(
                    f"preprocess.sh replaces {shown(old)} by {len(new):,} characters, expected at most "
                    f"{LONGEST_REPLACEMENT}."
                )
            if old in made:
                raise ModelError(f"preprocess.sh replaces {shown(old)}, which an earlier step of it makes.")
            if old not in first:
                replaced[old + " " * spaces] = new
                first.add(old)
                made.update(new)
        controls = controls or effect == "controls"
    return replaced, controls


def preprocess_script(extension: Extension) -> str:
    """Return a preprocess.sh with these replacements, each word of it quoted.

    Raises ModelError if sed cannot make them one after another, or for more than LARGEST_SCRIPT bytes.
    """
    rules = [
        f"s/{old[0]}{' *' * (len(old) > 1)}/" + re.sub(r"([&/\\])", r"\\\1", new) + "/g"
        for old, new in extension.replacements.items()
    ]
    steps = ["sed " + " ".join(f"-e {shlex.quote(rule)}" for rule in rules)] if rules else []
    steps += [r"perl -C -pe 's/(?!\n)\p{C}/ /g;'"] if extension.controls else []
    script = "#!/bin/bash\n" + " | ".join([*steps, "sed 's/  */ /g;s/^ *//g;s/ *$//g'"]) + "\n"
    try:
        fits = len(script.encode()) <= LARGEST_SCRIPT
        if fits and replacements_in(steps_in(script)[0]) == (extension.replacements, extension.controls):
            return script
    except ModelError:
        pass
    raise ModelError("sed cannot make the replacements of this model, which Marian's preprocess.sh would need.")
