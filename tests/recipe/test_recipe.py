"""Recipes: those that ship hold the paper's numbers, and a faulty one is told all its faults at once, by name."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import console
from nmt_cli.errors import RecipeError
from nmt_cli.recipe import ModelSection, Recipe, load_recipe, recipe_folder, recipe_names
from nmt_cli.registry import NORMS

MINIMAL = {"data": {"generator": "teaching"}}


def own(tmp_path: Path, text: str) -> str:
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def faults(text: str, tmp_path: Path, overrides: tuple[str, ...] = ()) -> list[str]:
    """The lines of the error that a recipe of `text` gives; the first says where."""
    with pytest.raises(RecipeError) as error:
        load_recipe(own(tmp_path, text), overrides)
    return str(error.value).splitlines()


TEACHING = '[data]\ngenerator = "teaching"\n'


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_ships_loads_and_is_read_back_equal_as_stored(name: str) -> None:
    recipe = load_recipe(name)
    stored = json.loads(json.dumps(recipe.to_dict(), allow_nan=False))
    assert Recipe.from_dict(stored, "test") == recipe
    assert recipe.name == stored["name"] == name
    assert bool(recipe.data.generator) != bool(recipe.data.train_source)


BASE = {"d_model": 512, "d_ff": 2048, "num_heads": 8, "dropout": 0.1}
BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16}
FORM = {"encoder_layers": 6, "decoder_layers": 6, "residual": "post", "positions": "sinusoidal", "tie_embeddings": True}
ADAM = {"adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-9, "warmup": 4000, "lr_factor": 1.0}
TRAIN = {"batch_tokens": 25_000, "label_smoothing": 0.1, "clip_norm": 0.0, "checkpoint_minutes": 10.0, **ADAM}
SHORT, LONG = {"updates": 100_000, "average": 5}, {"updates": 300_000, "average": 20}
PAPER = {
    "wmt14_en_de_base": (BASE, SHORT),
    "wmt14_en_fr_base": (BASE, SHORT),
    "wmt14_en_de_big": ({**BIG, "dropout": 0.3}, LONG),
    "wmt14_en_fr_big": ({**BIG, "dropout": 0.1}, LONG),
}
"""Table 3 and sections 5.1 to 6.1."""


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_hold_the_papers_numbers(name: str) -> None:
    recipe = load_recipe(name)
    model, train = PAPER[name]
    assert recipe.model.model_dump().items() >= {**FORM, **model}.items()
    assert recipe.train.model_dump().items() >= {**TRAIN, "checkpoint_every": 0, **train}.items()
    assert recipe.decode.model_dump().items() >= {"beam": 4, "alpha": 0.6, "max_extra": 50}.items()
    assert (recipe.model.key_size, recipe.model.value_size) == (64, 64)
    assert (recipe.data.joint_vocab, recipe.data.vocab_size) == (True, 37_000 if "en_de" in name else 32_000)
    assert recipe.data.target_language == name.split("_")[2]


def test_the_papers_parser_holds_the_papers_numbers() -> None:
    """Section 6.3, and what it leaves as in the base model; the settings that the recipe's head names undo what is not the paper's."""
    head = (recipe_folder() / "wsj_parsing.toml").read_text(encoding="utf-8").partition("extends")[0]
    recipe, base = load_recipe("wsj_parsing", re.findall(r"--set '?([^\s']+)", head)), load_recipe("wmt14_en_de_base")
    data, model, decode = recipe.data, recipe.model, recipe.decode
    assert (data.terminals, data.vocab_size, model.monotonic_attention) == ("xx", 16_000, False)
    assert (model.encoder_layers, model.decoder_layers, model.d_model, recipe.train.bpe_dropout) == (4, 4, 1024, 0.0)
    assert (decode.beam, decode.alpha, decode.max_extra, decode.constraints) == (21, 0.3, 300, [])
    assert data.max_length >= 400  # long trees are not dropped
    assert data.max_ratio >= 100
    same = {"d_ff", "num_heads", "residual", "positions"}
    assert model.model_dump(include=same) == base.model.model_dump(include=same)
    kept = {"batch_tokens", "updates", "label_smoothing", "clip_norm", "average", *ADAM} - {"warmup", "lr_factor"}
    assert recipe.train.model_dump(include=kept) == base.train.model_dump(include=kept)


def test_the_defaults_are_base_and_head_sizes_follow_d_model() -> None:
    assert ModelSection() == load_recipe("wmt14_en_de_base").model
    assert (ModelSection(d_k=16).key_size, ModelSection(d_k=16).value_size) == (16, 64)
    assert (ModelSection(d_v=16).key_size, ModelSection(d_v=16).value_size) == (64, 16)
    assert (ModelSection(num_heads=32).key_size, ModelSection(num_heads=1).value_size) == (16, 512)


FAULTS = """
data = 3 → data = 3: input should be a valid dictionary
[train] ; updates = 5 → data: this section is missing
[data] ; → data: train_source and train_target are needed (files below --data-dir)
[data] ; train_source = ["a", "b"] ; train_target = ["c"] → data: train_source names 2 file(s), train_target 1
[data] ; train_source = ["a"] ; train_target = ["c"] ; valid_source = ["v"] → data: valid_source names 1 file(s), valid_target 0
+ [model] ; d_modell = 512 → model.d_modell: unknown key. Did you mean 'd_model'?
+ [train] ; xyzzy = 5 → train.xyzzy: unknown key.
+ [trian] ; updates = 5 → trian: unknown section. Did you mean 'train'?
+ [model] ; label_smoothing = 0.1 → model.label_smoothing: unknown key. It belongs in [train].
+ [train] ; updates = "1000" → train.updates = '1000': input should be a valid integer
+ [train] ; lr_factor = nan → train.lr_factor = nan
+ [train] ; lr_factor = inf → train.lr_factor = inf
+ [train] ; updates = true → train.updates = True: input should be a valid integer
+ [model] ; tie_embeddings = 1 → model.tie_embeddings = 1: input should be a valid boolean
+ [model] ; norm = "Pre" → model.norm = 'Pre': expected layer or rms.
+ [model] ; dropout = 0.96 → model.dropout = 0.96: expected at most 0.95
+ train_source = ["a"] ; train_target = ["b"] → data: generator = 'teaching' makes its own text
+ min_length = 9 ; max_length = 8 → data: min_length = 9 exceeds max_length = 8
+ [model] ; num_heads = 7 → model: d_model = 512 is not a multiple of num_heads = 7
+ [model] ; d_model = 33 ; num_heads = 1 → model: d_model = 33 is odd
+ [train] ; batch_tokens = 1000 ; micro_batch_tokens = 2000 → train: micro_batch_tokens = 2000 exceeds batch_tokens = 1000
+ [train] ; checkpoint_every = 0 ; checkpoint_minutes = 0.0 → train: checkpoint_every = 0 and checkpoint_minutes = 0
+ [train] ; average = 6 → train: average = 6 exceeds keep = 5
+ [train] ; best_metric = "bleu" ; valid_bleu_sentences = 0 → train: best_metric = "bleu" needs valid_bleu_sentences > 0
+ target_tokenization = "words" → data: target_tokenization = "words" needs joint_vocab = false
+ terminals = "tags" → data: terminals = "tags" needs target_tokenization = "words"
+ target_vocab_size = 9 → data: target_vocab_size = 9 needs joint_vocab = false
+ target_vocab_size = 7 ; joint_vocab = false ; [model] ; tie_embeddings = false → data: target_vocab_size = 7: expected 8 or more, or 0 for vocab_size = 37000
+ joint_vocab = false → model.tie_embeddings = true needs data.joint_vocab = true
+ [model] ; max_positions = 256 → data.max_length = 256 must be below model.max_positions = 256
+ joint_vocab = false ; [model] ; tie_embeddings = false ; [train] ; both_directions = true → train.both_directions = true needs data.joint_vocab = true
+ [train] ; batch_tokens = 256 → data.max_length = 256 must be below train.batch_tokens = 256
"""
"""A recipe, its lines split by ;, after a + those that follow TEACHING, and how the one fault that is named begins."""


@pytest.mark.parametrize("line", FAULTS.splitlines()[1:])
def test_an_unknown_key_a_wrong_value_and_a_contradiction_are_named(line: str, tmp_path: Path) -> None:
    text, said = line.split(" → ")
    [fault] = faults(text.replace("+ ", TEACHING).replace(" ; ", "\n").rstrip(";"), tmp_path)[1:]
    assert fault.startswith(f"  - {said}")


def test_faulty_lists_and_toml_are_named_and_what_hangs_on_a_faulty_value_is_not(tmp_path: Path) -> None:
    lines = faults('[data]\ntrain_source = "a.en"\ntrain_target = ["a.de", 3]', tmp_path)
    assert "  - data.train_source = 'a.en': input should be a valid list" in lines
    assert "  - data.train_target.1 = 3: input should be a valid string" in lines
    [line] = faults("[data]\ngenerator = teaching", tmp_path)
    assert line.startswith(f"recipe {str(tmp_path / 'own.toml')!r} is not valid TOML: ")
    assert "line 2" in line
    lines = faults(TEACHING + 'max_length = 2000\n[model]\nmax_positions = "3000"', tmp_path)
    assert lines[1:] == ["  - model.max_positions = '3000': input should be a valid integer"]


def test_what_lifts_a_contradiction_is_accepted(tmp_path: Path) -> None:
    for text in (
        "[model]\nnum_heads = 7\nd_k = 64\nd_v = 64",
        '[model]\nd_model = 33\nnum_heads = 1\npositions = "learned"',
        "joint_vocab = false\n[model]\ntie_embeddings = false",
        "[train]\nbatch_tokens = 2000\nmicro_batch_tokens = 2000",
    ):
        load_recipe(own(tmp_path, TEACHING + text))
    alpha = load_recipe(own(tmp_path, TEACHING + "[decode]\nalpha = 1")).decode.alpha
    assert isinstance(alpha, float)  # a whole number for a fraction


def test_all_faults_are_reported_in_one_error(tmp_path: Path) -> None:
    """Unknown keys, wrong types and contradictions, in four sections, the place once."""
    text = """
        [data]
        train_source = ["a", "b"]
        train_target = ["c"]
        vocab = 100
        [model]
        num_heads = 7
        dropout = "0.1"
        [train]
        average = 9
        beam = 4
        [decode]
        alpha = -1.0
    """
    lines = faults(text, tmp_path)
    assert lines[0] == f"recipe {str(tmp_path / 'own.toml')!r} has 7 errors:"
    places = "data data.vocab decode.alpha model model.dropout train train.beam"
    assert sorted(line.split(" = ")[0].split(":")[0] for line in lines[1:]) == [f"  - {one}" for one in places.split()]


UNREADABLE: dict[str, tuple[bytes | None, str]] = {
    "a folder/": (None, r"cannot read recipe .*: Is a directory"),
    "latin.toml": (b"# K\xf6ln\n", r"latin\.toml' is not UTF-8 text"),
    "wide.toml": (TEACHING.encode("utf-16-be"), r"is UTF-16BE text: expected UTF-8.* iconv -f UTF-16BE -t UTF-8 "),
    "gone.toml": (None, r"gone\.toml'.*No such file"),
    "pipe.toml": (None, "it is not a regular file"),
    "/dev/zero": (None, "it is not a regular file"),
    "x" * 5000: (None, "no recipe is called"),
    "x" * 5000 + ".toml": (None, "File name too long"),
    "a\0b.toml": (None, "holds no NUL character"),
}


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("name", UNREADABLE, ids=ascii)
def test_what_cannot_be_read_or_is_no_plain_file_is_named(name: str) -> None:
    content, said = UNREADABLE[name]
    os.mkfifo("pipe.toml")
    os.mkdir("a folder")
    if content:
        Path(name).write_bytes(content)
    with pytest.raises(RecipeError, match=said) as error:
        load_recipe(name)
    assert len(str(error.value)) < 3000


def test_an_unknown_name_is_told_the_nearest() -> None:
    for name, said in (("wmt14_en_de_bsae", "mean 'wmt14_en_de_base', "), ("xyzzy", "the path of a .toml file")):
        with pytest.raises(RecipeError, match=f"{name!r}.*{said}") as error:
            load_recipe(name)
        assert "`nmt info --recipes` lists them" in str(error.value)
        assert sum(known in str(error.value) for known in recipe_names()) <= 4


def chain(tmp_path: Path, **texts: str) -> str:
    """Write NAME.toml for each text; the path of the first."""
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    return str(tmp_path / f"{next(iter(texts))}.toml")


def test_a_recipe_extends_a_shipped_one_by_name(tmp_path: Path) -> None:
    path = chain(tmp_path, mine='extends = "wmt14_en_de_base"\n[train]\nupdates = 5\n[decode]\nalpha = 1.0\n')
    expected = load_recipe("wmt14_en_de_base").to_dict() | {"name": "mine"}
    expected["train"]["updates"], expected["decode"]["alpha"] = 5, 1.0
    assert load_recipe(path).to_dict() == expected  # the stored one is whole: it extends nothing


def test_a_recipe_extends_files_and_lists_are_replaced(tmp_path: Path) -> None:
    path = chain(
        tmp_path,
        child='extends = "parent.toml"\n[data]\ntrain_source = ["x"]\ntrain_target = ["y"]\n[model]\nd_ff = 32\n',
        parent='extends = "grandparent.toml"\n[model]\nd_ff = 16\nd_model = 8\n',
        grandparent='[data]\ntrain_source = ["p", "q"]\ntrain_target = ["r", "s"]\n[model]\nd_model = 4\nnum_heads = 2\n',
    )
    recipe = load_recipe(path, ["model.num_heads=4"])
    assert (recipe.model.d_ff, recipe.model.d_model, recipe.model.num_heads) == (32, 8, 4)
    assert recipe.data.train_source == ["x"]


BY_NAME = {
    'extends = "b.toml"': r"more than 32 recipes extend each other: recipe '.*a.toml' → recipe '.*b.toml' → … → ",
    'extends = "wmt14_en_de_bas"': r"recipe '.*a.toml' extends 'wmt14_en_de_bas': .* Did you mean 'wmt14_en_de_base'",
    'extends = "gone.toml"': r"recipe '.*a.toml' extends 'gone.toml': cannot read recipe '.*/gone.toml': No such file",
    "extends = 7": "extends = 7: expected the name",
    'extends = "demo"\n[model]\nd_modell = 1': r"a.toml' \(with recipe 'demo' .*\n  - model.d_modell: .*'d_model'",
    'extends = "section.toml"': "model = 3",
    'extends = "oops.toml"': "a.toml' extends 'oops.toml': recipe '.*oops.toml' is not valid TOML",
}


@pytest.mark.parametrize("text", BY_NAME)
def test_what_is_wrong_with_extending_is_named(text: str, tmp_path: Path) -> None:
    others = {"b": 'extends = "a.toml"\n', "section": "model = 3\n[data]\n", "oops": "[oops\n"}
    with pytest.raises(RecipeError, match=BY_NAME[text]):
        load_recipe(chain(tmp_path, a=text, **others))


OVERRIDES = [
    ("train.updates=6", "train", "updates", 7),  # the later one counts
    ("train.updates=7", "train", "updates", 7),
    ("model.dropout = 0.25", "model", "dropout", 0.25),
    ('data.source_language="fr"', "data", "source_language", "fr"),
    ("data.target_language=pt-BR", "data", "target_language", "pt-BR"),  # a bare word is a string
    ("data.tokenizer=a/b=c.model", "data", "tokenizer", "a/b=c.model"),
]


def test_overrides_are_laid_over_the_file(tmp_path: Path) -> None:
    expected = load_recipe("demo").to_dict()
    for _, section, key, value in OVERRIDES:
        expected[section][key] = value
    assert load_recipe("demo", [override for override, *_ in OVERRIDES]).to_dict() == expected
    assert load_recipe("multi30k_en_de", ['data.train_source=["x.gz"]']).data.train_source == ["x.gz"]
    assert load_recipe(own(tmp_path, TEACHING), ["decode.beam=9"]).decode.beam == 9


@pytest.mark.parametrize("override", ["updates=7", "train.updates", "train.=7", ".updates=7", ""])
def test_an_override_that_is_no_override_is_quoted(override: str) -> None:
    with pytest.raises(RecipeError, match=rf"--set {re.escape(repr(override))}.* expected section\.key=value"):
        load_recipe("demo", [override])


def test_overrides_are_checked_like_the_file(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="has 2 errors") as error:
        load_recipe("demo", ["train.update=7", "model.dropout=high"])
    assert "train.update: unknown key. Did you mean 'updates'?" in str(error.value)
    with pytest.raises(RecipeError, match="'data' is not a section; sections are data, model, train, decode"):
        load_recipe(own(tmp_path, "data = 3"), ["data.generator=teaching"])


@pytest.fixture
def warned_anew() -> None:
    """As in a process that has not warned yet."""
    console.WARNED.clear()


@pytest.mark.parametrize(("value", "warns"), [(0.0, False), (0, False), (3.0, True), ("high", True), (None, True)])
@pytest.mark.usefixtures("warned_anew")
def test_a_retired_key_warns_where_it_had_an_effect(value: Any, warns: bool, capfd: pytest.CaptureFixture[str]) -> None:
    stored = {**MINIMAL, "decode": {"beam": 5, "prune": value}}
    for _ in range(2):
        assert Recipe.from_dict(stored, "'m/config.json'") == Recipe.from_dict(
            {**MINIMAL, "decode": {"beam": 5}}, "test"
        )
    said = capfd.readouterr().err
    assert said.count(f"'m/config.json': decode.prune = {value!r} is ignored") == said.count("\n") == warns  # once
    assert stored["decode"] == {"beam": 5, "prune": value}


@pytest.mark.usefixtures("warned_anew")
def test_a_retired_key_does_not_hide_what_is_wrong_beside_it(tmp_path: Path) -> None:
    assert faults(TEACHING + "[decode]\nprune = 3.0\npruned = 1\n", tmp_path)[1:] == ["  - decode.pruned: unknown key."]
    assert "decode = 3" in faults("decode = 3\n" + TEACHING, tmp_path)[1]


NESTED = "is nested too deeply"
EXTREMES = {
    "layers": ("[model]\nencoder_layers = 100_000", "model.encoder_layers = 100000: expected at most 1,000"),
    "digits": (f"[model]\nd_model = {'9' * 5000}", "more than 4,300 digits"),
    "hexadecimal digits": (f"[model]\nd_model = 0x{'f' * 5000}", "d_model = a number of about 6,020 digits"),
    "lists": (f"[model]\nd_model = {'[' * 5000}{']' * 5000}", NESTED),
    "keys with dots": (f"[model]\n{'.'.join('a' * 5000)} = 1", NESTED),
    "unknown keys": ("\n".join(f"key{number} = 1" for number in range(20_000)), "  - … and 19,970 more"),
    "the product": (
        "[model]\nd_model = 65536\nd_ff = 1048576\nencoder_layers = 1000\ndecoder_layers = 1000",
        "the model has about 326,419,939,328,000 parameters",
    ),
    "the product of positions": ("[model]\nd_model = 65536\nmax_positions = 1048576", "are 68,719,476,736 numbers"),
    "a NUL in a name": ('tokenizer = "a\\u0000b"', "data.tokenizer: 'a\\x00b' holds a NUL character"),
    "bytes": ("#" * 2**20, "expected at most 1,048,576"),
}
EXTREME_OVERRIDES = {
    f"model.d_model={'9' * 5000}": "more than 4,300 digits",
    f"model.d_model={'[' * 5000}": NESTED,
    "data.tokenizer=\udcff": "data.tokenizer: '\\udcff' is not UTF-8",
}


@pytest.mark.parametrize("given", [*EXTREMES, *EXTREME_OVERRIDES], ids=lambda given: given[:20])
def test_an_extreme_is_refused_in_words(given: str, tmp_path: Path) -> None:
    text, said = EXTREMES.get(given) or ("", EXTREME_OVERRIDES[given])
    with pytest.raises(RecipeError) as error:
        load_recipe(own(tmp_path, TEACHING + text), [] if text else [given])
    assert said in str(error.value)
    assert len(str(error.value)) < 3000


def test_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_bytes(b"\xef\xbb\xbf" + TEACHING.replace("\n", "\r\n").encode())
    recipe = load_recipe(str(tmp_path / "own.toml"))
    assert (recipe.name, recipe.data.generator) == ("own", "teaching")


def test_a_name_that_no_folder_of_runs_can_have_is_refused(tmp_path: Path) -> None:
    for name in ("latest.toml", "..toml", "...toml", ".toml", ".hidden.toml", "a\nb.toml", "größe 1.5.toml"):
        (tmp_path / name).write_text(TEACHING)
        recipe = load_recipe(str(tmp_path / name))
        if name[0] == "g":
            assert recipe.folder("runs", "--run") == Path("runs/größe 1.5")
        else:
            with pytest.raises(RecipeError, match=r"cannot name a folder in runs/: .* --run DIR"):
                recipe.folder("runs", "--run")


RENAMED_KEYS = [
    ("[model]\nnorm = 'pre'", "model", "residual", "pre"),
    ("[model]\nnorm = 'post'", "model", "residual", "post"),
    ("[model]\nresidual = 'pre'\nnorm = 'rms'", "model", "norm", "rms"),
    ("[data]\njoint_vocab = false\ntarget_pieces = 'words'", "data", "target_tokenization", "words"),
]


@pytest.mark.parametrize(("text", "section", "key", "value"), RENAMED_KEYS)
def test_a_key_under_its_old_name_is_read(text: str, section: str, key: str, value: str, tmp_path: Path) -> None:
    untied = "[model]\ntie_embeddings = false\n" * (section == "data")
    recipe = load_recipe(own(tmp_path, f'extends = "demo"\n{untied}{text}'))
    assert getattr(getattr(recipe, section), key) == value
    assert Recipe.from_dict(recipe.to_dict(), "stored") == recipe


def test_a_key_under_both_names_is_refused_unless_they_agree(tmp_path: Path) -> None:
    text = 'extends = "demo"\n[model]\nresidual = "post"\nnorm = "{}"\n'
    [line] = faults(text.format("pre"), tmp_path)
    assert "model.norm = 'pre' is the old name of model.residual, which is 'post' here" in line
    assert load_recipe(own(tmp_path, text.format("post"))).model.residual == "post"
    assert load_recipe("demo").model.residual == "pre"
    assert load_recipe("demo", ["model.norm=post"]).model.residual == "post"


def test_a_registered_form_is_a_value_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NORMS, "scale", "my.package:ScaleNorm")
    assert load_recipe("demo", ["model.norm=scale"]).model.norm == "scale"
