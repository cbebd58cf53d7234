"""Models of Firefox's form: what their files are called, and which languages these name.

model.enpt.intgemm.alphas.bin    vocab.enpt.spm, or srcvocab.enpt.spm and trgvocab.enpt.spm    config.….yml
metadata.json (Mozilla's), model_info.json (of translateLocally)    lex.50.50.enpt.s2t.bin, which is not read
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ModelError, shown
from ..storage.sealed_json import parse_json
from ..text.languages import NAMES, base
from .importer import SourceFiles

MODEL = re.compile(r"\.(?:intgemm|alphas)[\w.]*\.bin$")
VOCABULARIES = (r"srcvocab\..*\.?spm", r"trgvocab\..*\.?spm"), (r"vocab\.(?:.*\.)?spm",)
"""The names of two vocabularies, and of a joint one."""
SHORTLIST, DECODER = r"lex\..*\.bin", r"config\b.*\.yml"
PAIR = re.compile(r"(?:^|\.)([a-z]{4,6})(?=[.-]|$)")
"""Where two codes may be, one after the other."""
LENGTH, LENGTH_FACTOR = "max-length-factor", 2.5
"""Marian's option and its value if no file has it: how many times the tokens of a line an output has at most."""
DECODE = {"second_choice": 16, "batch_tokens": 1024}
"""Keys of [decode]: these models do not translate single words and headings well; and they are as fast in small
batches, which take less memory."""
KEYS = (("sourceLanguage", "targetLanguage"), ("srcTags", "trgTag"), ("src", "trg"))
"""Keys of metadata.json and model_info.json that name the languages."""
BY_NAME = {name: code for code, name in NAMES.items()}


def models(files: SourceFiles) -> list[str]:
    """Return the names of the models."""
    return [name for name in files.names if MODEL.search(name)]


def recognizes(files: SourceFiles, model: str) -> bool:
    """Return whether the files are such a model: students of larger ones, whose first head was trained to align."""
    return bool(MODEL.search(model) and vocabularies(files))


def one_like(files: SourceFiles, form: str) -> str:
    """Return the name of the only file whose name has a form; "" if there are none or several."""
    found = [name for name in files.names if re.fullmatch(form, name)]
    return found[0] if len(found) == 1 else ""


def vocabularies(files: SourceFiles) -> list[str]:
    """Return the names of the vocabularies of source and target, or of the one of both; [] without them."""
    found = ([one_like(files, form) for form in forms] for forms in VOCABULARIES)
    return next((names for names in found if all(names)), [])


def limit(decoder: Mapping[str, Any]) -> dict[str, float]:
    """Return the keys of [decode] for the longest output. Marian counts the end symbols of both sides.

    Raises ModelError for a factor that is not a number.
    """
    try:
        factor = float(decoder.get(LENGTH, LENGTH_FACTOR))
        return {"max_len_ratio": factor, "max_extra": max(1, math.ceil(factor))}
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"the model has {LENGTH} = {shown(decoder[LENGTH])}: expected a number.") from None


def remarks(files: SourceFiles) -> list[str]:
    """Return what to say of files that are not read."""
    found = [name for name in files.names if re.fullmatch(SHORTLIST, name)]
    return [f"{name} is not used: nmt looks at all tokens of the vocabulary, not at a shortlist" for name in found[:1]]


def languages_of(files: SourceFiles, model: str) -> tuple[str, str]:
    """Return the codes that metadata.json, model_info.json or the names of files and folder say; "" where none does.

    Raises ModelError for a damaged file.
    """
    for name in ("metadata.json", "model_info.json"):
        if content := files.text(name):
            values = parse_json(content.encode(), Path(name), ModelError, "Take the original file, or leave it out.")
            for keys in KEYS:
                codes = [_code(values.get(key)) for key in keys]
                if all(codes):
                    return codes[0], codes[1]
    names = [model, *vocabularies(files), files.path.absolute().name]
    return next((codes for codes in map(_concatenated, names) if codes[0]), ("", ""))


def _code(value: object) -> str:
    """Return the code of a language that is named by it, by its English name, or by the only key of an object."""
    if isinstance(value, dict):
        value = next(iter(value)) if len(value) == 1 else ""
    text = value if isinstance(value, str) else ""
    return BY_NAME.get(text, text if re.fullmatch(r"[a-z]{2,3}(?:[-_]\w+)?", text) else "")


def _concatenated(name: str) -> tuple[str, str]:
    """Return the two codes of a part of a name such as "enpt", if there is one way to divide it; else "" and ""."""
    pairs = [(pair[:at], pair[at:]) for pair in PAIR.findall(name) for at in (2, 3)]
    found = [pair for pair in pairs if all(base(code) in NAMES for code in pair)]
    return found[0] if len(found) == 1 else ("", "")
