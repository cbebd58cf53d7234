"""`nmt serve` loads its models anew: whatever fails then is said, the old models translate on, and the next try works."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from untrained import write_untrained
from waiting import LIMIT, wait_until

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install '.[serve,dev]'")

from served import post, running

import nmt_cli as nmt
from nmt_cli.errors import NmtError

ERRORS = RuntimeError("order"), SystemExit("order"), UnicodeDecodeError("utf-8", b"", 0, 1, "order"), NmtError("order")


@pytest.mark.parametrize("error", ERRORS)
def test_any_error_of_a_reload_is_said(error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    with running(write_untrained(tmp_path / "model")) as served:
        texts = {"q": "the cat sees a dog.", "source": "en", "target": "de"}
        before = post(f"{served.url}/translate", json=texts).json()
        with monkeypatch.context() as broken:
            broken.setattr("nmt_cli.serving.models.load", fails)
            assert not served.models.reload()
        assert "the old ones stay in service" in served.said[-1]
        assert isinstance(error, NmtError) or type(error).__name__ in served.said[-1]
        assert "order" in served.said[-1]
        assert post(f"{served.url}/translate", json=texts).json() == before
        assert served.models.reload()
        assert post(f"{served.url}/translate", json=texts).json() == before
        assert (served.models.reloads, served.models.failed_reloads) == (1, 1)


def test_several_reloads_that_wait_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(write_untrained(tmp_path / "model")) as served:
        begun, gate = threading.Event(), threading.Event()

        def held(*arguments: Any, **options: Any) -> Any:
            begun.set()
            assert gate.wait(LIMIT)
            return nmt.load(*arguments, **options)

        monkeypatch.setattr("nmt_cli.serving.models.load", held)
        first = threading.Thread(target=served.models.reload)
        first.start()
        assert begun.wait(LIMIT)
        more = [threading.Thread(target=served.models.reload) for _ in range(5)]
        try:
            for thread in more:
                thread.start()
            wait_until(lambda: sum(thread.is_alive() for thread in more) == 1)
        finally:
            gate.set()
        for thread in (first, *more):
            thread.join()
        assert served.models.reloads == 2
