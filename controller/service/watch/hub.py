"""The hub of all watches: it follows the store's changes once, for everybody who watches.

It looks when it is told of a commit (`notify`), and every half second while somebody watches, for the commits of
other processes. Commits come in the order of their revisions, so following the revisions misses none.

Each object of a commit has a revision of its own: a client that loses its connection amid them resumes after the last
one that it was told, and misses none.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from controller.kinds.registry import Kind
from controller.ports import ChangesGone, Clock, Store, StoreError
from controller.service import errors
from controller.service.objects import selector
from controller.service.objects.selector import Selector
from controller.service.watch.label_history import LabelHistory, Membership
from controller.service.watch.watcher import Scope, Shown, Told, Watch, WatchEvent

MOST_WATCHES = 500
AHEAD_CHANGES = 10_000  # what a watcher may be behind
BOOKMARK_SECONDS = 50.0  # with the time to the next look, one arrives within 60
POLL_SECONDS = 0.5
_READ_AT_ONCE = 1_000
_log = structlog.get_logger("paddock.watch")


class Watches:
    """The use-case. Making one does no work: a thread follows from the first watch on, until `close`."""

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
        self._poll_seconds = poll_seconds
        self._due = threading.Event()
        # `_lock` is held for moments only. `_opening` is held while the store is read: openers wait for each other.
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._open: set[Watch] = set()
        self._histories: dict[str, LabelHistory] = {}
        self._at = 0  # everything up to this revision was handed on
        self._bookmarked = clock.now()
        self._thread: threading.Thread | None = None
        self._closed = False

    def notify(self) -> None:
        """There was a commit. Never blocks."""
        self._due.set()

    @property
    def count(self) -> int:
        """How many watches are open."""
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
        """Watch from after revision `since` on; 0: all that is there first, as ADDED. May block on the store.

        `wake` is called, from any thread, when there is something to take. Raises BadRequest for a selector that
        can't be read, Gone when `since` is no longer kept, TooManyRequests, or ServiceUnavailable.
        """
        wanted, scope = selector.parse(labels), Scope(kind.name, namespace, name)
        make = partial(Watch, scope, bookmarks=bookmarks, ahead=self._ahead, wake=wake)
        with self._opening, errors.store_in_words():
            self._check_room()
            self._follow()
            if not since:
                return self._join(self._from_now(make, scope, wanted))
            self._store.changes(since, limit=1)  # is it still kept, and reached?
            if not wanted.requirements:
                return self._join(lambda: make(Membership(wanted), since=since))
            history = self._history(kind)
            return self._join(lambda: make(history.matching(wanted, since), since=since))

    def earlier(self, watch: Watch) -> list[WatchEvent] | None:
        """The watch's next events from before it joined; None when there are no more. Blocks on the store."""
        return watch.earlier(self._store)

    def bookmark(self, watch: Watch) -> None:
        """Let the watch tell now how far it is, if it tells that at all."""
        with self._lock:
            watch.offer((), bookmark=self._at)

    def close(self) -> None:
        """End every watch, and the thread. Later ones are refused."""
        with self._lock:
            self._closed = True
            open_, thread = list(self._open), self._thread
        for each in open_:
            each.close()
        self._due.set()
        if thread is not None:
            thread.join()

    def _check_room(self) -> None:
        if self._closed:
            raise errors.ServiceUnavailable("the daemon is stopping; watch again once it is back")
        if self.count >= self._most:
            raise errors.TooManyRequests(
                f"{self._most} watches are open, which is the most this daemon serves; end some, or try again later"
            )

    def _from_now(self, make: Callable[..., Watch], scope: Scope, wanted: Selector) -> Callable[[], Watch]:
        objects, revision = self._store.list(scope.kind, scope.namespace)
        found = [each for each in objects if scope.holds(each) and wanted.matches(each.labels)]
        members = Membership(wanted, {each.uid: True for each in found})
        return partial(make, members, since=revision, first=found)

    def _history(self, kind: Kind) -> LabelHistory:
        """The labels of the kind's objects, noted from now on at the latest."""
        with self._lock:
            known = self._histories.get(kind.name)
            if known is not None and not known.is_full:
                return known
            history = self._histories[kind.name] = LabelHistory()
        try:
            history.begin(*self._store.list(kind.name))  # what is committed meanwhile is noted already
        except StoreError:
            with self._lock:
                self._histories.pop(kind.name, None)
            raise
        return history

    def _join(self, make: Callable[[], Watch]) -> Watch:
        """Let the watch made by `make` take part from where the hub is now."""
        with self._lock:
            watch = make()
            watch.joined = self._at
            watch.close = partial(self._leave, watch)
            if self._closed:
                watch.end()
            else:
                self._open.add(watch)
        self._due.set()
        return watch

    def _leave(self, watch: Watch) -> None:
        with self._lock:
            self._open.discard(watch)
        watch.end()

    def _follow(self) -> None:
        """Start following, from now on, unless it is done already."""
        with self._lock:
            if self._open or self._histories:
                return
        revision = self._store.revision()
        with self._lock:
            self._at = max(self._at, revision)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watches", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            self._due.wait(self._poll_seconds if self._open else None)
            self._due.clear()
            try:
                self._look()
            except ChangesGone as error:
                self._begin_anew(errors.Gone(str(error)))
            except StoreError as error:
                _log.warning("watches wait for the store", error=str(error))
            except Exception:  # a bug must not silence every watch
                _log.exception("following the changes failed")

    def _look(self) -> None:
        """Hand on what was committed since the last look, and a bookmark when it is time."""
        if not self._open and not self._histories:
            return
        while changes := self._store.changes(self._at, limit=_READ_AT_ONCE):
            self._hand_on([(each, Shown(each.obj)) for each in changes])
        now = self._clock.now()
        if not 0 <= now - self._bookmarked < BOOKMARK_SECONDS:
            self._bookmarked = now
            with self._lock:
                for each in self._open:
                    each.offer((), bookmark=self._at)

    def _hand_on(self, told: Sequence[Told]) -> None:
        with self._lock:
            fresh = [each for each in told if each[0].revision > self._at]
            for change, _ in fresh if self._histories else ():
                if history := self._histories.get(change.obj.kind):
                    history.note(change)
            for each in list(self._open):
                each.offer(fresh)
                if each.ended:
                    self._open.discard(each)
            self._at = max(self._at, told[-1][0].revision)

    def _begin_anew(self, error: errors.Gone) -> None:
        """The changes since the last look are gone: pruned, or the store was restored."""
        with self._lock:
            ended, self._open = self._open, set()
            self._histories = {}
            self._at = 0
        for each in ended:
            each.end(error)
