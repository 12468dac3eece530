"""One watcher's side of a watch: what is still to be told to it, how far it is, and why it ended."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from controller.kinds.meta import StoredObject
from controller.ports import Change, Store
from controller.service import errors
from controller.service.objects import serialize
from controller.service.watch.label_history import Membership

_READ_AT_ONCE = 500  # changes a catching-up watcher reads from the store in one go


class Shown:
    """An object with its JSON, made once for all who watch it."""

    def __init__(self, obj: StoredObject) -> None:
        self.obj = obj

    @cached_property
    def json(self) -> bytes:
        return json.dumps(serialize.obj(self.obj), ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; a bookmark has no object, only how far everything was told."""

    type: str
    revision: int
    shown: Shown | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """What is watched: a kind, everywhere or in a namespace, all or one name."""

    kind: str
    namespace: str | None = None
    name: str = ""

    def holds(self, obj: StoredObject) -> bool:
        return (
            obj.kind == self.kind
            and self.namespace in (None, obj.namespace)
            and (not self.name or obj.name == self.name)
        )


Told = tuple[Change, Shown]


class Watch:
    """Call `earlier` until it gives None, then `take` after each `wake`; `close` it in the end. Any thread may call.

    `since` is the revision after which it tells, `joined` is how far the hub was when it came: what lies between is
    read from the store by `earlier`, what comes later is buffered by the hub. So nothing is told twice, or not at all.
    `first` are objects that are there at `since`; they are told as ADDED before everything else.
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
    ) -> None:
        self.scope, self.joined = scope, since
        self._members, self._since, self._first = members, since, first or ()
        self._bookmarks, self._ahead, self._wake = bookmarks, ahead, wake
        self._read_to, self._bookmark_first = since, bookmarks and first is not None
        self._lock = threading.Lock()
        self._buffer: list[Told] = []
        self._bookmark = 0
        self._ended: errors.ServiceError | bool = False
        self.close: Callable[[], None] = self.end

    def earlier(self, store: Store) -> list[WatchEvent] | None:
        """The next events from before it joined; None when there are no more. Blocks; raises ServiceError."""
        if self._first:
            first, self._first = self._first, ()
            # Oldest first: whoever loses the connection amid them resumes after the last one, as with any other event.
            in_order = sorted(first, key=lambda each: each.resource_version)
            return [WatchEvent("ADDED", each.resource_version, Shown(each)) for each in in_order]
        if self._bookmark_first:
            self._bookmark_first = False
            return [WatchEvent("BOOKMARK", self._since)]
        if self._read_to >= self.joined:
            return None
        with errors.store_in_words():
            found = store.changes(self._read_to, limit=_READ_AT_ONCE)
        self._read_to = found[-1].revision if found else self.joined
        return list(self._events((each, Shown(each.obj)) for each in found if each.revision <= self.joined))

    def take(self) -> list[WatchEvent]:
        """What was buffered, oldest first; the bookmark, if one is due, last. Does not block."""
        with self._lock:
            told, self._buffer = self._buffer, []
            bookmark, self._bookmark = self._bookmark, 0
        events = list(self._events(told))
        return [*events, WatchEvent("BOOKMARK", bookmark)] if bookmark else events

    @property
    def ended(self) -> errors.ServiceError | bool:
        """Whether nothing will come any more; the error, where that is why."""
        with self._lock:
            return self._ended

    def offer(self, changes: Iterable[Told], bookmark: int = 0) -> None:
        """For the hub: buffer the changes that are in scope. A watcher that is too far behind is ended with Gone."""
        mine = [each for each in changes if self.scope.holds(each[0].obj)]
        with self._lock:
            if self._ended or not (mine or (bookmark and self._bookmarks)):
                return
            behind = bool(self._buffer) and len(self._buffer) + len(mine) > self._ahead
            if not behind:
                self._buffer += mine
                if self._bookmarks and (bookmark or self._bookmark):
                    # It is told last: it may speak for all that is buffered.
                    newest = mine[-1][0].revision if mine else 0
                    self._bookmark = max(bookmark, self._bookmark, self._since, newest)
        if behind:
            self.end(errors.Gone(f"this watch fell more than {self._ahead} changes behind; list again, then watch"))
        self._wake()

    def end(self, error: errors.ServiceError | None = None) -> None:
        """Tell nothing more, and free what is buffered if that is because of an error."""
        with self._lock:
            if self._ended:
                return
            self._ended = error or True
            if error is not None:
                self._buffer, self._bookmark = [], 0
        self._wake()

    def _events(self, changes: Iterable[Told]) -> Iterator[WatchEvent]:
        for change, shown in changes:
            if not self.scope.holds(change.obj):
                continue
            type_ = self._members.event(change)
            if type_ and change.revision > self._since:
                yield WatchEvent(type_, change.revision, shown)
