"""Waits for a sandbox: the time in which its image is being built does not count, unless the caller sets a limit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from paddock import Sandbox, WaitTimedOut
from paddock._sync import sandbox as module
from paddock._transport.blocking import Transport


def sandbox_with(reason: str, status: str = "False") -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "reason": reason, "message": "paddock/node:1 is being built: 40 s"}
    return {"metadata": {"name": "s"}, "status": {"conditions": [ready]}}


class ScriptedTransport:
    """Lists one state of the sandbox after the other; its watches end at once."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self._states = list(states)

    def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return {"items": [state], "metadata": {"resourceVersion": "1"}}

    @contextmanager
    def lines(self, *_: Any, **__: Any) -> Iterator[Iterator[str]]:
        yield iter(())


def waiting(*states: dict[str, Any]) -> Sandbox:
    return Sandbox(cast("Transport", ScriptedTransport(*states)), "default", "s")


def test_a_build_outlasts_the_default_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_READY_SECONDS", 1e-6)
    building, ready = sandbox_with("ImageBuilding"), sandbox_with("Running", "True")
    assert waiting(building, building, building, ready).wait_until("Ready").ready


def test_a_limit_of_the_callers_holds_and_says_why() -> None:
    with pytest.raises(WaitTimedOut, match="ImageBuilding: paddock/node:1 is being built: 40 s"):
        waiting(sandbox_with("ImageBuilding")).wait_until("Ready", timeout=0.0)
