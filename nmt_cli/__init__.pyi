"""The public names, for type checkers; `__init__.py` imports them when they are used."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from .errors import NmtError as NmtError
from .interface.attention import Attended as Attended
from .interface.attention import attend as attend
from .interface.calibration import Calibrated as Calibrated
from .interface.calibration import calibrate as calibrate
from .interface.commands import Run as Run
from .interface.commands import average as average
from .interface.commands import export as export
from .interface.commands import forecast as forecast
from .interface.commands import import_model as import_model
from .interface.commands import preprocess as preprocess
from .interface.commands import quantize as quantize
from .interface.commands import train as train
from .interface.evaluation import Evaluation as Evaluation
from .interface.evaluation import evaluate as evaluate
from .interface.evaluation_options import Text
from .interface.fetching import datasets as datasets
from .interface.fetching import fetch as fetch
from .interface.information import info as info
from .interface.init import init as init
from .interface.models import available as available
from .interface.models import get_model as get_model
from .interface.models import models as models
from .interface.parsing import Parse as Parse
from .interface.planning import Initialized as Initialized
from .interface.progress import Progress as Progress
from .interface.translator import Translator as Translator
from .interface.translator import load as load
from .interface.trees import TreeFiles as TreeFiles
from .interface.trees import brackets as brackets
from .interface.trees import trees as trees
from .translation.line import Candidate as Candidate
from .translation.line import Line as Line
from .translation.line import Translation as Translation

__version__: str

class EvaluationKeywords(TypedDict, total=False):
    """The fields of `interface.evaluation_options.EvaluationOptions`."""

    metrics: Sequence[str] | None
    lowercase: bool
    tokenize: str | None
    ter_asian: bool
    comet_model: str | Path | None
    evalb_repair: bool
    protocol: str | None
    language: str | None
    no_compounds: bool
    tokenized_ref: bool
    significance: str | None
    confidence: bool
    samples: int | None
    seed: int | None
    by_length: bool
    lengths: str | None
    source: Text | None
    worst: int | None

class TrainKeywords(TypedDict, total=False):
    """The fields of `interface.commands.TrainOptions`."""

    run: str | Path | None
    data: str | Path | None
    devices: int
    device: str
    precision: str
    threads: int
    memory_limit: str
    compiled: bool
    loggers: Sequence[str]
