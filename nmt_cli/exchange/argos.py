"""Packages of Argos Translate: a zip (.argosmodel) with one folder, which holds a model of CTranslate2.

    NAME/metadata.json   the languages
    NAME/model/          model.bin, config.json, shared_vocabulary.json
    NAME/sentencepiece.model   of both sides
    NAME/README.md

A folder stanza/ or minisbd/, which divides texts into sentences, is ignored: nmt has its own rules. Without one Argos
Translate downloads such a model itself.
"""

from __future__ import annotations

import json
import zipfile
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ..data.tokenizer import BYTE
from ..errors import ModelError, shown
from ..model.folder_files import CARD
from ..storage.sealed_json import parse_json
from ..text.languages import NAMES, base, canonical
from . import ctranslate2, ctranslate2_import
from .exporter import Exporter, SourceModel
from .importer import ForeignModel, Importer, ImportOptions, SourceFiles

METADATA, TOKENIZER, ENDING = "metadata.json", "sentencepiece.model", ".argosmodel"
LARGEST_METADATA = 1 << 20
DECODE = {"beam": 4, "length_penalty": "power", "alpha": 0.2}
"""How Argos Translate searches."""
VERSIONS = {"package_version": "1.0", "argos_version": "1.9.0"}
MODEL_FILES = ("model.bin", "config.json", "shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json")
README = """\
# {from_name} to {to_name}, for Argos Translate

Written by `nmt export` and verified: it computes the same as the model that it comes from. To install it:

    python -c "from argostranslate import package; package.install_from_path('{file}')"

Argos Translate searches with its own settings (a length penalty of 0.2), writes a space for each _, and divides texts
into sentences by itself.
"""


def recognizes(files: SourceFiles) -> bool:
    """Return whether the files are a package of Argos Translate."""
    return METADATA in files.names and "from_code" in files.text(METADATA, LARGEST_METADATA)


def read(files: SourceFiles, options: ImportOptions) -> ForeignModel:
    """Return the model of a package, or of its unpacked folder. Raises ModelError, UsageError."""
    metadata = parse_json(files.read(METADATA, LARGEST_METADATA), Path(METADATA), ModelError, "Take the original file.")
    for key, expected in (("type", "translate"), ("target_prefix", "")):
        if (value := metadata.get(key, expected)) != expected:
            raise ModelError(f"{METADATA} has {key} = {shown(value)}, which nmt does not have: expected {expected!r}.")
    if "bpe.model" in files.names and TOKENIZER not in files.names:
        raise ModelError(
            f"the package has BPE codes of subword-nmt (bpe.model), which nmt does not have: take one with {TOKENIZER}."
        )
    codes = str(metadata.get("from_code") or ""), str(metadata.get("to_code") or "")
    if not files.archive and "model.bin" not in files.names and (files.path / "model").is_dir():
        files.members |= {name: f"model/{name}" for name in SourceFiles(files.path / "model").names}  # as in a zip
    return ctranslate2_import.read_model(files, options, codes, DECODE, "Argos Translate")


IMPORTER = Importer(recognizes, read)


# Export


def check(source_model: SourceModel) -> None:
    """Raise ModelError if Argos Translate cannot express the model, UsageError if CTranslate2 is not installed."""
    ctranslate2.check(source_model)
    source = source_model.vocabulary.source
    if source.tags:
        raise ModelError("the model translates into several languages by tags, which Argos Translate does not have.")
    if source.extension.replacements or source.extension.controls:
        raise ModelError(
            "the model replaces characters before SentencePiece, as OPUS-MT's preprocess.sh does, which Argos "
            "Translate cannot do. Export it with --to ctranslate2 or --to marian."
        )

    bytes_of = [{i for i in one.table if BYTE.fullmatch(i)} for one in (source_model.vocabulary.target, source)]
    if not bytes_of[0] <= bytes_of[1]:
        raise ModelError(
            "the target's vocabulary has single bytes, and the source's has none: Argos Translate joins them with the "
            "source's SentencePiece model."
        )


def metadata_of(source_model: SourceModel) -> dict[str, str]:
    """Return the content of metadata.json."""
    data = source_model.recipe.data
    found = dict(VERSIONS)
    for side, code in (("from", data.source_language), ("to", data.target_language)):
        code = canonical(code)
        found |= {f"{side}_code": code, f"{side}_name": NAMES.get(base(code), code)}
    return found


def write(source_model: SourceModel, folder: Path) -> None:
    """Write the package. Raises OSError."""
    metadata = metadata_of(source_model)
    version = metadata["package_version"].replace(".", "_")
    name = f"translate-{metadata['from_code']}_{metadata['to_code']}-{version}"
    file = f"{name}{ENDING}"
    about = README.format(file=file, **metadata)
    (folder / CARD).write_text(about, encoding="utf-8")
    with TemporaryDirectory(prefix=".model-", dir=folder) as aside:
        ctranslate2.write(source_model, Path(aside))
        with zipfile.ZipFile(folder / file, "w", zipfile.ZIP_DEFLATED) as package:
            for part in sorted(Path(aside).iterdir()):
                if part.name in MODEL_FILES:
                    package.write(part, f"{name}/model/{part.name}")
            package.writestr(f"{name}/{METADATA}", json.dumps(metadata, indent=4, ensure_ascii=False) + "\n")
            package.writestr(f"{name}/{TOKENIZER}", source_model.vocabulary.source.model)
            package.writestr(f"{name}/{CARD}", about + source_model.card)


def load_exported(folder: Path) -> ctranslate2.CTranslate2Reader:
    """Load a package as Argos Translate does: one SentencePiece model for both sides."""
    import sentencepiece

    [path] = folder.glob(f"*{ENDING}")
    with TemporaryDirectory(prefix="nmt-argos-") as unpacked, zipfile.ZipFile(path) as package:
        for entry in package.infolist():
            Path(unpacked, PurePosixPath(entry.filename).name).write_bytes(package.read(entry))
        processor = sentencepiece.SentencePieceProcessor(model_file=str(Path(unpacked, TOKENIZER)))
        encode = partial(processor.encode, out_type=str)
        return ctranslate2.reader_of(
            Path(unpacked), encode, lambda pieces: processor.decode_pieces(pieces).replace("▁", " ")
        )


EXPORTER = Exporter(check, write, load_exported)
