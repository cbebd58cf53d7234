"""Preparing a corpus: what comes out, that it does not depend on the workers, and that nothing is ever lost or overwritten."""

import gzip
import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sealed
from in_process import ran

from nmt_cli.data import prepare as module
from nmt_cli.data import shards
from nmt_cli.data import workers as processes
from nmt_cli.data.inputs import fingerprint_of
from nmt_cli.data.prepare import prepare
from nmt_cli.data.shards import INDEX_FILE, Corpus, open_index, valid_text, verify
from nmt_cli.data.tokenizer import Tokenizer, Vocabulary
from nmt_cli.errors import DataError, RecipeError, UsageError
from nmt_cli.recipe import Recipe
from nmt_cli.storage import sealed_json

SIDES = ("source", "en"), ("target", "de")
NAMES = {f"{kind}_{side}": [f"{kind}.{code}"] for kind in ("train", "valid") for side, code in SIDES}
VALID = {"valid-00000.safetensors", "valid.source.txt", "valid.target.txt"}
ODD = "a small\u2028dog\u0085and\x0ba large\rcat"


def recipe(**data: Any) -> Recipe:
    model = {"tie_embeddings": data.get("joint_vocab", True)}
    return Recipe.from_dict({"name": "tiny", "data": {**NAMES, "vocab_size": 330, **data}, "model": model}, "test")


def sentences(count: int, seed: int = 0) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    words = [("dog", "Hund"), ("cat", "Katze"), ("house", "Haus")]
    words += [("sees", "sieht"), ("small", "klein"), ("green", "grün")]
    chosen = [rng.choices(words, k=rng.randint(1, 9)) for _ in range(count)]
    return [(" ".join(en for en, _ in row), " ".join(de for _, de in row)) for row in chosen]


def write(folder: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    for side, language in enumerate(("en", "de")):
        (folder / f"{name}.{language}").write_bytes("".join(pair[side] + "\n" for pair in pairs).encode())


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    write(folder, "train", sentences(400))
    write(folder, "valid", sentences(20, seed=1))
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture(scope="module")
def prepared_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    write(folder, "train", sentences(400))
    write(folder, "valid", sentences(20, seed=1))
    prepare(recipe(), [folder], folder / "out", workers=1)
    return folder / "out"


@pytest.fixture
def shards_there(prepared_once: Path, out: Path) -> dict[str, bytes]:
    """Shards of `text` in `out`; what they hold."""
    shutil.copytree(prepared_once, out)
    return contents(out)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def decoded(folder: Path, split: Any) -> list[tuple[str, str]]:
    vocabulary, corpus = Vocabulary.load(folder), Corpus(folder, split)
    source, target = zip(*map(corpus.pair, range(len(corpus))), strict=True)
    return list(zip(vocabulary.source.decode(source), vocabulary.target.decode(target), strict=True))


def test_text_becomes_shards_and_can_be_read_back(text: Path, out: Path) -> None:
    summary = prepare(recipe(shard_pairs=150), [text], out, workers=1)
    trained = {f"train-0000{n}.safetensors" for n in range(3)}
    assert set(contents(out)) == {INDEX_FILE, "tokenizer.model", *trained, *VALID}
    assert decoded(out, "train") == sentences(400)
    assert decoded(out, "valid") == sentences(20, seed=1)
    assert valid_text(out) == tuple(map(list, zip(*sentences(20, seed=1), strict=True)))
    assert verify(out) == summary.index
    assert summary.fresh
    assert [shard.pairs for shard in summary.index.splits["train"].shards] == [150, 150, 100]
    assert not list(out.parent.glob(".*"))


def test_two_workers_write_the_same(text: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 64)
    prepare(recipe(shard_pairs=150), [text], out, workers=1)
    prepare(recipe(shard_pairs=150), [text], tmp_path / "two", workers=2)
    assert contents(out) == contents(tmp_path / "two")


def test_a_second_run_does_nothing(text: Path, out: Path, shards_there: dict[str, bytes]) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert not prepare(recipe(shard_pairs=7), [text], out, workers=1).fresh
    moved = text.rename(text.with_name("moved"))
    assert not prepare(recipe(), [moved], out, workers=1).fresh
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_only_force_replaces_other_or_damaged_shards(text: Path, out: Path, shards_there: dict[str, bytes]) -> None:
    write(text, "train", sentences(300))
    changed = r"vocab_size: was 330, is 310.*train_source: the contents of 'train.en' have changed.*--force"
    with pytest.raises(DataError, match=f"(?s){changed}") as caught:
        prepare(recipe(vocab_size=310), [text], out, workers=1)
    assert "valid_source" not in str(caught.value)
    assert contents(out) == shards_there
    (out / "train-00000.safetensors").unlink()
    with pytest.raises(DataError, match=r"train-00000.safetensors' is missing"):
        prepare(recipe(), [text], out, workers=1)
    assert prepare(recipe(joint_vocab=False, vocab_size=300), [text], out, force=True, workers=1).fresh
    tokenizers = {"tokenizer.source.model", "tokenizer.target.model"}
    assert set(contents(out)) == {INDEX_FILE, "train-00000.safetensors", *tokenizers, *VALID}
    assert decoded(out, "train") == sentences(300)
    assert sorted(os.listdir(out.parent)) == ["out", "text"]


@pytest.mark.parametrize("name", ["train-00000.safetensors", "tokenizer.model", "notes.txt", "mine/valid.source.txt"])
def test_force_replaces_nothing_of_the_users(text: Path, out: Path, shards_there: dict[str, bytes], name: str) -> None:
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_bytes(b"mine")
    why = "was changed after it was written" if name in shards_there else "which nmt preprocess did not write"
    with pytest.raises(UsageError, match=rf"out' is not replaced: .*'{name.partition('/')[0]}'.*{why}"):
        prepare(recipe(vocab_size=310), [text], out, force=True, workers=1)
    assert contents(out) == {**shards_there, name: b"mine"}
    (out / INDEX_FILE).unlink()
    with pytest.raises(UsageError, match=r"out' is not replaced: nmt preprocess did not write it"):
        prepare(recipe(), [text], out, force=True, workers=1)


def test_an_index_of_files_elsewhere_is_not_believed(text: Path, out: Path, shards_there: dict[str, bytes]) -> None:
    paths = [out.parent / "mine", out.parent / "absolute"]
    for name, path in zip(("../mine", str(paths[1])), paths, strict=True):
        path.write_text("mine")
        index = json.loads((out / INDEX_FILE).read_text())
        sealed.change(out / INDEX_FILE, files=[*index["files"], sealed_json.file_entry(path, name).model_dump()])
    prepare(recipe(vocab_size=310), [text], out, force=True, workers=1)
    assert [path.read_text() for path in paths] == ["mine"] * 2


def test_shards_in_use_are_not_replaced(text: Path, out: Path, shards_there: dict[str, bytes]) -> None:
    with shards.hold(out), shards.hold(out):  # trainings share them
        with pytest.raises(DataError, match="are in use"):
            prepare(recipe(vocab_size=310), [text], out, force=True, workers=1)
        assert contents(out) == shards_there
        assert not prepare(recipe(), [text], out, workers=1).fresh  # looking at them is no use of them
    with shards.held_alone(out):
        with pytest.raises(DataError, match="another nmt preprocess writes"):
            prepare(recipe(vocab_size=310), [text], out, force=True, workers=1)
        with pytest.raises(DataError, match="nmt preprocess is writing to"):
            shards.hold(out)
    shards.hold(out).close()


def test_a_command_that_was_killed_between_two_renames_leaves_the_earlier_shards(
    text: Path, out: Path, shards_there: dict[str, bytes]
) -> None:
    out.rename(out.with_name(".out.old-999999999"))
    (out.with_name(".out.partial-999999999") / "text").mkdir(parents=True)
    assert not prepare(recipe(), [text], out, workers=1).fresh
    assert contents(out) == shards_there
    assert sorted(os.listdir(out.parent)) == ["out", "text"]


def test_pairs_are_dropped_for_a_reason_and_counted(text: Path, out: Path) -> None:
    odd = [("", "Hund"), ("dog", " \t"), ("dog " * 60, "Hund " * 60)]
    odd += [("dog", "Hund " * 20), ("dog " * 20, "Hund"), ("dog", "Hund")]
    write(text, "train", sentences(400) + odd)
    write(text, "valid", odd)
    index = prepare(recipe(max_length=50, max_ratio=5.0), [text], out, workers=1).index
    train, valid = index.splits["train"], index.splits["valid"]
    assert (train.read, train.pairs, train.dropped) == (406, 401, {"empty": 2, "too_long": 1, "ratio": 2})
    assert (valid.read, valid.pairs, valid.dropped) == (6, 4, {"empty": 2, "too_long": 0, "ratio": 0})
    assert decoded(out, "train") == [*sentences(400), ("dog", "Hund")]
    assert valid_text(out) == tuple([pair[side] for pair in odd[2:]] for side in (0, 1))


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [(2, 12, True), (2, 13, False), (13, 2, False), (2, 2, True), (1, 2, False), (50, 50, True), (51, 50, False)],
)
def test_the_limits_themselves(source: int, target: int, kept: bool) -> None:
    data = recipe(min_length=2, max_length=50, max_ratio=13 / 3).data
    assert (module.reasons(np.array([source]), np.array([target]), data, "train")[0] == "") == kept


def test_lines_are_those_of_the_line_contract(text: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text / "valid.en").write_bytes(ODD.encode() + b"\r\ngr\xfcn dog\nlast")
    (text / "valid.de").write_bytes(b"\xef\xbb\xbfeins\nzwei\ndrei\n")
    summary = prepare(recipe(), [text], out, workers=1)
    assert valid_text(out) == ([ODD, "gr\ufffdn dog", "last"], ["eins", "zwei", "drei"])
    assert summary.replaced == {str(text / "valid.en"): 1}
    assert "valid.en: 1 line held invalid UTF-8" in capsys.readouterr().err


def test_two_tokenizers_over_one_vocabulary(text: Path, out: Path, tmp_path: Path, prepared_once: Path) -> None:
    """As an imported model has them: nmt itself learns no such tokenizers."""
    prepare(recipe(normalization="identity"), [text], tmp_path / "target", workers=1)
    (tmp_path / "two").mkdir()
    for side, folder in (("source", prepared_once), ("target", tmp_path / "target")):
        shutil.copy(folder / "tokenizer.model", tmp_path / "two" / f"tokenizer.{side}.model")
    vocabulary = Vocabulary.load(tmp_path / "two")
    assert (vocabulary.joint, vocabulary.shared) == (False, True)
    two = recipe(tokenizer=str(tmp_path / "two"), separate_tokenizers=True)
    summary = prepare(two, [text], out, workers=1)
    assert (summary.index.joint, summary.index.data["separate_tokenizers"]) == (False, True)
    assert decoded(out, "train") == sentences(400)
    assert Vocabulary.load(out).files.keys() == vocabulary.files.keys()
    assert not prepare(two, [text], out, workers=1).fresh
    prepare(recipe(joint_vocab=False, vocab_size=300), [text], tmp_path / "unlike", workers=1)
    for folder, separate, said in (
        (tmp_path / "two", False, "data.joint_vocab = true"),
        (prepared_once, True, "data.separate_tokenizers = true"),
        (tmp_path / "unlike", True, "data.separate_tokenizers = true"),
    ):
        with pytest.raises(DataError, match=said):
            prepare(recipe(tokenizer=str(folder), separate_tokenizers=separate), [text], tmp_path / "no", workers=1)
    with pytest.raises(RecipeError, match="separate_tokenizers = true needs"):
        recipe(separate_tokenizers=True)


def test_keys_that_came_later_leave_the_fingerprint_of_earlier_shards() -> None:
    """Shards that an earlier version wrote are found to be these: the hash below is of its keys alone."""
    data = recipe().data
    later = {"target_tokenization", "target_vocab_size", "target_character_coverage", "terminals"}
    known = json.dumps([data.model_dump(exclude={"shard_pairs", *later}), {}], sort_keys=True)
    assert fingerprint_of(data, {}) == hashlib.sha256(known.encode()).hexdigest()
    words = {"joint_vocab": False, "target_tokenization": "words"}
    assert fingerprint_of(recipe(**words).data, {}) != fingerprint_of(recipe(joint_vocab=False).data, {})
    kinds = ("", "xx", "tags", "words", "both")
    assert len({fingerprint_of(recipe(**words, terminals=kind).data, {}) for kind in kinds}) == 5


def test_an_existing_tokenizer_is_used(
    text: Path, prepared_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(prepared_once / "tokenizer.model", text / "own.model")
    monkeypatch.setattr(Vocabulary, "learn", None)
    for number, place in enumerate(("own.model", str(text / "own.model"), str(prepared_once))):
        index = prepare(recipe(tokenizer=place), [text], tmp_path / f"again{number}", workers=1).index
        assert index.tokenizer_sha256 == Tokenizer.load(text / "own.model").sha256
        file = "tokenizer.model" if number == 2 else "own.model"
        assert [entry.file for entry in index.inputs["tokenizer"]] == [file]


NONE = {"train_source": ["none.en"], "train_target": ["none.de"]}
USELESS = {"train_source": ["useless.en"], "train_target": ["useless.de"], "vocab_size": 267}


@pytest.mark.parametrize(
    ("changes", "folder", "said"),
    [
        ({"tokenizer": "damaged.model"}, ".", "is not a SentencePiece model"),
        ({"tokenizer": "absent"}, ".", "data.tokenizer = 'absent'.*text/absent'"),
        ({"tokenizer": "joint.model", "joint_vocab": False}, ".", "but data.joint_vocab = false"),
        (NONE, ".", "training text is empty: .*none.en', .*none.de'"),
        ({"valid_source": ["none.en"], "valid_target": ["none.de"]}, ".", "validation text is empty: .*none.en'"),
        (USELESS, ".", r"all 12 .*\(empty 12, too_long 0, ratio 0\).* data.min_length = 1"),
        ({"valid_target": ["useless.de"]}, ".", "valid.en' has 20 lines, '.*useless.de' has 12 lines"),
        ({}, "", r"\(train.en\) need a folder: give --data-dir DIR"),
        ({"train_source": ["train.en.gz"]}, ".", "train.en.gz'. Did you mean 'train.en'"),
        ({"train_source": ["zzz"]}, ".", "zzz'. Its folder holds: damaged.model, folder"),
        ({"train_source": ["pairs.tsv"]}, ".", "pairs.tsv' is TSV"),
        ({"train_source": ["folder"]}, ".", "folder' is not a plain file"),
        ({}, "nowhere", "nowhere' does not exist. Check --data-dir"),
    ],
    ids=str,
)
def test_inputs_that_cannot_be_used_are_named(
    changes: dict[str, Any], folder: str, said: str, text: Path, out: Path, prepared_once: Path
) -> None:
    write(text, "none", [])
    write(text, "useless", [("", "Hund")] * 9 + [("dog", "")] * 3)
    (text / "folder").mkdir()
    (text / "pairs.tsv").write_text("a dog\tein Hund\n" * 9)
    (text / "damaged.model").write_bytes(b"damaged")
    shutil.copy(prepared_once / "tokenizer.model", text / "joint.model")
    with pytest.raises(DataError, match=said):
        prepare(recipe(**changes), [text / folder] if folder else [], out, workers=1)
    assert not out.exists()


def test_a_file_is_taken_from_the_first_folder_that_has_it(text: Path, out: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "back.en").write_text("other\n" * 400)
    (own / "valid.en").write_text("not read\n")
    prepare(recipe(train_source=["train.en", "back.en"], train_target=["train.de"] * 2), [text, own], out, workers=1)
    assert [source for source, _ in decoded(out, "train")].count("other") == 400
    assert len(decoded(out, "valid")) == 20
    with pytest.raises(DataError, match=r"no file '.*text/absent.en'[^\n]*\n.*no file '.*own/absent.en'"):
        prepare(recipe(train_source=["absent.en"]), [text, own], out)


def test_absolute_and_compressed_files_need_no_data_dir_and_validation_may_be_left_out(text: Path, out: Path) -> None:
    more: dict[str, list[str]] = {"valid_source": [], "valid_target": []}
    for side, language in SIDES:
        (text / f"more.{language}.gz").write_bytes(gzip.compress((text / f"valid.{language}").read_bytes()))
        more[f"train_{side}"] = [str(text / f"more.{language}.gz"), str(text / f"train.{language}")]
    index = prepare(recipe(**more), [], out, workers=1).index
    assert decoded(out, "train") == sentences(20, seed=1) + sentences(400)
    assert index.splits["valid"].pairs == len(Corpus(out, "valid")) == 0
    assert valid_text(out) == ([], [])


def test_the_teaching_corpus_is_kept_as_text(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def teaching(**languages: str) -> Recipe:
        return Recipe.from_dict({"data": {"generator": "teaching", "vocab_size": 330, **languages}}, "test")

    def write_all(folder: Path) -> None:
        for name, count in (("train", 400), ("valid", 20), ("test", 30)):
            write(folder, name, sentences(count))

    monkeypatch.setattr("nmt_cli.data.demo_corpus.write_corpus", write_all)
    assert prepare(teaching(), [], out, workers=1).fresh
    assert decoded(out, "train") == sentences(400)
    assert sorted(os.listdir(out / "text")) == ["test.de", "test.en", "train.de", "train.en", "valid.de", "valid.en"]
    assert (out / "text").stat().st_mode == out.stat().st_mode
    assert open_index(out).inputs["train_source"][0].file == "text/train.en"
    assert not prepare(teaching(), [], out, workers=1).fresh
    prepare(teaching(source_language="de", target_language="en"), [], out, force=True, workers=1)
    assert decoded(out, "train") == [(target, source) for source, target in sentences(400)]
    with pytest.raises(DataError, match=r"in en and de, not in 'fr'"):
        prepare(teaching(target_language="fr"), [], out, workers=1)


def test_a_dead_worker_is_an_error_not_a_hang() -> None:
    with pytest.raises(DataError, match=r"a worker process has died.*--workers N"), processes.pool(os._exit, 2) as run:
        list(run([1, 2, 3]))


@pytest.mark.usefixtures("workdir")
def test_the_command_says_what_was_dropped_and_what_is_next(text: Path) -> None:
    write(text, "train", [*sentences(400), ("dog", "")])
    keys = "".join(f"{role} = {json.dumps(names)}\n" for role, names in NAMES.items())
    Path("tiny.toml").write_text(f"[data]\n{keys}")
    line = "preprocess tiny.toml --data-dir text --set data.vocab_size=330 --workers 1"
    result = ran(line)
    assert result.stdout == ""
    for part in ("330 pieces, joint", "400 of 401 pairs; dropped: 1 empty;", "20 of 20 pairs; dropped: none"):
        assert part in result.stderr
    again = ran(f"{line} --json")
    assert "nothing to do: data/tiny already holds these shards" in again.stderr
    summary = json.loads(again.stdout)
    assert (summary["fresh"], summary["splits"]["train"]["dropped"]["empty"]) == (False, 1)
    elsewhere = ran(line, "--out", "my shards").stderr
    assert elsewhere.endswith("next: nmt train tiny.toml --data 'my shards' --set data.vocab_size=330\n")
