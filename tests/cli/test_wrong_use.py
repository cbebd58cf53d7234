"""What each command refuses, "arguments → what it names": one table a command, in one process. Nothing is printed or changed.

Numbers out of their bounds and options given twice are in test_numbers.py.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_process import unnamed
from untrained import sentence

from nmt_cli.storage.sealed_json import to_json
from nmt_cli.translation.confidence import Calibration

TREE = "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ barks))))\n"


@pytest.fixture(autouse=True)
def unchanged(here: Path) -> Iterator[None]:
    """Models and files, which no test changes."""
    rng = random.Random(1)
    text = "".join(f"{sentence(rng, 5)}\n" for _ in range(60))
    few = {"short": "the cat.\n\na dog.\n", "empty": "", "blank": "\n \n", "spaced": " \n", "tab": "cat\tKatze\n"}
    trees = {"gold": TREE * 3, "linear": "(S (NP XX XX )NP (VP XX )VP )S\n" * 3, "broken.mrg": "(NN a)\n(S (NN b)\n"}
    trees["mixed"] = f"{TREE}(S XX )S\n{TREE}"
    for name, content in {"in": text, "ref": text, "terms": text, "some.mrg": TREE, **few, **trees}.items():
        Path(name).write_text(content, encoding="utf-8")
    Path("long").write_text("the cat " * 100)
    Path("wide").write_bytes("Ein Haus, zwei Häuser.\nDrei Häuser.\n".encode("utf-16-be"))
    Path("latin1").write_bytes("cat\nHäuser\n".encode("latin-1"))
    of_length = Calibration(format_version=2, lines=1, intercept=0.0, coefficients={"length": 1.0})
    Path("own.json").write_bytes(to_json(of_length))
    before = contents()
    yield
    assert contents() == before


def contents() -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}


TABLES = {
    ("translate --model one --input in --device cpu", 2): """
        --search bean → 'bean' & 'beam'
        --search '' → diverse
        --sample --search mbr → --sample & --search mbr
        --set decode.search=bean → 'bean' & 'beam'
        --search diverse --beam 6 → beam = 6 & diverse_groups = 4
        --diverse-groups 2 --diversity-penalty 1 → --diverse-groups, --diversity-penalty & --search diverse
        --nbest 5 → --nbest 5 & --beam 5
        --length-penalty gnnt → 'gnnt' & 'gnmt'
        --min-p 0.1 → --min-p & --sample
        --top-p 0.5 --temperature 1 --seed 0 → --top-p, --temperature, --seed & --sample
        --sample --temperature 0 → --temperature 0 & --top-k 1
        --sample --beam 4 → --beam & --sample & --nbest N
        --sample --set decode.beam=4 → decode.beam & --sample
        --mbr-samples 5 --mbr-utility bleu → --mbr-samples, --mbr-utility & --search mbr
        --sample --mbr-candidates beam → --mbr-candidates & --search mbr
        --search mbr --mbr-utility blue → 'blue' & 'bleu'
        --search mbr --mbr-candidates beams → 'beams' & 'beam'
        --search mbr --mbr-candidates beam --top-k 3 → --top-k & --mbr-candidates sample
        --search mbr --mbr-samples 4 --nbest 5 → --nbest 5 & --mbr-samples 5
        --search mbr --beam 4 → --beam & --search mbr & --mbr-samples N
        --terms terms --terms-columns → --terms-columns & --terms
        --terms terms --sample → terms & --sample
        --terms-columns --search mbr → terms & --search mbr
        --terms terms --set decode.search=sample → terms & --search sample
        --set 'decode.constraints=["foo"]' → 'foo' & prefix, terms
        --set decode.baem=3 → 'beam'
        --prune 3 → --prune
        --alignment → --alignment & --json
        --confidence → --confidence & --json
        --json --calibration own.json → --calibration & --confidence
        --json --confidence --calibration own.json --output own.json → 'own.json'
        --outputs ref --output ref → 'ref'
        --banned-words short --output short → 'short'
        --terms terms --output terms → 'terms'
        --prefix-column --prefix-file in → --prefix-column & --prefix-file
        --model other → 'one' & 'other'
        --outputs long → the cat the cat & 63
        --format pdf → 'pdf' & html
        --format text --nbest 2 → --format text & --nbest
        --format text --json → --format text & --json
        --format text --terms terms → --format text & --terms
        --split-sentences 1 → --split-sentences & --format
        --top-p x → --top-p""",
    ("translate --model one --input in --device cpu", 1): """
        --terms nowhere → 'nowhere'
        --terms . → '.' & directory
        --prefix-file nowhere → 'nowhere'
        --banned-words nowhere → 'nowhere'
        --banned-words blank → 'blank'
        --banned-words latin1 → 'latin1', line 2 & UTF-8
        --banned-words tab → 'tab', line 1
        --outputs nowhere → 'nowhere'
        --outputs empty → 'empty'
        --outputs latin1 → 'latin1', line 2 & UTF-8
        --outputs tab → 'tab', line 1
        --json --confidence --calibration nowhere → 'nowhere' & nmt calibrate
        --json --confidence --calibration in → 'in'
        --output in/below → 'in/below'""",
    ("calibrate --model one --src in --ref ref --device cpu", 2): """
        --out in → 'in'
        --out one → 'one'""",
    ("calibrate --model one --device cpu --out new.json", 2): """
        --src - --ref - → standard input""",
    ("calibrate --model one --device cpu --out new.json", 1): """
        --src in --ref nowhere → 'nowhere'
        --src in --ref short → 'short'
        --src short --ref short → 50 & 2""",
    ("attend --model one --device cpu", 2): """
        the cat → 'cat' & quotes
        cat --target ' ' → --target
        cat --out . → '.' & 'attention.html'
        cat --png page.svg → 'page.svg' & .png
        cat --kind middle → 'middle' & decoder
        cat --layer 3 → --layer 3 & 2
        cat --kind cross --layer 2 → --layer 2 & 1
        cat --head 0 → --head 0 & 2""",
    ("attend --model one --device cpu", 1): """
        '' → empty & ''
        '  ' → '  '
        \x01 → '\\x01'
        cat --out /proc/none/page.html → '/proc/none/page.html'""",
    ("parse --model parser --tokenized", 2): """
        --input in --output in → 'in'""",
    ("parse --tokenized", 1): """
        --model one → 'one' & data.terminals
        --model unnamed → 'unnamed'
        --model parser --input nowhere → 'nowhere'""",
    ("score", 2): """
        ref → --ref
        in --ref ref --metric blue → 'blue' & 'bleu'
        in --ref ref --tokenize 13b → '13b' & '13a'
        in --ref ref --metric comte → 'comte' & 'comet'
        - - --ref ref → standard input
        in --ref ref --language fr --no-compounds --tokenized-ref → --language, --no-compounds, --tokenized-ref & --protocol
        in --ref ref --protocol paper --tokenize intl → --tokenize intl & --protocol paper
        in --ref ref --protocol paper --metric ter → --metric bleu
        in --ref ref --protocol papr → 'papr' & 'paper'
        in --ref ref --protocol= → paper
        in --ref ref --protocol paper --language english → 'english'
        in --ref ref --significance bootstrap → --significance bootstrap & --confidence
        in ref --ref ref --significance bootstraps → 'bootstraps' & 'bootstrap'
        in --ref ref --samples 10 --seed 3 → --samples, --seed & --confidence
        in --ref ref --lengths 10,5 → '10,5'
        in --ref ref --comet-model x → --comet-model & --metric comet
        in --ref ref --evalb-repair → --evalb-repair & --metric evalb
        in --ref ref --metric comet → --metric comet & --src
        in --ref ref --metric comet --src in → --comet-model PATH
        in --ref ref --metric evalb --src in → --src & --metric evalb
        in --ref ref --worst 0 → --worst 0 & --src
        in --ref ref --src in --device cpu --precision fp32 --batch-tokens 5 → --batch-tokens, --device, --precision & --model
        - --ref ref --src - → more than once
        in --ref ref --target-language de → --target-language & --model
        --ref ref → HYP""",
    ("score", 1): """
        nowhere --ref ref → 'nowhere'
        in --ref nowhere → 'nowhere'
        in --ref short → 'in' & 'short' & 60 & 3
        empty --ref short → 'empty'
        empty --ref empty → 'empty'
        in --ref ref --src nowhere → 'nowhere'
        in --ref ref --src short → 'short' & 60 & 3
        empty --ref gold --metric evalb → 'empty'
        mixed --ref gold --metric evalb → linearised
        gold --ref linear --metric evalb → line 1
        wide --ref ref → 'wide' & UTF-16BE
        in --ref wide → 'wide' & UTF-16BE""",
    ("score --model one --src in --ref ref --device cpu", 2): """
        ref → 'ref' & --model
        --ref in → --ref
        --metric bleu --lowercase → --metric, --lowercase & --model
        --tokenize none → --tokenize & --model
        --worst 0 → --worst & --model
        --evalb-repair → --evalb-repair & --model
        --comet-model x --protocol paper --confidence --seed 3 --by-length → --comet-model, --protocol, --confidence, --seed, --by-length""",
    ("score --model one", 2): """
        --ref ref → --src
        --src in → --ref
        --src - --ref - → more than once""",
    ("score --model one --device cpu", 1): """
        --src nowhere --ref ref → 'nowhere'
        --src in --ref nowhere → 'nowhere'
        --src empty --ref empty → 'empty'
        --src in --ref empty → 'in' & 60 & 'empty' & 0
        --src empty --ref - → standard input
        --src wide --ref ref → 'wide' & UTF-16BE""",
    ("data trees", 2): """
        some.mrg → --out DIR
        --out . → IN
        some.mrg some.mrg --out . → 'some.mrg' & --name NAME
        some.mrg --out . --name a/b → 'a/b'
        - --out . → --name NAME
        - - --out . --name x → more than once
        some.mrg --out . --words x → --words & --back
        --back → --words FILE
        --back --words x a b → 2
        --back --words - → more than once
        --back --words x --out . --functions → --out, --functions
        some.mrg --out . --terminals tag → 'tag' & 'tags'""",
    ("data trees", 1): """
        none.mrg --out . → 'none.mrg'
        empty --out . → 'empty'
        broken.mrg --out . → 'broken.mrg', line 2
        --back --words none some.mrg → 'none'
        wide --out . → 'wide' & UTF-16BE""",
    ("data", 2): """
        wmt15 → wmt15
        multi30k --mirror /a/folder → '/a/folder' & https://
        multi30k --mirror ftp://x/y → 'ftp://x/y'
        multi30k --mirror mirror.example → 'mirror.example'""",
    ("data", 1): """
        multi30k --out in → 'in' & folder""",
    ("train", 1): """
        none.toml → 'none.toml'
        demo --data none --run new → nmt preprocess
        demo --set train.batch_token=3 → 'batch_tokens'""",
    ("train", 2): """
        demo --memory-limit plenty → 'plenty'""",
    ("info", 2): """
        runs/nothere → 'runs/nothere'
        in → 'in'
        ./in/x → './in/x'
        --report --verify → --verify
        --report --set model.d_model=8 → --set""",
}


@pytest.mark.parametrize(("command", "code"), TABLES, ids=lambda value: str(value))
def test_what_is_wrong_is_named(command: str, code: int) -> None:
    assert unnamed(command, TABLES[command, code], code) == []


MODEL = {
    "translate": "--input in",
    "score": "--src in --ref ref",
    "attend": "cat",
    "calibrate": "--src in --ref ref --out new.json",
    "parse": "--tokenized --input in",
}


@pytest.mark.parametrize("command", MODEL)
def test_a_model_a_device_and_a_precision_that_are_not_there_are_named(command: str) -> None:
    usage = """
        --precision fp8 → 'fp8' & int8
        --device tpu → 'tpu' & cuda:N"""
    if command != "score":
        usage += "\n--set train.seed=3 → 'train.seed=3' & decode.KEY"
    model = "parser" if command == "parse" else "one"
    assert unnamed(f"{command} --model {model} {MODEL[command]}", usage) == []
    assert unnamed(command, f"--model nowhere {MODEL[command]} → 'nowhere'", code=1) == []
