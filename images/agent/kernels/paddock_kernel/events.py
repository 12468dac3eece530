"""Events of a kernel: JSON lines on its socket, gathered where they are small."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

_PIECE_CHARACTERS = 64 * 1024
_GATHERED_CHARACTERS = 8 * 1024
_GATHERED_SECONDS = 0.02
_TICK_SECONDS = 0.05
_BACKGROUND_CHARACTERS = 64 * 1024  # of what threads write between two cells
MOST_RESULT_BYTES = 4 * 1024 * 1024


class Interrupts:
    """Keyboard interrupts that code may see: while a cell runs, and never within a line of events."""

    def __init__(self) -> None:
        self.in_cell = False
        self._shields = 0
        self._pending = False

    def arrived(self, *_: Any) -> None:
        """Handler of SIGINT."""
        if not self.in_cell:
            return
        if self._shields:
            self._pending = True
        else:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """Hold an interrupt back until the end. Signals reach the main thread alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if not self._shields and self._pending:
            self._pending = False
            if self.in_cell:
                raise KeyboardInterrupt

    def cell(self, running: bool) -> None:
        self.in_cell, self._pending = running, False


class Events:
    """The kernel's end of the socket. Thread-safe; text is gathered, and sent before any other event."""

    def __init__(self, connection: socket.socket, interrupts: Interrupts) -> None:
        self.execution: Any = None
        self.interrupts = interrupts
        self._process = os.getpid()
        self.use(connection)
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_forked_child
        )

    def _before_fork(self) -> None:
        """Send what waits, else a child would send it again; and let no other thread have the lock meanwhile."""
        self._lock.acquire()
        self._flush()

    def _after_fork(self) -> None:
        self._lock.release()

    def _in_forked_child(self) -> None:
        self._lock = threading.RLock()

    def use(self, connection: socket.socket) -> None:
        """Send over this connection from now on, with a thread of this process."""
        self.connection = connection
        self._lock = threading.RLock()
        self._texts: collections.deque[tuple[str, str]] = collections.deque()
        self._size = 0
        self._sent_at = 0.0
        self._waiting = threading.Event()
        self._process = os.getpid()
        self.thread = threading.Thread(target=self._tick, name="paddock-kernel", daemon=True)
        self.thread.start()

    def write(self, stream: str, text: str) -> None:
        """Take text of stdout or stderr."""
        with self.interrupts.shielded(), self._lock:
            self._texts.append((stream, text))
            self._size += len(text)
            if self.execution is None:
                while self._size > _BACKGROUND_CHARACTERS and len(self._texts) > 1:
                    self._size -= len(self._texts.popleft()[1])
            elif self._size > _GATHERED_CHARACTERS or (
                "\n" in text and time.monotonic() - self._sent_at > _GATHERED_SECONDS
            ):
                self._flush()
            else:
                self._waiting.set()

    def send(self, **event: Any) -> None:
        """Send an event, after the text before it. A child that the code has forked prints, and has no other events."""
        if os.getpid() != self._process:
            return
        line = _line({"id": self.execution, **event})
        with self.interrupts.shielded(), self._lock:
            self._flush()
            self.connection.sendall(line)

    def flush(self) -> None:
        with self.interrupts.shielded(), self._lock:
            self._flush()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep other threads from sending: for a fork, which must not copy a lock that one of them has."""
        with self._lock:
            yield

    def _flush(self) -> None:
        if self.execution is None or not self._texts:
            return
        texts, self._texts, self._size = self._texts, collections.deque(), 0
        self._sent_at = time.monotonic()
        run: list[str] = []
        while texts:
            stream, text = texts.popleft()
            run.append(text)
            if texts and texts[0][0] == stream:
                continue
            whole = "".join(run)
            run = []
            for at in range(0, len(whole), _PIECE_CHARACTERS):
                event = {"id": self.execution, "type": stream, "text": whole[at : at + _PIECE_CHARACTERS]}
                self.connection.sendall(_line(event))

    def _tick(self) -> None:
        """Send what waits; asleep while nothing does."""
        waiting, process = self._waiting, self._process
        while os.getpid() == process:
            waiting.wait()
            waiting.clear()
            time.sleep(_TICK_SECONDS)
            try:
                self.flush()
            except OSError:
                return


class Stream:
    """Standard output or error of the cells."""

    encoding, errors, newlines, closed, mode = "utf-8", "replace", None, False, "w"

    def __init__(self, events: Events, name: str, descriptor: int) -> None:
        self.name = f"<{name}>"
        self._events, self._stream, self._descriptor = events, name, descriptor
        self.buffer = _Bytes(self)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self._events.write(self._stream, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self._events.execution is not None:
            self._events.flush()

    def isatty(self) -> bool:
        return False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def reconfigure(self, **_: Any) -> None:
        """Do nothing: the encoding is the events'."""

    def close(self) -> None:
        """Do nothing: the next cell writes, too."""

    def fileno(self) -> int:
        return self._descriptor


class _Bytes:
    """`sys.stdout.buffer`: bytes that are text."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, default=str, separators=(",", ":")).encode("ascii") + b"\n"
