"""Slow starts and pauses: a start that outlasts the sandbox's time, and a pause that the engine refuses."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.e2b import metadata
from controller.e2b.control import Control
from controller.e2b.deadlines import Deadlines
from controller.e2b.parts import Parts, Rules
from controller.kinds.meta import StoredObject
from controller.service.errors import Conflict, ServiceUnavailable
from tests.conftest import HandClock
from tests.helpers_api import World
from tests.helpers_fixtures import quiet, world

__all__ = ["quiet", "world"]
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


def control_of(world: World, folder: Path) -> Control:
    """The use-cases over a world, for its own process, which needs no token."""
    nobody: Any = None
    return Control(
        Parts(world.services, nobody, nobody, world.clock, Rules("e2b.localhost", {}, folder)), nobody, nobody
    )


class Resumption:
    """The resumption of a paused sandbox, whose container a test starts."""

    def __init__(self, world: World, folder: Path) -> None:
        world.apply()
        paused = {**world.sandbox().spec, "runState": "Paused"}
        annotations = {name: text for name, text in _PAUSES.items() if name != metadata.ENDS}
        self._obj = world.change(spec=paused, labels={metadata.LABEL: "true"}, annotations=annotations)
        self._control, self._world = control_of(world, folder), world

    async def begin(self) -> "asyncio.Task[StoredObject]":
        """Return it once the sandbox is asked to run."""
        task = asyncio.create_task(self._control.resume(self._obj))
        while self._world.sandbox().spec["runState"] != "Running":
            await asyncio.sleep(0.001)
        return task


def test_time_counts_from_when_it_runs(world: World, tmp_path: Path) -> None:
    resumption = Resumption(world, tmp_path)

    async def resume() -> StoredObject:
        task = await resumption.begin()
        world.clock.advance(5)
        world.set_ready(observed=world.sandbox().generation)
        return await task

    obj = asyncio.run(resume())
    assert metadata.seconds_in(obj, metadata.ENDS) == world.clock.now() + 2
    assert world.sandbox().annotations == obj.annotations


def test_who_waits_is_told_of_a_pause(world: World, tmp_path: Path) -> None:
    resumption = Resumption(world, tmp_path)

    async def resume() -> None:
        task = await resumption.begin()
        world.change(spec={**world.sandbox().spec, "runState": "Paused"})
        await asyncio.wait_for(task, 20)

    with pytest.raises(Conflict, match="was paused meanwhile; connect to it"):
        asyncio.run(resume())


async def paused(world: World, folder: Path, *reasons: str) -> None:
    """Pause a running sandbox, whose Ready condition then has these reasons, one after the other."""
    world.apply()
    world.change(labels={metadata.LABEL: "true"})
    task = asyncio.create_task(control_of(world, folder).pause("quickstart", memory=True))
    while world.sandbox().spec.get("runState") != "Paused":
        await asyncio.sleep(0.001)
    for reason in reasons:
        assert not task.done()
        world.set_ready("False", reason, "unable to freeze", world.sandbox().generation)
        await asyncio.wait([task], timeout=0.05)
    await asyncio.wait_for(task, 20)


def test_a_pause_is_over_when_it_stands_still(world: World, tmp_path: Path) -> None:
    asyncio.run(paused(world, tmp_path, "Pausing", "Paused"))


def test_a_pause_that_the_engine_refuses_says_so(world: World, tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match="is not paused yet, and will be: unable to freeze"):
        asyncio.run(paused(world, tmp_path, "Pausing", "EngineError"))
