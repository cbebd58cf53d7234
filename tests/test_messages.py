"""The form of every message that a named error can have: it names what it is about, is a sentence, and speaks of the user's
things and not of ours.

The messages are read from the source, with {} for what is put in. What a message means is tested where it is raised.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from nmt_cli import errors

PACKAGE = Path(errors.__file__).parent
NAMED = {name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, errors.NmtError)}
ENDS = re.compile(r"([.?)]|\{\}|: [a-z]+ -.*)$", re.DOTALL)
"""A sentence, what was put in, or a command."""
ABOUT = re.compile(
    r"\{\}|--[a-z]|\b[A-Z]{2,}\b|\b[a-z]+[._][a-z]+\b|standard (in|out)put|^(the|a|an|no|there|nothing|interrupted)\b"
)
"""A value, an option, an argument, a file, a key, or a thing after an article."""
OURS = re.compile(r"nmt_cli[/.]|\b(NoneType|dict|tuple|Exception|traceback|TODO)\b|!$")
"""What no user can look up: places and types of the program."""


def template(node: ast.expr) -> str:
    """The text of an expression, with {} for what is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return "{}"


def messages() -> Iterator[tuple[str, str]]:
    """Yield the place and the template of each message."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMED and node.args:
                text = template(node.args[-1])
                if text != "{}":
                    yield f"{file.relative_to(PACKAGE)}:{node.lineno}", text


def test_every_message_has_the_form() -> None:
    found = list(messages())
    assert len(found) > 300
    assert [one for one in found if not ENDS.search(one[1])] == [], "they end with a full stop, or with a command"
    assert [one for one in found if not ABOUT.search(one[1])] == [], "they name a value, an option or a file"
    assert [one for one in found if OURS.search(one[1])] == [], "they speak of what a user knows"
    assert [one for one in found if len(one[1]) > 600] == [], "they are short"
