"""The paper's BLEU: each step on examples worked by hand, the whole with its arithmetic, and beside Moses' own Perl scripts.

With $NMT_MOSES, a folder of mosesdecoder, and perl on the machine, tokens and scores are compared with those of the scripts.
"""

import os
import random
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.evaluation.metric import MetricOptions, Protocol
from nmt_cli.evaluation.metrics import Score, Scorer, compute
from nmt_cli.evaluation.protocols import STEPS, ProtocolBleu, languages

MOSES = os.environ.get("NMT_MOSES")
PAPER = Protocol("paper")


def paper(hypotheses: list[str], references: list[list[str]], *, lowercase: bool = False, **changes: Any) -> Score:
    return compute(
        "bleu", hypotheses, references, MetricOptions(lowercase=lowercase, protocol=Protocol("paper", **changes))
    )


@pytest.mark.parametrize(
    ("step", "language", "line", "expected"),
    [
        # typographic closing quotes, the ellipsis and full-width forms are replaced; „ « » – are not on Moses' list
        ("punct", "de", "„neu“ «x» ’s … ７：（ja）！ a–b", "„neu\" «x» 's ... 7:(ja)! a–b"),
        # numbers keep commas and dots, abbreviations and ordinals before a small letter theirs; the last full stop goes off
        ("tok", "de", "Am 3. Mai z.B. 5,300 Leute, u.a. Dr. Ott.", "Am 3. Mai z.B. 5,300 Leute , u.a. Dr. Ott ."),
        # special characters are escaped, hyphens stay; in German an apostrophe stands alone
        ("tok", "de", '"R&D" [x|y] <a-b>', "&quot; R &amp; D &quot; &#91; x &#124; y &#93; &lt; a-b &gt;"),
        ("tok", "de", "geht's", "geht &apos; s"),
        ("tok", "en", "It isn't Ann's.", "It isn &apos;t Ann &apos;s ."),
        ("tok", "fr", "L'eau qu'il a.", "L&apos; eau qu&apos; il a ."),
        # dots in a row stay together, no-break and thin spaces part, control characters go
        ("tok", "de", "Na... 5\u00a0% und\u20093\u202fm\x1c!", "Na ... 5 % und 3 m !"),
        # other scripts are words, as to Perl
        ("tok", "de", "Er sagte 日本語 und 한국어.", "Er sagte 日本語 und 한국어 ."),
        ("compounds", "de", "Rich-Text-Format", "Rich ##AT##-##AT## Text ##AT##-##AT## Format"),
        # the byte before and the byte after belong to one match: "o" cannot begin the next one, the second byte of "ö" can
        ("compounds", "de", "a-o-b", "a ##AT##-##AT## o-b"),
        ("compounds", "de", "a-ö-b", "a ##AT##-##AT## ö ##AT##-##AT## b"),
        ("compounds", "de", "- a - b -c d- a--b", "- a - b -c d- a ##AT##-##AT## -b"),
    ],
)
def test_a_step(step: str, language: str, line: str, expected: str) -> None:
    assert STEPS[step](language)[1](line) == expected


HYPOTHESIS, REFERENCE = ["Das Rich-Text-Format ist alt."], ["Das Rich-Text-Format ist „neu“."]


def test_without_a_common_4_gram_it_is_0_for_nothing_is_smoothed() -> None:
    """Without compounds split: 5 tokens against 7, "Das Rich-Text-Format ist" in common: 4/5, 2/4, 1/3, 0/2."""
    score = paper(HYPOTHESIS, [REFERENCE], compounds=False)
    assert (score.value, score.details.split(" ")[0]) == (0.0, "80.0/50.0/33.3/0.0")
    assert paper(["a b"], [["a b"]]).value == 0.0  # no 4-gram at all


STEP_WORDS = (
    "Haus, Rich-Text ö-ä-ü „ja“ «non» 3,5 z.B. Dr. 12. l'eau isn't R&D ... (x) 5\xa0% 日本 a|b [c] U-Bahn-Hof? –"
)


def sentences(count: int, seed: int = 0) -> list[str]:
    """Lines with what the steps look for."""
    rng = random.Random(seed)
    words = STEP_WORDS.split(" ")
    return [" ".join(rng.choices(words, k=rng.randint(1, 12))) + rng.choice([".", "!", "", " ."]) for _ in range(count)]


@pytest.mark.parametrize("compounds", [False, True])
def test_it_is_sacrebleus_bleu_of_the_same_tokens(compounds: bool) -> None:
    import sacrebleu

    ours = MetricOptions(protocol=Protocol("paper", compounds=compounds))
    hypotheses, references = sentences(200), [sentences(200, 1), sentences(200, 2)]
    for k in range(0, 200, 2):
        hypotheses[k] = references[k // 2 % 2][k].replace("Haus", "Heim")
    made = ProtocolBleu(ours.protocol or PAPER)
    tokens, *of_references = ([made.tokens(line) for line in stream] for stream in (hypotheses, *references))
    assert any("##AT##" in line for line in tokens) == compounds
    theirs = sacrebleu.corpus_bleu(tokens, of_references, tokenize="none", smooth_method="none", force=True)
    score = Scorer("bleu", references, ours).score(hypotheses)
    assert 20 < score.value < 90
    assert score.value == theirs.score


def test_lower_casing_is_that_of_multi_bleu_which_knows_a_to_z() -> None:
    assert paper(["ÜBER DAS HAUS GEHT"], [["Über das Haus geht"]], lowercase=True).value == pytest.approx(100.0)
    assert ProtocolBleu(PAPER, lowercase=True).tokens("ÄRGER Über Abc GROẞ") == "Ärger Über abc groẞ"
    assert "case:lc-ascii" in paper(["a"], [["a"]], lowercase=True).signature


def test_references_may_be_tokenised_already() -> None:
    tokenised = ["Das Rich-Text-Format ist &quot; neu &quot; ."]
    score = paper(['Das Rich-Text-Format ist "neu".'], [tokenised], tokenized_references=True)
    assert score.value == pytest.approx(100.0)
    assert "|refs:tokenized|" in score.signature
    assert paper(['Das Rich-Text-Format ist "neu".'], [tokenised]).value < 100  # &quot; is escaped once more
    made = ProtocolBleu(Protocol("paper", tokenized_references=True))
    assert len(made.tokens("5\u00a0% \u2028x \x1c y\tz", reference=True).split()) == 5
    assert len(made.tokens("5\u00a0% \u2028x").split()) == 3  # Moses parts there


def test_the_signature_names_every_step() -> None:
    ends = f"|bleu:multi-bleu|sacremoses:{version('sacremoses')}|version:{version('sacrebleu')}"
    begins = "case:mixed|protocol:paper|punct:unicode|tok:moses"
    assert paper(["a"], [["a"]]).signature == f"nrefs:1|{begins}-de|compounds:##AT##{ends}"
    french = paper(["a"], [["a"], ["b"]], language="fr", compounds=False).signature
    assert {"de", "en", "fr", "cs", "zh"} <= set(languages())
    assert french == f"nrefs:2|{begins}-fr|compounds:no{ends}"


def perl(script: str, text: str, *arguments: str) -> str:
    return subprocess.run(
        ["perl", f"{MOSES}/scripts/{script}", *arguments], input=text.encode(), capture_output=True, check=True
    ).stdout.decode()


@pytest.mark.skipif(
    not MOSES or not shutil.which("perl"), reason="needs perl and a folder of mosesdecoder in $NMT_MOSES"
)
@pytest.mark.parametrize("language", ["de", "en", "fr"])
def test_tokens_and_score_are_those_of_the_perl_scripts(language: str, tmp_path: Path) -> None:
    def prepared(lines: list[str]) -> str:
        text = perl("tokenizer/replace-unicode-punctuation.perl", "\n".join(lines) + "\n")
        text = perl("tokenizer/tokenizer.perl", text, "-q", "-l", language)
        split = ["perl", "-ple", r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"]
        return subprocess.run(split, input=text.encode(), capture_output=True, check=True).stdout.decode()

    # no abbreviation at a line's end: since 2018 tokenizer.perl parts its full stop, in 2017 it did not, nor does sacremoses
    hypotheses, reference = ([line for line in sentences(400, seed) if not line.endswith(".")] for seed in (3, 4))
    count = min(len(hypotheses), len(reference))
    hypotheses, reference = hypotheses[:count], reference[:count]
    hypotheses[::2] = reference[::2]
    made = ProtocolBleu(Protocol("paper", language), lowercase=False)
    assert [made.tokens(line).split() for line in hypotheses] == [
        line.split() for line in prepared(hypotheses).split("\n")[:-1]
    ]
    (tmp_path / "ref").write_text(prepared(reference), encoding="utf-8")
    for lowercase, options in ((False, []), (True, ["-lc"])):
        said = perl("generic/multi-bleu.perl", prepared(hypotheses), *options, str(tmp_path / "ref"))
        score = paper(hypotheses, [reference], language=language, lowercase=lowercase)
        assert re.findall(r"[\d.]+", said) == re.findall(r"[\d.]+", f"{score.value:.2f} {score.details}")
