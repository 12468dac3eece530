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
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from controller.e2b.envd.filesystem import FilesystemCalls, entry, path_of
from controller.e2b.envd.workplace import Workplace
from controller.e2b.errors import Ended
from controller.e2b.fields import Fields
from controller.e2b.frames import frame
from controller.e2b.parts import on_thread
from controller.kinds.common.chunk import Chunk
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import Gone, NotFound, ServiceError, ServiceUnavailable, TooManyRequests
from controller.service.exec.relay import Relay
from controller.service.sandbox.folder_watch import FolderEvents, FolderWatches

POLL_SECONDS = 0.25
_DEPTH = 64
_MOST_OF_ONE, _MOST = 32, 1024
_UNUSED_SECONDS = 3600.0
_MOST_BYTES_OF_ONE = 1 << 20  # of events that a client has not asked for
_SANDBOX_BYTES, _ALL_BYTES = 4 << 20, 32 << 20  # of them, in all watchers of a sandbox, and in all
_SHARE_BYTES = 32 << 10  # over these, a watcher has this much all the same: together again as much
_EVENT_BYTES = 48  # of memory, beside its text
_MOST_NAMES_OF_ONE, _MOST_NAMES = 50_000, 500_000  # that watchers remember
_NAME_BYTES = 256  # a longer name, or link, counts as many
Look = tuple[Any, ...]  # type, size, time, link and mode of a file
Listing = Mapping[str, Look]
_TARGET, _MODE = -2, -1


class Memory:
    """Bytes of the events that all watchers have gathered. Thread-safe."""

    def __init__(self) -> None:
        self._lock, self._by_sandbox = threading.Lock(), Counter[str]()

    def add(self, uid: str, size: int, before: int) -> bool:
        """Count more bytes of a sandbox's watcher that had `before`; False: it has no room for them."""
        with self._lock:
            has_room = (
                before + size <= _MOST_BYTES_OF_ONE
                and self._by_sandbox[uid] + size <= _SANDBOX_BYTES
                and self._by_sandbox.total() + size <= _ALL_BYTES
            )
            if not has_room and before + size > _SHARE_BYTES:
                return False
            self._by_sandbox[uid] += size
            return True

    def release(self, uid: str, size: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._by_sandbox[uid] -= size
            if not self._by_sandbox[uid]:
                del self._by_sandbox[uid]


class Reports:
    """Events of an agent, gathered on a thread of its own until a client asks for them, or has not for long.

    The sandbox decides how many there are: over the limits all are dropped, and the client's next question fails.
    """

    def __init__(self, uid: str, events: FolderEvents, memory: Memory) -> None:
        self._uid, self._events, self._memory = uid, events, memory
        self._lock, self._gathered, self._bytes = threading.Lock(), deque[bytes](), 0
        self._dropped, self._closed = False, False
        self._used_at = time.monotonic()
        self._error: ServiceError | None = None
        threading.Thread(target=self._read, name="e2b-watch", daemon=True).start()

    def _read(self) -> None:
        try:
            for chunk in self._events:
                if time.monotonic() - self._used_at > _UNUSED_SECONDS:
                    self.close()
                    break
                if chunk.stream:
                    self._gather(chunk)
        except ServiceError as error:
            self._error = error
        finally:
            self._events.close()

    def take(self) -> list[dict[str, Any]]:
        """Return what has been gathered since the call before. Raises ServiceError once the folder is not watched."""
        self._used_at = time.monotonic()
        with self._lock:
            gathered, dropped, self._dropped = self._empty(), self._dropped, False
        if dropped:
            raise Gone("there were too many events, and some are lost; list the folder, and ask more often")
        if not gathered and self._error is not None:
            raise self._error
        pairs = (line.split(b" ", 1) for line in gathered)
        return [event_of(Chunk(change.decode(), name)) for change, name in pairs]

    def _gather(self, chunk: Chunk) -> None:
        line = chunk.stream.encode() + b" " + chunk.data
        size = len(line) + _EVENT_BYTES
        with self._lock:
            if self._closed or self._dropped:
                return
            if self._memory.add(self._uid, size, self._bytes):
                self._gathered.append(line)
                self._bytes += size
            else:
                self._empty()
                self._dropped = True

    def _empty(self) -> deque[bytes]:
        """Return what is gathered, and forget it."""
        gathered, self._gathered = self._gathered, deque()
        self._memory.release(self._uid, self._bytes)
        self._bytes = 0
        return gathered

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._closed = True
            self._empty()
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
    names: int = 0  # of the listing, as they count
    reports: Reports | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class WatchCalls:
    """The calls. One stalled folder delays no other."""

    def __init__(self, filesystem: FilesystemCalls, watches: FolderWatches) -> None:
        self._filesystem, self._watches = filesystem, watches
        self._watchers: OrderedDict[str, Watcher] = OrderedDict()
        self._memory = Memory()

    async def watch_dir(
        self, place: Workplace, message: Fields, keepalive: float, seconds: float | None
    ) -> AsyncIterator[bytes]:
        """Return the changes below a folder as they happen. Raises ServiceError."""
        watcher, events = await self._new_watcher(place, message)
        if events is not None:
            frames = self._reported(events, keepalive, seconds)
            weakref.finalize(frames, _close, events).atexit = False  # a client may leave before the first frame
            return frames
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
        try:
            self._refuse_more(place)
            self._refuse_names(place, watcher.names)
            watcher.reports = None if events is None else Reports(place.obj.uid, events, self._memory)
        except BaseException:
            if events is not None:
                _close(events)
            raise
        id_ = secrets.token_hex(8)
        self._watchers[id_] = watcher
        return {"watcherId": id_}

    def _of(self, place: Workplace) -> list[Watcher]:
        return [watcher for watcher in self._watchers.values() if watcher.uid == place.obj.uid]

    def _refuse_more(self, place: Workplace) -> None:
        """Raise TooManyRequests if there is no room for another watcher."""
        of_one = self._of(place)
        if len(of_one) >= _MOST_OF_ONE or len(self._watchers) >= _MOST:
            raise TooManyRequests(f"sandbox {place.name} has {len(of_one)} watchers; stop some of them")

    def _refuse_names(self, place: Workplace, names: int) -> None:
        """Raise TooManyRequests if there is no room for so many more names."""
        names_of_one = names + sum(watcher.names for watcher in self._of(place))
        names_of_all = names + sum(watcher.names for watcher in self._watchers.values())
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
            _close(watcher.reports)

    def _watcher(self, place: Workplace, id_: str) -> Watcher:
        watcher = self._watchers.get(id_)
        if watcher is None or watcher.uid != place.obj.uid:
            raise NotFound(f"watcher {id_[:40]} not found; it was stopped, or the daemon was restarted since")
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
            place.obj.uid,
            path,
            depth=depth,
            with_entry=with_entry,
            listing=listing,
            used_at=time.monotonic(),
            names=count_of(listing),
        )
        return watcher, events

    async def _changes(self, place: Workplace, watcher: Watcher) -> list[dict[str, Any]]:
        """Look at the folder, and return what differs from the last look. Raises ServiceError."""
        before = watcher.listing
        items = {
            item["name"]: item for item in await self._filesystem.items(place, watcher.path, watcher.depth, again=True)
        }
        after = looks(items.values())
        names = count_of(after)
        if names > watcher.names:  # the sandbox decides how many there are by now
            self._refuse_names(place, names - watcher.names)
        watcher.listing, watcher.names = after, names
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


def _close(events: FolderEvents | Reports) -> None:
    """Close it on a thread of its own: that may block."""
    threading.Thread(target=events.close, name="e2b-watch", daemon=True).start()


def event_of(chunk: Chunk) -> dict[str, Any]:
    """Return an event of an agent as clients read it."""
    return {"name": chunk.data.decode(), "type": f"EVENT_TYPE_{chunk.stream.upper()}"}


def looks(items: Iterable[Mapping[str, Any]]) -> Listing:
    """Return what is remembered of files."""
    return {
        str(item["name"]): (item["type"], item["size"], item["modified"], item.get("target"), item["mode"])
        for item in items
    }


def count_of(listing: Listing) -> int:
    """Return how many names of usual length take as much memory as these."""
    return sum(1 + (len(name) + len(look[_TARGET] or "")) // _NAME_BYTES for name, look in listing.items())


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
