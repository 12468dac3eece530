"""Workers that carry out plans: groups of different objects in parallel, the actions of one group in order.

They decide nothing: they call the engine, stop a group at its first failure, and post the outcomes.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType

import structlog

from controller.kinds.planning.action import (
    Action,
    BuildImage,
    CreateContainer,
    HibernateContainer,
    PullImage,
    RenameContainer,
    StartContainer,
    WakeContainer,
)
from controller.kinds.planning.outcome import Ok, Outcome, Terminal, Transient, Waiting
from controller.kinds.planning.plan import Group
from controller.kinds.planning.snapshot import Result
from controller.loop.worker_pool import WorkerPool
from controller.plan.pool.launch import MOST_RENAMES
from controller.ports import Engine, Meter, Wake

_log = structlog.get_logger("paddock.workers")
_QUEUE = "sandbox"
_FOR_URGENT = 4  # threads beside the others: claims take some milliseconds, starts tenths of seconds
# A longer call frees its slot: the engine may hang on that container. Create and start may take longer on a loaded
# engine, which more of them at once would not help.
_STALLS_SECONDS, _START_STALLS_SECONDS = 2.0, 10.0


class Workers:
    """A fixed number of slots, and a few for urgent groups and renames. A call that hangs holds none (worker_pool.py).

    An object is in flight from `start` until its group has ended; its result is kept until `settle`.
    """

    def __init__(
        self,
        engine: Engine,
        meter: Meter,
        *,
        threads: int,
        wake: Wake,
        wake_now: Wake | None = None,
        may_act: Callable[[], bool] = lambda: True,
        trace: Callable[[str, int], str] = lambda _uid, _generation: "",
        before: Callable[[Action], None] = lambda _action: None,
        stalls_seconds: float = _STALLS_SECONDS,
    ) -> None:
        """`wake` is called after each group, `wake_now` instead after an urgent one or a container's start.

        `trace` returns the id of the request that led to an object's generation; "" if none is known.
        `before` is called before each action. `stalls_seconds`: the longest time that a call holds a slot.
        """
        self._stalls_seconds = stalls_seconds
        self._trace, self._before = trace, before
        self._engine, self._meter, self._wake, self._may_act = engine, meter, wake, may_act
        self._wake_now = wake_now or wake
        self._pool, self._express = WorkerPool(threads, "worker"), WorkerPool(_FOR_URGENT, "express")
        self._renames = WorkerPool(MOST_RENAMES, "rename")
        self._lock = threading.Lock()
        self._running: dict[str, float] = {}  # uid -> when its group was handed in (perf_counter)
        self._active = 0
        self._results: dict[str, Result] = {}
        self._failed: set[str] = set()
        self._stopping = False
        meter.gauge("paddock_reconcile_max_concurrent", threads, controller="sandbox")
        self._publish()

    def view(self) -> tuple[frozenset[str], Mapping[str, Result]]:
        """Return the uids in flight, and the results that are not settled yet."""
        with self._lock:
            return frozenset(self._running), MappingProxyType(dict(self._results))

    def settle(self, results: Mapping[str, Result]) -> None:
        """Forget these results: they are stored now."""
        with self._lock:
            for uid, result in results.items():
                if self._results.get(uid) is result:
                    del self._results[uid]

    def start(self, group: Group) -> None:
        """Carry out a group in the background. One group at a time for an object.

        Raises RuntimeError if no thread can be started: then the group is not in flight.
        """
        with self._lock:
            if self._stopping:
                return
            self._pool_of(group).submit(lambda: self._carry_out(group))  # its begin waits for this lock
            self._running[group.ref.uid] = time.perf_counter()
            again = group.ref.uid in self._failed
            self._failed.discard(group.ref.uid)
        self._meter.count("paddock_workqueue_adds_total", queue=_QUEUE)
        if again:
            self._meter.count("paddock_workqueue_retries_total", queue=_QUEUE)
        self._publish()

    def run(self, job: Callable[[], object]) -> None:
        """Run a background job, off the loop's own thread."""
        with self._lock:
            if not self._stopping:
                self._pool.submit(job)

    def stop(self) -> None:
        """Finish the engine calls in flight, start no further one, and wait for the threads.

        The next daemon plans the remaining actions again.
        """
        with self._lock:
            self._stopping = True
        self._express.stop()
        self._renames.stop()
        self._pool.stop()

    def ages_seconds(self) -> tuple[float, ...]:
        """Seconds that each object has been in flight, including the wait for a thread."""
        now = time.perf_counter()
        with self._lock:
            return tuple(now - started_at for started_at in self._running.values())

    def _carry_out(self, group: Group) -> None:
        started_at = time.perf_counter()
        with self._lock:
            self._active += 1
            waited = started_at - self._running[group.ref.uid]
        self._publish()
        self._meter.observe("paddock_workqueue_queue_duration_seconds", waited, queue=_QUEUE)
        trace = self._trace(group.ref.uid, group.generation)
        with structlog.contextvars.bound_contextvars(**({"trace_id": trace} if trace else {})):
            result = self._work(group)
        with self._lock:
            self._active -= 1
            del self._running[group.ref.uid]
            self._results[group.ref.uid] = result
            if any(not isinstance(outcome, Ok) for _, outcome in result.done):
                self._failed.add(group.ref.uid)
        self._publish()
        self._meter.observe("paddock_workqueue_work_duration_seconds", time.perf_counter() - started_at, queue=_QUEUE)
        (self._wake_now if group.urgent or _has_started(result) else self._wake)()

    def _publish(self) -> None:
        with self._lock:
            active, waiting = self._active, len(self._running) - self._active
        self._meter.gauge("paddock_reconcile_active_workers", active, controller="sandbox")
        self._meter.gauge("paddock_workqueue_depth", waiting, queue=_QUEUE)

    def _work(self, group: Group) -> Result:
        done: list[tuple[Action, Outcome]] = []
        for action in group.actions:
            if self._stopping or not self._may_act():  # asked before each action: the process may have been frozen
                break
            outcome = self._act(group, action)
            done.append((action, outcome))
            if not isinstance(outcome, Ok):
                break
        return Result(group.ref.uid, group.generation, group.deleting, tuple(done))

    def _pool_of(self, group: Group) -> WorkerPool:
        if group.urgent:
            return self._express
        return self._renames if all(isinstance(action, RenameContainer) for action in group.actions) else self._pool

    def _slot(self, group: Group, action: Action) -> AbstractContextManager[None]:
        """Return the slot policy of a call: it frees its slot when it hangs. A pull keeps its slot."""
        if isinstance(action, PullImage):
            return nullcontext()
        makes = isinstance(action, CreateContainer | StartContainer | HibernateContainer)
        return self._pool_of(group).releasing_after(_START_STALLS_SECONDS if makes else self._stalls_seconds)

    def _act(self, group: Group, action: Action) -> Outcome:
        """Carry out one action; count and log it. An exception becomes a Transient outcome."""
        log = _log.bind(object=str(group.ref), action=str(action), why=action.why)
        started_at = time.perf_counter()
        try:
            self._before(action)
            with self._slot(group, action):
                outcome = self._engine.act(action)
        except Exception as error:  # a bug must end neither the thread nor the object's reconciling
            log.exception("action raised")
            outcome = Transient("InternalError", f"{type(error).__name__}: {error}; please report this")
        seconds = time.perf_counter() - started_at
        self._meter.count("paddock_reconcile_actions_total", action=action.verb)
        self._meter.observe("paddock_reconcile_action_duration_seconds", seconds, action=action.verb)
        if isinstance(action, BuildImage) and isinstance(outcome, Waiting):
            log.debug("action goes on", message=outcome.message)
        elif isinstance(outcome, Ok):
            outcome = replace(outcome, seconds=seconds)
            if isinstance(action, WakeContainer):
                self._meter.observe("paddock_sandbox_wake_seconds", seconds)
            log.info("action done", seconds=round(seconds, 4))
        else:
            self._meter.count("paddock_reconcile_action_errors_total", action=action.verb, reason=outcome.reason)
            if isinstance(outcome, Terminal):
                self._meter.count("paddock_reconcile_terminal_errors_total", controller="sandbox")
            log.warning("action failed", outcome=type(outcome).__name__, reason=outcome.reason, message=outcome.message)
        return outcome


def _has_started(result: Result) -> bool:
    """Return True if a container was started: callers wait for that, and few start within milliseconds."""
    return any(
        isinstance(action, StartContainer | WakeContainer) and isinstance(outcome, Ok)
        for action, outcome in result.done
    )
