"""Calls of the agents in sandboxes: counted, with an event when one stops answering and when it answers again.

The engine's own exec is what security and accounting rely on; the agent is a quicker way to the same, for users. It has
the uid of its sandbox, so nothing that it answers is trusted.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from controller.kinds.meta import Event, StoredObject
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.agent import PORT
from controller.kinds.runtime.agent_call import AgentRequest, LeftExec, Outcome
from controller.ports import AgentAnswer, AgentError, Agents, Clock, ExecStream, Meter, NullMeter, Store, StoreError
from controller.service.exec.exec_deadline import template_of

_SKIP_SECONDS = 5.0  # after a failure, commands take the engine's exec at once
_STALLED_SKIP_SECONDS = 60.0  # after one that took a command and said nothing: each try costs its caller long
_YOUNG_SECONDS = 10.0  # an agent that just started may not listen yet
_RETRY_SECONDS = 0.02
_EVENT_SECONDS = 60.0  # between two events about one sandbox
_HEALTH_SECONDS = 2.0
_HEALTH_BYTES = 4096
_STDIN_BYTES = 1 << 20
_MOST_FAILURES = 1000
_OUTCOMES: dict[str, Outcome] = {"TimedOut": "timeout", "BadAnswer": "invalid"}
_log = structlog.get_logger("paddock.agent")


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """Health of a sandbox's agent."""

    message: str = ""
    """For people; "" of a sandbox without an agent."""
    silent: bool = False
    """It did not answer: another question would wait in vain, too."""


class NoAgents:
    """Agents of a daemon without an engine."""

    def ask(self, *_: Any, **__: Any) -> AgentAnswer:
        """Raise AgentError."""
        raise AgentError("NotListening", "agents are not reached here")

    def exec(self, *_: Any, **__: Any) -> ExecStream:
        """Raise AgentError."""
        raise AgentError("NotListening", "agents are not reached here")

    def orphans(self, *_: Any) -> Sequence[LeftExec]:
        """Return none."""
        return ()

    def join(self, *_: Any) -> ExecStream:
        """Raise AgentError."""
        raise AgentError("NotListening", "agents are not reached here")


@dataclass(slots=True)
class _Failure:
    """An agent that did not answer: in which run, until when it is skipped, and when an event said so."""

    run: tuple[str, float]
    skip_until: float
    recorded_at: float


class AgentCalls:
    """Thread-safe. `calls` of any kind go through it."""

    def __init__(self, *, store: Store, agents: Agents, clock: Clock, meter: Meter | None = None) -> None:
        self._store, self._agents, self._clock, self._meter = store, agents, clock, meter or NullMeter()
        self._lock = threading.Lock()
        self._failures: dict[str, _Failure] = {}

    def port(self, obj: StoredObject, container: Container | None) -> int | None:
        """Return the port of the sandbox's agent; None: it has none. One that runs, or is frozen, decides by itself."""
        if container is not None and container.state in (State.RUNNING, State.PAUSED):
            return PORT if container.agent else None
        template = template_of(self._store, obj)
        return PORT if template is not None and template.get("agent") is not None else None

    def ask(
        self, obj: StoredObject, container: Container, port: int, request: AgentRequest, *, seconds: float | None
    ) -> AgentAnswer:
        """Send a request; one that just started is waited for. Raises AgentError, which is recorded."""
        young = min(_YOUNG_SECONDS, container.started_at + _YOUNG_SECONDS - self._clock.now())
        deadline, pause = time.monotonic() + young, threading.Event()
        while True:
            try:
                return self._agents.ask(container, port, request, seconds=seconds)
            except AgentError as error:
                if error.kind != "NotListening" or time.monotonic() >= deadline:
                    self.note_failure(obj, container, error)
                    raise
            pause.wait(_RETRY_SECONDS)

    def exec(
        self,
        obj: StoredObject,
        container: Container,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        working_dir: str,
        stdin: Sequence[bytes],
        **limits: Any,
    ) -> ExecStream | None:
        """Run a command by the agent. None: there is none, or it did not begin it; the engine's exec is to do it.

        Raises AgentError if it may have begun and its answer is none.
        """
        port = self.port(obj, container) if sum(map(len, stdin)) <= _STDIN_BYTES else None
        if port is None or self._is_skipped(obj, container):
            return None
        started = time.monotonic()
        try:
            stream = self._agents.exec(
                container, port, command, env=env, working_dir=working_dir, stdin=b"".join(stdin), **limits
            )
        except AgentError as error:
            self.count("exec", "unavailable" if error.begun else "refused", time.monotonic() - started)
            if error.kind != "Refused":
                self._note_failure(obj, container, error, _STALLED_SKIP_SECONDS if error.begun else _SKIP_SECONDS)
            if error.begun:
                raise
            return None
        self.note_answer(obj)
        self.count("exec", "ok", time.monotonic() - started)
        return stream

    def orphans(self, obj: StoredObject, container: Container) -> Sequence[LeftExec]:
        """Return the commands that outlived their daemon; none of a sandbox without an agent, or whose has none.

        Raises AgentError.
        """
        port = self.port(obj, container)
        return () if port is None else self._agents.orphans(container, port)

    def join(self, obj: StoredObject, container: Container, id_: str) -> ExecStream:
        """Return the stream of one of them. Raises AgentError."""
        return self._agents.join(container, self.port(obj, container) or PORT, id_)

    def health(self, obj: StoredObject, container: Container | None) -> AgentHealth:
        """Ask the agent for its health."""
        port = self.port(obj, container)
        if port is None:
            return AgentHealth()
        if container is None or container.state is not State.RUNNING:
            return AgentHealth("does not run")
        try:
            answer = self._agents.ask(container, port, AgentRequest("GET", "/healthz", {}), seconds=_HEALTH_SECONDS)
            try:
                status, _ = answer.head()
                size = 0
                while (data := answer.read()) and size <= _HEALTH_BYTES:
                    size += len(data)
            finally:
                answer.close()
        except AgentError as error:
            return AgentHealth(f"does not answer: {error}", silent=True)
        if status != 200 or size > _HEALTH_BYTES:
            return AgentHealth(f"does not answer as an agent does (HTTP status {status}, {size} bytes)")
        return AgentHealth("answers")

    def outcome_of(self, error: AgentError) -> Outcome:
        """Return the metrics' outcome of a failed call."""
        return _OUTCOMES.get(error.kind, "unavailable")

    def count(self, tool: str, outcome: Outcome, seconds: float) -> None:
        """Count a call."""
        self._meter.count("paddock_agent_calls_total", tool=tool, outcome=outcome)
        self._meter.observe("paddock_agent_call_duration_seconds", seconds, tool=tool)

    def note_answer(self, obj: StoredObject) -> None:
        """Note that the agent answers; the first time after a failure it is an event."""
        with self._lock:
            failure = self._failures.pop(obj.uid, None) if self._failures else None
        if failure is not None and failure.recorded_at:
            self._record(obj, "Normal", "AgentAnswers", "the agent answers again")

    def note_failure(self, obj: StoredObject, container: Container, error: AgentError) -> None:
        """Note that the agent does not answer. A time-out of the call itself says nothing about the agent."""
        if error.kind != "TimedOut":
            self._note_failure(obj, container, error, _SKIP_SECONDS)

    def _note_failure(self, obj: StoredObject, container: Container, error: AgentError, skip_seconds: float) -> None:
        now, run = time.monotonic(), container.run
        with self._lock:
            failure = self._failures.get(obj.uid)
            recorded_at = failure.recorded_at if failure is not None else 0.0
            due = not recorded_at or now - recorded_at >= _EVENT_SECONDS
            young = self._clock.now() - container.started_at < _YOUNG_SECONDS and error.kind == "NotListening"
            due = due and not young
            self._failures[obj.uid] = _Failure(run, now + skip_seconds * (not young), now if due else recorded_at)
            while len(self._failures) > _MOST_FAILURES:
                del self._failures[next(iter(self._failures))]
        if due:
            message = f"{error}; commands take the engine's way meanwhile"
            self._record(obj, "Warning", "AgentNotAnswering", message)

    def _is_skipped(self, obj: StoredObject, container: Container) -> bool:
        failure = self._failures.get(obj.uid)
        return failure is not None and failure.run == container.run and time.monotonic() < failure.skip_until

    def _record(self, obj: StoredObject, type_: Any, reason: str, message: str) -> None:
        now = self._clock.now()
        try:
            with self._store.transaction() as transaction:
                transaction.add_event(Event(obj.ref, type_, reason, message, at=now, first_at=now))
        except StoreError as error:
            _log.warning("agent event not recorded", object=str(obj.ref), reason=reason, why=str(error))
