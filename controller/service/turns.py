"""Turns of the streams of one event loop: a few are woken at a time, so that everyone else is served in between.

Hundreds of streams that are woken at once would keep the loop for a tenth of a second, at each change.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable

from anyio.lowlevel import RunVar

AT_ONCE = 8
_TURNS: RunVar["Turns"] = RunVar("paddock_turns")


class Turns:
    """Queue of streams to wake, of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._lock = loop, threading.Lock()
        self._due: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def add(self, wake: Callable[[], None]) -> None:
        """Call `wake` on the loop, after those that were added before. From any thread."""
        with self._lock:
            self._due.append(wake)
            if self._is_scheduled:
                return
            self._is_scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._next)

    def _next(self) -> None:
        with self._lock:
            batch = [self._due.popleft() for _ in range(min(AT_ONCE, len(self._due)))]
            self._is_scheduled = bool(self._due)
            if self._is_scheduled:
                self._loop.call_soon(self._next)
        for wake in batch:
            wake()


def turns() -> Turns:
    """Return the turns of the running event loop."""
    try:
        return _TURNS.get()
    except LookupError:
        new_turns = Turns(asyncio.get_running_loop())
        _TURNS.set(new_turns)
        return new_turns
