"""Event loop over selectors: descriptors, timers and signals; sleeps until one of them has something."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Callable

    Callback = Callable[[], None]


_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Timer:
    """A call planned for later; a cancelled one is forgotten when its time comes or at the next tidying."""

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callback) -> None:
        self.due = due
        self.callback: Callback | None = callback


class Loop:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._cancelled = 0  # how many of the timers are
        self._running = True
        self._signals: dict[int, Callback] = {}

    def watch(self, fd: int, on_read: Callback | None, on_write: Callback | None = None) -> None:
        """Set the callbacks of a descriptor; None for both forgets it."""
        events = (_READ if on_read else 0) | (_WRITE if on_write else 0)
        known = fd in self._selector.get_map()
        if events and known:
            self._selector.modify(fd, events, (on_read, on_write))
        elif events:
            self._selector.register(fd, events, (on_read, on_write))
        elif known:
            self._selector.unregister(fd)

    def forget(self, fd: int) -> None:
        self.watch(fd, None)

    def after(self, seconds: float, callback: Callback) -> Timer:
        timer = Timer(time.monotonic() + seconds, callback)
        heapq.heappush(self._timers, (timer.due, next(self._count), timer))
        return timer

    def cancel(self, timer: Timer | None) -> None:
        if timer is not None and timer.callback is not None:
            timer.callback = None
            self._cancelled += 1
        if self._cancelled > 64 and self._cancelled > len(self._timers) // 2:
            self._timers = [each for each in self._timers if each[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0
        # A cancelled timer must not wake a loop that has nothing else to do.
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
            self._cancelled = max(0, self._cancelled - 1)

    def on_signals(self, handlers: dict[int, Callback]) -> None:
        """Run the callbacks inside the loop, never in a signal handler."""
        receive, send = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(send, warn_on_full_buffer=False)
        self._signals = handlers
        for number in handlers:
            signal.signal(number, lambda *_: None)
        self.watch(receive, lambda: self._signalled(receive))

    def _signalled(self, receive: int) -> None:
        for number in dict.fromkeys(os.read(receive, 4096)):
            if number in self._signals:
                self._signals[number]()

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        while self._running:
            timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, events in self._selector.select(timeout):
                on_read, on_write = key.data
                # An earlier callback of this round may have closed or re-registered the descriptor.
                if events & _READ and on_read and self._still(key.fd, key.data):
                    guarded(on_read)
                if events & _WRITE and on_write and self._still(key.fd, key.data):
                    guarded(on_write)
            self._run_timers()

    def _still(self, fd: int, data: object) -> bool:
        current = self._selector.get_map().get(fd)
        return current is not None and current.data is data

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                callback, timer.callback = timer.callback, None
                guarded(callback)
        self.cancel(None)


def guarded(callback: Callback) -> None:
    """Run a callback; report a defect in it by its place alone: values may be secrets."""
    try:
        callback()
    except Exception as error:
        report(error)


def report(error: BaseException) -> None:
    places = []
    at = error.__traceback__
    while at is not None:
        places.append(f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}")
        at = at.tb_next
    log(f"internal error: {type(error).__name__} at {' < '.join(places[:-4:-1])}")


def log(message: str) -> None:
    """Write a line to standard error, which the user's command shares; never fail because nobody reads it."""
    with contextlib.suppress(OSError):
        os.write(2, f"paddock-agent: {message}\n".encode())
