"""`nmt.load(…).parse`: the trees of `nmt parse`, for lists and streams, with every option, and when used wrongly.
`nmt.trees` and `nmt.brackets`: files and lines, names, what is refused; `tests/cli/test_trees.py` has the bytes.
"""

import inspect
from importlib.util import find_spec
from pathlib import Path

import pytest
from forked import run
from untrained import write_untrained, write_untrained_parser

import nmt_cli as nmt
from nmt_cli.cli.parse import parse as command
from nmt_cli.errors import DataError, UsageError
from nmt_cli.interface.options import ParseKeywords

SENTENCES = ["the small cat sees ( a dog ) .", "", "  \t", "the cat .", "the cat sees " * 20]
OF_THE_COMMAND = {"model", "device", "devices", "precision", "input_file", "output_file"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parsers")
    write_untrained_parser(folder / "tags", "tags")
    write_untrained(folder / "translator")
    return folder


def test_it_has_the_options_of_the_command() -> None:
    options = set(inspect.signature(nmt.Translator.parse).parameters) - {"self", "lines", "options"}
    assert options | {*ParseKeywords.__annotations__} == set(inspect.signature(command).parameters) - OF_THE_COMMAND


@pytest.mark.parametrize(
    "options", [{}, {"beam": 2}, {"batch_tokens": 30}, {"overrides": ['decode.constraints=["tree"]']}], ids=str
)
def test_the_trees_are_those_of_the_command(models: Path, options: dict[str, object]) -> None:
    arguments: list[object] = ["--model", "tags", "--devices", "1", "--tokenized"]
    for name, value in options.items():
        arguments += ["--set", *value] if isinstance(value, list) else [f"--{name.replace('_', '-')}", value]
    done = run(models, "parse", *arguments, text="".join(f"{line}\n" for line in SENTENCES).encode())
    assert done.returncode == 0, done.stderr
    with nmt.load(models / "tags", devices=1) as parser:
        parses = parser.parse(SENTENCES, tokenized=True, **options)  # type: ignore[call-overload]
        assert [str(parse) for parse in parses] == done.stdout.decode().split("\n")[:-1]
        assert list(parser.parse(iter(SENTENCES), tokenized=True, **options)) == parses  # type: ignore[call-overload]
    said = " ".join(done.stderr.decode().split())
    repaired = sum(parse.repaired for parse in parses)
    assert (f"{repaired} of 3 trees were repaired" in said) == bool(repaired)
    [long] = [parse for parse in parses if parse.too_long]
    assert f"line 5 is too long for the model: {long.too_long}. Its tree is flat." in said


def test_what_a_parse_has(models: Path) -> None:
    with nmt.load(models / "tags", devices=1) as parser:
        first, blank = parser.parse(SENTENCES[:2], tokenized=True, overrides=['decode.constraints=["tree"]'])
        if find_spec("nltk"):  # words are separated as by the command
            assert parser.parse(["I don't see it."])[0].words == ["I", "do", "n't", "see", "it", "."]
    assert first.words == SENTENCES[0].split()
    assert len(first.tags) == len(first.words)
    for label, start, end in first.constituents:
        assert label
        assert 0 <= start < end <= len(first.words)
    assert str(first).startswith("(TOP (")
    assert (blank.words, blank.tags, blank.constituents, str(blank), blank.too_long) == ([], [], (), "", "")


def test_faults_are_said(models: Path) -> None:
    with nmt.load(models / "tags", devices=1) as parser:
        for lines, said in (("the cat", "'the cat'"), ([nmt.Line("a", prefix="a")], "prefix"), (["a\nb"], "line end")):
            with pytest.raises(nmt.NmtError, match=said):
                parser.parse(lines, tokenized=True)  # type: ignore[arg-type]
    with pytest.raises(nmt.NmtError, match="the translator is closed"):
        parser.parse(["the cat"], tokenized=True)
    with nmt.load(models / "translator", devices=1) as translator, pytest.raises(nmt.NmtError, match="not a parser"):
        translator.parse(["the cat"], tokenized=True)


BARKS = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))"
RUNS = "(TOP (S (NP (NNS Cats)) (VP (VBP run))))"


def test_pairs_of_a_file_and_back_and_repaired_parses(tmp_path: Path) -> None:
    (tmp_path / "some.trees").write_text(f"{BARKS}\n{RUNS}\n")
    [written] = nmt.trees(tmp_path / "some.trees", tmp_path / "pairs", terminals="tags")
    assert (written.trees, written.words, written.left_out) == (2, 6, 0)
    assert [path.name for path in written.files] == ["some.words", "some.linear", "some.ptb"]
    words, linear, gold = written.files
    assert words.read_text() == "The dog barks .\nCats run\n"
    # terminals as recorded
    assert [str(parse) for parse in nmt.brackets(words, linear)] == gold.read_text().splitlines() == [BARKS, RUNS]
    right, wrong = nmt.brackets(["Cats run", "Cats run"], ["(S (NP XX )NP (VP XX )VP )S", "(S (NP XX )NP (VP"])
    assert (right.repaired, wrong.repaired) == (False, True)
    assert wrong.words == ["Cats", "run"]


def test_lines_have_a_name_for_messages_and_what_is_refused(tmp_path: Path) -> None:
    [written] = nmt.trees([("the bank", [BARKS, RUNS])], tmp_path, name="all")
    assert written.files[0] == tmp_path / "all.words"
    with pytest.raises(DataError, match=r"the bank.*no tree"):
        nmt.trees(("the bank", []), tmp_path / "none", name="all")
    both = ["a/x.trees", "b/x.trees"]
    for inputs, named in ((("the bank", [BARKS]), "the bank has no name"), ([], "no input"), (both, "go to x.words")):
        with pytest.raises(UsageError, match=named):
            nmt.trees(inputs, tmp_path)
    with pytest.raises(DataError, match=r"2 lines, the parses has 1 line"):
        list(nmt.brackets(["a", "b"], ["XX"]))
