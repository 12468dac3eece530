"""The hub of all watches: it reads the store's changes once, for all watchers.

It reads after each commit (`notify`). While a watch is open it also polls every half second, for commits of other
processes. Commits have ascending revisions, so reading by revision misses none.

Each object of a commit has its own revision: a client that loses its connection resumes after the last event it got.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from controller.kinds.registry import Kind
from controller.ports import ChangesGone, Clock, Store, StoreError
from controller.processes.keeper import Keeper
from controller.service import errors
from controller.service.listing import selector
from controller.service.listing.selector import Selector
from controller.service.objects.texts import ObjectTexts
from controller.service.watch.label_history import LabelHistory, Membership
from controller.service.watch.watcher import FirstObjects, Scope, SerializedObject, SharedChange, Watch, WatchEvent

MOST_WATCHES = 500
AHEAD_CHANGES = 10_000  # how far a watcher may lag
BOOKMARK_SECONDS = 50.0  # with the poll interval, one arrives within 60
POLL_SECONDS = 0.5
_READ_AT_ONCE = 100
_PAGE = 100  # objects


class Watches(Keeper):
    """The use-case. A thread reads changes from the first watch until `close`."""

    name, log_name, postponing = "watches", "paddock.watch", (StoreError,)

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        most: int = MOST_WATCHES,
        ahead: int = AHEAD_CHANGES,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._store, self._clock, self._most, self._ahead = store, clock, most, ahead
        self._poll_seconds = self.first_seconds = self.retry_seconds = self.failed_seconds = poll_seconds
        self.texts = ObjectTexts()  # lists use it, too
        # `_lock` is never held across I/O. `_opening` is held while the store is read: openers wait for each other.
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._open: set[Watch] = set()
        self._histories: dict[str, LabelHistory] = {}
        self._at = 0  # all changes up to this revision were delivered
        self._bookmarked = clock.now()
        self._follows, self._closed = False, False
        super().__init__()

    def notify(self) -> None:
        """Signal a commit. Never blocks."""
        self.wake()

    @property
    def count(self) -> int:
        """Return the number of open watches."""
        return len(self._open)

    def open(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        name: str = "",
        labels: str = "",
        since: int = 0,
        bookmarks: bool = False,
        wake: Callable[[], None],
    ) -> Watch:
        """Watch changes after revision `since`; 0: first all objects as ADDED. May block on the store.

        `wake` is called, from any thread, when there are events to take. Raises BadRequest for an invalid selector,
        Gone if `since` is no longer kept, TooManyRequests, or ServiceUnavailable.
        """
        matching, scope = selector.parse(labels), Scope(kind.name, namespace, name)
        make = partial(Watch, scope, bookmarks=bookmarks, ahead=self._ahead, wake=wake, texts=self.texts)
        with self._opening, errors.translate_store_errors():
            self._check_limit()
            self._follow()
            if not since:
                return self._join(self._from_now(make, scope, matching))
            self._store.changes(since, limit=1)  # is it still kept, and reached?
            if not matching.requirements:
                return self._join(lambda: make(Membership(matching), since=since))
            history = self._history(kind)
            return self._join(lambda: make(history.matching(matching, since), since=since))

    def earlier(self, watch: Watch) -> list[WatchEvent] | None:
        """Return the watch's next events from before it joined; None at their end. Blocks on the store."""
        return watch.earlier(self._store)

    def bookmark(self, watch: Watch) -> None:
        """Send a bookmark now, if the watch has bookmarks."""
        with self._lock:
            watch.offer((), bookmark=self._at)

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End every watch and the thread. Later watches are refused."""
        with self._lock:
            self._closed = True
            open_watches = list(self._open)
        for watch in open_watches:
            watch.close()
        self.stop()

    def _check_limit(self) -> None:
        if self._closed:
            raise errors.ServiceUnavailable("the daemon is stopping; watch again once it is back")
        if self.count >= self._most:
            raise errors.TooManyRequests(
                f"{self._most} watches are open, which is this daemon's limit; end some, or try again later"
            )

    def _from_now(self, make: Callable[..., Watch], scope: Scope, matching: Selector) -> Callable[[], Watch]:
        first, members = FirstObjects(scope.kind), dict[str, bool]()
        after, revision = None, -1
        while True:
            page = self._store.page(scope.kind, scope.namespace, after=after, limit=_PAGE)
            revision = page.revision if revision < 0 else revision
            for obj in page.objects:
                after = obj.namespace, obj.name
                if scope.holds(obj) and matching.matches(obj.labels):
                    members[obj.uid] = True
                    if obj.resource_version <= revision:
                        first.add(obj, self.texts)
                    else:
                        first.leave_out(obj)
            if len(page.versions) < _PAGE:
                return partial(make, Membership(matching, members), since=revision, first=first)

    def _history(self, kind: Kind) -> LabelHistory:
        """Return the label history of a kind, complete from now on at the latest."""
        with self._lock:
            current = self._histories.get(kind.name)
            if current is not None and not current.is_full:
                return current
            history = self._histories[kind.name] = LabelHistory()
        try:
            history.begin(*self._store.list(kind.name))  # concurrent commits are noted already
        except StoreError:
            with self._lock:
                self._histories.pop(kind.name, None)
            raise
        return history

    def _join(self, make: Callable[[], Watch]) -> Watch:
        """Add the watch made by `make` at the hub's current revision."""
        with self._lock:
            watch = make()
            watch.joined = self._at
            watch.close = partial(self._leave, watch)
            if self._closed:
                watch.end()
            else:
                self._open.add(watch)
        self.wake()
        return watch

    def _leave(self, watch: Watch) -> None:
        with self._lock:
            self._open.discard(watch)
        watch.end()

    def _follow(self) -> None:
        """Start the thread at the current revision, unless it runs."""
        with self._lock:
            if self._open or self._histories:
                return
        revision = self._store.revision()
        with self._lock:
            self._at = max(self._at, revision)
        if not self._follows:
            self._follows = True
            self.start()

    def step(self) -> float | None:
        """Deliver what was committed. While a watch is open, commits of other processes are polled for."""
        try:
            self._deliver()
        except ChangesGone as error:
            self._reset(errors.Gone(str(error)))
        return self._poll_seconds if self._open else None

    def _deliver(self) -> None:
        """Deliver the changes since the last call, and a bookmark if one is due."""
        if not self._open and not self._histories:
            return
        while changes := self._store.changes(self._at, limit=_READ_AT_ONCE):
            self._offer([(change, SerializedObject(change.obj, self.texts)) for change in changes])
            if len(changes) < _READ_AT_ONCE:  # a later commit signals again
                break
        now = self._clock.now()
        if not 0 <= now - self._bookmarked < BOOKMARK_SECONDS:
            self._bookmarked = now
            with self._lock:
                for watch in self._open:
                    watch.offer((), bookmark=self._at)

    def _offer(self, changes: Sequence[SharedChange]) -> None:
        with self._lock:
            fresh = [change for change in changes if change[0].revision > self._at]
            for change, _ in fresh if self._histories else ():
                if history := self._histories.get(change.obj.kind):
                    history.note(change)
            for watch in list(self._open):
                watch.offer(fresh)
                if watch.end_state:
                    self._open.discard(watch)
            self._at = max(self._at, changes[-1][0].revision)

    def _reset(self, error: errors.Gone) -> None:
        """End all watches: their changes were pruned, or the store was restored."""
        with self._lock:
            open_watches, self._open = self._open, set()
            self._histories = {}
            self._at = 0
        for watch in open_watches:
            watch.end(error)
