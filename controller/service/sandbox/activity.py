"""Streams into a box count as use of it for as long as they are open, and an exec wakes a box that sleeps."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from controller.kinds.common.chunk import Chunk
from controller.kinds.meta import StoredObject
from controller.kinds.observed.activity import Run
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import Engine, ExecStream, InUse, Leavable, StreamError, Wake
from controller.service import errors

WAIT_SECONDS = 30.0
# What a sandbox says of itself while an exec may wait for it; everything else is answered at once.
_PASSING = ("IdleReaped", "Evicted", "Suspending", "Starting", "Creating")


class NoLoop:
    """InUse where no loop runs: nothing is reaped, and nothing is woken."""

    turns = 0

    def begin(self, _uid: str, *, asks: bool) -> None: ...
    def end(self, _uid: str, *, asks: bool) -> None: ...
    def held(self, _uid: str) -> Run | None:
        return None

    def wait(self, _turns: int, _seconds: float) -> bool:
        return False


class NoLeft:
    """LeftExecs where no engine's commands are at hand: how they ended, nobody can tell."""

    def follow(self, ref: ExecRef, **_: Any) -> Iterator[Chunk]:  # noqa: ARG002 - the port's signature
        """Nothing comes."""
        return iter(())


class UsedStream(Iterator[Chunk]):
    """A stream that tells when it is over: read to its end, broken, or closed (from any thread)."""

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
        """Give a command's terminal a size."""
        if isinstance(self._chunks, ExecStream):
            self._chunks.resize(rows, columns)

    def signal(self, name: str) -> None:
        """Send a signal to a command's process group."""
        if isinstance(self._chunks, ExecStream):
            self._chunks.signal(name)

    @property
    def ref(self) -> ExecRef | None:
        """See kinds.Leavable."""
        return self._chunks.ref if isinstance(self._chunks, Leavable) else None

    def let_go(self) -> None:
        """See kinds.Leavable."""
        if isinstance(self._chunks, Leavable):
            self._chunks.let_go()

    def close(self) -> None:
        try:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()
        finally:
            self._end()

    def _end(self) -> None:
        with suppress(IndexError):  # popping is atomic: it ends once
            self._over.pop()()


class Used:
    """Opens streams that count as use. `wake` has the loop look again: the idle clock moved."""

    def __init__(self, *, in_use: InUse, engine: Engine, wake: Wake) -> None:
        self._in_use, self._engine, self._wake = in_use, engine, wake

    def stream(self, uid: str, open_: Callable[[], Iterator[Chunk]], *, asks: bool) -> UsedStream:
        """Open a stream; the box is in use from now until it is over. `asks` wakes a box that sleeps."""
        self._in_use.begin(uid, asks=asks)
        self._wake()
        try:
            chunks = open_()
        except BaseException:
            self._over(uid, asks)
            raise
        return UsedStream(chunks, lambda: self._over(uid, asks))

    def begin(self, uid: str) -> Callable[[], None]:
        """The box is in use, and woken if it sleeps, until what is returned is called (from any thread, and again)."""
        self._in_use.begin(uid, asks=True)
        self._wake()
        left = [uid]

        def end() -> None:
            with suppress(IndexError):  # popping is atomic: it ends once
                self._over(left.pop(), True)

        return end

    def _over(self, uid: str, asks: bool) -> None:
        self._in_use.end(uid, asks=asks)
        self._wake()

    def is_held(self, container: Container) -> bool:
        """Whether this run is being stopped for idleness."""
        return self._in_use.held(container.uid) == (container.id, container.started_at)

    def running(self, look: Callable[[], tuple[StoredObject, Container | None]], seconds: float) -> Container:
        """The container, once it runs and may be used; looks after each turn. Begin the use first.

        StreamError says what it waited for in vain, after `seconds`, or why there is no use in waiting.
        """
        deadline = time.monotonic() + seconds
        while True:
            turns = self._in_use.turns
            try:
                obj, container = look()
            except errors.ServiceError as error:
                raise StreamError(str(error)) from error
            if container is not None and self.may_use(obj, container):
                return container
            word = f"{obj.kind.lower()} `{obj.name}`"
            if not is_coming(obj) and _condition(obj, "Ready").get("status") != "True":
                raise StreamError(f"{word} does not run{words(obj)}")
            if not self._in_use.wait(turns, deadline - time.monotonic()):
                raise StreamError(f"{word} did not start within {seconds:g} s{words(obj)}; try again in a moment")

    def may_use(self, obj: StoredObject, container: Container) -> bool:
        """Whether a command may begin in it: it runs, and nothing is about to stop it for idleness."""
        ready = _condition(obj, "Ready")
        ending = ready.get("reason") == "Suspending" and obj.spec.get("runState", "Running") == "Running"
        return container.state is State.RUNNING and not ending and not self.is_held(container)


def is_coming(obj: StoredObject) -> bool:
    """Whether it does not run, but will soon or when asked for, by its own account."""
    asked = obj.spec.get("runState", "Running") == "Running" and obj.deleted_at is None
    return asked and _condition(obj, "Ready").get("reason") in _PASSING


def words(obj: StoredObject) -> str:
    """What the object's own conditions say about it, for the end of a message."""
    if obj.deleted_at is not None:
        return ": it is being deleted"
    ready = _condition(obj, "Ready")
    if not ready:
        return " yet: it was not looked at so far; try again in a moment"
    said = f": {ready['reason']}" + (f": {ready['message']}" if ready.get("message") else "")
    if ready["reason"] == "Suspended":
        said += "; set it to Running first (`paddock set run-state`): only what idleness suspended is woken"
    return said


def _condition(obj: StoredObject, type_: str) -> dict[str, str]:
    found = (each for each in obj.status.get("conditions", ()) if each["type"] == type_)
    return next(found, {})
