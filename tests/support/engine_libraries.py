"""The libraries of the engine that run on this machine."""

from nmt_cli.device.processor import cpu_flags
from nmt_cli.engine import library as engine


def runs(name: str) -> bool:
    """Return whether a library is built, and computes here with the instructions of its name: a system may refuse AMX."""
    if not engine.path_of(name).is_file() or not engine.NEEDS[name] <= cpu_flags():
        return False
    loaded, reason = engine._loaded(engine.path_of(name))
    assert loaded is not None, reason
    return bool(loaded.nmt_instructions().decode() == name)


RUNNING = list(filter(runs, engine.NEEDS))
"""Libraries that run here, the fastest first."""
