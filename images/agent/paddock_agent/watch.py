"""The file watcher: changes since a cursor by comparing listings, and notices of single paths by inotify.

Nothing is looked at while nobody asks. inotify's limits are per uid across all sandboxes of a host: it is open only
while somebody waits or subscribes, and where it can't be had what they want is compared every two seconds.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque

from . import linux
from .files import Workspace, text_of
from .loop import Loop, Timer
from .replies import Reply, ToolError, plain

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Callable

    Signature = tuple[int, int, int]


POLL_SECONDS = 2.0
_MAX_FILES = 20_000
_MAX_JOURNAL = 5_000
_IGNORED = frozenset((".git", "node_modules", "__pycache__", ".venv"))
_MAX_ANSWER = 1000
_MAX_WATCHED = 500  # folders of one sandbox while somebody waits; a larger tree is compared every two seconds
_SETTLE_SECONDS = 0.05  # one look for a burst of writes


class Changes:
    """A journal of what was created, modified and removed below the root, made by comparing listings."""

    def __init__(self, loop: Loop, workspace: Workspace) -> None:
        self._loop = loop
        self._workspace = workspace
        self._epoch = os.urandom(4).hex()
        self._known: dict[str, Signature] | None = None
        self._journal: deque[tuple[int, str, str]] = deque(maxlen=_MAX_JOURNAL)
        self._count = 0
        self._dropped = 0  # the last entry that the journal has lost
        self._waiting: dict[object, Callable[[], bool]] = {}
        self._timer: Timer | None = None
        self._inotify = -1
        self._watched: dict[str, int] = {}  # folders by path, with their inodes
        self._cost = 0.0  # seconds that the last listing took

    def since(self, cursor: str, path: str) -> tuple[Reply, bool]:
        """Return what changed after CURSOR below PATH, and if that is anything."""
        fresh = self._known is None
        self._compare()
        epoch, _, number = cursor.partition(".")
        known = epoch == self._epoch and number.isdecimal() and int(number) >= self._dropped and not fresh
        found: dict[str, str] = {}
        last = self._count
        for number_of, kind, name in self._journal if known else ():
            if number_of <= int(number) or not _below(name, path):
                continue
            if len(found) == _MAX_ANSWER:
                last = number_of - 1
                break
            found[name] = _merge(found.get(name), kind)
        changes = [{"path": name, "change": kind} for name, kind in found.items() if kind]
        reset = bool(cursor) and not known
        facts = {"cursor": f"{self._epoch}.{last}", "changes": changes, "reset": reset}
        lines = [f"{each['change']} {each['path']}" for each in changes]
        if reset:
            lines.append("[the cursor is too old or of another start of the sandbox: list the files anew]")
        return plain(facts, "\n".join(lines) or "no changes"), bool(changes) or reset

    def wait(self, key: object, check: Callable[[], bool]) -> None:
        """Call CHECK whenever something may have changed until it returns True."""
        self._waiting[key] = check
        if self._timer is None:
            # At once: between the caller's own look and the first watch something may have changed.
            self._timer = self._loop.after(0 if self._watch() else POLL_SECONDS, self._look)

    def leave(self, key: object) -> None:
        self._waiting.pop(key, None)
        if not self._waiting:
            self._loop.cancel(self._timer)
            self._timer = None
            self._unwatch()

    def _look(self) -> None:
        self._timer = None
        for key, check in list(self._waiting.items()):
            if check():
                self._waiting.pop(key, None)
        if not self._waiting:
            self._unwatch()
            return
        before = dict(self._watched)
        if not self._watch():
            self._timer = self._loop.after(POLL_SECONDS, self._look)
        elif self._watched != before:
            self._stirred()  # what a new folder got before it was watched

    def _watch(self) -> bool:
        """Watch every folder of the last listing; return if all of them are."""
        folders = {".": 0} | {path: each[2] for path, each in (self._known or {}).items() if each[:2] == _FOLDER}
        complete = len(folders) <= _MAX_WATCHED
        try:
            if complete and self._inotify < 0:
                self._inotify = linux.inotify_open()
                self._loop.watch(self._inotify, self._stirred)
            for path, inode in folders.items() if complete else ():
                if self._watched.get(path) != inode:
                    handle = self._workspace.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
                    try:
                        linux.inotify_watch(self._inotify, handle)
                    finally:
                        os.close(handle)
        except (OSError, ToolError):
            complete = False
        if complete:
            self._watched = folders
        else:
            self._unwatch()
        return complete

    def _unwatch(self) -> None:
        self._watched = {}
        if self._inotify >= 0:
            self._loop.forget(self._inotify)
            os.close(self._inotify)
            self._inotify = -1

    def _stirred(self) -> None:
        drain(self._inotify)
        if self._timer is None:
            # A large tree under constant change must not keep the processor busy.
            self._timer = self._loop.after(max(_SETTLE_SECONDS, 10 * self._cost), self._look)

    def _compare(self) -> None:
        began = time.monotonic()
        now = self._listing()
        self._cost = time.monotonic() - began
        old, self._known = self._known, now
        if old is None:
            return
        events = [("removed", path) for path in old if path not in now]
        events += [
            ("modified" if path in old else "created", path) for path, each in now.items() if old.get(path) != each
        ]
        for kind, path in events:
            self._count += 1
            if len(self._journal) == _MAX_JOURNAL:
                self._dropped = self._journal[0][0]
            self._journal.append((self._count, kind, path))

    def _listing(self) -> dict[str, Signature]:
        found: dict[str, Signature] = {}
        pending = ["."]
        while pending:
            at = pending.pop()
            try:
                handle = self._workspace.open(at, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except ToolError:
                if at == ".":
                    raise
                continue
            try:
                with os.scandir(handle) as entries:
                    for entry in entries:
                        if entry.name in _IGNORED or entry.name.startswith(".paddock-"):
                            continue
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except OSError:
                            continue
                        path = text_of(entry.name) if at == "." else f"{at}/{text_of(entry.name)}"
                        if stat.S_ISDIR(status.st_mode):
                            pending.append(path)
                            found[path] = (*_FOLDER, status.st_ino)
                        else:
                            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
                        if len(found) > _MAX_FILES:
                            raise ToolError(f"file.changes: the workspace has more than {_MAX_FILES} entries to watch")
            finally:
                os.close(handle)
        return found


_FOLDER = (0, 0)  # of a signature; no file has a time of 0 and no content


def drain(inotify: int) -> bool:
    """Take all that inotify has; the events themselves say nothing that a look would not."""
    try:
        while len(os.read(inotify, 65536)) > 32768:
            pass
    except BlockingIOError:
        return False
    return True


def _below(name: str, path: str) -> bool:
    return path in (".", name) or name.startswith(path + "/")


def _merge(before: str | None, now: str) -> str:
    """Merge two changes of one path into one; created and removed is none."""
    if before == "created":
        return "" if now == "removed" else "created"
    if before == "removed" and now == "created":
        return "modified"
    return now


class Subscriptions:
    """Single paths that somebody wants to hear of; each notice says only that the path may read differently."""

    def __init__(self, loop: Loop, workspace: Workspace) -> None:
        self._loop = loop
        self._workspace = workspace
        self._wanted: dict[object, tuple[set[str], Callable[[str], None]]] = {}
        self._signatures: dict[str, tuple[int, ...]] = {}
        self._inotify = -1
        self._timer: Timer | None = None
        self._settle: Timer | None = None

    def set(self, key: object, paths: set[str], notify: Callable[[str], None]) -> None:
        """Replace what KEY wants to hear of; an empty set ends it."""
        if paths:
            self._wanted[key] = (paths, notify)
        else:
            self._wanted.pop(key, None)
        every = {path for each, _ in self._wanted.values() for path in each}
        self._signatures = {path: self._signatures.get(path) or self._signature(path) for path in every}
        self._arm()

    def _arm(self) -> None:
        """Watch the folders of all wanted paths; without inotify poll."""
        if self._inotify >= 0:
            self._loop.forget(self._inotify)
            os.close(self._inotify)
            self._inotify = -1
        self._loop.cancel(self._timer)
        self._timer = None
        if not self._wanted:
            return
        try:
            self._inotify = linux.inotify_open()
            watched = [self._watch(path) for path in self._signatures]
            complete = all(watched)
        except OSError:
            complete = False
        if self._inotify >= 0:
            self._loop.watch(self._inotify, self._stirred)
        if not complete:
            self._timer = self._loop.after(POLL_SECONDS, self._poll)

    def _watch(self, path: str) -> bool:
        """Watch the path's folder, and the path itself if it is one; a missing folder leaves it to polling."""
        watched = False
        for each in {path, os.path.dirname(path) or "."}:
            try:
                handle = self._workspace.open(each, os.O_PATH | os.O_DIRECTORY)
            except ToolError:
                continue
            try:
                linux.inotify_watch(self._inotify, handle)
                watched = watched or each != path or path == "."
            finally:
                os.close(handle)
        return watched

    def _stirred(self) -> None:
        if drain(self._inotify) and self._settle is None:
            self._settle = self._loop.after(_SETTLE_SECONDS, self._settled)

    def _settled(self) -> None:
        self._settle = None
        if self._compare():
            self._arm()  # folders may be others now

    def _poll(self) -> None:
        self._timer = None
        self._compare()
        self._arm()

    def _compare(self) -> bool:
        changed = set()
        for path, old in self._signatures.items():
            now = self._signature(path)
            if now != old:
                self._signatures[path] = now
                changed.add(path)
        for paths, notify in list(self._wanted.values()):
            for path in sorted(paths & changed):
                notify(path)
        return bool(changed)

    def _signature(self, path: str) -> tuple[int, ...]:
        try:
            handle = self._workspace.open(path, os.O_PATH)
        except ToolError:
            return (0,)
        try:
            found = os.fstat(handle)
            return (1, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_ctime_ns)
        finally:
            os.close(handle)
