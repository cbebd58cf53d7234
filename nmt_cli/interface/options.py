"""The options of a translation as keywords, with the same names as in `nmt translate`: search, sampling, constraints.

TranslateKeywords, recipe ──▶ choose ──▶ TranslationOptions: checked, and made once
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ..errors import UsageError, check_choice
from ..options import MOST_BEAM, Option, declared, flag
from ..recipe import DecodeOptions, DecodeSection
from ..registry import SEARCHES, UTILITIES, load
from .loading import changed, decode_changes

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..translation.confidence import Calibration
    from ..translation.options import TranslationOptions


FORMAT = "Output format"
"""A heading in --help."""
NBEST = Option(
    "Print the N best of each line, or N samples: INDEX ||| TRANSLATION ||| SCORE.", "N", FORMAT, 1, MOST_BEAM
)
NUMBERS = {"nbest": NBEST} | {name: one for name, one in declared(DecodeOptions).items() if one.least is not None}
"""The numbers among the options of a translation that are not keys of a recipe, with their bounds."""


class ParseKeywords(TypedDict, total=False):
    """The keywords of `parse`."""

    beam: int | None
    batch_tokens: int | None
    overrides: Sequence[str]


class TranslateKeywords(DecodeOptions, total=False):
    """The keywords of one call. For an option that is None or not given, the recipe's value is used."""

    nbest: Annotated[int, NBEST]
    scores: bool
    """False: nobody reads scores and log-probabilities. A beam of 1 is then faster, and they may be 0."""
    alignment: bool
    confidence: bool
    calibration: Path | Calibration | None
    terms: bool
    """Whether lines may have terms. For a list of lines, this is detected."""
    banned_words: Sequence[str] | None
    outputs: Sequence[str] | None
    overrides: Sequence[str]
    """Changes of [decode], as decode.KEY=VALUE."""


SAMPLED = ("top_k", "top_p", "min_p", "temperature", "seed")
"""Options of random samples."""
CANDIDATES = ("sample", "beam")


def choose(options: Mapping[str, Any], recipe: Recipe, safe_length: int = 0, longest: int = 0) -> TranslationOptions:
    """Return the options that `TranslateKeywords` ask for; `recipe` and the length limits are the model's.

    Raises UsageError for an unknown option, and for options that exclude each other or are out of range.
    """
    names = list(TranslateKeywords.__annotations__)
    for name in options:
        check_choice("option", name, names)
    given = {name: value for name, value in options.items() if value is not None}
    keys = {name: given[name] for name in DecodeSection.model_fields if name in given and name != "search"}
    changes, nbest = decode_changes(given.get("overrides", ()), keys), int(_number("nbest", given.get("nbest", 1)))
    sample, search = bool(given.get("sample")), given.get("search")
    if sample and search not in (None, "sample"):
        raise UsageError(f"--sample and --search {search} were both given: --sample is --search sample.")
    if search is not None:
        check_choice("--search", search, SEARCHES)
    chosen = "sample" if sample else search or _chosen(changes, "search")
    name = chosen or recipe.decode.search
    sampling = {key: given[key] for key in SAMPLED if key in given}
    mbr = {key.removeprefix("mbr_"): value for key, value in given.items() if key.startswith("mbr_")}
    _check_search(name, sampling, mbr, given)
    _check_names(mbr)
    sampling = {key: _number(key, value) for key, value in sampling.items()}
    if name in ("sample", "mbr") and _chosen(changes, "beam"):
        instead = "--nbest N for N samples" if name == "sample" else "--mbr-samples N for N hypotheses"
        raise UsageError(
            f"--beam (decode.beam) was given with --{'sample' if name == 'sample' else 'search mbr'}, which keeps no "
            f"beam: give {instead} per line."
        )
    if given.get("terms") and name in ("sample", "mbr") and mbr.get("candidates") != "beam":
        raise UsageError(
            f"terms and {'--sample' if sample else f'--search {name}'} were both given: random samples cannot be made "
            "to contain words. Leave one of them out."
        )
    if chosen:
        changes.append(f"decode.search={chosen}")
    if name == "sample":
        changes.append(f"decode.beam={nbest}")
    elif name == "mbr" and (chosen or "samples" in mbr):
        hypotheses = _number("mbr_samples", mbr.get("samples", 100))
        if nbest > hypotheses:
            raise UsageError(
                f"--nbest {nbest} exceeds the {hypotheses} hypotheses of a line: give --mbr-samples {nbest} or more."
            )
        changes.append(f"decode.beam={hypotheses}")
    if recipe.data.terminals:
        changes.append("decode.placeholders=false")  # the words of a sentence are the leaves of its tree
    recipe = changed(recipe, changes)
    if nbest > recipe.decode.beam:
        raise UsageError(f"--nbest {nbest} exceeds the beam of {recipe.decode.beam}: give --beam {nbest} or more.")
    confidence, calibration = bool(given.get("confidence")), given.get("calibration")
    if calibration is not None and not confidence:
        raise UsageError("--calibration needs --confidence, which it changes.")
    if confidence and calibration is None:
        from ..translation.confidence import DEFAULT as calibration
    from ..search.search import MbrOptions, SamplingOptions
    from ..translation.options import TranslationOptions

    defaults = getattr(load(SEARCHES, name, "search"), "SAMPLING", SamplingOptions()) if sampling else None
    return TranslationOptions(
        decode=recipe.decode,
        nbest=nbest,
        sampling=replace(defaults, **sampling) if defaults else None,
        mbr=MbrOptions(**{key: value for key, value in mbr.items() if key != "samples"}),
        constraints={
            **recipe.constraint_values,
            **{key: given[key] for key in ("terms", "banned_words", "outputs") if given.get(key) not in (None, False)},
        },
        scores=bool(given.get("scores", True)),
        align=bool(given.get("alignment")),
        calibration=calibration,
        target_language=recipe.data.target_language,
        longest=longest,
        safe_length=safe_length,
    )


def _check_search(name: str, sampling: dict[str, Any], mbr: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise UsageError for an option, among all `given` ones, that the search `name` does not have."""
    if sampling and name not in ("sample", "mbr"):
        raise UsageError(f"{_options(sampling)}: only with --sample or --search mbr.")
    if mbr and name != "mbr":
        raise UsageError(f"{_options(f'mbr_{key}' for key in mbr)}: only with --search mbr.")
    if sampling and mbr.get("candidates") == "beam":
        raise UsageError(
            f"{_options(sampling)}: only with --mbr-candidates sample; --mbr-candidates beam samples nothing."
        )
    diverse = [key for key in given if key.startswith("divers")]
    if diverse and name != "diverse":
        raise UsageError(f"{_options(diverse)}: only with --search diverse.")


def _chosen(changes: Sequence[str], key: str) -> str | None:
    """Return the value of decode.KEY in the changes, without quotes; None if it is not changed."""
    values = [
        value for name, _, value in (change.partition("=") for change in changes) if name.strip() == f"decode.{key}"
    ]
    return values[-1].strip().strip("\"'") if values else None


def _options(names: Any) -> str:
    return ", ".join(map(flag, names))


def _number(name: str, value: object) -> float:
    """Return the value of the option `name`. Raises UsageError if it is out of its bounds."""
    return NUMBERS[name].check(flag(name), value)


def _check_names(mbr: dict[str, Any]) -> None:
    """Raise UsageError for a utility or a source of hypotheses that does not exist."""
    for key, names in (("utility", list(UTILITIES)), ("candidates", list(CANDIDATES))):
        check_choice(f"--mbr-{key}", mbr.get(key, names[0]), names)
