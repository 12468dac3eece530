"""ports.AdoptedExecs: adopted execs, which an earlier daemon started.

Their output is lost, but the engine still reports their exit code. After a restart of the engine, an exec is recognised
by its mark, as long as it runs.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.exec.command import TIMED_OUT
from controller.engine.exec.lost_exit import LOST, ExitEvidence, Known
from controller.engine.kernel.kill import Killer, Target
from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import ExitLost, NeverStarted

_POLL_SECONDS = 1.0
_OVERWRITTEN = 126
_EVENTS_SECONDS = 86400  # the engine keeps the newest 256 events anyway
_START_SECONDS, _PAUSE_SECONDS = 30.0, 0.02
_REFUSED_SECONDS = 5.0
_CONFLICT = 409
_REQUEST_SECONDS = 2.0  # a start that the last daemon requested has reached the engine by then
_FORGOTTEN = (
    "the command has ended, and its exit code is unknown: the engine or the sandbox was restarted, or no daemon ran"
)
_NEVER = "the daemon ended before it started the command"


class DockerAdoptedExecs:
    """Adopted execs of one engine."""

    def __init__(self, client: Client, killer: Killer, container_of: Known = lambda _: None) -> None:
        """`container_of` returns a container as last observed, None if it never was."""
        self._client, self._killer, self._known = client, killer, container_of

    def follow(
        self,
        ref: ExecRef,
        *,
        timeout_seconds: float | None,
        escaped: Callable[[str], None] | None = None,
        starts: bool = False,
    ) -> "AdoptedExec":
        """See ports.AdoptedExecs."""
        evidence = ExitEvidence(ref, self._killer.proc, self._known)
        return AdoptedExec(
            self._client,
            self._killer,
            ref=ref,
            evidence=evidence,
            timeout_seconds=timeout_seconds,
            escaped=escaped,
            starts=starts,
        )


class AdoptedExec(Iterator[Chunk]):
    """An adopted exec as a stream, silent until the end."""

    def __init__(
        self,
        client: Client,
        killer: Killer,
        ref: ExecRef,
        evidence: ExitEvidence,
        timeout_seconds: float | None,
        escaped: Callable[[str], None] | None,
        *,
        starts: bool,
    ) -> None:
        self._evidence = evidence
        self._client, self._killer, self._ref, self._escaped = client, killer, ref, escaped
        self._starts = starts
        self._begun = time.monotonic()
        self._deadline = math.inf if timeout_seconds is None else self._begun + timeout_seconds
        self._closed = threading.Event()
        self._kill = True
        self._last: list[Chunk] | None = None

    @property
    def ref(self) -> ExecRef:
        """Reference by which it is found again."""
        return self._ref

    def __next__(self) -> Chunk:
        if self._last is None:
            self._last = self._end()
        if not self._last:
            raise StopIteration
        return self._last.pop(0)

    def close(self) -> None:
        """Kill it. From any thread, idempotent."""
        self._closed.set()

    def detach_stream(self) -> None:
        """See ports.DetachableExec."""
        self._kill = False
        self._closed.set()

    def _end(self) -> list[Chunk]:
        """Wait for the end; return the last chunks."""
        leader, was_refused = 0, False
        while True:
            exec_state = self._look()
            if self._evidence.is_lost(exec_state, time.monotonic()):
                raise ExitLost(LOST)
            state = exec_state or {}
            if not state.get("Running") and state.get("ExitCode") is not None:
                return [Chunk("exit", str(self._exit_code(int(state["ExitCode"]))).encode())]
            leader = int(state.get("Pid") or leader)
            now = time.monotonic()
            unstarted = bool(state) and not leader and not state.get("Running")
            late, closed = now >= self._deadline, self._closed.is_set()
            if unstarted and self._starts and not (late or closed):
                if was_refused and now >= self._begun + _REFUSED_SECONDS:
                    raise NeverStarted(_NEVER)
                was_refused = self._start()
                self._closed.wait(_PAUSE_SECONDS)
                continue
            if unstarted and not (self._starts and late) and now >= self._begun + _REQUEST_SECONDS:
                raise NeverStarted(_NEVER)
            if closed and not self._kill:
                return []
            if not (late or closed):
                self._closed.wait(min(_POLL_SECONDS, self._deadline - now))
            elif state and not leader and now < self._begun + _START_SECONDS:
                time.sleep(_PAUSE_SECONDS)  # the engine is still starting it
            else:
                return self._killed(leader, late=late)

    def _start(self) -> bool:
        """Start it, without its output: the engine starts each exec once. Return True if the engine refuses that.

        It refuses an exec that was started before, which the next look shows, and one in a sandbox that does not run.
        """
        try:
            self._client.call("exec.start", lambda api: api.exec_start(self._ref.exec_id, detach=True))
        except Fault as fault:
            return fault.status == _CONFLICT
        return False

    def _exit_code(self, reported_code: int) -> int:
        """Return the true exit code. Raises ExitLost if it is unknown.

        The engine reports 126 for a command that wrote without a reader; the event of its end has the true code.
        """
        if reported_code != _OVERWRITTEN:
            return reported_code
        desired = {"type": "container", "event": "exec_die", "container": self._ref.container_id}
        now = int(time.time())
        try:
            events = self._client.call(
                "events.list",
                lambda api: list(api.events(since=now - _EVENTS_SECONDS, until=now + 1, filters=desired, decode=True)),
            )
        except Fault as fault:
            raise ExitLost(_FORGOTTEN) from fault
        for event in events:
            reported = event["Actor"]["Attributes"]
            if reported.get("execID") == self._ref.exec_id:
                return int(reported["exitCode"])
        raise ExitLost(_FORGOTTEN)

    def _killed(self, leader: int, *, late: bool) -> list[Chunk]:
        ref = self._ref
        target = Target(ref.container_id, ref.init_pid, leader, ref.mark, ref.since_ticks)
        is_complete = self._killer.end(target)
        if not late:
            return []
        if self._escaped is not None and (not is_complete or self._killer.possible_escapes(target)):
            self._escaped("processes that can't be told from the sandbox's own")
        return [Chunk("timeout", b""), Chunk("exit", str(TIMED_OUT).encode())]

    def _look(self) -> dict[str, Any] | None:
        """Inspect it; None while the engine can't tell. Raises ExitLost once it has ended unobserved."""
        try:
            state: dict[str, Any] = self._client.call("exec.inspect", lambda api: api.exec_inspect(self._ref.exec_id))
        except Fault as fault:
            ref = self._ref
            if fault.is_gone and not self._killer.alive(
                Target(ref.container_id, ref.init_pid, 0, ref.mark, ref.since_ticks)
            ):
                raise ExitLost(_FORGOTTEN) from fault
            return None
        return state
