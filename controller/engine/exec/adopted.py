"""kinds.LeftExecs: commands that were begun by a daemon before this one.

The engine gives their output to nobody any more, but it tells how they end. One that it has forgotten (it was restarted
itself) is known by its mark, as long as it runs.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.exec.command import TIMED_OUT
from controller.engine.exec.kill import Killer, Target
from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import StreamError

_LOOK_SECONDS = 1.0
_OVERWRITTEN = 126
_EVENTS_SECONDS = 86400  # the engine keeps the newest 256 events anyway
_START_SECONDS, _PAUSE_SECONDS = 30.0, 0.02
_FORGOTTEN = (
    "it has ended, and how is not known: the engine, or its box, was started again, or no daemon was there for minutes"
)


class DockerLeftExecs:
    """Those of one engine."""

    def __init__(self, client: Client, killer: Killer) -> None:
        self._client, self._killer = client, killer

    def follow(
        self, ref: ExecRef, *, timeout_seconds: float | None, escaped: Callable[[str], None] | None = None
    ) -> "Left":
        """See kinds.LeftExecs."""
        return Left(self._client, self._killer, ref, timeout_seconds, escaped)


class Left(Iterator[Chunk]):
    """One of them, as a stream that is silent until it ends."""

    def __init__(
        self,
        client: Client,
        killer: Killer,
        ref: ExecRef,
        timeout_seconds: float | None,
        escaped: Callable[[str], None] | None,
    ) -> None:
        self._client, self._killer, self._ref, self._escaped = client, killer, ref, escaped
        self._begun = time.monotonic()
        self._deadline = math.inf if timeout_seconds is None else self._begun + timeout_seconds
        self._closed = threading.Event()
        self._kill = True
        self._last: list[Chunk] | None = None

    @property
    def ref(self) -> ExecRef:
        """What it is known by."""
        return self._ref

    def __next__(self) -> Chunk:
        if self._last is None:
            self._last = self._end()
        if not self._last:
            raise StopIteration
        return self._last.pop(0)

    def close(self) -> None:
        """Kill it. From any thread, and again."""
        self._closed.set()

    def let_go(self) -> None:
        """See kinds.Leavable."""
        self._kill = False
        self._closed.set()

    def _end(self) -> list[Chunk]:
        """Wait for its end."""
        leader = 0
        while True:
            state = self._look() or {}
            if not state.get("Running") and state.get("ExitCode") is not None:
                return [Chunk("exit", str(self._exit_code(int(state["ExitCode"]))).encode())]
            leader = int(state.get("Pid") or leader)
            now = time.monotonic()
            late, closed = now >= self._deadline, self._closed.is_set()
            if closed and not self._kill:
                return []
            if not (late or closed):
                self._closed.wait(min(_LOOK_SECONDS, self._deadline - now))
            elif state and not leader and now < self._begun + _START_SECONDS:
                time.sleep(_PAUSE_SECONDS)  # the engine is starting it: there is nothing to kill yet
            else:
                return self._killed(leader, late=late)

    def _exit_code(self, said: int) -> int:
        """Its true one. Raises StreamError where nobody knows it.

        The engine says 126 of a command that wrote when nobody read; the event of its end knows better.
        """
        if said != _OVERWRITTEN:
            return said
        wanted = {"type": "container", "event": "exec_die", "container": self._ref.container_id}
        now = int(time.time())
        try:
            events = self._client.call(
                "events.list",
                lambda api: list(api.events(since=now - _EVENTS_SECONDS, until=now + 1, filters=wanted, decode=True)),
            )
        except Fault as fault:
            raise StreamError(_FORGOTTEN) from fault
        for each in events:
            told = each["Actor"]["Attributes"]
            if told.get("execID") == self._ref.exec_id:
                return int(told["exitCode"])
        raise StreamError(_FORGOTTEN)

    def _killed(self, leader: int, *, late: bool) -> list[Chunk]:
        ref = self._ref
        target = Target(ref.container_id, ref.init_pid, leader, ref.mark, ref.since_ticks)
        whole = self._killer.end(target)
        if not late:
            return []
        if self._escaped is not None and (not whole or self._killer.doubtful(target)):
            self._escaped("processes that can't be told from the box's own")
        return [Chunk("timeout", b""), Chunk("exit", str(TIMED_OUT).encode())]

    def _look(self) -> dict[str, Any] | None:
        """What the engine says of it; None while it can't say. Raises StreamError when it is over, and nobody knows."""
        try:
            state: dict[str, Any] = self._client.call("exec.inspect", lambda api: api.exec_inspect(self._ref.exec_id))
        except Fault as fault:
            ref = self._ref
            if fault.gone and not self._killer.alive(
                Target(ref.container_id, ref.init_pid, 0, ref.mark, ref.since_ticks)
            ):
                raise StreamError(_FORGOTTEN) from fault
            return None
        return state
