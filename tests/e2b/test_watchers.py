"""Watchers of folders: what a sandbox says of its files takes bounded memory, and none stays open unused."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from controller.e2b.envd import watch
from controller.e2b.envd.watch import Memory, Reports, WatchCalls, count_of, looks
from controller.e2b.fields import Fields
from controller.kinds.common.chunk import Chunk
from controller.service.errors import Gone, TooManyRequests

_PLACE: Any = SimpleNamespace(namespace="default", name="sb", obj=SimpleNamespace(uid="uid"), absolute=str)


class Events:
    """Events of a folder, all there at once; then it says nothing until it is closed."""

    def __init__(self, count: int = 0, size: int = 1) -> None:
        self._count, self._name = count, b"n" * size
        self.read, self.closed = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[Chunk]:
        for _ in range(self._count):
            yield Chunk("create", self._name)
        self.read.set()
        assert self.closed.wait(60)

    def close(self) -> None:
        """Close it."""
        self.closed.set()


def _reports(memory: Memory, count: int, size: int, uid: str = "uid") -> Reports:
    events: Any = Events(count, size)
    reports = Reports(uid, events, memory)
    assert events.read.wait(10)
    return reports


def test_events_over_the_memory_are_said_lost() -> None:
    memory = Memory()
    few, many = _reports(memory, 3, 4096), _reports(memory, 300, 4096)
    with pytest.raises(Gone, match="lost"):
        many.take()
    assert many.take() == []
    assert few.take() == [{"name": "n" * 4096, "type": "EVENT_TYPE_CREATE"}] * 3
    few.close()
    many.close()


@pytest.mark.parametrize(("per_sandbox", "room"), [(40, 4), (1, 32)])
def test_watchers_together_have_bounded_memory(per_sandbox: int, room: int) -> None:
    memory, full = Memory(), 250
    reports = [_reports(memory, full, 4096, f"uid-{number // per_sandbox}") for number in range(40)]
    small = _reports(memory, 5, 4096, "uid-0")
    assert len(small.take()) == 5, "the share of one is its own"
    with_all = 0
    for gathering in reports:
        with suppress(Gone):
            assert len(gathering.take()) == full
            with_all += 1
    assert with_all == room
    after = _reports(memory, full, 4096)
    assert len(after.take()) == full, "what was taken is free"
    for gathering in (*reports, small, after):
        gathering.close()


class Filesystem:
    """Folders of so many files."""

    files = 0

    async def items(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        """Return the entries."""
        entry = {"type": "file", "size": 1, "modified": 1.0, "mode": "0644"}
        return [{"name": str(number), **entry} for number in range(self.files)]


def _calls(events: Events | None, filesystem: Any = Filesystem()) -> WatchCalls:
    watches: Any = SimpleNamespace(open=lambda *_, **__: events)
    return WatchCalls(filesystem or Filesystem(), watches)


def test_a_refused_watcher_leaves_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_MOST", 1)
    events = Events()
    calls = _calls(events)

    async def create() -> list[Any]:
        creations = (calls.create_watcher(_PLACE, Fields({"path": "/"})) for _ in range(2))
        return await asyncio.gather(*creations, return_exceptions=True)

    answers = asyncio.run(create())
    assert [isinstance(answer, TooManyRequests) for answer in answers].count(True) == 1
    assert events.closed.wait(10)


def test_a_client_that_leaves_first_ends_the_watch() -> None:
    events = Events()

    async def leave() -> None:
        frames = await _calls(events).watch_dir(_PLACE, Fields({"path": "/"}), 1.0, None)
        del frames

    asyncio.run(leave())
    assert events.closed.wait(10)


def test_a_growing_folder_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_MOST_NAMES", 10)
    filesystem = Filesystem()
    calls = _calls(None, filesystem)

    async def grow() -> None:
        watcher = Fields(await calls.create_watcher(_PLACE, Fields({"path": "/"})))
        filesystem.files = 10
        assert len((await calls.get_watcher_events(_PLACE, watcher))["events"]) == 10
        filesystem.files = 11
        with pytest.raises(TooManyRequests):
            await calls.get_watcher_events(_PLACE, watcher)
        filesystem.files = 9
        assert len((await calls.get_watcher_events(_PLACE, watcher))["events"]) == 1

    asyncio.run(grow())


def test_long_names_and_links_count_as_many() -> None:
    item = {"type": "file", "size": 1, "modified": 1.0, "mode": "0644"}
    assert count_of(looks([{"name": "a", **item}, {"name": "b" * 300, **item}])) == 3
    assert count_of(looks([{"name": "a", "target": "b" * 300, **item}])) == 2
