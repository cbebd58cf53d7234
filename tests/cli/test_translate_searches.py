"""`nmt translate`: searches, length and repetition, and constraints: the effect of each option, and its wrong use."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sealed
import torch
import typer
from in_memory import line_translator
from typer.testing import CliRunner, Result
from untrained import sentence, write_untrained

from nmt_cli.cli.translate import translate
from nmt_cli.data.tokenizer import Tokenizer
from nmt_cli.errors import NmtError
from nmt_cli.model.folder import load_model
from nmt_cli.recipe import Recipe
from nmt_cli.registry import SEARCHES
from nmt_cli.search.mbr import MbrSearch
from nmt_cli.search.search import MbrOptions, SamplingOptions
from nmt_cli.translation.line import Line

app = typer.Typer()
app.command()(translate)
OUTPUTS = ["the red cat.", "a dog sees the house.", "the red"]
BANNED = ["the", "house sees"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained models with a common vocabulary."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("one", "two")):
        write_untrained(folder / name, seed, max_extra=4, beam=4)
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each test works: the models, 12 lines in `in`, the fifth of them blank, and files for options."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(name).symlink_to(trained / name)
    rng = random.Random(1)
    write("in", [sentence(rng, rng.randint(2, 9)) if number != 4 else "" for number in range(12)])
    write("outputs", ["", *OUTPUTS, " ", OUTPUTS[0]])
    write("banned", [*BANNED, ""])
    write("terms", TERMS)
    write("blank", ["", " "])
    write("short", ["cat"])
    Path("empty").touch()
    Path("latin1").write_bytes("cat\nHäuser\n".encode("latin-1"))
    return tmp_path


TERMS = ["red cat", "", "dog|cat\thouse", "ho*", "the", " \t|", "cat\tcat", "", "", "", "big|small|red", "under\tover"]
IN = ["--input", "in", "--device", "cpu", "--devices", "1", "--precision", "fp32"]
ONE = ["--model", "one", *IN]


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(line + "\n" for line in lines))


def given() -> list[str]:
    return Path("in").read_text().split("\n")[:-1]


def invoke(*arguments: object) -> Result:
    threads = torch.get_num_threads()
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    torch.set_num_threads(threads)
    return result


def run(*arguments: object) -> list[str]:
    """The lines on stdout."""
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout.split("\n")[:-1]


def objects(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json")]


def in_python(
    lines: list[Any], nbest: int = 1, decode: dict[str, Any] | None = None, **options: Any
) -> list[list[tuple[str, float]]]:
    """The translations and scores of a LineTranslator of `one`."""
    loaded = load_model(Path("one"))
    recipe, tokenizer = Recipe.from_dict(loaded.config.recipe, "one"), Tokenizer.load("one/tokenizer.model")
    section = recipe.decode.model_copy(update=decode or {})
    translator = line_translator(
        loaded.model, tokenizer, tokenizer, section, longest=recipe.data.max_length, nbest=nbest, **options
    )
    return [[(candidate.text, candidate.score) for candidate in result.nbest] for result in translator.translate(lines)]


def printed(*arguments: object) -> list[list[tuple[str, float]]]:
    return [[(entry["translation"], entry["score"]) for entry in line["nbest"]] for line in objects(*arguments)]


EFFECTS: dict[str, tuple[list[object], dict[str, Any]]] = {
    "sample": (["--search", "sample"], {"decode": {"beam": 2}, "search": "sample"}),
    "--sample": (
        ["--sample", "--seed", 7],
        {"decode": {"beam": 2}, "search": "sample", "sampling": SamplingOptions(seed=7)},
    ),
    "min-p": (
        ["--sample", "--min-p", 0.5],
        {"decode": {"beam": 2}, "search": "sample", "sampling": SamplingOptions(min_p=0.5)},
    ),
    "mbr": (["--search", "mbr"], {"decode": {"beam": 100}, "search": "mbr"}),
    "mbr-samples": (["--search", "mbr", "--mbr-samples", 6], {"decode": {"beam": 6}, "search": "mbr"}),
    "mbr by --set": (["--set", "decode.search=mbr", "--mbr-samples", 6], {"decode": {"beam": 6}, "search": "mbr"}),
    "mbr-utility": (
        ["--search", "mbr", "--mbr-samples", 6, "--mbr-utility", "bleu"],
        {"decode": {"beam": 6}, "search": "mbr", "mbr": MbrOptions(utility="bleu")},
    ),
    "mbr-candidates": (
        ["--search", "mbr", "--mbr-samples", 6, "--mbr-candidates", "beam"],
        {"decode": {"beam": 6}, "search": "mbr", "mbr": MbrOptions(candidates="beam")},
    ),
    "mbr with a seed": (
        ["--search", "mbr", "--mbr-samples", 6, "--seed", 3],
        {"decode": {"beam": 6}, "search": "mbr", "sampling": replace(MbrSearch.SAMPLING, seed=3)},
    ),
    "diverse": (["--search", "diverse"], {"search": "diverse"}),
    "diverse options": (
        ["--search", "diverse", "--beam", 6, "--diverse-groups", 3, "--diversity-penalty", 4],
        {"search": "diverse", "decode": {"beam": 6, "diverse_groups": 3, "diversity_penalty": 4.0}},
    ),
    "average": (["--length-penalty", "average"], {"decode": {"length_penalty": "average"}}),
    "none": (["--length-penalty", "none"], {"decode": {"length_penalty": "none"}}),
    "max-len-ratio": (["--max-len-ratio", 0.2, "--max-extra", 2], {"decode": {"max_len_ratio": 0.2, "max_extra": 2}}),
    "coverage-penalty": (["--coverage-penalty", 0.5], {"decode": {"coverage_penalty": 0.5}}),
    "no-repeat-ngram": (["--no-repeat-ngram", 1], {"decode": {"no_repeat_ngram": 1}}),
    "repetition-penalty": (["--repetition-penalty", 3], {"decode": {"repetition_penalty": 3.0}}),
    "banned-words": (["--banned-words", "banned"], {"constraints": {"banned_words": BANNED}}),
    "outputs": (["--outputs", "outputs"], {"constraints": {"outputs": OUTPUTS}}),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_each_option_does_what_it_does_in_python(name: str) -> None:
    arguments, options = EFFECTS[name]
    found = printed(*ONE, *arguments, "--nbest", 2)
    assert found == in_python(given(), nbest=2, **options)
    assert found[4] == [("", 0.0)]
    if name != "banned-words":  # an untrained model writes few words
        assert found != printed(*ONE, "--nbest", 2)


def test_options_without_effect_change_nothing() -> None:
    plain = printed(*ONE)
    assert (
        printed(
            *ONE,
            "--search",
            "beam",
            "--length-penalty",
            "gnmt",
            "--max-len-ratio",
            1,
            "--coverage-penalty",
            0,
            "--no-repeat-ngram",
            0,
            "--repetition-penalty",
            1,
        )
        == plain
    )
    assert printed(*ONE, "--set", "decode.search=mbr", "--search", "beam") == plain


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    "constraint",
    [[], ["--banned-words", "banned"], ["--outputs", "outputs"], ["--prefix-file", "prefixes"]],
    ids=lambda words: "".join(words[:1]),
)
def test_n_lines_in_n_lines_out(search: str, constraint: list[str]) -> None:
    write("prefixes", ["the red" if number % 2 else "" for number in range(12)])
    arguments = [*ONE, "--search", search, *(["--mbr-samples", 5] if search == "mbr" else []), *constraint]
    lines = run(*arguments)
    assert len(lines) == 12
    assert [number for number, line in enumerate(lines) if not line] == [4]
    assert run(*arguments, "--batch-tokens", 1) == lines
    if constraint[:1] == ["--outputs"]:
        assert {*lines} <= {"", *OUTPUTS}
    if constraint[:1] == ["--banned-words"]:
        assert not any(re.search(rf"\b{word}\b", line) for line in lines for word in BANNED)
    if constraint[:1] == ["--prefix-file"]:
        assert all(line.startswith("the red") for line in lines[1::2])


def test_a_closed_list_is_ranked() -> None:
    for number, entries in enumerate(printed(*ONE, "--outputs", "outputs", "--nbest", 4)):
        assert sorted(text for text, _ in entries) == ([""] if number == 4 else sorted(OUTPUTS))


def has_terms(text: str, line: str) -> bool:
    """Whether a translation has the terms of a line of a file."""

    def occurs(term: str, times: int) -> bool:
        found = [
            len(re.findall(rf"(?<!\w){re.escape(part.rstrip('*'))}" + (r"(?!\w)" * (not part.endswith("*"))), text))
            for part in term.split("|")
            if part.strip()
        ]
        return not found or sum(found) >= times

    terms = line.split("\t")
    return all(occurs(term, terms.count(term)) for term in terms)


@pytest.mark.parametrize(
    "search",
    [
        ["--beam", 8],
        ["--search", "diverse", "--beam", 8],
        ["--search", "mbr", "--mbr-candidates", "beam", "--mbr-samples", 8],
    ],
    ids=["beam", "diverse", "mbr"],
)
def test_terms_are_in_a_file_or_in_columns(search: list[object]) -> None:
    by_file = printed(*ONE, *search, "--terms", "terms")
    write("columns", [f"{line}\t{terms}" if terms else line for line, terms in zip(given(), TERMS, strict=True)])
    assert printed("--model", "one", "--input", "columns", *IN[2:], *search, "--terms-columns") == by_file
    free = printed(*ONE, *search)
    for number, ([(text, _)], terms) in enumerate(zip(by_file, TERMS, strict=True)):
        assert has_terms(text, terms) or number == 4, (text, terms)
        if not terms.strip(" \t|"):
            assert by_file[number] == free[number]
    assert by_file[4] == [("", 0.0)]
    assert not has_terms(free[0][0][0], TERMS[0])


def test_terms_are_those_of_requests_in_python() -> None:
    requests = [Line(line, terms=terms.split("\t")) for line, terms in zip(given(), TERMS, strict=True)]
    assert printed(*ONE, "--terms", "terms") == in_python(requests, constraints={"terms": None})


def test_terms_follow_a_prefix() -> None:
    write("columns", ["the cat.\ta dog\thouse|cat\tred", "the cat.\t\thouse", "the cat.\ta dog", "the cat."])
    first, second, third, fourth = run(
        "--model", "one", "--input", "columns", *IN[2:], "--prefix-column", "--terms-columns", "--beam", 8
    )
    assert first.startswith("a dog")
    assert has_terms(first, "house|cat\tred")
    assert has_terms(second, "house")
    assert third.startswith("a dog")
    assert fourth == run("--model", "one", "--input", "columns", *IN[2:], "--prefix-column", "--beam", 8)[3]


def test_banned_words_exclude_allowed_outputs() -> None:
    write("banned", ["cat"])
    lines = run(*ONE, "--banned-words", "banned", "--outputs", "outputs")
    assert {*lines} <= {"", *OUTPUTS[1:]}


@pytest.mark.parametrize(("option", "count"), [("--terms", 11), ("--terms", 13), ("--prefix-file", 11)])
def test_parallel_files_have_as_many_lines_as_the_input(option: str, count: int) -> None:
    write("parallel", ["the"] * count)
    result = invoke(*ONE, option, "parallel")
    assert isinstance(result.exception, NmtError)
    assert result.exception.exit_code == 1
    assert (
        f"'in' has 12 lines, 'parallel' has {count} lines: they are not line by line parallel. They part at line {min(count, 12) + 1}, where "
        in str(result.exception)
    )
    assert result.stdout.count("\n") == min(count, 12)  # the lines before are translated


def with_search(search: str) -> list[object]:
    """The options for a copy of `one` whose recipe has this search and a beam of 4."""
    Path("copy").mkdir()
    for file in Path("one").iterdir():
        (Path("copy") / file.name).write_bytes(file.read_bytes())
    recipe = json.loads(Path("one/config.json").read_text())["recipe"]
    recipe["decode"]["search"] = search
    sealed.change(Path("copy/config.json"), recipe=recipe)
    return ["--model", "copy", *IN]


def test_options_fit_the_search_of_the_recipe() -> None:
    copy = with_search("mbr")
    assert printed(*copy) == in_python(given(), decode={"beam": 4}, search="mbr")
    assert printed(*copy, "--mbr-samples", 6) == in_python(given(), decode={"beam": 6}, search="mbr")
    assert printed(*copy, "--search", "beam") == printed(*ONE)
    assert "only with --search diverse" in str(invoke(*copy, "--diverse-groups", 2).exception)
    assert str(invoke(*copy, "--terms", "terms").exception).startswith("terms and --search mbr were both given")


def test_samples_are_as_many_as_nbest_also_by_the_recipe() -> None:
    copy = with_search("sample")
    assert printed(*copy, "--nbest", 6) == printed(*ONE, "--sample", "--nbest", 6)
    assert run(*copy, "--top-k", 1) == run(*ONE, "--beam", 1)


def test_an_ensemble_has_every_search() -> None:
    for arguments in (
        ["--search", "mbr", "--mbr-samples", 5],
        ["--search", "diverse"],
        ["--coverage-penalty", 0.5],
        ["--terms", "terms"],
    ):
        both = run("--model", "one", "--model", "two", *IN, *arguments)
        assert len(both) == 12
        assert both != run(*ONE, *arguments)


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["--search", "bean"], 2, "--search 'bean': expected beam, sample, mbr or diverse. Did you mean 'beam'?"),
        (["--search", ""], 2, "--search '': expected beam, sample, mbr or diverse."),
        (
            ["--sample", "--search", "beam"],
            2,
            "--sample and --search beam were both given: --sample is --search sample.",
        ),
        (["--sample", "--search", "mbr"], 2, "--sample and --search mbr were both given"),
        (
            ["--set", "decode.search=bean"],
            2,
            "decode.search = 'bean': expected beam, sample, mbr or diverse. Did you mean 'beam'?",
        ),
        (["--search", "diverse", "--beam", "6"], 2, "beam = 6 is not a multiple of diverse_groups = 4"),
        (
            ["--search", "diverse", "--diverse-groups", "0"],
            2,
            "the model's recipe with these options has 1 error:\n  - decode.diverse_groups = 0: expected at least 1",
        ),
        (
            ["--search", "diverse", "--diversity-penalty", "-1"],
            2,
            "decode.diversity_penalty = -1.0: expected at least 0.0",
        ),
        (
            ["--diverse-groups", "2", "--diversity-penalty", "1"],
            2,
            "--diverse-groups, --diversity-penalty: only with --search diverse.",
        ),
        (["--search", "diverse", "--nbest", "5"], 2, "--nbest 5 exceeds the beam of 4: give --beam 5 or more."),
        (
            ["--length-penalty", "gnnt"],
            2,
            "decode.length_penalty = 'gnnt': expected gnmt, average, power or none. Did you mean 'gnmt'?",
        ),
        (["--max-len-ratio", "-1"], 2, "decode.max_len_ratio = -1.0: expected at least 0.0"),
        (["--coverage-penalty", "-1"], 2, "decode.coverage_penalty = -1.0: expected at least 0.0"),
        (["--coverage-penalty", "nan"], 2, "decode.coverage_penalty = nan: "),
        (
            ["--coverage-penalty", "0.2", "--sample"],
            2,
            "--coverage-penalty: random samples have none. Leave it out, or give --search beam.",
        ),
        (["--coverage-penalty", "0.2", "--search", "mbr"], 2, "give --search beam or --mbr-candidates beam."),
        (["--min-p", "0.1"], 2, "--min-p: only with --sample or --search mbr."),
        (["--sample", "--min-p", "2"], 2, "--min-p 2.0: expected a number from 0 to 1."),
        (["--sample", "--min-p", "nan"], 2, "--min-p nan: expected"),
        (["--mbr-samples", "5", "--mbr-utility", "bleu"], 2, "--mbr-samples, --mbr-utility: only with --search mbr."),
        (["--sample", "--mbr-candidates", "beam"], 2, "--mbr-candidates: only with --search mbr."),
        (
            ["--search", "mbr", "--mbr-utility", "blue"],
            2,
            "--mbr-utility 'blue': expected chrf or bleu. Did you mean 'bleu'?",
        ),
        (
            ["--search", "mbr", "--mbr-candidates", "beams"],
            2,
            "--mbr-candidates 'beams': expected sample or beam. Did you mean 'beam'?",
        ),
        (
            ["--search", "mbr", "--mbr-candidates", "beam", "--top-k", "3"],
            2,
            "--top-k: only with --mbr-candidates sample",
        ),
        (
            ["--search", "mbr", "--mbr-samples", "4", "--nbest", "5"],
            2,
            "--nbest 5 exceeds the 4 hypotheses of a line: give --mbr-samples 5 or more.",
        ),
        (
            ["--search", "mbr", "--beam", "4"],
            2,
            "--beam (decode.beam) was given with --search mbr, which keeps no beam: give --mbr-samples N for N hypotheses per line.",
        ),
        (["--no-repeat-ngram", "-1"], 2, "decode.no_repeat_ngram = -1: expected at least 0"),
        (["--repetition-penalty", "0"], 2, "decode.repetition_penalty = 0.0: expected more than 0.0"),
        (
            ["--terms", "terms", "--terms-columns"],
            2,
            "--terms-columns and --terms were both given: give terms either in the input or in a file.",
        ),
        (
            ["--terms", "terms", "--sample"],
            2,
            "terms and --sample were both given: random samples cannot be made to contain words.",
        ),
        (["--terms-columns", "--search", "mbr"], 2, "terms and --search mbr were both given"),
        (["--terms", "terms", "--set", "decode.search=sample"], 2, "terms and --search sample were both given"),
        (["--set", 'decode.constraints=["foo"]'], 2, "constraints = 'foo': expected prefix, terms,"),
        (["--terms", "nowhere"], 1, "cannot read 'nowhere': No such file or directory."),
        (["--terms", "."], 1, "cannot read '.': Is a directory."),
        (
            ["--terms", "empty"],
            1,
            "'in' has 12 lines, 'empty' has 0 lines: they are not line by line parallel. They part at line 1, where 'in' reads ",
        ),
        (["--banned-words", "nowhere"], 1, "cannot read 'nowhere'"),
        (["--banned-words", "empty"], 1, "'empty' has no text: expected words or phrases, one per line."),
        (["--banned-words", "blank"], 1, "'blank' has no text: expected words or phrases, one per line."),
        (
            ["--banned-words", "latin1"],
            1,
            "'latin1', line 2: 'H\ufffduser' is not UTF-8. Convert the file to UTF-8, or delete the line.",
        ),
        (["--outputs", "nowhere"], 1, "cannot read 'nowhere'"),
        (["--outputs", "empty"], 1, "'empty' has no text: expected translations, one per line."),
        (["--outputs", "latin1"], 1, "'latin1', line 2: 'H\ufffduser' is not UTF-8."),
        (["--outputs", "outputs", "--output", "outputs"], 2, "the translation would replace its own input 'outputs'"),
        (["--banned-words", "banned", "--output", "banned"], 2, "the translation would replace its own input 'banned'"),
        (["--terms", "terms", "--output", "terms"], 2, "the translation would replace its own input 'terms'"),
    ],
)
def test_wrong_use(args: list[str], code: int, text: str) -> None:
    before = {name: Path(name).read_bytes() for name in ("outputs", "banned", "terms")}
    result = invoke(*ONE, *args)
    assert isinstance(result.exception, NmtError), (result.exception, result.output)
    assert (result.exception.exit_code, result.stdout) == (code, "")
    assert text in str(result.exception)
    assert {name: Path(name).read_bytes() for name in before} == before


def test_an_allowed_output_that_is_too_long_is_an_error() -> None:
    write("outputs", ["the cat " * 100])
    result = invoke(*ONE, "--outputs", "outputs")
    assert isinstance(result.exception, NmtError)
    assert result.exception.exit_code == 2
    assert re.search(
        r"the allowed output 'the cat .* has \d+ tokens: the model can write 63 at most. Shorten it or delete it.",
        str(result.exception),
    )


@pytest.mark.parametrize(
    "args", [["--mbr-samples", "0"], ["--max-len-ratio", "x"], ["--no-repeat-ngram", "x"], ["--min-p", "x"]]
)
def test_the_parser_refuses_values_of_a_wrong_kind(args: list[str]) -> None:
    result = invoke(*ONE, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert args[0] in result.stderr
