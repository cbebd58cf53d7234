"""Every library of the engine that runs here, and several numbers of threads, for tests of its operations of training."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from nmt_cli.engine.library import NEEDS, _lacking, _loaded, path_of
from nmt_cli.kernels.cpu_training import calls


def every_engine(kernel: ModuleType) -> Iterator[None]:
    """Let this file of nmt_cli/kernels/cpu_training call one after the other, with 1 thread and with 3."""
    with pytest.MonkeyPatch.context() as patch:
        for name in NEEDS:
            if not path_of(name).is_file() or _lacking(name):
                continue
            loaded = _loaded(path_of(name))[0]
            for module in (kernel, calls):
                patch.setattr(module, "library", lambda loaded=loaded: loaded)
            for threads in (3, 1):
                calls.use_threads(threads)
                yield
