"""A parser by the real command line: trees, pairs, training, parses and F1, with trees ten times as long as their sentences."""

import json
import random
from pathlib import Path

import pytest
from forked import nmt, run

pytestmark = pytest.mark.slow

WORDS = "abcdefghi"
DEPTH = 5
RECIPE = """
[data]
train_source = ["train.words"]
train_target = ["train.linear"]
valid_source = ["test.words"]
valid_target = ["test.linear"]
vocab_size = 23
joint_vocab = false
target_vocab_size = 100
target_tokenization = "words"
terminals = "xx"
byte_fallback = false
max_length = 120
max_ratio = 20.0

[model]
encoder_layers = 1
decoder_layers = 1
d_model = 64
d_ff = 128
num_heads = 4
dropout = 0.0
norm = "pre"
max_positions = 256
tie_embeddings = false

[train]
batch_tokens = 1024
updates = 120
warmup = 30
lr_factor = 0.5
precision = "fp32"
log_every = 40
valid_every = 120
valid_bleu_sentences = 0
checkpoint_every = 120
keep = 1
average = 1

[decode]
beam = 21
alpha = 0.3
max_extra = 300
"""


def tree(words: list[str]) -> str:
    """Each word below five constituents of its own: 11 symbols a word."""
    chains = (
        "".join(f"({word.upper()}{depth} " for depth in range(DEPTH)) + f"(NN {word})" + ")" * DEPTH for word in words
    )
    return f"(ROOT {' '.join(chains)})"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text/, shards/ and run/."""
    folder, draw = tmp_path_factory.mktemp("parsing"), random.Random(4)
    for name, count in (("train", 500), ("test", 30)):
        lines = [tree(sorted(draw.sample(WORDS, draw.choice([2, 6, 9])))) for _ in range(count)]
        (folder / f"{name}.trees").write_text("".join(f"{line}\n" for line in lines))
    (folder / "chains.toml").write_text(RECIPE)
    nmt(folder, "data", "trees", "train.trees", "test.trees", "--out", "text")
    assert "500 of 500 pairs; dropped: none" in nmt(
        folder, "preprocess", "chains.toml", "--data-dir", "text", "--out", "shards"
    )
    nmt(folder, "train", "chains.toml", "--data", "shards", "--run", "run")
    return folder


TRANSLATE = ("translate", "--model", "run", "--precision", "fp32")


def test_long_trees_come_out_whole(trained: Path) -> None:
    words = (trained / "text" / "test.words").read_bytes()
    done = run(trained, *TRANSLATE, text=words)
    assert done.returncode == 0, done.stderr
    parses = done.stdout.decode().splitlines()
    assert max(len(line.split()) for line in parses) > 9 + 50  # more than the paper's limit for translation
    (trained / "test.parsed").write_bytes(done.stdout)
    back = run(trained, "data", "trees", "--back", "--words", "text/test.words", "test.parsed")
    (trained / "back").write_bytes(back.stdout)
    scored = run(trained, "score", "back", "--ref", "text/test.ptb", "--metric", "evalb", "--json")
    assert json.loads(scored.stdout)["scores"]["evalb"]["score"] > 95
    parsed = run(trained, "parse", "--model", "run", "--precision", "fp32", "--tokenized", text=words)
    assert parsed.stdout == back.stdout, parsed.stderr
    gold = (trained / "text" / "test.ptb").read_text().replace("(NN ", "(XX ").splitlines()
    assert sum(one == other for one, other in zip(back.stdout.decode().splitlines(), gold, strict=True)) >= 25
