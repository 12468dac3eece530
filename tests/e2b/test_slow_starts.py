"""Slow starts and pauses: a start that outlasts the sandbox's time, and a pause that the engine refuses."""

import asyncio
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.e2b import metadata
from controller.e2b.control.deadlines import Deadlines
from controller.e2b.control.sandboxes import Control, is_settled, state_of
from controller.e2b.fields import Fields
from controller.e2b.parts import Parts, Rules
from controller.kinds.meta import StoredObject
from controller.service.errors import Conflict, ServiceUnavailable
from tests.conftest import HandClock
from tests.daemon import wait_for
from tests.helpers_api import QUICKSTART, ApiStack
from tests.helpers_fixtures import api, quiet

__all__ = ["api", "quiet"]
_PAUSES = {metadata.ENDS: "1", metadata.ON_TIMEOUT: "pause", metadata.AUTO_RESUME: "2"}
_OBJECT = StoredObject("Sandbox", "default", "sb", "uid-1", {}, labels={metadata.LABEL: "true"}, annotations=_PAUSES)


def test_no_time_out_pauses_what_starts() -> None:
    paused, events = list[str](), {"sb": threading.Event(), "starting": threading.Event()}

    async def pause(_namespace: str, name: str, _uid: str, _now: float) -> None:
        paused.append(name)
        events[name].set()

    deadlines = Deadlines(HandClock(), pause)
    with deadlines.starting("uid-0"):
        deadlines.follow(replace(_OBJECT, name="starting", uid="uid-0"))
        deadlines.follow(_OBJECT)
        assert events["sb"].wait(20)
        assert paused == ["sb"]
    assert events["starting"].wait(20)


def control_of(api: ApiStack, folder: Path, patience: float = 50.0) -> Control:
    """The use-cases over an API stack, for its own process, which needs no token."""
    nobody: Any = None
    identity: Any = SimpleNamespace(issue=lambda *_: "token")
    variables: Any = SimpleNamespace(save=lambda *_: None, forget=lambda _: None)
    parts = Parts(api.services, nobody, nobody, api.clock, Rules("e2b.localhost", {}, folder))
    return Control(parts, identity, variables, patience)


class DeadlineSteps(Deadlines):
    """Deadlines that pause nothing, with the steps that were taken."""

    def __init__(self) -> None:
        async def pause(*_: Any) -> None:
            pass

        super().__init__(HandClock(), pause)
        self.steps: list[str] = []

    @contextmanager
    def starting(self, uid: str) -> Iterator[None]:
        self.steps.append("starts")
        with super().starting(uid):
            yield
        self.steps.append("runs")

    def follow(self, obj: StoredObject) -> None:
        self.steps.append("followed")
        super().follow(obj)


@pytest.mark.parametrize("request_name", ["create", "connect", "resume"])
def test_no_start_is_followed_before_it_begins(api: ApiStack, tmp_path: Path, request_name: str) -> None:
    control = control_of(api, tmp_path)
    control.deadlines = deadlines = DeadlineSteps()
    name = "quickstart"
    if request_name != "create":
        api.apply()
        annotations = {key: text for key, text in _PAUSES.items() if key != metadata.ENDS}
        spec = {**api.sandbox().spec, "runState": "Paused"}
        api.change(spec=spec, labels={metadata.LABEL: "true"}, annotations=annotations)
    requests = {
        "create": lambda: control.create(Fields({"templateID": "paddock/base:1", "autoPause": True})),
        "connect": lambda: control.connect(name, Fields({})),
        "resume": lambda: control.resume(api.sandbox()),
    }

    async def ask() -> None:
        task = asyncio.ensure_future(requests[request_name]())
        while not (stored := [obj for obj in api.store.list("Sandbox")[0] if state_of(obj) == "running"]):
            assert not task.done()
            await asyncio.sleep(0.001)
        api.set_ready(name=stored[0].name, observed=stored[0].generation)
        await task

    asyncio.run(ask())
    assert deadlines.steps == ["starts", "followed", "runs"]


class Resumption:
    """The resumption of a paused sandbox, whose container a test starts."""

    def __init__(self, api: ApiStack, folder: Path) -> None:
        api.apply()
        paused = {**api.sandbox().spec, "runState": "Paused"}
        annotations = {name: text for name, text in _PAUSES.items() if name != metadata.ENDS}
        self._obj = api.change(spec=paused, labels={metadata.LABEL: "true"}, annotations=annotations)
        self._control, self._api = control_of(api, folder), api

    async def begin(self) -> "asyncio.Task[StoredObject]":
        """Return it once the sandbox is asked to run."""
        task = asyncio.create_task(self._control.resume(self._obj))
        while self._api.sandbox().spec["runState"] != "Running":
            await asyncio.sleep(0.001)
        return task


def test_time_counts_from_when_it_runs(api: ApiStack, tmp_path: Path) -> None:
    resumption = Resumption(api, tmp_path)

    async def resume() -> StoredObject:
        task = await resumption.begin()
        api.clock.advance(5)
        api.set_ready(observed=api.sandbox().generation)
        return await task

    obj = asyncio.run(resume())
    assert metadata.seconds_in(obj, metadata.ENDS) == api.clock.now() + 2
    assert api.sandbox().annotations == obj.annotations


def test_who_waits_is_told_of_a_pause(api: ApiStack, tmp_path: Path) -> None:
    resumption = Resumption(api, tmp_path)

    async def resume() -> None:
        task = await resumption.begin()
        api.change(spec={**api.sandbox().spec, "runState": "Paused"})
        await asyncio.wait_for(task, 20)

    with pytest.raises(Conflict, match="was paused meanwhile; connect to it"):
        asyncio.run(resume())


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        *((reason, True) for reason in ("Paused", "Hibernated", "Suspended")),
        *((reason, False) for reason in ("Pausing", "Hibernating", "Suspending", "BeingCaptured")),
    ],
)
def test_a_pause_is_over_when_it_stands_still(reason: str, expected: bool) -> None:
    assert is_settled(resting(reason)) is expected


@pytest.mark.parametrize(
    "reason", ["EngineError", "Conflict", "InternalError", "NotHibernated", "HibernationUnavailable", "FilesTooLarge"]
)
def test_what_prevents_a_pause_is_said(reason: str) -> None:
    with pytest.raises(ServiceUnavailable, match="sandbox sb is not paused yet: unable to freeze"):
        is_settled(resting(reason))


def test_what_nobody_has_seen_is_not_paused() -> None:
    assert not is_settled(resting("EngineUnreachable", status="Unknown"))
    assert not is_settled(resting("EngineError", generation=2))
    assert not is_settled(resting("Paused", generation=2))


def test_who_pauses_is_told_of_a_resumption() -> None:
    with pytest.raises(ServiceUnavailable, match="sandbox sb is not paused: it was resumed meanwhile"):
        is_settled(replace(resting("Paused"), spec={"runState": "Running"}))


def resting(reason: str, status: str = "False", generation: int = 1) -> StoredObject:
    """Return a sandbox that is to be paused, as it was observed in its first generation."""
    ready = {"type": "Ready", "status": status, "reason": reason, "message": "unable to freeze"}
    conditions = [{**ready, "observedGeneration": 1}]
    return replace(_OBJECT, spec={"runState": "Paused"}, status={"conditions": conditions}, generation=generation)


async def pause(api: ApiStack, folder: Path, reason: str = "", patience: float = 50.0) -> None:
    """Pause a running sandbox, whose Ready condition then has this reason; none: nobody looks at it."""
    api.apply()
    api.change(labels={metadata.LABEL: "true"})
    task = asyncio.create_task(control_of(api, folder, patience).pause("quickstart", memory=True))
    while api.sandbox().spec.get("runState") != "Paused":
        await asyncio.sleep(0.001)
    if reason:
        api.set_ready("False", reason, "unable to freeze", api.sandbox().generation)
    await task


def test_who_pauses_waits_for_the_end(api: ApiStack, tmp_path: Path) -> None:
    asyncio.run(pause(api, tmp_path, "Paused"))


def test_a_pause_that_the_engine_refuses_says_so(api: ApiStack, tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match="is not paused yet: unable to freeze"):
        asyncio.run(pause(api, tmp_path, "EngineError"))


def test_a_pause_that_takes_too_long_says_so(api: ApiStack, tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match="was not paused in 0 s: it was not observed so far"):
        asyncio.run(pause(api, tmp_path, patience=0))


def test_no_freeze_delays_another_time_out(api: ApiStack, tmp_path: Path) -> None:
    names = ("quickstart", "second")
    for name in names:
        api.apply(QUICKSTART.replace("quickstart", name))
        api.change(name, labels={metadata.LABEL: "true"}, annotations=_PAUSES)
    control_of(api, tmp_path, patience=math.inf)
    for name in names:
        wait_for("it is to be paused", lambda name=name: api.sandbox(name).spec.get("runState") == "Paused")
