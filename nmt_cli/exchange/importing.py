"""Import a model of another toolkit into a model folder, and verify that both compute the same.

    SourceFiles ──▶ the importer ──▶ ForeignModel ──▶ write aside ──▶ load as torch does ──▶ verify ──▶ rename
                                                                  └─▶ divide lines of many scripts as its tokenizer does

`registry.IMPORTERS` lists the importers; `importer` defines their interface. What cannot be imported is refused by
name.
"""

from __future__ import annotations

import unicodedata
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from ..console import status
from ..data.normalization import UNSEEN
from ..data.tokenizer import Tokenizer
from ..device.memory import return_large_arrays as return_freed_memory
from ..errors import ModelError, UsageError, check_choice, shown, shown_name
from ..model.folder_files import TOKENIZERS, not_imported
from ..model.transformer import count_parameters
from ..model.weights import forms_of, quantize_weights, write_model
from ..recipe import Recipe
from ..registry import IMPORTERS, load
from ..storage.output_paths import check_output_folder, output_folder
from .exporter import SourceModel
from .huggingface_import import model_type
from .importer import ForeignModel, Importer, ImportOptions, SourceFiles
from .sentences import sentences
from .verification import Verification, verify

WHAT = "the imported model"
NOTHING = "Nothing was written. This is a fault of nmt import: please report it."
LINES = 10_000
"""Number of made-up lines that both tokenizers divide."""
SCRIPTS = "AaÀſΑωАяאתءيअहก๛ぁヿ一鿿가힣!~‐‧\u3000】！～😀🙏"
"""The first and the last characters of ranges, two and two, from which lines are made."""


@dataclass(frozen=True)
class Imported:
    """A model folder that was written, and what it was compared with."""

    path: Path
    model: ForeignModel
    recipe: Recipe
    parameters: int
    verification: Verification
    safe_length: int
    """The length, in source tokens, up to which lines of several sentences are translated whole."""
    others: tuple[Imported, ...] = ()
    """The other models of an ensemble."""


def import_model(source: Path, out: Path, by: str, options: ImportOptions, text: Path | None = None) -> Imported:
    """Write the model at `source` as a model folder to `out`, and verify it.

    The models of an ensemble become `out`/1, `out`/2, …; the first one has the `others`.

    `by` names the importer; "": the one that recognizes the files. The lines of `text` are compared too.

    Raises UsageError for an unknown importer or an `out` that is not free, and ModelError for what cannot be imported,
    or computes something else: then nothing is written.
    """
    return_freed_memory()
    if by:
        check_choice("--from", by, IMPORTERS)
    with closing(SourceFiles(source)) as files, ExitStack() as folders:
        importer = _importer(files, by)
        members = importer.members(files)
        paths = [out / str(number) for number, _ in enumerate(members, 1)] or [out]
        for path in paths:
            check_output_folder(path, WHAT, not_imported, [source])
        models = list[ForeignModel]()
        with status("reading the model"):
            for name in members or [files.given]:
                files.given = name
                models.append(_licensed(importer.read(files, options), options))
        done = list[Imported]()
        for path, foreign in zip(paths, models, strict=True):
            aside = folders.enter_context(output_folder(path, WHAT, not_imported, [source], ModelError))
            done.append(_imported(files, foreign, aside, path, source, options, text))
    return replace(done[0], others=tuple(done[1:]))


def _imported(
    files: SourceFiles,
    foreign: ForeignModel,
    aside: Path,
    path: Path,
    source: Path,
    options: ImportOptions,
    text: Path | None,
) -> Imported:
    """Write a model to `aside`, which becomes `path`, and verify it. Raises ModelError."""
    recipe = Recipe.from_dict(
        {"name": source.name if source.is_dir() else source.stem.removesuffix(".tar"), **foreign.recipe},
        f"the recipe of {str(source)!r}",
    )
    metrics = {"imported": source.name, "toolkit": foreign.toolkit, "license": foreign.license}
    metrics |= {"published": options.published} if options.published else {}
    parts = (recipe, foreign.vocabularies, foreign.tokenizers, metrics)
    more = (options.safe_length or None, _card(foreign, files, recipe, options.published).encode())
    write_model(aside, foreign.weights, *parts, "fp32", *more)
    model = SourceModel.load(aside)
    lines = _made_up(model.vocabulary.source)
    verification = verify(model, foreign.reader, sentences(model, text), WHAT, NOTHING, lines)
    if foreign.integers:
        forms = forms_of(recipe.model, foreign.vocabularies, "int8")
        write_model(aside, quantize_weights(foreign.weights, forms, foreign.integers), *parts, "int8", *more)
    parameters = count_parameters(model.model)["total"]
    return Imported(path, foreign, recipe, parameters, verification, model.safe_length)


def _importer(files: SourceFiles, by: str) -> Importer:
    """Return the importer `by`, or the one that recognizes the files. Raises ModelError."""
    if by:
        chosen: Importer = load(IMPORTERS, by, "--from")
        return chosen
    for name in IMPORTERS:
        one: Importer = load(IMPORTERS, name, "--from")
        if one.recognizes(files):
            return one
    raise ModelError(_refusal(files))


def _refusal(files: SourceFiles) -> str:
    """Return why files that no importer recognizes are not imported."""
    where, names = repr(str(files.path)), set(files.names)
    if any(expected <= names for expected in TOKENIZERS):
        return f"{where} is a model folder of nmt already: translate with --model."
    kind = model_type(files)
    if files.ending(".onnx"):
        return f"{where} is a model in ONNX, a program of layers: take the model of transformers that it was made from."
    if files.ending(".gguf"):
        return f"{where} is a model in GGUF, whose weights are quantized: take the original model in safetensors."
    if "adapter_config.json" in names:
        return (
            f"{where} is an adapter of PEFT, which changes another model: join them (merge_and_unload), save the "
            "result as safetensors, and import that."
        )
    if "pytorch_model.bin" in names and kind in ("", "marian"):
        return (
            f"{where} has its weights as pytorch_model.bin, which needs pickle to be read, and could run any program. "
            "Rewrite it as safetensors, if you trust it: python -c 'from transformers import MarianMTModel as M; "
            f'M.from_pretrained("DIR").save_pretrained("DIR")\', with {where} as DIR; then import it again.'
        )
    if kind not in ("", "marian"):
        return (
            f"{where} is a model of the type {shown(kind)} of transformers: nmt can import MarianMT, such as "
            "Helsinki-NLP/opus-mt-en-de, and no other yet."
        )
    if found := files.ending(".bin"):
        return (
            f"{where} has weights as {shown_name(found[0])}, and no vocabulary of CTranslate2. If Marian saved it, "
            "give its path. If it needs pickle to be read, it could run any program, and nmt does not import it."
        )
    if files.ending(".pt", ".ckpt", ".pkl"):
        return (
            f"{where} has weights that need pickle to be read, which could run any program: nmt imports none of them. "
            "CTranslate2's converter makes a folder that nmt imports from a model of OpenNMT-py, if you trust it: "
            "ct2-opennmt-py-converter --model_path FILE --output_dir DIR."
        )
    if files.ending(".optimizer.npz"):
        return f"{where} has only the optimizer's numbers of a training: add the model itself, such as model.npz."
    folders = [f"{one.name}/" for one in files.path.iterdir() if one.is_dir()] if files.path.is_dir() else []
    return (
        f"{where} holds no model that nmt knows: expected a Marian or OPUS-MT model (*.npz, *.vocab.yml, source.spm, "
        "target.spm), or one of Firefox (*.intgemm*.bin, vocab.*.spm), Hugging Face (config.json, "
        "model.safetensors), CTranslate2 (model.bin, *_vocabulary.json) or Argos Translate. "
        f"It holds {shown(sorted([*names, *folders])[:8])}."
    )


def _licensed(foreign: ForeignModel, options: ImportOptions) -> ForeignModel:
    """Return the model with the licence that its files name, or its publisher or user. Raises UsageError for both."""
    name = options.license
    if foreign.license and name:
        raise UsageError(f"--license {name!r}: the files name a licence, {foreign.license!r}. Leave the option out.")
    said = " (said by --license)" * (not options.published)
    return replace(foreign, license=f"{shown_name(name)}{said}") if name else foreign


def _card(foreign: ForeignModel, files: SourceFiles, recipe: Recipe, published: str) -> str:
    """Return a model card: what the model is, and the README of its makers."""
    data = recipe.data
    into = ", ".join(foreign.tags) or data.target_language
    lines = [
        f"# A translation model: {data.source_language} to {into}",
        "",
        f"Imported from {files.path.name}, a model of {foreign.toolkit}, and verified: it computes the same.",
        "",
        f"- Licence: {foreign.license or 'its files name none'}. Whoever passes the model on names its makers.",
        *([f"- Fetched from {published.partition('#')[0]}"] if published else []),
        "- Use: `nmt translate --model DIR < text`" + (" `--target-language CODE`" if foreign.tags else ""),
        *(f"- Note: {shown_name(remark)}." for remark in foreign.remarks),
        "",
    ]
    original = files.about("README.md").strip()
    license_text = files.about("LICENSE").strip()
    if original:
        lines += ["## What its makers wrote", "", original, ""]
    if license_text:
        lines += ["## Its licence", "", license_text, ""]
    return "\n".join(lines)


def _made_up(source: Tokenizer) -> list[str]:
    """Return lines of random pieces and of random characters. Invisible characters are left out: nmt does not read
    those that a vocabulary lacks.
    """
    random, table = Random(2), source.table
    ranges = list(zip(map(ord, SCRIPTS[::2]), map(ord, SCRIPTS[1::2]), strict=True))

    def word() -> str:
        if random.random() < 0.5:
            return table[random.randrange(4, len(table))].replace("▁", " ")
        first, last = random.choice(ranges)
        return "".join(chr(random.randint(first, last)) for _ in range(random.randint(1, 6)))

    lines = [" ".join(word() for _ in range(random.randint(1, 12))) for _ in range(LINES)]
    return [UNSEEN.sub("", line) for line in lines if not any(unicodedata.category(one) == "Cn" for one in line)]
