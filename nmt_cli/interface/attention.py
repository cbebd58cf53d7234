"""`nmt attend` as a function: the attention of every head while a sentence is translated, or for a given translation.

sentence ──▶ search, or the given target ──▶ one pass in fp32 (`translation.attention_maps`)
    ──▶ AttentionRecord ──▶ page, pictures
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DataError, UsageError, extra_module
from ..text.lines import well_formed
from .commands import Overrides, changes_of
from .options import TranslateKeywords

if TYPE_CHECKING:
    from ..translation.attention_maps import AttentionRecord
    from ..translation.line import Translation
    from .loading import StoredModels
    from .translator import Translator

PNG = ".png"
OTHER_FORMATS = (".svg", ".pdf", ".jpg", ".jpeg", ".gif", ".webp")


@dataclass(frozen=True)
class Attended:
    """A sentence, its translation, the attention of every head, and the files that were written."""

    record: AttentionRecord
    """Its `views` hold the weights, (layers, heads, rows, columns), and the tokens of rows and columns."""
    files: tuple[Path, ...]


def attend(
    sentence: str,
    *,
    model: str | Path | None = None,
    target: str | None = None,
    out: str | Path | None = None,
    png: str | Path | None = None,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    beam: int | None = None,
    alpha: float | None = None,
    max_extra: int | None = None,
    min_length: int | None = None,
    target_language: str | None = None,
    overrides: Overrides = (),
    device: str = "auto",
    precision: str = "fp32",
    chosen: Callable[[Path], None] = lambda _: None,
) -> Attended:
    """Translate a sentence, or take `target` as its translation, and return the attention of every head.

    If `out` is given, a page is written there; if `png` is given, pictures are written there. `nmt attend --help`
    describes the options; `overrides` change keys of [decode]. If `model` is a run folder, `chosen` is called with the
    model folder in it. Raises UsageError, ModelError, and DataError for a sentence that is blank, has several lines, or
    is longer than the model's maximum.
    """
    options = TranslateKeywords(
        beam=beam,
        alpha=alpha,
        max_extra=max_extra,
        min_length=min_length,
        target_language=target_language,
        overrides=changes_of(overrides),
    )
    page, pictures = (None if path is None else Path(path) for path in (out, png))
    _check(target, page, pictures)
    if any(line.strip() for line in sentence.split("\n")[1:]):
        raise DataError("the sentence has more than one line: attend takes one sentence. Call it once for each.")
    sentence = sentence.partition("\n")[0]
    if not sentence.strip():
        raise DataError(f"the sentence {sentence!r} is empty: expected a sentence to translate.")

    from ..translation.attention_maps import check_selection, select_views
    from .translator import load

    translator = load(model, device=device, precision=precision, chosen=chosen)
    check_selection(translator.stored.recipe.model, kind, layer, head)
    given = well_formed(target.replace("\n", " ")) if target else None
    whole = _record(translator, well_formed(sentence), given, options)
    record = replace(whole, views=select_views(whole.views, kind, layer, head))
    written = [_write_page(page, record)] if page else []
    return Attended(record, (*written, *(_write_pictures(pictures, record, kind) if pictures else [])))


def _check(target: str | None, out: Path | None, png: Path | None) -> None:
    """Raise UsageError for an empty translation, wrong paths of page or pictures, and pictures without matplotlib."""
    if target is not None and not target.strip():
        raise UsageError(f"--target {target!r} is empty: expected a translation.")
    if out and out.is_dir():
        raise UsageError(f"--out {str(out)!r} is a folder: expected a file, such as {str(out / 'attention.html')!r}.")
    if png and png.suffix.lower() != PNG and (png.is_file() or png.suffix.lower() in OTHER_FORMATS):
        raise UsageError(f"--png {str(png)!r}: expected a file whose name ends in {PNG}, or a folder.")
    if png:
        extra_module("matplotlib", "plots", "--png")


def cross_attention_of(translator: Translator, translation: Translation) -> list[list[float]]:
    """Return the weights of encoder-decoder attention: for each token of the translation, a list with a weight per
    token of the source.

    The weights are those of the head that was trained to align (`model.guided_alignment_layer`), else the mean over the
    heads of the second-to-last decoder layer, from one pass in fp32 over the sentence and its translation. The weights
    of the source's end symbol and of the tag of its target language are left out, so a
    row sums to at most 1. The list is empty if the line is blank, was translated in parts, or is longer than the
    model's maximum. For an ensemble, the first model's weights are returned.
    """
    from ..data.tokenizer import BOS, EOS
    from ..translation.alignment import cross_attention

    stored = translator.stored
    sentences = translator.with_options({}).prepare([translation.source], translation.target_language).sentences
    target = _ids(stored, translation.tokens)
    longest = stored.recipe.model.max_positions - 1
    if len(sentences) != 1 or not target or max(len(sentences[0].tokens), len(target)) > longest:
        return []
    [source] = sentences
    weights = cross_attention(stored.forced(), [*source.tokens, *[EOS] * source.ended], [BOS, *target[:-1]])
    rows: list[list[float]] = weights[:, source.first : len(source.tokens)].tolist()
    return rows


def _ids(stored: StoredModels, tokens: Sequence[str]) -> list[int]:

    numbers = {piece: number for number, piece in enumerate(stored.vocabulary.target.table)}
    return [numbers[piece] for piece in tokens]


def _record(translator: Translator, text: str, target: str | None, options: TranslateKeywords) -> AttentionRecord:
    """Return the attention for `text` and its translation: `target`, or the result of the search.

    Raises DataError if the sentence is longer than the model's maximum.
    """
    from ..translation.attention_maps import AttentionRecord, compute_attention

    stored = translator.stored
    stored.tags.check(text)
    language = stored.tags.chosen(options.get("target_language"))
    ready = translator.with_options(options)
    prepared = ready.prepare([text], language)
    sentences = prepared.sentences
    if not sentences and not prepared.too_long:
        raise DataError(f"the sentence {text!r} has no characters that the model's tokenizer keeps: expected words.")
    if len(sentences) != 1:
        how = f"translates it in {len(sentences):,} parts" if sentences else "does not translate it"
        raise DataError(
            f"the sentence has {len(stored.tags.encode([text], language)[0]):,} tokens: nmt translate {how}, "
            f"because the model translates a sentence of up to {ready.longest:,} tokens whole, and several sentences "
            f"of up to {ready.safe_length:,} tokens. Give one of its parts."
        )
    if target is None:
        [result] = translator.translate([text], **options)
        translation, output = result.text, _ids(stored, result.tokens)
    else:
        translation, [output] = target, stored.vocabulary.target.encode([target])
    source = sentences[0].tokens
    views, log_prob = compute_attention(stored.forced(), stored.vocabulary, source, output)
    score = ready.search.score(log_prob, len(output) + 1)
    folder = str(stored.folders[0]).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return AttentionRecord(folder, text, translation, log_prob, score, views)


def _write_page(path: Path, record: AttentionRecord) -> Path:
    from ..reporting.attention_page import not_a_page, page
    from ..storage.output_paths import output_file

    content = page(record).encode("utf-8")
    with output_file(path, "the page", ours=not_a_page) as stream:
        stream.write(content)
    return path


def _write_pictures(path: Path, record: AttentionRecord, kind: str | None) -> list[Path]:
    """Write one picture to the file `path`, or one picture per kind into the folder `path`. Return the files."""
    from ..reporting.attention_plot import not_a_picture, picture
    from ..storage.output_paths import output_file

    if path.suffix.lower() == PNG:
        [view] = [view for view in record.views if view.kind == (kind or "cross")] or record.views[:1]
        files = {path: view}
    else:
        files = {path / f"{view.kind}{PNG}": view for view in record.views}
    for file, view in files.items():
        content = picture(view, record)
        with output_file(file, "the picture", ours=not_a_picture) as stream:
            stream.write(content)
    return list(files)
