"""One watch: its pending events, its revision, and the reason of its end."""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.ports import Change, Store
from controller.service import errors
from controller.service.listing.table import table
from controller.service.objects.texts import ObjectTexts
from controller.service.watch.label_history import Membership

AHEAD_BYTES = 16 << 20  # of changes that a watcher may lag behind; all watchers share their texts
_PIECE_BYTES = 256 << 10  # of events that are taken at a time
_FIRST_READ, _MOST_READ = 1, 500  # changes that a catching-up watcher reads from the store at a time


class SerializedObject:
    """An object with its JSON and its row, serialized once for all watchers and lists."""

    def __init__(self, obj: StoredObject, texts: ObjectTexts) -> None:
        self.obj, self._texts = obj, texts
        self._tables: dict[tuple[int, str], bytes] = {}

    @cached_property
    def json(self) -> bytes:
        return self._texts.json(self.obj)

    @property
    def size(self) -> int:
        """Bytes of the object as JSON."""
        return len(self.json)

    def table(self, kind: Kind, revision: int, now: float, version: str) -> bytes:
        """Return the JSON of a Table of one row, its age as of the first call: all watchers get an event at once."""
        text = self._tables.get((revision, version))
        if text is None:
            document = table(kind, [self.obj], now, revision, version)
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
            self._tables[revision, version] = text
        return text


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK. A bookmark has no object, only the delivered revision."""

    type: str
    revision: int
    serialized: SerializedObject | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The watched objects: a kind, in one or all namespaces, one or all names."""

    kind: str
    namespace: str | None = None
    name: str = ""

    def holds(self, obj: StoredObject) -> bool:
        return (
            obj.kind == self.kind
            and self.namespace in (None, obj.namespace)
            and (not self.name or obj.name == self.name)
        )


SharedChange = tuple[Change, SerializedObject]
_FIRST_BYTES = 1 << 20  # of the objects that a watch holds before it has sent them
_Key = tuple[int, str, str, str]  # resource version, namespace, name, uid


class FirstObjects:
    """The objects that a watch begins with, oldest first: a client that loses its connection resumes after the last.

    A few are held. Of many only their keys are, and each is read when it is sent. One that has changed by then is left
    out: its change, which comes later, adds it.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._held: list[StoredObject] | None = []
        self._keys: list[_Key] = []
        self._size = 0
        self._left_out: set[str] = set()
        self._is_sorted = False

    def add(self, obj: StoredObject, texts: ObjectTexts) -> None:
        """Add an object, in any order, before the first is sent."""
        self._keys.append((obj.resource_version, obj.namespace, obj.name, obj.uid))
        if self._held is not None:
            self._size += len(texts.json(obj))
            self._held.append(obj)
            if self._size > _FIRST_BYTES:
                self._held = None

    def leave_out(self, obj: StoredObject) -> None:
        """Leave out an object that has changed since the revision of the watch."""
        self._left_out.add(obj.uid)

    def next(self, store: Store, texts: ObjectTexts, most_bytes: int) -> list[SerializedObject]:
        """Return the next objects; none: all were returned. Blocks; raises ServiceError."""
        if self._held is not None:
            first_objects, self._held, self._keys = self._held, [], []
            return [SerializedObject(obj, texts) for obj in sorted(first_objects, key=lambda obj: obj.resource_version)]
        if not self._is_sorted:
            self._keys.sort(reverse=True)
            self._is_sorted = True
        batch: list[SerializedObject] = []
        size = 0
        while self._keys and size < most_bytes:
            version, namespace, name, uid = self._keys.pop()
            with errors.translate_store_errors():
                obj = store.get(self._kind, namespace, name)
            if obj is None or (obj.uid, obj.resource_version) != (uid, version):
                self._left_out.add(uid)
                continue
            batch.append(SerializedObject(obj, texts))
            size += batch[-1].size
        return batch

    def event(self, uid: str, type_: str) -> str:
        """Return the type of an event as a watcher sees it who may not have got the object yet."""
        if not type_ or uid not in self._left_out:
            return type_
        self._left_out.discard(uid)
        return "" if type_ == "DELETED" else "ADDED"


class Watch:
    """Call `earlier` until it returns None, then `take` after each `wake`; `close` it in the end. Thread-safe.

    Events start after revision `since`; `joined` is the hub's revision at the start of the watch.
    `earlier` reads the events between the two from the store, and the hub buffers the later ones: every event comes
    exactly once. `first` are the objects at `since`; they come before all else, as ADDED.
    """

    def __init__(
        self,
        scope: Scope,
        members: Membership,
        *,
        since: int,
        first: FirstObjects | None = None,
        bookmarks: bool = False,
        ahead: int,
        wake: Callable[[], None],
        texts: ObjectTexts,
    ) -> None:
        self.scope, self.joined = scope, since
        self._members, self._since, self._first = members, since, first
        self._read_count = _FIRST_READ
        self._bookmarks, self._ahead, self._wake = bookmarks, ahead, wake
        self._texts = texts
        self._read_to, self._bookmark_first = since, bookmarks and first is not None
        self._lock = threading.Lock()
        self._buffer: deque[SharedChange] = deque()
        self._buffered_bytes = 0
        self._bookmark = 0
        self._ended: errors.ServiceError | bool = False
        self.close: Callable[[], None] = self.end

    def earlier(self, store: Store) -> list[WatchEvent] | None:
        """Return the next events from before it joined; None at their end. Blocks; raises ServiceError."""
        if self._first is not None and (objects := self._first.next(store, self._texts, _PIECE_BYTES)):
            return [
                WatchEvent("ADDED", serialized_object.obj.resource_version, serialized_object)
                for serialized_object in objects
            ]
        if self._bookmark_first:
            self._bookmark_first = False
            return [WatchEvent("BOOKMARK", self._since)]
        if self._read_to >= self.joined:
            return None
        with errors.translate_store_errors():
            changes = store.changes(self._read_to, limit=self._read_count)
        self._read_to = changes[-1].revision if changes else self.joined
        missed = [
            (change, SerializedObject(change.obj, self._texts)) for change in changes if change.revision <= self.joined
        ]
        size = sum(serialized_object.size for _, serialized_object in missed)
        if missed:
            fitting = _PIECE_BYTES * len(missed) // max(1, size)
            self._read_count = max(1, min(_MOST_READ, 4 * self._read_count, fitting))
        return list(self._events(missed))

    def take(self) -> list[WatchEvent]:
        """Return buffered events, oldest first, and a due bookmark after the last. Does not block.

        Call it until it returns none: large ones are returned a few at a time.
        """
        while True:
            changes, size = list[SharedChange](), 0
            with self._lock:
                while self._buffer and (not changes or size + self._buffer[0][1].size <= _PIECE_BYTES):
                    changes.append(self._buffer.popleft())
                    size += changes[-1][1].size
                self._buffered_bytes -= size
                bookmark = 0 if self._buffer else self._bookmark
                self._bookmark = 0 if bookmark else self._bookmark
            events = list(self._events(changes))
            if bookmark:
                events.append(WatchEvent("BOOKMARK", bookmark))
            if events or not changes:
                return events

    @property
    def end_state(self) -> errors.ServiceError | bool:
        """Return True after the last event; the error, if that ended it."""
        with self._lock:
            return self._ended

    def offer(self, changes: Iterable[SharedChange], bookmark: int = 0) -> None:
        """Buffer the changes in scope (for the hub). A watch that lags too far ends with Gone."""
        mine = [change for change in changes if self.scope.holds(change[0].obj)]
        size = sum(serialized_object.size for _, serialized_object in mine)
        with self._lock:
            if self._ended or not (mine or (bookmark and self._bookmarks)):
                return
            behind = bool(self._buffer) and (
                len(self._buffer) + len(mine) > self._ahead or self._buffered_bytes + size > AHEAD_BYTES
            )
            if not behind:
                self._buffer += mine
                self._buffered_bytes += size
                if self._bookmarks and (bookmark or self._bookmark):
                    # It comes last, so it covers all buffered changes.
                    newest = mine[-1][0].revision if mine else 0
                    self._bookmark = max(bookmark, self._bookmark, self._since, newest)
        if behind:
            most = f"{self._ahead} changes, or {AHEAD_BYTES >> 20} MiB"
            self.end(errors.Gone(f"this watch fell more than {most} behind; list again, then watch"))
        self._wake()

    def end(self, error: errors.ServiceError | None = None) -> None:
        """End the watch; an error also drops the buffered events."""
        with self._lock:
            if self._ended:
                return
            self._ended = error or True
            if error is not None:
                self._buffer, self._bookmark = deque(), 0
        self._wake()

    def _events(self, changes: Iterable[SharedChange]) -> Iterator[WatchEvent]:
        for change, serialized_object in changes:
            if not self.scope.holds(change.obj):
                continue
            type_ = self._members.event(change)
            if change.revision <= self._since:
                continue
            if self._first is not None:
                type_ = self._first.event(change.obj.uid, type_)
            if type_:
                yield WatchEvent(type_, change.revision, serialized_object)
