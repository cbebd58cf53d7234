"""The names that a recipe or an option can choose, and the object for each name.

A registry is a literal dict: name → "module:object". To add a norm, a metric, a search, …: write the object in a file
and add one line here. The recipe accepts the new name at once, because it checks its values against these dicts. The
module is imported only when the object is used, so this file needs neither torch nor any other package.

docs/extending.md describes the objects of each registry. A package outside nmt can add entries at run time:

    from nmt_cli.registry import NORMS
    NORMS["scale"] = "my_package.norms:scale_norm"
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .errors import NeedsTorch, UsageError, check_choice

# --- the model: [model] of a recipe ---

NORMS = {"layer": "nmt_cli.model.norms:layer_norm", "rms": "nmt_cli.model.norms:rms_norm"}
"""model.norm: config → module over (…, d_model)."""
RESIDUALS = {"post": "nmt_cli.model.residuals:PostNorm", "pre": "nmt_cli.model.residuals:PreNorm"}
"""model.residual: class of the residual connection around a sub-layer."""
ACTIVATIONS = {
    "relu": "nmt_cli.model.activations:relu",
    "gelu": "nmt_cli.model.activations:gelu",
    "silu": "nmt_cli.model.activations:silu",
    "swiglu": "nmt_cli.model.activations:SwiGLU",
}
"""model.activation: config → module between the two linear maps of a feed-forward network."""
POSITIONS = {
    "sinusoidal": "nmt_cli.model.positions:Sinusoidal",
    "learned": "nmt_cli.model.positions:Learned",
    "rotary": "nmt_cli.model.positions:Rotary",
    "marian": "nmt_cli.model.positions:Marian",
}
"""model.positions: class of the positional encoding."""

# --- training ---

SCHEDULES = {"inverse_sqrt": "nmt_cli.training.schedule:inverse_sqrt", "constant": "nmt_cli.training.schedule:constant"}
"""train.schedule: (step, [train]) → the shape of the learning rate (nmt_cli/training/schedule.py)."""
LOGGERS = {"tensorboard": "nmt_cli.training.loggers:TensorBoardLogger"}
"""--logger of nmt train: class that gets the training records, in addition to the run's own metrics.jsonl."""

# --- decoding ---

SEARCHES = {
    "beam": "nmt_cli.search.beam_search:BeamSearch",
    "sample": "nmt_cli.search.sampling:SamplingSearch",
    "mbr": "nmt_cli.search.mbr:MbrSearch",
    "diverse": "nmt_cli.search.diverse_beam_search:DiverseBeamSearch",
}
"""decode.search: (decoder, options) → `search.search.Search`."""
CONSTRAINTS = {
    "prefix": "nmt_cli.search.constraints.prefix:Prefix",
    "terms": "nmt_cli.search.constraints.terms:Terms",
    "no_repeat_ngram": "nmt_cli.search.constraints.no_repeat_ngram:NoRepeatNgram",
    "repetition_penalty": "nmt_cli.search.constraints.repetition_penalty:RepetitionPenalty",
    "banned_words": "nmt_cli.search.constraints.banned_words:BannedWords",
    "outputs": "nmt_cli.search.constraints.outputs:Outputs",
    "tree": "nmt_cli.parsing.constraint:TreeConstraint",
}
"""Rules that outputs obey: (value of the option, tokenizer of the target) → `search.constraint.Constraint`."""
LENGTH_PENALTIES = {
    "gnmt": "nmt_cli.search.length_penalties:gnmt",
    "average": "nmt_cli.search.length_penalties:average",
    "power": "nmt_cli.search.length_penalties:power",
    "none": "nmt_cli.search.length_penalties:none",
}
"""decode.length_penalty: (|Y|, alpha) → the divisor of log P."""
UTILITIES = {"chrf": "nmt_cli.search.utilities:chrf", "bleu": "nmt_cli.search.utilities:bleu"}
"""The utility of minimum Bayes risk decoding: n texts → (n, n), the score of each text as a hypothesis against each
text as a reference."""
PRECISIONS = {
    "fp32": "nmt_cli.model.precision:fp32",
    "bf16": "nmt_cli.model.precision:bf16",
    "fp16": "nmt_cli.model.precision:fp16",
    "int8": "nmt_cli.model.precision:int8",
}
"""--precision of nmt translate: model → the model whose linear maps compute in that precision."""

# --- tokenizers ---

TOKENIZERS = {"bpe": "nmt_cli.data.tokenizer:learn_from_words", "words": "nmt_cli.data.tokenizer:learn_symbols"}
"""data.target_tokenization: (words and their counts, [data], side) → `data.tokenizer.Tokenizer`."""

# --- trees: where [data] of a recipe has `terminals` ---

TREES = {
    "symbols": "nmt_cli.parsing.linearization:tree_symbols",
    "check": "nmt_cli.parsing.records:check_terminals",
    "word_tables": "nmt_cli.parsing.word_tables:word_tables",
}
"""What preparing and training ask of targets that are linearised trees: which words are one token each, whether files
have the recipe's kind of terminals, and which tokens begin and end words, for `model.monotonic`."""

# --- evaluation, export and import ---

METRICS = {
    "bleu": "nmt_cli.evaluation.bleu:SPEC",
    "chrf": "nmt_cli.evaluation.chrf:SPEC",
    "ter": "nmt_cli.evaluation.ter:SPEC",
    "evalb": "nmt_cli.parsing.metric:SPEC",
    "comet": "nmt_cli.evaluation.comet:SPEC",
}
"""--metric of nmt score: a MetricSpec."""
EXPORTERS = {
    "ctranslate2": "nmt_cli.exchange.ctranslate2:EXPORTER",
    "huggingface": "nmt_cli.exchange.huggingface:EXPORTER",
    "marian": "nmt_cli.exchange.marian:EXPORTER",
    "argos": "nmt_cli.exchange.argos:EXPORTER",
}
"""--to of nmt export: an Exporter."""

IMPORTERS = {
    "argos": "nmt_cli.exchange.argos:IMPORTER",
    "ctranslate2": "nmt_cli.exchange.ctranslate2_import:IMPORTER",
    "marian": "nmt_cli.exchange.marian:IMPORTER",
    "huggingface": "nmt_cli.exchange.huggingface_import:IMPORTER",
}
"""--from of nmt import: an Importer."""

# --- documents ---

FORMATS = {
    "text": "nmt_cli.documents.text:FORMAT",
    "html": "nmt_cli.documents.html:FORMAT",
    "xml": "nmt_cli.documents.xml:FORMAT",
}
"""--format of nmt translate: a Format (nmt_cli/documents/format.py)."""

# --- data ---

DATASETS = {
    "wmt14-en-de": "nmt_cli.corpora.wmt14:EN_DE",
    "wmt14-en-fr": "nmt_cli.corpora.wmt14:EN_FR",
    "multi30k": "nmt_cli.corpora.multi30k:EN_DE",
    "multi30k-en-fr": "nmt_cli.corpora.multi30k:EN_FR",
    "tatoeba-en-de": "nmt_cli.corpora.tatoeba:EN_DE",
    "tatoeba-en-fr": "nmt_cli.corpora.tatoeba:EN_FR",
}
"""nmt data NAME: a Dataset (nmt_cli/corpora/dataset.py)."""


def tree_function(name: str) -> Any:
    """Return a function of TREES. Raises UsageError if there are none."""
    if not TREES:
        raise UsageError("data.terminals is set, and this nmt has no parser: install the whole package.")
    return load(TREES, name, "a function for trees")


def load(registry: Mapping[str, str], name: str, what: str) -> Any:
    """Return the object that `registry` lists under `name`; `what` names the kind of choice in messages.

    Raises UsageError for a name that is not listed, or whose object cannot be imported; NeedsTorch.
    """
    check_choice(what, name, registry)
    module, _, attribute = registry[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise NeedsTorch(f"{what} {name!r}") from None
        raise UsageError(
            f"{what} {name!r} is listed as {registry[name]!r}, which cannot be imported: {error}."
        ) from None
