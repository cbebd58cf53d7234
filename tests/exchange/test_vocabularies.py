"""Marian's vocabularies and the files that its training leaves, byte by byte as `marian-vocab` 1.12.42 writes them."""

import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from marian_models import Marian, imported, marian, own_spm, pieces, spm

from nmt_cli.data.sentencepiece_model import bytes_of, token_of
from nmt_cli.data.tokenizer import BOS, EOS, PAD, Vocabulary
from nmt_cli.errors import ModelError
from nmt_cli.exchange.convert import export
from nmt_cli.exchange.importer import SourceFiles
from nmt_cli.exchange.marian_files import vocabulary_in
from nmt_cli.exchange.marian_yaml import settings, vocabulary_text

pytestmark = pytest.mark.usefixtures("few_lines")

MARIAN_VOCAB = (
    b'</s>: 0\n<unk>: 1\n"\\x01": 2\n"\\tb": 3\n"\\x1b": 4\n"!": 5\n"\\"q\\"": 6\n"#": 7\n"\'": 8\n"\'\'": 9\n"*": 10\n'
    b'---: 11\n...: 12\n1: 13\n":": 14\n:b: 15\n<<: 16\n<pad>: 17\n<s>: 18\n=: 19\n\\: 20\na#b: 21\n"a:": 22\n'
    b'a:b: 23\na\xc2\x85b: 24\na\xc2\xa0: 25\n"del\xc1\xbf": 26\nfffe\xef\xbf\xbe: 27\ninv\xff: 28\nline\r: 29\n'
    b'no: 30\n"null": 31\ntr\xe2\x82: 32\nx\xe2\x80\xa8y: 33\n"{x}": 34\n"~": 35\n\xed\xa0\x80: 36\n"\\ufeff": 37\n'
    b"\xef\xbf\xbe: 38\n\xfe\xfe: 39\n\xff: 40"
)
"""What it writes for a text with NEL, DEL, U+2028, U+FFFE, a surrogate, bytes that are not UTF-8, and CRLF."""
SPELLED = [
    *(b"</s>", b"<unk>", b"\x01", b"\tb", b"\x1b", b"!", b'"q"', b"#", b"'", b"''", b"*", b"---", b"...", b"1", b":"),
    *(b":b", b"<<", b"<pad>", b"<s>", b"=", b"\\", b"a#b", b"a:", b"a:b", b"a\xc2\x85b", b"a\xc2\xa0", b"del\xc1\xbf"),
    *(b"fffe\xef\xbf\xbe", b"inv\xff", b"line\r", b"no", b"null", b"tr\xe2\x82", b"x\xe2\x80\xa8y", b"{x}", b"~"),
    *(b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xef\xbf\xbe", b"\xfe\xfe", b"\xff"),
]


def vocabulary(folder: Path, content: bytes, name: str = "vocab.yml") -> list[bytes]:
    (folder / name).write_bytes(content)
    ids = vocabulary_in(SourceFiles(folder), name)
    return [bytes_of(token) for token in sorted(ids, key=lambda token: ids[token])]


def test_what_marian_vocab_writes_is_read_by_bytes_and_comes_back(tmp_path: Path) -> None:
    assert vocabulary(tmp_path, MARIAN_VOCAB) == SPELLED
    assert vocabulary(tmp_path, vocabulary_text([token_of(one) for one in SPELLED])) == SPELLED


@pytest.mark.parametrize(
    "content",
    [
        b"</s>: 0\n<unk>: 1\n? \"aa\\\n  \\u2581\\\n  b\"\n: 2\n'''': 3\n\"\\u0434\\N\": 4\n",
        b'{"</s>": 0,\n "<unk>": 1,\n "aa\\u2581b": 2, "\'": 3, "\\u0434\\u0085": 4}',
        b'\xef\xbb\xbf---\r\n"</s>": 0\r\n"<unk>": 1\r\naa\xe2\x96\x81b: 2\r\n"\'": 3\r\n\xd0\xb4\xc2\x85: 4\r\n',
    ],
    ids=["PyYAML", "JSON", "CRLF"],
)
def test_vocabularies_of_other_tools(content: bytes, tmp_path: Path) -> None:
    assert vocabulary(tmp_path, content) == [b"</s>", b"<unk>", "aa▁b".encode(), b"'", "д\x85".encode()]


def test_every_key_is_a_piece(tmp_path: Path) -> None:
    """YAML reads these as something else, if one lets it."""
    plain = [b"</s>", b"<unk>", b"no", b"y", b"~", b"null", b"1", b"1.0", b"on", b"0x1", b"2020-02-26", b"="]
    assert vocabulary(tmp_path, b"".join(b"%s: %d\n" % (key, number) for number, key in enumerate(plain))) == plain


def test_a_token_in_each_line_with_crlf(tmp_path: Path) -> None:
    assert vocabulary(tmp_path, b"<s>\r\n</s>\r\n<unk>\r\n\xff\r\n", "x.vocab") == [b"<s>", b"</s>", b"<unk>", b"\xff"]
    with pytest.raises(ModelError, match=r"x\.vocab has 'a' twice"):
        vocabulary(tmp_path, b"a\na\n</s>\n<unk>\n", "x.vocab")


def test_special_tokens_that_a_text_has(tmp_path: Path) -> None:
    """Marian knows </s> and <unk> by their first number; it has no rows for the last ones, and `marian-vocab` writes
    them.
    """
    content = b"</s>: 0\n<unk>: 1\na: 2\n</s>: 3\nb: 4\n<unk>: 5\n"
    assert vocabulary(tmp_path, content) == [b"</s>", b"<unk>", b"a", b"</s>", b"b"]
    ids = vocabulary_in(SourceFiles(tmp_path), "vocab.yml", 3)
    assert (ids["</s>"], ids["<unk>"], ids["b"]) == (0, 1, 4)
    table = sorted(ids, key=lambda token: ids[token])
    assert vocabulary(tmp_path, vocabulary_text(table)) == [b"</s>", b"<unk>", b"a", b"</s>", b"b"]
    for twice in ("a", "</s>"):
        with pytest.raises(ModelError, match=f"has '{twice}' twice"):
            vocabulary(tmp_path, content + f"{twice}: 6\n".encode())


def test_every_string_of_bytes_has_its_own_token() -> None:
    spelled = [*SPELLED, b"", b"\0", token_of(b"<s>").encode(), token_of(b"\xff").encode(), b"\xc3\xff\xc3\xa4"]
    tokens = [token_of(one) for one in spelled]
    assert len({*tokens}) == len(spelled)
    assert [bytes_of(token) for token in tokens] == spelled
    assert not {"<s>", "<pad>"} & {*tokens}
    for token in tokens:
        token.encode()


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("a: 1\nlist:\n  []\nb:\n  - x\n  - \"y: z\"\n", {"a": "1", "list": [], "b": ["x", "y: z"]}),
        ("# c\n---\n'a b': [x, 'y, z', \"]\"] # d\nb: /x y#z  # e\r\nc: \"\"\n", {"a b": ["x", "y, z", "]"], "b": "/x y#z", "c": ""}),
        ("version: v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700         \nno: -1\n", {"version": "v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700", "no": "-1"}),
        ("models:\n- m.npz\n- n.npz\n", {"models": ["m.npz", "n.npz"]}),
    ],
)  # fmt: skip
def test_settings(content: str, values: dict[str, object]) -> None:
    assert settings(content, "x.yml") == values


@pytest.mark.parametrize(
    "line",
    ["a: &x 1", "a: *x", "a: |", "a: {b: 1}", "a: [b", "a: b: c", "- a", "  b: 1", "a: [[b]]", "!t a: 1", "a: 'b"],
)
def test_other_yaml_is_refused_by_its_line(line: str) -> None:
    with pytest.raises(ModelError, match=r"x\.yml, line 1: expected a name with a value or a list of values, found"):
        settings(line, "x.yml")


@pytest.fixture
def odd() -> Marian:
    """A model whose vocabulary has <s>, <pad> and bytes."""
    joint = list(dict.fromkeys([*pieces(spm(0)), *pieces(spm(1, 230))]))
    return marian(tables=[["</s>", "<unk>", "<s>", "<pad>", *joint, "odd"]], layers=(1, 1))


def test_s_and_bytes_are_ordinary_tokens(odd: Marian, tmp_path: Path) -> None:
    folder = odd.save(tmp_path / "opus")
    content = (folder / "vocab.yml").read_bytes().replace(b"\nodd:", b"\ninv\xff:")
    (folder / "vocab.yml").write_bytes(content)
    target = Vocabulary.load(imported(folder, tmp_path / "model").path).target
    numbers = {token: number for number, token in enumerate(target.table)}
    assert numbers["<s>"] == BOS
    assert numbers["<pad>"] == PAD
    ordinary = [numbers[token_of(one)] for one in (b"<s>", b"<pad>", b"inv\xff")]
    assert min(ordinary) > EOS
    assert target.decode([ordinary]) == ["<pad>inv�"]  # SentencePiece leaves out its own <s>
    text = ["<s> a", "<pad>", *(token_of(one) for one in (b"<s>", b"inv\xff"))]
    assert not {*ordinary} & {number for row in target.encode(text) for number in row}
    export(tmp_path / "model", "marian", tmp_path / "back")
    assert vocabulary(tmp_path, (tmp_path / "back" / "vocab.yml").read_bytes()) == vocabulary(tmp_path, content)
    with np.load(tmp_path / "back" / "model.npz") as stored:
        np.testing.assert_array_equal(stored["Wemb"], odd.arrays["Wemb"])


def test_a_training_is_imported_as_it_lies(tmp_path: Path) -> None:
    """The vocabulary is SentencePiece's, with its own ids; decoder.yml has the name of the model before its own."""
    content = own_spm(400)
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    made = marian(tables=[processor.id_to_piece(list(range(processor.get_piece_size())))], layers=(1, 1))
    folder = made.save(tmp_path / "training")
    for name in ("decoder.yml", "vocab.yml", "source.spm", "target.spm", "preprocess.sh"):
        (folder / name).unlink()
    (folder / "vocab.deen.spm").write_bytes(content)
    for name in ("model.npz.best-chrf.npz", "model.iter30.npz", "model.npz.optimizer.npz"):
        (folder / name).write_bytes(b"another one")
    (folder / "model.npz.progress.yml").write_text("epochs: 1\nvalidators:\n  chrf:\n    stalled: 0\n")
    vocabularies = "vocabs:\n  - /home/x/vocab.deen.spm\n  - /home/x/vocab.deen.spm\n"
    (folder / "model.npz.yml").write_text(f"after: 60u\n{vocabularies}beam-size: 12\nnormalize: 0\n")
    assert imported(folder, tmp_path / "first", source_language="en", target_language="de").recipe.decode.beam == 12
    decoding = f"models:\n  - /home/x/model.npz\n{vocabularies}beam-size: 6\nnormalize: 0.6\nword-penalty: 0"
    (folder / "model.npz.decoder.yml").write_text(decoding)
    done = imported(folder, tmp_path / "model", source_language="en", target_language="de")
    assert (done.recipe.decode.beam, done.recipe.decode.alpha) == (6, 0.6)
    assert done.model.remarks == ["it is model.npz, one of 3 models that lie there"]
    vocabulary = Vocabulary.load(done.path)
    assert vocabulary.joint  # one file, which is read once
    assert not done.recipe.data.separate_tokenizers
    lines = ["the dog sees 漢字 <s>", "é ▁▁ x", "</s> a"]
    ours = [[vocabulary.source.table[number] for number in row] for row in vocabulary.source.encode(lines)]
    assert ours == processor.encode(lines, out_type=str)
    assert vocabulary.target.decode(vocabulary.target.encode(lines)) == processor.decode(processor.encode(lines))


def test_tied_layers_and_gelu(tmp_path: Path) -> None:
    made = marian("gelu", layers=(1, 2))
    made.options |= {"transformer-depth-scaling": True, "dec-depth": 3, "transformer-tied-layers": [1, 1, 2]}
    done = imported(made.save(tmp_path / "opus"), tmp_path / "model")
    assert done.recipe.model.activation == "gelu"
    assert done.recipe.model.decoder_layers == 3


def test_zips_and_folders_of_other_systems(tmp_path: Path) -> None:
    files = marian(layers=(1, 1)).files()
    with zipfile.ZipFile(tmp_path / "opus.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"model\\{name}", content)
            archive.writestr(f"__MACOSX/model/._{name}", b"x")
    assert SourceFiles(tmp_path / "opus.zip").names == sorted(files)
    extra = [tarfile.TarInfo(name) for name in ("./._opus", "./", "./__MACOSX/vocab.yml", "x" * 90 + "/.DS_Store")]
    extra[1].type = tarfile.DIRTYPE
    for name in ("opus-mt-en-de.tar.gz", "opus.tgz", "opus.tar", "opus.tar.xz"):
        unpacked = SourceFiles(marian(layers=(1, 1)).tar(tmp_path / name, extra, "./a/b/"))
        assert {name: unpacked.read(name) for name in unpacked.names} == files
        assert unpacked.about("LICENSE") == "CC-BY 4.0\n"
        place = unpacked.unpacked("model.npz").parent
        assert unpacked.languages == (("en", "de") if "en-de" in name else ("", ""))
        unpacked.close()
        assert not place.exists()
    assert imported(tmp_path / "opus.tar.xz", tmp_path / "model").path.is_dir()
    folder = tmp_path / "outer" / "inner"
    marian(layers=(1, 1)).save(folder)
    for place in (folder / "._model.npz", folder.parent / "._inner", folder.parent / ".DS_Store"):
        place.write_bytes(b"x")
    assert SourceFiles(folder.parent).names == sorted(files)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("https://x.org/a.zip", r"nothing is downloaded: .* curl -LO https://x\.org/a\.zip, then import"),
        ("https://huggingface.co/x/opus-en-de/tree/main", "hf download x/opus-en-de --local-dir opus-en-de, then"),
        ("x/opus-en-de", "nothing at .* Face, fetch it first: hf download x/opus-en-de --local-dir opus-en-de"),
    ],
)
def test_what_is_not_there_is_named_with_the_command_that_fetches_it(source: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        SourceFiles(Path(source))
