"""filesystem.Filesystem: changes below a folder, as the sandbox's agent says them, else by comparing listings.

Listings are compared where the sandbox has no agent, the host no inotify left, or the client asks for files' entries.
Nothing is looked at while nobody watches.
"""

import asyncio
import math
import posixpath
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from controller.e2b.errors import Ended
from controller.e2b.fields import Fields
from controller.e2b.filesystem import FilesystemCalls, entry, path_of
from controller.e2b.frames import frame
from controller.e2b.parts import on_thread
from controller.e2b.workplace import Workplace
from controller.kinds.common.chunk import Chunk
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import NotFound, ServiceError, ServiceUnavailable, TooManyRequests
from controller.service.exec.relay import Relay
from controller.service.sandbox.folder_watch import FolderEvents, FolderWatches

POLL_SECONDS = 0.25
_DEPTH = 64
_MOST_OF_ONE, _MOST = 32, 1024
_UNUSED_SECONDS = 3600.0
_MOST_GATHERED = 10_000  # events that a client has not asked for; then the oldest go
_MOST_NAMES_OF_ONE, _MOST_NAMES = 50_000, 500_000  # that watchers remember
Look = tuple[Any, ...]  # type, size, time, link and mode of a file
Listing = Mapping[str, Look]
_MODE = -1


class Reports:
    """Events of an agent, gathered on a thread of its own until a client asks for them, or has not for long."""

    def __init__(self, events: FolderEvents) -> None:
        self._events, self._gathered = events, deque[dict[str, Any]](maxlen=_MOST_GATHERED)
        self._used_at = time.monotonic()
        self._error: ServiceError | None = None
        threading.Thread(target=self._read, name="e2b-watch", daemon=True).start()

    def _read(self) -> None:
        try:
            for chunk in self._events:
                if chunk.stream:
                    self._gathered.append(event_of(chunk))
                elif time.monotonic() - self._used_at > _UNUSED_SECONDS:
                    break
        except ServiceError as error:
            self._error = error
        finally:
            self._events.close()

    def take(self) -> list[dict[str, Any]]:
        """Return what has been gathered since the call before. Raises ServiceError once the folder is not watched."""
        self._used_at = time.monotonic()
        events: list[dict[str, Any]] = []
        while self._gathered:
            events.append(self._gathered.popleft())
        if not events and self._error is not None:
            raise self._error
        return events

    def close(self) -> None:
        """End it."""
        self._events.close()


@dataclass(slots=True)
class Watcher:
    """A folder, as it was at the last look. `with_entry`: events have the file's entry. `reports`: of its agent."""

    uid: str
    path: str
    depth: int
    with_entry: bool
    listing: Listing
    used_at: float
    reports: Reports | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class WatchCalls:
    """The calls. One stalled folder delays no other."""

    def __init__(self, filesystem: FilesystemCalls, watches: FolderWatches) -> None:
        self._filesystem, self._watches = filesystem, watches
        self._watchers: OrderedDict[str, Watcher] = OrderedDict()

    async def watch_dir(
        self, place: Workplace, message: Fields, keepalive: float, seconds: float | None
    ) -> AsyncIterator[bytes]:
        """Return the changes below a folder as they happen. Raises ServiceError."""
        watcher, events = await self._new_watcher(place, message)
        if events is not None:
            return self._reported(events, keepalive, seconds)
        return self._events(place, watcher, keepalive, seconds)

    async def _reported(self, events: FolderEvents, keepalive: float, seconds: float | None) -> AsyncIterator[bytes]:
        relay = Relay(lambda: events)
        batches, following = relay.batches(), None
        try:
            yield frame({"start": {}})
            end = math.inf if seconds is None else time.monotonic() + seconds
            while True:
                following = following or asyncio.ensure_future(anext(batches, ()))
                await asyncio.wait({following}, timeout=max(0.0, min(keepalive, end - time.monotonic())))
                if time.monotonic() >= end:
                    raise Ended("the time of this watch has passed")
                if not following.done():
                    yield frame({"keepalive": {}})
                    continue
                chunks, following = following.result(), None
                for chunk in chunks:
                    yield frame({"filesystem": event_of(chunk)} if chunk.stream else {"keepalive": {}})
                if not chunks:
                    raise ServiceUnavailable("the folder is not watched any more: the sandbox has stopped")
        finally:
            if following is not None:
                following.cancel()
            relay.stop()

    async def _events(
        self, place: Workplace, watcher: Watcher, keepalive: float, seconds: float | None
    ) -> AsyncIterator[bytes]:
        yield frame({"start": {}})
        start_time = sent = time.monotonic()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            events = await self._changes(place, watcher)
            now = time.monotonic()
            for event in events:
                yield frame({"filesystem": event})
            if events:
                sent = now
            elif now - sent >= keepalive:
                yield frame({"keepalive": {}})
                sent = now
            if seconds is not None and now - start_time >= seconds:
                raise Ended("the time of this watch has passed")

    async def create_watcher(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Create a watcher, whose events the client asks for. Raises ServiceError."""
        self._forget_unused()
        self._refuse_more(place)
        watcher, events = await self._new_watcher(place, message)
        self._refuse_more(place, len(watcher.listing))
        watcher.reports = None if events is None else Reports(events)
        id_ = secrets.token_hex(8)
        self._watchers[id_] = watcher
        return {"watcherId": id_}

    def _refuse_more(self, place: Workplace, names: int = 0) -> None:
        """Raise TooManyRequests if there is no room for another watcher of so many names."""
        of_one = [watcher for watcher in self._watchers.values() if watcher.uid == place.obj.uid]
        if len(of_one) >= _MOST_OF_ONE or len(self._watchers) >= _MOST:
            raise TooManyRequests(f"sandbox {place.name} has {len(of_one)} watchers; stop some of them")
        names_of_one = names + sum(len(watcher.listing) for watcher in of_one)
        names_of_all = names + sum(len(watcher.listing) for watcher in self._watchers.values())
        if names_of_one > _MOST_NAMES_OF_ONE or names_of_all > _MOST_NAMES:
            raise TooManyRequests(f"the watched folders of sandbox {place.name} are too large together; stop some")

    async def get_watcher_events(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Return the changes since the call before. Raises NotFound."""
        watcher = self._watcher(place, message.text("watcherId"))
        if watcher.reports is not None:
            return {"events": watcher.reports.take()}
        async with watcher.lock:
            return {"events": await self._changes(place, watcher)}

    async def remove_watcher(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Remove a watcher. Raises NotFound."""
        id_ = message.text("watcherId")
        self._end(self._watcher(place, id_), id_)
        return {}

    def _end(self, watcher: Watcher, id_: str) -> None:
        self._watchers.pop(id_, None)
        if watcher.reports is not None:
            threading.Thread(target=watcher.reports.close, name="e2b-watch", daemon=True).start()

    def _watcher(self, place: Workplace, id_: str) -> Watcher:
        watcher = self._watchers.get(id_)
        if watcher is None or watcher.uid != place.obj.uid:
            raise NotFound(f"watcher {id_[:40]} not events; it was stopped, or the daemon was restarted since")
        watcher.used_at = time.monotonic()
        return watcher

    async def _new_watcher(self, place: Workplace, message: Fields) -> tuple[Watcher, FolderEvents | None]:
        """Return a watcher, and the events of the sandbox's agent if it has such."""
        path, recursive = path_of(place, message, "path"), message.flag("recursive", False)
        with_entry = message.flag("includeEntry", False)
        listing = looks(await self._filesystem.items(place, path, 1))
        events = None
        if not with_entry:
            watch = partial(self._watches.open, SANDBOX, place.namespace, place.name, path, recursive=recursive)
            events = await on_thread(watch)
        depth = _DEPTH if recursive else 1
        if events is not None:
            listing = {}
        elif recursive:
            listing = looks(await self._filesystem.items(place, path, depth, again=True))
        watcher = Watcher(
            place.obj.uid, path, depth=depth, with_entry=with_entry, listing=listing, used_at=time.monotonic()
        )
        return watcher, events

    async def _changes(self, place: Workplace, watcher: Watcher) -> list[dict[str, Any]]:
        """Look at the folder, and return what differs from the last look."""
        before = watcher.listing
        items = {
            item["name"]: item for item in await self._filesystem.items(place, watcher.path, watcher.depth, again=True)
        }
        watcher.listing = after = looks(items.values())
        return [
            {
                "name": name,
                "type": type_,
                **(
                    {"entry": entry(posixpath.join(watcher.path, name), items[name])}
                    if watcher.with_entry and name in after
                    else {}
                ),
            }
            for name, type_ in differences(before, after)
        ]

    def _forget_unused(self) -> None:
        oldest = time.monotonic() - _UNUSED_SECONDS
        for id_, watcher in [item for item in self._watchers.items() if item[1].used_at < oldest]:
            self._end(watcher, id_)


def event_of(chunk: Chunk) -> dict[str, Any]:
    """Return an event of an agent as clients read it."""
    return {"name": chunk.data.decode(), "type": f"EVENT_TYPE_{chunk.stream.upper()}"}


def looks(items: Iterable[Mapping[str, Any]]) -> Listing:
    """Return what is remembered of files."""
    return {
        str(item["name"]): (item["type"], item["size"], item["modified"], item.get("target"), item["mode"])
        for item in items
    }


def differences(before: Listing, after: Listing) -> Sequence[tuple[str, str]]:
    """Return the names that were created, removed, or changed, with the type of their event."""
    events = [(name, "EVENT_TYPE_REMOVE") for name in before if name not in after]
    for name, look in after.items():
        if name not in before:
            events.append((name, "EVENT_TYPE_CREATE"))
        elif look[0] != "folder" and before[name][:_MODE] != look[:_MODE]:
            events.append((name, "EVENT_TYPE_WRITE"))
        elif before[name][_MODE] != look[_MODE]:
            events.append((name, "EVENT_TYPE_CHMOD"))
    return events
