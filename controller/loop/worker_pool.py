"""Worker pool for calls that may hang: a call that hangs frees its slot for the next job.

So hanging containers never hold all slots. Threads are bounded by the slots plus the calls that hang, and each object
has one call at a time.
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
    """A running job; from `stalls_at` on (in ticks) it holds no slot."""

    stalls_at: float | None = None


class WorkerPool:
    """Runs jobs in their order, `places` at a time besides those that hang. Thread-safe."""

    def __init__(self, places: int, name: str, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._places, self._name, self._ticks = places, name, ticks
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._works: set[_Work] = set()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._stopping = False
        self._local = threading.local()

    def submit(self, job: Job) -> None:
        """Run the job as soon as a slot is free. Raises RuntimeError after `stop`, or if no thread can be started."""
        with self._changed:
            if self._stopping:
                raise RuntimeError("worker pool: no new jobs; the daemon is stopping")
            if not self._idle:
                self._start_thread()
            self._queue.append(job)
            self._changed.notify()

    @contextmanager
    def releasing_after(self, seconds: float) -> Iterator[None]:
        """Free the job's slot for others once the enclosed call lasts longer than `seconds`."""
        work: _Work | None = getattr(self._local, "work", None)
        if work is None:  # not a thread of this pool: it holds no slot
            yield
            return
        with self._changed:
            work.stalls_at = self._ticks() + seconds
            self._changed.notify()  # waiting threads recompute when a slot may be free
        try:
            yield
        finally:
            with self._changed:
                work.stalls_at = None

    def stop(self) -> None:
        """Drop the queue, and wait for running jobs."""
        with self._changed:
            self._stopping = True
            self._queue.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _start_thread(self) -> None:
        """Start one more thread. Raises RuntimeError if that fails and there is no other thread."""
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
        while (next_job := self._take()) is not None:
            job, self._local.work = next_job
            try:
                job()
            except BaseException:  # an exception must not end the thread or keep its slot
                _log.exception("job raised")
            with self._changed:
                self._works.discard(self._local.work)
                self._idle += 1
                self._changed.notify()
        with self._changed:
            self._threads.discard(threading.current_thread())

    def _take(self) -> tuple[Job, _Work] | None:
        """Wait for a job and a free slot. None: this thread is not needed any more."""
        with self._changed:
            while not self._stopping and not (self._queue and self._busy_count() < self._places):
                if self._idle > self._places and not self._queue:
                    break
                self._changed.wait(self._wait_seconds())
            self._idle -= 1
            if self._stopping or not self._queue or self._busy_count() >= self._places:
                return None
            job, work = self._queue.popleft(), _Work()
            self._works.add(work)
            if self._queue and not self._idle:
                self._start_thread()
            return job, work

    def _busy_count(self) -> int:
        now = self._ticks()
        return sum(work.stalls_at is None or now < work.stalls_at for work in self._works)

    def _wait_seconds(self) -> float | None:
        """Seconds until a slot may be free because its call hangs; None: wait for a notification."""
        if not self._queue:
            return None
        now = self._ticks()
        due = [work.stalls_at for work in self._works if work.stalls_at is not None and work.stalls_at > now]
        return max(0.001, min(due) - now) if due else None
