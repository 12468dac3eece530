"""Activity of a sandbox: an open stream counts as use, and an exec wakes one that sleeps: suspended or hibernated."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from controller.kinds.common.chunk import Chunk
from controller.kinds.common.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.kinds.runtime.run import Run
from controller.ports import DetachableExec, Engine, ExecStream, NotNow, StreamError, UseTracker, Wake
from controller.service import errors

WAIT_SECONDS, _FIRST_LOOK_SECONDS = 30.0, 10.0
# Ready reasons of what a use wakes.
SLEEPING = ("IdleReaped", "Evicted", "Hibernated", "Hibernating", "WakeQueued")
# Ready reasons for which an exec waits; for all others it fails at once.
_WAKEABLE = (
    *("IdleReaped", "Evicted", "Suspending", "Starting", "Creating", "ImagePulling", "ImageBuilding"),
    *("Recreating", "Removing", "Claiming", "Unpausing"),
    *("Hibernated", "Hibernating", "Waking", "WakeQueued"),
)
# Run states in which a use finds it running, or makes it so.
_USABLE = ("Running", "Hibernated")
# Ready reasons of the engine, or of a moment: Paddock goes on by itself, and nobody has to change the sandbox.
_PASSING = (
    *("EngineUnreachable", "EngineError", "EngineLost", "Conflict", "ContainerGone", "BeingRemoved", "NetworkInUse"),
    *("InternalError", "Unreadable", "StartFailed", "StartBlocked", "NotRunning", "Unhealthy", "AgentNotReady"),
    *("MountsMissing", "MountNotSeen", "NoQuorum", "SchedulerUnreachable", "HostLost"),
)


class NoLoop:
    """UseTracker without a loop: nothing is reaped, and nothing is woken."""

    passes = 0

    def begin(self, _uid: str, *, wakes: bool) -> None: ...
    def end(self, _uid: str, *, wakes: bool) -> None: ...
    def contexts(self, _uid: str, _run: Run, _contexts: tuple[tuple[str, str], ...]) -> None: ...
    def stopping_run(self, _uid: str) -> Run | None:
        return None

    def wait(self, _passes: int, _seconds: float, _uid: str = "") -> bool:
        return False


class NoAdoptedExecs:
    """AdoptedExecs without an engine: the end of every command is unknown."""

    def follow(self, ref: ExecRef, **_: Any) -> Iterator[Chunk]:  # noqa: ARG002 - the port's signature
        """Return an empty stream."""
        return iter(())


class TrackedStream(Iterator[Chunk]):
    """A stream that calls back when it ends: read to its end, broken, or closed (from any thread)."""

    def __init__(self, chunks: Iterator[Chunk], over: Callable[[], None]) -> None:
        self._chunks = chunks
        self._over: list[Callable[[], None]] = [over]

    def __next__(self) -> Chunk:
        try:
            return next(self._chunks)
        except BaseException:
            self._end()
            raise

    def resize(self, rows: int, columns: int) -> None:
        """Resize a command's terminal."""
        if isinstance(self._chunks, ExecStream):
            self._chunks.resize(rows, columns)

    def signal(self, name: str) -> None:
        """Send a signal to a command's process group."""
        if isinstance(self._chunks, ExecStream):
            self._chunks.signal(name)

    @property
    def ref(self) -> ExecRef | None:
        """See ports.DetachableExec."""
        return self._chunks.ref if isinstance(self._chunks, DetachableExec) else None

    def detach_stream(self) -> None:
        """See ports.DetachableExec."""
        if isinstance(self._chunks, DetachableExec):
            self._chunks.detach_stream()

    def close(self) -> None:
        try:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()
        finally:
            self._end()

    def _end(self) -> None:
        with suppress(IndexError):  # popping is atomic: it ends only once
            self._over.pop()()


class ActivityTracker:
    """Opens streams that count as use. `wake` requests a reconcile pass, since the idle clock changed.

    `wake_now` requests one that is waited for (default: `wake`). `resume` sets the runState of one that a person
    hibernated to Running.
    """

    def __init__(
        self,
        *,
        in_use: UseTracker,
        engine: Engine,
        wake: Wake,
        wake_now: Wake | None = None,
        resume: Callable[[StoredObject], None] = lambda _: None,
    ) -> None:
        self._in_use, self._engine, self._wake, self._resume = in_use, engine, wake, resume
        self._wake_now = wake_now or (lambda: None)

    def stream(self, uid: str, open_: Callable[[], Iterator[Chunk]], *, wakes: bool) -> TrackedStream:
        """Open a stream; the sandbox is in use until it ends. `wakes` wakes an idle-suspended sandbox."""
        self._in_use.begin(uid, wakes=wakes)
        self._wake()
        try:
            chunks = open_()
        except BaseException:
            self._over(uid, wakes)
            raise
        return TrackedStream(chunks, lambda: self._over(uid, wakes))

    def begin(self, uid: str) -> Callable[[], None]:
        """Keep the sandbox in use, and wake it, until the result is called (from any thread; idempotent)."""
        self._in_use.begin(uid, wakes=True)
        self._wake()
        open_ = [uid]

        def end() -> None:
            with suppress(IndexError):  # popping is atomic: it ends only once
                self._over(open_.pop(), True)

        return end

    def _over(self, uid: str, wakes: bool) -> None:
        self._in_use.end(uid, wakes=wakes)
        self._wake()

    def mark_used(self, obj: StoredObject, container: Container) -> None:
        """Mark a container before its use, where its name does not show yet that it was claimed. Raises StreamError."""
        if container.name != container_name(obj.name, obj.uid):
            self._engine.mark_used(container.id)

    def is_held(self, container: Container) -> bool:
        """Return True if this run is being stopped as idle."""
        return self._in_use.stopping_run(container.uid) == container.run

    def await_first_look(self, seconds: float = _FIRST_LOOK_SECONDS) -> None:
        """Wait until the engine was observed once: a daemon that has just started knows nothing of its sandboxes."""
        if not self._engine.observe().is_pending:
            return
        deadline, passes = time.monotonic() + seconds, self._in_use.passes
        while self._engine.observe().is_pending and self._in_use.wait(passes, deadline - time.monotonic()):
            passes = self._in_use.passes
        for _ in range(2):  # the pass that ends first may have begun before
            passes = self._in_use.passes
            self._wake_now()
            self._in_use.wait(passes, deadline - time.monotonic())

    def running(self, observe: Callable[[], tuple[StoredObject, Container | None]], seconds: float) -> Container:
        """Return the container once it runs and may be used; observe after each reconcile pass. Begin the use first.

        Raises StreamError after `seconds`, or at once if waiting is pointless.
        """
        deadline = time.monotonic() + seconds
        while True:
            passes = self._in_use.passes
            try:
                obj, container = observe()
                if obj.spec.get("runState") == "Hibernated" and not (container and self.may_use(obj, container)):
                    self._resume(obj)
                    obj, container = observe()
            except errors.ServiceError as error:
                raise StreamError(str(error)) from error
            if container is not None and self.may_use(obj, container):
                return container
            subject = f"{obj.kind.lower()} `{obj.name}`"
            self._wake_now()
            if not will_start(obj) and _condition(obj, "Ready").get("status") != "True":
                message = f"{subject} does not run{state_message(obj)}"
                raise NotNow(message) if is_expected(obj, container) else StreamError(message)
            if not self._in_use.wait(passes, deadline - time.monotonic(), obj.uid):
                raise NotNow(f"{subject} did not start within {seconds:g} s{state_message(obj)}; try again in a moment")

    def may_use(self, obj: StoredObject, container: Container) -> bool:
        """Return True if a command may start in it: it runs, and is not being stopped as idle."""
        ready = _condition(obj, "Ready")
        ending = ready.get("reason") == "Suspending" and obj.spec.get("runState", "Running") == "Running"
        return container.state is State.RUNNING and not ending and not self.is_held(container)


def will_start(obj: StoredObject) -> bool:
    """Return True if its status says that it is starting, or starts on demand; a new object has no status yet."""
    is_to_run = obj.spec.get("runState", "Running") in _USABLE and obj.deleted_at is None
    ready = _condition(obj, "Ready")
    return is_to_run and (not ready or ready.get("reason") in _WAKEABLE)


def is_expected(obj: StoredObject, container: Container | None) -> bool:
    """Return True if it is to run, and does not for a moment only, or that is unknown: asking again may help."""
    if obj.deleted_at is not None or obj.spec.get("runState", "Running") not in _USABLE:
        return False
    ready = _condition(obj, "Ready")
    unknown = not ready or ready["status"] != "False" or (container is not None and container.state is State.UNKNOWN)
    return unknown or ready["reason"] in (*_WAKEABLE, *_PASSING)


def is_behind(obj: StoredObject) -> bool:
    """Return True if its status says that it runs: a container that does not is news, and the next pass sees to it."""
    return _condition(obj, "Ready").get("status") == "True" and obj.deleted_at is None


def state_message(obj: StoredObject) -> str:
    """Return the object's Ready condition as the end of a message."""
    if obj.deleted_at is not None:
        return ": it is being deleted"
    ready = _condition(obj, "Ready")
    if not ready:
        return " yet: it was not observed so far; try again in a moment"
    message = f": {ready['reason']}" + (f": {ready['message']}" if ready.get("message") else "")
    if ready["reason"] == "Suspended":
        message += "; set it to Running first (`paddock set run-state`): only sandboxes suspended as idle are woken"
    if ready["reason"] == "Paused":
        message += "; it keeps its processes and code contexts: set it to Running first (`paddock set run-state`)"
    return message


def _condition(obj: StoredObject, type_: str) -> dict[str, str]:
    matches = (condition for condition in obj.status.get("conditions", ()) if condition["type"] == type_)
    return next(matches, {})
