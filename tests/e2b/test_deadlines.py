"""Time-outs that pause a sandbox: they need no request, and one that fails keeps no other from its time."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from controller.api.server.first_request import FirstRequestServer
from controller.app.e2b import has_time_outs
from controller.e2b import metadata
from controller.e2b.control.deadlines import Deadlines
from controller.kinds.meta import StoredObject
from tests.conftest import HandClock

_PAUSES = {metadata.ENDS: "1", metadata.ON_TIMEOUT: "pause"}
_OBJECT = StoredObject("Sandbox", "default", "sb", "uid-1", {}, labels={metadata.LABEL: "true"}, annotations=_PAUSES)


def test_time_outs_need_no_request() -> None:
    paused, all_paused = list[str](), threading.Event()

    async def pause(_namespace: str, name: str, _uid: str, _now: float) -> None:
        paused.append(name)
        if name == "broken":
            raise RuntimeError("not a refusal")
        all_paused.set()

    deadlines = Deadlines(HandClock(), pause)
    deadlines.follow(replace(_OBJECT, name="broken", uid="uid-0"))
    deadlines.follow(_OBJECT)
    assert all_paused.wait(20)
    deadlines.follow(replace(_OBJECT, name="broken", uid="uid-0", annotations={}))


@pytest.mark.parametrize(("annotations", "expected"), [(_PAUSES, True), ({metadata.ENDS: "1"}, False)])
def test_a_stored_time_out_needs_the_listener(annotations: dict[str, str], expected: bool) -> None:
    def stored(*_: Any, labels: str) -> Any:
        assert labels == f"{metadata.LABEL}=true"
        return SimpleNamespace(objects=[replace(_OBJECT, annotations=annotations)])

    objects: Any = SimpleNamespace(list=stored)
    assert has_time_outs(objects) is expected


def test_a_needed_listener_is_built_at_once() -> None:
    event = threading.Event()

    def make() -> Any:
        event.set()
        return PlainTextResponse("hello")

    server = FirstRequestServer(make, ("127.0.0.1", 0), "e2b_address", is_needed=lambda: True)
    server.start()
    try:
        assert event.wait(20)
    finally:
        server.stop()
