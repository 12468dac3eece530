"""`POST /watch`: what happens below a folder, as inotify says it, for the daemon.

The body: `{"path": "/absolute", "recursive": true}`. The answer is lines of JSON: `{"ready": true}`, then for each
event `{"name": RELATIVE, "change": "create"}` (or write, remove, rename, chmod), and `{}` while there is none. Where
inotify cannot be had, or the tree has too many folders, it is refused with the reason NoWatch: its limits are per uid
across all sandboxes of a host.
"""

from __future__ import annotations

import functools
import json
import os
import struct

from . import linux
from .loop import Loop, Timer
from .protocol import Exchange, dumps

_EVENT = struct.Struct("=iIII")
_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _FOLDER = 0x4000, 0x8000, 0x40000000
_CHANGES = (
    (_CREATE, "create"), (_MODIFY, "write"), (_DELETE, "remove"),
    (_MOVED_FROM, "rename"), (_MOVED_TO, "create"), (_ATTRIB, "chmod"),
)  # fmt: skip
_KIND = "application/x-ndjson"
_MOST, _MOST_FOLDERS, _MOST_UNSENT = 32, 2000, 1024 * 1024
_READ, _PING_SECONDS = 64 * 1024, 10.0
_OWN = b".paddock-"  # what a file is called while it is written


class FolderWatches:
    """All of them."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._all: set[_Watch] = set()

    def post(self, body: bytes, exchange: Exchange) -> None:
        try:
            request = json.loads(body)
            path, recursive = request["path"], request["recursive"]
            if not (isinstance(path, str) and path.startswith("/") and isinstance(recursive, bool)):
                raise ValueError
        except (ValueError, RecursionError, TypeError, KeyError):
            exchange.reply(400, dumps({"error": "the body is not of its form"}))
            return
        if len(self._all) >= _MOST:
            exchange.reply(422, dumps({"error": f"{_MOST} folders are watched", "reason": "NoWatch"}))
            return
        watch = _Watch(self._loop, os.fsencode(path), recursive, exchange, self._all.discard)
        try:
            watch.begin()
        except OSError as error:
            watch.close()
            reason = os.strerror(error.errno or 0).lower()
            exchange.reply(422, dumps({"error": f"{path}: {reason}", "reason": "NoWatch"}))
            return
        self._all.add(watch)


class _Watch:
    """One watched folder, until its caller leaves."""

    def __init__(self, loop: Loop, root: bytes, recursive: bool, exchange: Exchange, over: object) -> None:
        self._loop = loop
        self._root = root
        self._recursive = recursive
        self._exchange = exchange
        self._over = over
        self._inotify = -1
        self._folders: dict[int, bytes] = {}  # relative paths by watch descriptor
        self._scanned: set[bytes] = set()  # said to be created, before inotify does
        self._ping: Timer | None = None

    def begin(self) -> None:
        """Begin to watch, and answer. Raises OSError."""
        self._inotify = linux.inotify_open()
        self._add(b"")
        self._loop.watch(self._inotify, self._readable)
        self._exchange.open_chunks(_KIND)
        self._exchange.on_gone(self.close)
        self._exchange.chunk(b'{"ready":true}\n')
        self._wait()

    def close(self) -> None:
        if self._inotify >= 0:
            self._loop.forget(self._inotify)
            os.close(self._inotify)
            self._inotify = -1
        self._loop.cancel(self._ping)
        self._over(self)  # type: ignore[operator]

    def _wait(self) -> None:
        self._loop.cancel(self._ping)
        self._ping = self._loop.after(_PING_SECONDS, functools.partial(self._send, b""))

    def _send(self, lines: bytes) -> None:
        self._exchange.chunk(lines or b"{}\n")
        if self._inotify >= 0:
            self._wait()

    def _add(self, path: bytes) -> list[bytes]:
        """Watch a folder and those below it; return what is in them. Raises OSError for the root, and for too many."""
        entries: list[bytes] = []
        pending = [path]
        while pending:
            folder = pending.pop()
            try:
                handle = os.open(os.path.join(self._root, folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                if not folder:
                    raise
                continue  # it has gone
            try:
                if len(self._folders) >= _MOST_FOLDERS:
                    raise OSError(28, "")
                self._folders[linux.inotify_watch(self._inotify, handle)] = folder
                if self._recursive:
                    with os.scandir(handle) as listed:
                        for entry in listed:
                            name = os.path.join(folder, os.fsencode(entry.name))
                            entries.append(name)
                            if entry.is_dir(follow_symlinks=False):
                                pending.append(name)
            finally:
                os.close(handle)
        return entries

    def _readable(self) -> None:
        try:
            data = os.read(self._inotify, _READ)
        except BlockingIOError:
            self._scanned.clear()  # inotify has said all
            return
        lines: list[bytes] = []
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            if mask & _OVERFLOW or not self._event(watch, mask, name, lines):
                self._end(lines)
                return
        if lines:
            self._send(b"".join(lines))
        if self._exchange.unsent > _MOST_UNSENT:  # inotify's own queue is next, and then it overflows
            self._loop.forget(self._inotify)
            self._exchange.on_drained(lambda: self._loop.watch(self._inotify, self._readable))

    def _event(self, watch: int, mask: int, name: bytes, lines: list[bytes]) -> bool:
        """Note one event; False: there are too many folders by now."""
        if mask & _IGNORED:
            self._folders.pop(watch, None)
            return True
        folder = self._folders.get(watch)
        if folder is None or not name or name.startswith(_OWN):
            return True
        path = os.path.join(folder, name)
        change = next((change for bit, change in _CHANGES if mask & bit), "")
        if not change or (mask & _FOLDER and change in ("write", "chmod") and mask & _MODIFY):
            return True
        if change == "create" and path in self._scanned:
            self._scanned.discard(path)
            return True
        lines.append(_line(path, change))
        if not (mask & _FOLDER and self._recursive):
            return True
        if mask & _MOVED_FROM:
            below = path + b"/"
            self._folders = {
                number: folder
                for number, folder in self._folders.items()
                if folder != path and not folder.startswith(below)
            }
        elif mask & (_CREATE | _MOVED_TO):
            try:
                entries = self._add(path)
            except OSError:
                return False
            if mask & _CREATE:  # what it got before it was watched
                lines += [_line(entry, "create") for entry in entries]
                self._scanned.update(entries)
        return True

    def _end(self, lines: list[bytes]) -> None:
        """End the answer: events are lost from here on."""
        self._exchange.chunk(b"".join(lines) + b'{"lost":true}\n')
        self.close()
        self._exchange.end_chunks()


def _line(path: bytes, change: str) -> bytes:
    return dumps({"name": path.decode("utf-8", "replace"), "change": change}) + b"\n"
