"""The options of a translation, with the same names as in `nmt translate`: search, sampling, constraints.

TranslateOptions ──▶ choose ──▶ SearchChoice: changes of the recipe's [decode], and further parameters of a Translator
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from ..bounds import NUMBERS
from ..errors import UsageError, did_you_mean
from ..registry import SEARCHES, UTILITIES, load
from .loading import decode_changes

if TYPE_CHECKING:
    from pathlib import Path

    from ..search.search import MbrOptions, SamplingOptions
    from ..translation.confidence import Calibration


class TranslateOptions(TypedDict, total=False):
    """Options of one call. For an option that is None or not given, the recipe's value is used. `nmt translate --help` describes each option."""

    nbest: int
    alignment: bool
    confidence: bool
    calibration: Path | Calibration | None
    search: str | None
    beam: int | None
    length_penalty: str | None
    alpha: float | None
    coverage_penalty: float | None
    max_extra: int | None
    max_len_ratio: float | None
    min_length: int | None
    diverse_groups: int | None
    diversity_penalty: float | None
    sample: bool
    top_k: int | None
    top_p: float | None
    min_p: float | None
    temperature: float | None
    seed: int | None
    mbr_samples: int | None
    mbr_utility: str | None
    mbr_candidates: str | None
    terms: bool
    """Whether lines may have terms. For a list of lines, this is detected."""
    banned_words: Sequence[str] | None
    outputs: Sequence[str] | None
    no_repeat_ngram: int | None
    repetition_penalty: float | None
    overrides: Sequence[str]
    """Changes of [decode], as decode.KEY=VALUE."""
    batch_tokens: int | None


DECODE = (
    "beam",
    "alpha",
    "max_extra",
    "min_length",
    "batch_tokens",
    "length_penalty",
    "max_len_ratio",
    "coverage_penalty",
    "diverse_groups",
    "diversity_penalty",
    "no_repeat_ngram",
    "repetition_penalty",
)
"""Options that are keys of [decode]."""
SAMPLING = ("top_k", "top_p", "min_p", "temperature", "seed")
BEAM_ONLY = ("diverse_groups", "diversity_penalty", "coverage_penalty")


def choose(options: Mapping[str, Any], recipe_search: str) -> SearchChoice:
    """Return the search choice for these `TranslateOptions`. Raises UsageError for an unknown option, or for options that exclude each other.

    `recipe_search`: the search of the model's recipe.
    """
    names = list(TranslateOptions.__annotations__)
    if unknown := [name for name in options if name not in names]:
        raise UsageError(f"option {unknown[0]!r}: expected {', '.join(names)}.{did_you_mean(unknown[0], names)}")

    def values_of(keys: Sequence[str], prefix: str = "") -> dict[str, Any]:
        return {key: options.get(prefix + key) for key in keys}

    constraints = {"terms": options.get("terms") or None, **values_of(("banned_words", "outputs"))}
    return search_choice(
        options.get("search"),
        bool(options.get("sample")),
        values_of(SAMPLING),
        values_of(("samples", "utility", "candidates"), "mbr_"),
        values_of(BEAM_ONLY),
        constraints,
        decode_changes(options.get("overrides") or [], values_of(DECODE)),
        options.get("nbest", 1),
        recipe_search,
    )


CANDIDATES = ("sample", "beam")


@dataclass(frozen=True)
class SearchChoice:
    """Changes of the recipe's [decode], and parameters of a Translator that are not in [decode]."""

    changes: list[str]
    """Changes of [decode], in the form of --set."""
    sampling: SamplingOptions | None
    mbr: MbrOptions
    constraints: dict[str, Any]
    """Constraints (names in the registry's CONSTRAINTS) → their values."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the changes of [decode] is needed."""
        return self.sampling is None and not self.constraints


def search_choice(
    search: str | None,
    sample: bool,
    sampling: dict[str, Any],
    mbr: dict[str, Any],
    beam: dict[str, Any],
    constraints: dict[str, Any],
    changes: Sequence[str],
    nbest: int,
    recipe_search: str,
) -> SearchChoice:
    """Return the search choice for these options; None means not given. Raises UsageError for options that exclude each other or are out of range.

    `beam`: options of beam search. `changes`: changes of [decode] so far, including those of `beam`. `recipe_search`: the search of
    the model's recipe.
    """
    nbest = int(_number("nbest", nbest))
    if sample and search not in (None, "sample"):
        raise UsageError(f"--sample and --search {search} were both given: --sample is --search sample.")
    if search is not None and search not in SEARCHES:
        raise UsageError(f"--search {search!r}: expected {', '.join(SEARCHES)}.{did_you_mean(search, list(SEARCHES))}")
    chosen = "sample" if sample else search or _chosen(changes, "search")
    name = chosen or recipe_search
    sampling, mbr, beam = (
        {key: value for key, value in values.items() if value is not None} for values in (sampling, mbr, beam)
    )
    _check_search(name, sampling, mbr, beam)
    _check_names(mbr)
    sampling = {key: _number(key, value) for key, value in sampling.items()}
    random = name in ("sample", "mbr") and mbr.get("candidates") != "beam"
    if name in ("sample", "mbr") and _chosen(changes, "beam"):
        instead = "--nbest N for N samples" if name == "sample" else "--mbr-samples N for N hypotheses"
        raise UsageError(
            f"--beam (decode.beam) was given with --{'sample' if name == 'sample' else 'search mbr'}, which keeps no beam: give {instead} per line."
        )
    if constraints.get("terms") is not None and random:
        raise UsageError(
            f"terms and {'--sample' if sample else f'--search {name}'} were both given: random samples cannot be made to contain words. Leave one of them out."
        )
    more = [f"decode.search={chosen}"] if chosen else []
    if name == "sample":
        more.append(f"decode.beam={nbest}")
    elif name == "mbr" and (chosen or "samples" in mbr):
        hypotheses = _number("mbr_samples", mbr.get("samples", 100))
        if nbest > hypotheses:
            raise UsageError(
                f"--nbest {nbest} exceeds the {hypotheses} hypotheses of a line: give --mbr-samples {nbest} or more."
            )
        more.append(f"decode.beam={hypotheses}")
    if random:
        more.append(
            "decode.coverage_penalty=0"
        )  # samples have no coverage penalty; with a penalty, the compiled decoder could not be used
    return SearchChoice(
        [*changes, *more],
        *_more_options(name, sampling, mbr),
        {key: value for key, value in constraints.items() if value is not None},
    )


def _more_options(
    name: str, sampling: dict[str, Any], mbr: dict[str, Any]
) -> tuple[SamplingOptions | None, MbrOptions]:
    """Return the options of sampling (None: the defaults of the search) and those of minimum Bayes risk."""
    from ..search.search import MbrOptions, SamplingOptions

    defaults = getattr(load(SEARCHES, name, "search"), "SAMPLING", SamplingOptions()) if sampling else None
    return replace(defaults, **sampling) if defaults else None, MbrOptions(
        **{key: value for key, value in mbr.items() if key != "samples"}
    )


def _check_search(name: str, sampling: dict[str, Any], mbr: dict[str, Any], beam: dict[str, Any]) -> None:
    """Raise UsageError for an option that the search `name` does not have."""
    if sampling and name not in ("sample", "mbr"):
        raise UsageError(f"{_options(sampling)}: only with --sample or --search mbr.")
    if mbr and name != "mbr":
        raise UsageError(f"{_options(f'mbr_{key}' for key in mbr)}: only with --search mbr.")
    if sampling and mbr.get("candidates") == "beam":
        raise UsageError(
            f"{_options(sampling)}: only with --mbr-candidates sample; --mbr-candidates beam samples nothing."
        )
    diverse = [key for key in beam if key.startswith("divers")]
    if diverse and name != "diverse":
        raise UsageError(f"{_options(diverse)}: only with --search diverse.")
    if "coverage_penalty" in beam and name in ("sample", "mbr") and mbr.get("candidates") != "beam":
        raise UsageError(
            f"--coverage-penalty: random samples have none. Leave it out, or give --search beam{' or --mbr-candidates beam' * (name == 'mbr')}."
        )


def _chosen(changes: Sequence[str], key: str) -> str | None:
    """Return the value of decode.KEY in the changes, without quotes; None if it is not changed."""
    values = [
        value for name, _, value in (change.partition("=") for change in changes) if name.strip() == f"decode.{key}"
    ]
    return values[-1].strip().strip("\"'") if values else None


def _options(names: Any) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _number(name: str, value: object) -> float:
    """Return the value of the option `name`. Raises UsageError if it is out of its bounds."""
    return NUMBERS[name].check(_options([name]), value)


def _check_names(mbr: dict[str, Any]) -> None:
    """Raise UsageError for a utility or a source of hypotheses that does not exist."""
    for key, names in (("utility", list(UTILITIES)), ("candidates", list(CANDIDATES))):
        if mbr.get(key, names[0]) not in names:
            raise UsageError(f"--mbr-{key} {mbr[key]!r}: expected {', '.join(names)}.{did_you_mean(mbr[key], names)}")
