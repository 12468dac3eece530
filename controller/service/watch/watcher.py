"""One watch: its pending events, its revision, and the reason of its end."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.ports import Change, Store
from controller.service import errors
from controller.service.objects.table import table
from controller.service.objects.texts import ObjectTexts
from controller.service.watch.label_history import Membership

_READ_AT_ONCE = 500  # changes that a catching-up watcher reads from the store at a time


class SerializedObject:
    """An object with its JSON and its row, serialized once for all watchers and lists."""

    def __init__(self, obj: StoredObject, texts: ObjectTexts) -> None:
        self.obj, self._texts = obj, texts
        self._tables: dict[tuple[int, str], bytes] = {}

    @cached_property
    def json(self) -> bytes:
        return self._texts.json(self.obj)

    def table(self, kind: Kind, revision: int, now: float, version: str) -> bytes:
        """Return the JSON of a Table of one row, its age as of the first call: all watchers get an event at once."""
        found = self._tables.get((revision, version))
        if found is None:
            made = table(kind, [self.obj], now, revision, version)
            found = json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()
            self._tables[revision, version] = found
        return found


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK. A bookmark has no object, only the delivered revision."""

    type: str
    revision: int
    shown: SerializedObject | None = None


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
        first: Sequence[StoredObject] | None = None,
        bookmarks: bool = False,
        ahead: int,
        wake: Callable[[], None],
        texts: ObjectTexts,
    ) -> None:
        self.scope, self.joined = scope, since
        self._members, self._since, self._first = members, since, first or ()
        self._bookmarks, self._ahead, self._wake = bookmarks, ahead, wake
        self._texts = texts
        self._read_to, self._bookmark_first = since, bookmarks and first is not None
        self._lock = threading.Lock()
        self._buffer: list[SharedChange] = []
        self._bookmark = 0
        self._ended: errors.ServiceError | bool = False
        self.close: Callable[[], None] = self.end

    def earlier(self, store: Store) -> list[WatchEvent] | None:
        """Return the next events from before it joined; None at their end. Blocks; raises ServiceError."""
        if self._first:
            first, self._first = self._first, ()
            # Oldest first: a client that loses its connection resumes after the last one, as with all events.
            in_order = sorted(first, key=lambda each: each.resource_version)
            return [
                WatchEvent("ADDED", each.resource_version, SerializedObject(each, self._texts)) for each in in_order
            ]
        if self._bookmark_first:
            self._bookmark_first = False
            return [WatchEvent("BOOKMARK", self._since)]
        if self._read_to >= self.joined:
            return None
        with errors.translate_store_errors():
            found = store.changes(self._read_to, limit=_READ_AT_ONCE)
        self._read_to = found[-1].revision if found else self.joined
        missed = (each for each in found if each.revision <= self.joined)
        return list(self._events((each, SerializedObject(each.obj, self._texts)) for each in missed))

    def take(self) -> list[WatchEvent]:
        """Return the buffered events, oldest first, and a due bookmark last. Does not block."""
        with self._lock:
            changes, self._buffer = self._buffer, []
            bookmark, self._bookmark = self._bookmark, 0
        events = list(self._events(changes))
        return [*events, WatchEvent("BOOKMARK", bookmark)] if bookmark else events

    @property
    def ended(self) -> errors.ServiceError | bool:
        """Return True after the last event; the error, if that ended it."""
        with self._lock:
            return self._ended

    def offer(self, changes: Iterable[SharedChange], bookmark: int = 0) -> None:
        """Buffer the changes in scope (for the hub). A watch that lags too far ends with Gone."""
        mine = [each for each in changes if self.scope.holds(each[0].obj)]
        with self._lock:
            if self._ended or not (mine or (bookmark and self._bookmarks)):
                return
            behind = bool(self._buffer) and len(self._buffer) + len(mine) > self._ahead
            if not behind:
                self._buffer += mine
                if self._bookmarks and (bookmark or self._bookmark):
                    # It comes last, so it covers all buffered changes.
                    newest = mine[-1][0].revision if mine else 0
                    self._bookmark = max(bookmark, self._bookmark, self._since, newest)
        if behind:
            self.end(errors.Gone(f"this watch fell more than {self._ahead} changes behind; list again, then watch"))
        self._wake()

    def end(self, error: errors.ServiceError | None = None) -> None:
        """End the watch; an error also drops the buffered events."""
        with self._lock:
            if self._ended:
                return
            self._ended = error or True
            if error is not None:
                self._buffer, self._bookmark = [], 0
        self._wake()

    def _events(self, changes: Iterable[SharedChange]) -> Iterator[WatchEvent]:
        for change, shown in changes:
            if not self.scope.holds(change.obj):
                continue
            type_ = self._members.event(change)
            if type_ and change.revision > self._since:
                yield WatchEvent(type_, change.revision, shown)
