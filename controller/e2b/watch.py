"""filesystem.Filesystem: changes below a folder, by comparing listings. Nothing is looked at while nobody watches."""

import asyncio
import posixpath
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.e2b.errors import Ended
from controller.e2b.fields import Fields
from controller.e2b.filesystem import FilesystemCalls, entry, path_of
from controller.e2b.frames import frame
from controller.e2b.workplace import Workplace
from controller.service.errors import NotFound, TooManyRequests

POLL_SECONDS = 0.25
_DEPTH = 64
_MOST_OF_ONE, _MOST = 32, 1024
_UNUSED_SECONDS = 3600.0
_MOST_NAMES_OF_ONE, _MOST_NAMES = 50_000, 500_000  # that watchers remember
Look = tuple[Any, ...]  # type, size, time, link and mode of a file
Listing = Mapping[str, Look]
_MODE = -1


@dataclass(slots=True)
class Watcher:
    """A folder, as it was at the last look. `with_entry`: events have the file's entry."""

    uid: str
    path: str
    depth: int
    with_entry: bool
    listing: Listing
    used_at: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class WatchCalls:
    """The calls. One stalled folder delays no other."""

    def __init__(self, filesystem: FilesystemCalls) -> None:
        self._filesystem = filesystem
        self._watchers: OrderedDict[str, Watcher] = OrderedDict()

    async def watch_dir(
        self, place: Workplace, message: Fields, keepalive: float, seconds: float | None
    ) -> AsyncIterator[bytes]:
        """Return the changes below a folder as they happen. Raises ServiceError."""
        watcher = await self._new_watcher(place, message)
        return self._events(place, watcher, keepalive, seconds)

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
        watcher = await self._new_watcher(place, message)
        self._refuse_more(place, len(watcher.listing))
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
        async with watcher.lock:
            return {"events": await self._changes(place, watcher)}

    async def remove_watcher(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Remove a watcher. Raises NotFound."""
        id_ = message.text("watcherId")
        self._watcher(place, id_)
        self._watchers.pop(id_, None)
        return {}

    def _watcher(self, place: Workplace, id_: str) -> Watcher:
        watcher = self._watchers.get(id_)
        if watcher is None or watcher.uid != place.obj.uid:
            raise NotFound(f"watcher {id_[:40]} not events; it was stopped, or the daemon was restarted since")
        watcher.used_at = time.monotonic()
        return watcher

    async def _new_watcher(self, place: Workplace, message: Fields) -> Watcher:
        path = path_of(place, message, "path")
        depth = _DEPTH if message.flag("recursive", False) else 1
        listing = looks(await self._filesystem.items(place, path, depth))
        with_entry = message.flag("includeEntry", False)
        return Watcher(
            place.obj.uid, path, depth=depth, with_entry=with_entry, listing=listing, used_at=time.monotonic()
        )

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
        for id_ in [id_ for id_, watcher in self._watchers.items() if watcher.used_at < oldest]:
            del self._watchers[id_]


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
