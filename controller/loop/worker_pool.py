"""Threads for calls that may hang: a call that lasts too long gives its place to the next job, and waits on by itself.

So the places are never all held by containers that the engine does not answer for. The number of threads is bounded by
the places and the calls that hang, and each object has one call at a time.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

_log = structlog.get_logger("paddock.workers")
Job = Callable[[], object]


@dataclass(eq=False, slots=True)
class _Work:
    """A job that runs; from `stalls_at` on (in ticks) it holds no place."""

    stalls_at: float | None = None


class Crew:
    """Runs jobs in the order in which they come, `places` at a time beside those that have stalled. Thread-safe."""

    def __init__(self, places: int, name: str, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._places, self._name, self._ticks = places, name, ticks
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._works: set[_Work] = set()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._stopping = False
        self._here = threading.local()

    def submit(self, job: Job) -> None:
        """Run it as soon as there is a place. RuntimeError after `stop`, and where no thread is to be had."""
        with self._changed:
            if self._stopping:
                raise RuntimeError("no job is taken any more: the daemon is stopping")
            if not self._idle:
                self._hire()
            self._queue.append(job)
            self._changed.notify()

    @contextmanager
    def stalling_after(self, seconds: float) -> Iterator[None]:
        """Held by a job during a call: when it lasts longer, the job's place is another's until the call ends."""
        work: _Work | None = getattr(self._here, "work", None)
        if work is None:  # not one of the crew: there is no place to give away
            yield
            return
        with self._changed:
            work.stalls_at = self._ticks() + seconds
            self._changed.notify()  # whoever waits for a place has to know when this one may be free
        try:
            yield
        finally:
            with self._changed:
                work.stalls_at = None

    def stop(self) -> None:
        """Drop what waits, and wait for the jobs that run."""
        with self._changed:
            self._stopping = True
            self._queue.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for each in threads:
            each.join()

    def _hire(self) -> None:
        """One more thread; where none is to be had, those that there are have to do. RuntimeError if there is none."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
            return
        self._threads.add(thread)
        self._idle += 1

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            job, self._here.work = taken
            try:
                job()
            except BaseException:  # nothing that a job raises may end the thread, or keep its place
                _log.exception("job raised")
            with self._changed:
                self._works.discard(self._here.work)
                self._idle += 1
                self._changed.notify()
        with self._changed:
            self._threads.discard(threading.current_thread())

    def _take(self) -> tuple[Job, _Work] | None:
        """Wait for a job and a place; None: this thread is not needed any more."""
        with self._changed:
            while not self._stopping and not (self._queue and self._held() < self._places):
                if self._idle > self._places and not self._queue:
                    break
                self._changed.wait(self._patience_seconds())
            self._idle -= 1
            if self._stopping or not self._queue or self._held() >= self._places:
                return None
            job, work = self._queue.popleft(), _Work()
            self._works.add(work)
            if self._queue and not self._idle:
                self._hire()
            return job, work

    def _held(self) -> int:
        now = self._ticks()
        return sum(each.stalls_at is None or now < each.stalls_at for each in self._works)

    def _patience_seconds(self) -> float | None:
        """Seconds until a place may be free because its call has stalled; None: until told."""
        if not self._queue:
            return None
        now = self._ticks()
        due = [each.stalls_at for each in self._works if each.stalls_at is not None and each.stalls_at > now]
        return max(0.001, min(due) - now) if due else None
