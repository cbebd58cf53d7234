"""preprocess.sh: what nmt reads in one is what bash, sed and perl do, and what it writes runs nothing of a model's."""

import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from marian_models import SCRIPT, marian

import nmt_cli as nmt
from nmt_cli.data.normalization import replacing
from nmt_cli.data.sentencepiece_model import Extension
from nmt_cli.errors import ModelError
from nmt_cli.exchange.preprocess import preprocess_script, program, replacements_in, steps_in

HOSTILE = ("'$(touch PWNED)", "`touch PWNED`", "\\'$(touch PWNED)", '"; touch PWNED; "', "-n", "$HOME")


def run(script: str, text: str, folder: Path) -> str:
    (folder / "preprocess.sh").write_text(script, encoding="utf-8")
    done = subprocess.run(["bash", "preprocess.sh"], input=text, capture_output=True, text=True, cwd=folder, check=True)
    return done.stdout


@pytest.mark.parametrize("new", HOSTILE)
def test_an_exported_script_runs_nothing_that_a_model_says(new: str, tmp_path: Path) -> None:
    for old in ("x", "-", "'", '"', "`", "!"):
        script = preprocess_script(Extension(0, {old: new}, False))
        assert run(script, f"a{old}b\n", tmp_path) == f"a{new}b\n"
    assert [file.name for file in tmp_path.iterdir()] == ["preprocess.sh"]


def test_an_exported_script_does_what_the_tokenizer_does_or_is_refused(tmp_path: Path) -> None:
    """Characters that shells, sed and regular expressions take for something else."""
    rng = random.Random(1)
    odd = "'\"`$\\/&[].*^|;#!-(){}<>~\n\t ae0\u2019"
    refused = 0
    for _ in range(150):
        rules = {rng.choice(odd): "".join(rng.choices(odd, k=rng.randint(0, 3))) for _ in range(rng.randint(1, 2))}
        text = "".join(rng.choices(odd.replace("\n", ""), k=30))
        script = ""
        with suppress(ModelError):
            script = preprocess_script(Extension(0, rules, False))
        refused += not script
        if not script:
            continue
        change = replacing(rules, False)
        assert change is not None
        expected = " ".join(part for part in change(text).split(" ") if part)
        assert run(script, text + "\n", tmp_path) == expected + "\n", (rules, text)
    assert 20 < refused < 130


OPUS = f"""#!/bin/bash
# USAGE preprocess.sh langid spmodel < input > output | tr a b
if [ $# != 2 ]; then
  echo "USAGE preprocess.sh langid spmodel < input | tr 'a' 'b' > output" >&2
  exit 1
fi
if [ `hostname -d | tr a b` == "bullx" ]; then
  APPLHOME="/projappl/project_2001194"
elif [ `hostname -d` == "csc.fi" ]; then APPLHOME=/proj/nlpl
fi
MOSES=${{APPLHOME}}/moses; SPMENCODE=$(which spm_encode || echo "spm")
export LC_ALL=C.UTF-8
${{MOSES}}/replace-unicode-punctuation.perl |
perl ${{MOSES}}/remove-non-printing-char.perl |
{SCRIPT.partition(chr(10))[2]}"""


def test_only_programs_through_which_the_text_goes_are_steps() -> None:
    names = [program(step) for step in steps_in(OPUS)[0]]
    expected = ["replace-unicode-punctuation.perl", "remove-non-printing-char.perl"]
    assert names == [*expected, "sed", "perl", "perl", "sed", "${SPMENCODE}"]
    replaced, controls = replacements_in(steps_in(OPUS)[0])
    assert controls
    assert replaced["％"] == "%"


@pytest.mark.parametrize(
    "step",
    [
        "tr '[:upper:]' '[:lower:]'",
        "awk '{ print tolower($0) }'",
        "./my-replace-unicode-punctuation.perl.sh",
        "sedate -e 's/，/,/g'",
        "sed -e 's/，/<&>/g'",
        "sed -E -e 's/a+/b/g'",
        "sed -e 's/，/,/g' -e 's/a/b/2'",
        'sed -e "s/，/$(date)/g"',
        "perl -pe 's/\\p{C}/ /g; s/a/b/g'",
    ],
)
@pytest.mark.parametrize("at", range(2))
def test_a_step_that_nmt_does_not_know_is_refused_or_left_out(step: str, at: int) -> None:
    steps = ["sed 's/  */ /g;s/^ *//g;s/ *$//g'", "${SPMENCODE} --model $2"]
    script = " |\n".join([*steps[:at], step, *steps[at:]])
    with pytest.raises(ModelError, match="a step that nmt does not know"):
        replacements_in(steps_in(script)[0])
    name = program(steps_in(step)[0][0])
    kept, left_out = steps_in(script, [name])
    assert len(kept) < len(steps_in(script)[0])
    assert left_out == [name]


def test_a_step_under_a_condition_is_refused() -> None:
    with pytest.raises(ModelError, match="runs 'sed' under a condition"):
        steps_in(script := 'if [ "$1" == "de" ]; then\n  sed -e \'s/a/b/g\'\nfi')
    assert steps_in(script, ["sed"]) == ([], ["sed"])


def test_a_model_says_what_was_left_out_of_it(tmp_path: Path) -> None:
    model = marian(layers=(1, 1))
    model.script = "#!/bin/bash\ntr A-Z a-z |\n${SPMENCODE} --model $2\n"
    folder = model.save(tmp_path / "opus")
    with pytest.raises(ModelError, match=r"'tr A-Z a-z'\. .* --skip-step tr leaves it out"):
        nmt.import_model(folder, tmp_path / "out")
    done = nmt.import_model(folder, tmp_path / "out", skip_step=["tr"])
    assert done.model.remarks == ["it was trained on text after tr, a step of preprocess.sh that is left out"]
    assert "text after tr, a step of preprocess.sh" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("a'" + "|" * 30_000, "a quote that is not closed"),
        ("|".join(["sed"] * 30_000) + " '", "a quote that is not closed"),
        ("\\\n" * 30_000 + '"', "a quote that is not closed"),
        (f"sed -e 's/e/{'x' * 2_000_000}/g'", "replaces 'e' by 2,000,000 characters, expected at most 32"),
    ],
)
def test_a_script_of_any_size_is_refused_at_once(script: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        replacements_in(steps_in(script)[0])


def test_more_replacements_than_a_script_can_have_are_refused() -> None:
    many = Extension(replacements={chr(number): "x" for number in range(0x4E00, 0x5E00)})
    with pytest.raises(ModelError, match="sed cannot make the replacements of this model"):
        preprocess_script(many)
