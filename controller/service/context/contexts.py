"""The use-cases of code contexts. Requests are admitted, bounded and counted as commands are, then passed to the agent.

Every method may block: call it off the event loop. All raise ServiceError.
"""

import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from controller.kinds.access.access import AccessRequest
from controller.kinds.common.chunk import Chunk
from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, State
from controller.kinds.registry import Kind
from controller.kinds.runtime.agent import PORT
from controller.kinds.runtime.agent_call import AgentRequest
from controller.kinds.runtime.context import (
    CODE_CHARACTERS,
    MOST_CONTEXTS,
    Completions,
    Context,
    ContextEvent,
    Execution,
    NewContext,
    Outcome,
)
from controller.policy.inside.context_events import EventReader, completions_of, context_of, plain_text
from controller.ports import AgentAnswer, AgentError, Meter, StreamError, UseTracker
from controller.service import errors
from controller.service.access.audit import Recorder
from controller.service.context.book import ContextBook
from controller.service.exec.activity import WAIT_SECONDS, state_message
from controller.service.exec.agent_calls import AgentCalls
from controller.service.exec.streams import SandboxStreams
from controller.service.sandbox.agent import AgentTimeout, AgentUnavailable

NO_CONTEXTS = "NoContexts"  # the cause of a refusal by a sandbox that has none
_ANSWER_BYTES = 1 << 20
_START_SECONDS = 75.0  # the agent gives an interpreter 60
_QUICK_SECONDS = 15.0
_FORK_SECONDS = 40.0
_SILENCE_SECONDS = 30.0  # the agent sends something every 5
_SPARE_SECONDS = 10.0  # for the agent to end an execution at its limit
_JSON = {"content-type": "application/json", "accept": "application/json"}
_ADVICE = "see `paddock why` and the sandbox's log; `paddock exec` works without it"
_ERRORS: Mapping[str, type[errors.ServiceError]] = {
    "NotFound": errors.NotFound,
    "Exists": errors.AlreadyExists,
    "Busy": errors.Conflict,
    "NoFork": errors.Conflict,
    "NoInterpreter": errors.Conflict,
    "TooMany": errors.TooManyRequests,
    "TooLarge": errors.TooLarge,
    "BadRequest": errors.BadRequest,
    "BadFolder": errors.BadRequest,
    "NoLanguage": errors.BadRequest,
    "NotStarted": errors.ServiceUnavailable,
    "NoProcess": errors.ServiceUnavailable,
}


@dataclass(frozen=True, slots=True)
class _Place:
    """A sandbox, its running container and the port of its agent; `release` gives them back."""

    obj: StoredObject
    container: Container
    port: int
    release: Callable[[], None]


class Contexts:
    """Contexts of the sandboxes on this host. `most` is how many a sandbox may have."""

    def __init__(
        self,
        streams: SandboxStreams,
        calls: AgentCalls,
        recorder: Recorder,
        meter: Meter,
        tracker: UseTracker,
        most: int = MOST_CONTEXTS,
    ) -> None:
        self._streams, self._calls, self._recorder, self._meter, self._most = streams, calls, recorder, meter, most
        self.book = ContextBook(meter, tracker)

    def list(self, kind: Kind, namespace: str, name: str) -> tuple[Context, ...]:
        """Return the contexts of a sandbox; none of one that does not run. Wakes no sandbox.

        Those of a frozen one are what was last heard of them: they stand still.
        """
        obj = self._streams.object(kind, namespace, name)
        container = self._streams.observed_container(obj)
        port = self._calls.port(obj, container)
        if port is None:
            raise _no_agent(obj)
        if container is not None and container.state is State.PAUSED:
            return self.book.of(obj.uid)
        if container is None or container.state is not State.RUNNING:
            return ()
        return self.list_of(obj, container)

    def list_of(self, obj: StoredObject, container: Container) -> tuple[Context, ...]:
        """Return the contexts of a running sandbox with an agent."""
        place = _Place(obj, container, PORT, lambda: None)
        answer = self._ask(place, AgentRequest("GET", "/contexts", {}), _QUICK_SECONDS)
        listing = answer.get("contexts")
        if not isinstance(listing, list) or len(listing) > 4096:
            raise _nonsense(obj, "no list of contexts")
        contexts = tuple(context for context in map(context_of, listing) if context is not None)
        self.book.replace(obj.uid, container.run, contexts)
        return contexts

    def get(self, kind: Kind, namespace: str, name: str, context: str) -> Context:
        """Return one context of a sandbox."""
        for candidate in self.list(kind, namespace, name):
            if candidate.name == context:
                return candidate
        raise errors.NotFound(f"sandbox `{name}` has no context `{context}`")

    def facts(self, obj: StoredObject) -> tuple[tuple[str, str], ...]:
        """Return what `why` says of the contexts: how many there are, and the one that uses the most memory."""
        container = self._streams.observed_container(obj)
        if container is None or container.state is not State.RUNNING or self._calls.port(obj, container) is None:
            return ()
        try:
            contexts = self.list_of(obj, container)
        except errors.ServiceError:
            return ()  # its agent's health is said beside this
        if not contexts:
            return ()
        largest = max(contexts, key=lambda context: context.memory_bytes)
        started = f" with {largest.processes} processes that it started" if largest.processes else ""
        memory = f"`{largest.name}` ({largest.language}) uses the most: {format_bytes(largest.memory_bytes)}{started}"
        return (("code contexts", ", ".join(context.name for context in contexts)), ("memory of contexts", memory))

    def create(self, kind: Kind, namespace: str, name: str, new: NewContext) -> Context:
        """Start an interpreter, and wait until it is ready. Wakes a sandbox suspended as idle."""
        body: dict[str, Any] = {
            "name": new.name or f"context-{secrets.token_hex(4)}",
            "language": new.language,
            "cwd": new.cwd,
        }
        with self._occupy(kind, namespace, name) as place:
            body |= {"env": self._streams.variables(place.obj, new.env), **self._bounds(place)}
            return self._request_context(place, "", body, _START_SECONDS)

    def fork(
        self, kind: Kind, namespace: str, name: str, context: str, copy: str = "", *, force: bool = False
    ) -> Context:
        """Copy a context with its whole state; `force`: also where that breaks something of it."""
        body = {"context": context, "name": copy or f"{context[:50]}-{secrets.token_hex(4)}", "force": force}
        with self._occupy(kind, namespace, name) as place:
            return self._request_context(place, "/fork", {**body, **self._bounds(place)}, _FORK_SECONDS)

    def restart(self, kind: Kind, namespace: str, name: str, context: str) -> Context:
        """Give a context a new interpreter; its state and all that it started ends."""
        with self._occupy(kind, namespace, name) as place:
            return self._request_context(place, "/restart", {"context": context}, _START_SECONDS)

    def complete(self, kind: Kind, namespace: str, name: str, context: str, code: str) -> Completions:
        """Return how code may go on at its end, by the names of an idle context. Wakes no sandbox."""
        with self._enter_running(kind, namespace, name) as place:
            answer = self._ask(place, _post("/complete", {"context": context, "code": code}), _QUICK_SECONDS)
            completions = completions_of(answer, code)
            if completions is None:
                raise _nonsense(place.obj, "no completions")
        return completions

    def interrupt(self, kind: Kind, namespace: str, name: str, context: str) -> bool:
        """Interrupt what runs in a context; its state stays. False if nothing runs."""
        with self._enter_running(kind, namespace, name) as place:
            answer = self._ask(place, _post("/interrupt", {"context": context}), _QUICK_SECONDS)
        return answer.get("interrupted") is True

    def delete(self, kind: Kind, namespace: str, name: str, context: str) -> None:
        """End a context and all that it started."""
        with self._enter_running(kind, namespace, name) as place:
            self._ask(place, _post("/delete", {"context": context}), _QUICK_SECONDS)
            self.book.remove(place.obj.uid, context)

    def execute(self, kind: Kind, namespace: str, name: str, execution: Execution) -> "ContextStream":
        """Run code in a context, after what runs in it; the stream's chunks are its events, the last one is `done`.

        The default context of a language starts with its first execution. Closing the stream interrupts the code; the
        state stays. A sandbox suspended as idle is started for it, when the stream is read.
        """
        if len(execution.code) > CODE_CHARACTERS:
            message = f"code: has {len(execution.code)} characters; at most {CODE_CHARACTERS} are taken: use a file"
            raise errors.TooLarge(message)
        obj = self._streams.usable(kind, namespace, name)
        if self._calls.port(obj, self._streams.observed_container(obj)) is None:
            raise _no_agent(obj)
        limit = self._streams.time_limit(obj, execution.timeout_seconds, tty=False)
        return ContextStream(self, obj, execution, limit, lambda: self._occupy(kind, namespace, name))

    def record_end(self, ask: AccessRequest, stream: "ContextStream") -> None:
        """Count an execution that has ended, and record its outcome and duration. Does not block."""
        seconds = time.monotonic() - stream.began
        self._count(stream.language, stream.outcome, seconds)
        detail = {"context": stream.context, "ended": stream.outcome, "durationSeconds": round(seconds, 3)}
        self._recorder.record_end(ask, detail)

    def _count(self, language: str, outcome: Outcome, seconds: float) -> None:
        self._meter.count("paddock_context_executions_total", language=language, outcome=outcome)
        self._meter.observe("paddock_context_execution_duration_seconds", seconds, language=language)

    # ---- requests to the agent

    def begin(self, place: _Place, execution: Execution, name: str, limit: float | None) -> AgentAnswer:
        """Send an execution to the agent; return its answer to come."""
        variables = self._streams.variables(place.obj, execution.env)
        body: dict[str, Any] = {"execution": name, "code": execution.code, "env": variables}
        body |= {"context": execution.context, "timeout": limit or 0}
        if not execution.context:
            body |= {"context": execution.language, "language": execution.language, **self._bounds(place)}
        return self._send(place, _post("/execute", body), _SILENCE_SECONDS)

    def refusal(self, place: _Place, answer: AgentAnswer, status: int) -> errors.ServiceError:
        """Return the error of an answer that is a refusal."""
        return _refusal(place.obj, status, _body(place.obj, answer))

    def note_answer(self, place: _Place) -> None:
        """Note that the agent answers."""
        self._calls.note_answer(place.obj)

    def note_failure(self, place: _Place, error: AgentError) -> errors.ServiceError:
        """Note that the agent did not answer; return the error for the caller."""
        self._calls.note_failure(place.obj, place.container, error)
        kind = AgentTimeout if error.kind == "TimedOut" else AgentUnavailable
        return kind(f"{error}; {_ADVICE}")

    def _request_context(self, place: _Place, path: str, body: Mapping[str, Any], seconds: float) -> Context:
        """Send a request whose answer is a context."""
        context = context_of(self._ask(place, _post(path, body), seconds))
        if context is None:
            raise _nonsense(place.obj, "no context")
        self.book.add(place.obj.uid, place.container.run, context)
        return context

    def _ask(self, place: _Place, request: AgentRequest, seconds: float) -> Mapping[str, Any]:
        """Send a request; return the object that answers it."""
        try:
            with closing(self._send(place, request, seconds)) as answer:
                status, _ = answer.head()
                body = _body(place.obj, answer)
        except AgentError as error:
            raise self.note_failure(place, error) from error
        self._calls.note_answer(place.obj)
        if status not in (200, 201):
            raise _refusal(place.obj, status, body)
        return body

    def _send(self, place: _Place, request: AgentRequest, seconds: float) -> AgentAnswer:
        try:
            return self._calls.ask(place.obj, place.container, place.port, request, seconds=seconds)
        except AgentError as error:
            raise self.note_failure(place, error) from error

    def _bounds(self, place: _Place) -> dict[str, int]:
        """Return the number of contexts that there may be, and of threads that libraries of one should use."""
        millicores = place.container.limits.cpu_millicores if place.container.limits else 0
        return {"most": self._most, "threads": math.ceil(millicores / 1000) if millicores else 0}

    def _occupy(self, kind: Kind, namespace: str, name: str) -> "_Occupancy":
        """Return the sandbox with a place of its commands; it is started if it was suspended as idle."""
        obj = self._streams.usable(kind, namespace, name)
        if self._calls.port(obj, self._streams.observed_container(obj)) is None:
            raise _no_agent(obj)

        def enter() -> tuple[Container, Callable[[], None]]:
            return self._streams.occupy(kind, obj, WAIT_SECONDS, fresh=True)

        return _Occupancy(self._calls, obj, enter)

    def _enter_running(self, kind: Kind, namespace: str, name: str) -> "_Occupancy":
        """Return the sandbox if it runs; it takes no place: this must work where all are taken."""
        obj = self._streams.object(kind, namespace, name)
        container = self._streams.observed_container(obj)
        if self._calls.port(obj, container) is None:
            raise _no_agent(obj)
        if container is not None and container.state is State.PAUSED:
            raise errors.Conflict(f"sandbox `{name}` is frozen{state_message(obj)}: its contexts stand still")
        if container is None or container.state is not State.RUNNING:
            raise errors.NotFound(f"sandbox `{name}` does not run: it has no contexts")
        return _Occupancy(self._calls, obj, lambda: (container, lambda: None))


class _Occupancy:
    """A context manager of a place in a sandbox."""

    def __init__(
        self, calls: AgentCalls, obj: StoredObject, enter: Callable[[], tuple[Container, Callable[[], None]]]
    ) -> None:
        self._calls, self._obj, self._enter = calls, obj, enter
        self._release: Callable[[], None] = lambda: None

    def __enter__(self) -> _Place:
        try:
            container, self._release = self._enter()
        except StreamError as error:
            raise errors.of_stream(error) from error
        port = self._calls.port(self._obj, container)
        if port is None:
            self._release()
            raise _no_agent(self._obj)
        return _Place(self._obj, container, port, self._release)

    def __exit__(self, *_: object) -> None:
        self._release()


class ContextStream(Iterator[Chunk]):
    """Events of one execution as chunks: `stream` is the event's type, `data` its fields as JSON. Raises ServiceError.

    Closing it, from any thread, interrupts the code. `outcome` is that of the execution so far.
    """

    def __init__(
        self,
        contexts: Contexts,
        obj: StoredObject,
        execution: Execution,
        limit_seconds: float | None,
        occupy: Callable[[], _Occupancy],
    ) -> None:
        self._contexts, self._obj, self._execution = contexts, obj, execution
        self._limit_seconds, self._occupy = limit_seconds, occupy
        self.context = execution.context or execution.language
        self.language: str = execution.language
        self.began = time.monotonic()
        self.outcome: Outcome = "cancelled"  # unless an event or an error says otherwise
        self._answer: AgentAnswer | None = None
        self._place: _Place | None = None
        self._closed = False
        self._deadline = math.inf
        self._chunks = self._read()

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def close(self) -> None:
        """Interrupt the code, and end the stream; from any thread."""
        self._closed = True
        if self._answer is not None:
            self._answer.close()

    def _read(self) -> Iterator[Chunk]:
        name = secrets.token_hex(8)
        try:
            with self._occupy() as place:
                self._place = place
                self._answer = self._contexts.begin(place, self._execution, name, self._limit_seconds)
                try:
                    for event in self._events(place, self._answer, EventReader(name)):
                        self._note(place, event)
                        yield Chunk(event.type, _compact(event.fields))
                finally:
                    self._answer.close()
        except errors.ServiceError:
            self.outcome = "cancelled" if self._closed else "unavailable"
            raise

    def _events(self, place: _Place, answer: AgentAnswer, reader: EventReader) -> Iterator[ContextEvent]:
        try:
            status, _ = answer.head()
            if status != 200:
                error = self._contexts.refusal(place, answer, status)
                self.outcome = "refused"
                raise error
            while not self._closed and not reader.done:
                answer.allow(_SILENCE_SECONDS)
                data = answer.read()
                if not data:
                    raise AgentError("NoAnswer", f"the agent of sandbox `{self._obj.name}` ended an execution halfway")
                yield from reader.feed(data)
                if time.monotonic() > self._deadline:
                    raise AgentError("TimedOut", f"the agent of sandbox `{self._obj.name}` did not end it in time")
            self._contexts.note_answer(place)
        except AgentError as error:
            if not self._closed:
                raise self._contexts.note_failure(place, error) from error
        except ValueError as error:
            raise _nonsense(self._obj, str(error)) from error

    def _note(self, place: _Place, event: ContextEvent) -> None:
        """Take from an event what the daemon keeps."""
        if event.type == "started":
            self.context, self.language = event.fields["context"], event.fields["language"]
            self._deadline = (
                time.monotonic() + self._limit_seconds + _SPARE_SECONDS if self._limit_seconds else math.inf
            )
            engine, reason = event.fields["engine"], event.fields["reason"]
            context = Context(self.context, event.fields["language"], "busy", engine=engine, reason=reason)
            self._contexts.book.add(self._obj.uid, place.container.run, context)
        elif event.type == "done":
            self.outcome = event.fields["status"]


def _post(path: str, body: Mapping[str, Any]) -> AgentRequest:
    return AgentRequest("POST", f"/contexts{path}", _JSON, json.dumps(body).encode())


def _compact(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _body(obj: StoredObject, answer: AgentAnswer) -> Mapping[str, Any]:
    """Read an answer that is one JSON object. Raises AgentError, ServiceError."""
    data = bytearray()
    while chunk := answer.read():
        data += chunk
        if len(data) > _ANSWER_BYTES:
            raise _nonsense(obj, f"over {_ANSWER_BYTES >> 20} MiB")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _nonsense(obj, "something that is not JSON") from error
    if not isinstance(body, dict):
        raise _nonsense(obj, "JSON that is no object")
    return body


def _refusal(obj: StoredObject, status: int, body: Mapping[str, Any]) -> errors.ServiceError:
    """Return the error for a refusal of the agent: what it says is for people, its reason is a word of ours."""
    reason, message = body.get("reason"), plain_text(body.get("error", ""))
    if not isinstance(reason, str) or reason not in _ERRORS:
        if status in (404, 405):
            return _no_contexts(
                f"sandbox `{obj.name}`: its agent is older than code contexts; it gets a newer one with its next start "
                f"(`paddock patch sandbox {obj.name}` with `runState: Suspended`, then `Running`)"
            )
        return _nonsense(obj, f"HTTP status {status}")
    # A bomb of forks is still being ended: a moment later there are processes again.
    soon = errors.SOON if reason == "NoProcess" else None
    return _ERRORS[reason](f"sandbox `{obj.name}`: {message}", retry_after_seconds=soon)


def _nonsense(obj: StoredObject, what: str) -> AgentUnavailable:
    return AgentUnavailable(f"the agent of sandbox `{obj.name}` answered nonsense: {what}; {_ADVICE}")


def _no_agent(obj: StoredObject) -> errors.Conflict:
    return _no_contexts(
        f"{obj.kind.lower()} `{obj.name}` has no agent, which code contexts need: add `agent: {{}}` to its template "
        "(this makes a new container)"
    )


def _no_contexts(message: str) -> errors.Conflict:
    """Return the error of a sandbox without contexts; programs know it by its cause."""
    cause = {"reason": NO_CONTEXTS, "field": "spec.template.agent", "message": message}
    return errors.Conflict(message, causes=[cause])
