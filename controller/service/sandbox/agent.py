"""The front of the agents in sandboxes: requests are admitted, bounded and counted as commands are, then passed on."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from controller.kinds.access.access import AccessRequest
from controller.kinds.common.chunk import Chunk
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.registry import Kind
from controller.kinds.runtime.agent_call import RESULT_BYTES, AgentRequest, Outcome, ToolResult
from controller.policy.inside import agent_call
from controller.policy.inside.agent_call import ToolUse
from controller.ports import AgentAnswer, AgentError, StreamError
from controller.service import errors
from controller.service.access.audit import Recorder
from controller.service.exec.activity import WAIT_SECONDS
from controller.service.exec.agent_calls import AgentCalls
from controller.service.exec.streams import SandboxStreams

HEAD, BODY = "head", "body"
_SPARE_SECONDS = 5.0  # for the agent to end a command at its limit, and to answer
_CALL_SECONDS = 60.0  # for a call that runs no command
_PLAIN_BYTES = 4 << 20  # of an answer that is no event stream
EVENTS = "text/event-stream"
_PASSED_UP = ("content-type", "mcp-session-id", "mcp-protocol-version", "cache-control", "allow")
_TYPES = ("application/json", EVENTS)


class AgentUnavailable(errors.ServiceUnavailable):
    """The agent in the sandbox does not answer, or answers nonsense."""


class AgentTimeout(errors.ServiceError):
    """The agent in the sandbox did not answer in time."""

    reason, code = "Timeout", 504


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A request to pass on, and the tools that it calls. `lasting`: its answer has no end of its own."""

    request: AgentRequest
    uses: tuple[ToolUse, ...] = ()
    lasting: bool = False

    @property
    def tool(self) -> str:
        """The tool's label in metrics and audit."""
        return agent_call.label_of(self.uses)


class SandboxAgent:
    """Passes requests on. One waits and works on the thread that reads its stream."""

    def __init__(self, sandbox_streams: SandboxStreams, calls: AgentCalls, recorder: Recorder) -> None:
        self._sandbox_streams, self._calls, self._recorder = sandbox_streams, calls, recorder

    def execute(self, kind: Kind, namespace: str, name: str, body: Any) -> "AgentStream":
        """Call tools by `mcp/execute`; `result_of` reads the stream's body. Raises ServiceError."""
        uses = agent_call.tools_of_execute(body)
        agent_call.split_arguments(uses)
        return self._open(kind, namespace, name, AgentCall(_EXECUTE, uses), body)

    def mcp(self, kind: Kind, namespace: str, name: str, request: AgentRequest, message: Any) -> "AgentStream":
        """Pass a request of MCP on as it is. `message` is its body, parsed; None: it is not JSON. Raises ServiceError.

        Only a command that names no time limit gets one, where its template's is below the agent's own.
        """
        call = AgentCall(
            request, agent_call.tools_of_mcp(message), request.method == "GET" or agent_call.listens(message)
        )
        return self._open(kind, namespace, name, call, message)

    def result(self, stream: "AgentStream", subject: str, data: bytes) -> ToolResult:
        """Return the checked answer of `execute`. Raises ServiceError."""
        try:
            tool_result = result_of(data)
        except ValueError as error:
            stream.outcome = "cancelled" if stream.closed else "invalid"
            raise AgentUnavailable(f"the agent of {subject} answered nonsense: {error}; {_ADVICE}") from error
        stream.outcome = "ok" if tool_result.success else "failed"
        return tool_result

    def record_end(self, ask: AccessRequest, stream: "AgentStream") -> None:
        """Count a call that has ended, and record its outcome and duration. Does not block."""
        seconds = time.monotonic() - stream.began
        self._calls.count(stream.call.tool, stream.outcome, seconds)
        detail = {"tool": stream.call.tool, "ended": stream.outcome, "durationSeconds": round(seconds, 3)}
        self._recorder.record_end(ask, detail)

    def _open(self, kind: Kind, namespace: str, name: str, call: AgentCall, body: Any) -> "AgentStream":
        """Open the stream of a call to the agent, under the limit that the commands of its sandbox have."""
        streams = self._sandbox_streams
        obj = streams.usable(kind, namespace, name)
        if self._calls.port(obj, streams.observed_container(obj)) is None:
            raise errors.Conflict(_no_agent(obj))
        limit = None
        if agent_call.runs_commands(call.uses):
            limit = streams.time_limit(obj, agent_call.asked_seconds(call.uses), tty=False)
        # What needs no limit of ours is passed on as it came, but for `execute`, which is written here.
        if agent_call.bound_seconds(call.uses, limit) or call.request is _EXECUTE:
            call = replace(call, request=replace(call.request, body=json.dumps(body).encode()))
        seconds = _seconds(call, limit)

        def begin() -> tuple[AgentAnswer, Callable[[], None], StoredObject, Container]:
            container, release = streams.occupy(kind, obj, min(limit or WAIT_SECONDS, WAIT_SECONDS), fresh=True)
            try:
                port = self._calls.port(obj, container)
                if port is None:
                    raise errors.Conflict(_no_agent(obj))
                return self._calls.ask(obj, container, port, call.request, seconds=seconds), release, obj, container
            except BaseException:
                release()
                raise

        return AgentStream(call, begin, self._calls)


class AgentStream(Iterator[Chunk]):
    """An answer: a `head` (JSON: status and headers), then its `body`. Raises ServiceError.

    Closing it, from any thread, cancels what was called. `outcome` is that of the call so far.
    """

    def __init__(
        self,
        call: AgentCall,
        begin: Callable[[], tuple[AgentAnswer, Callable[[], None], StoredObject, Container]],
        calls: AgentCalls,
    ) -> None:
        self.call, self._begin, self._calls = call, begin, calls
        self.began = time.monotonic()
        self.outcome: Outcome = "cancelled"
        self._answer: AgentAnswer | None = None
        self._release: Callable[[], None] = lambda: None
        self._closed = self._whole = False
        self._chunks = self._read()

    def __next__(self) -> Chunk:
        return next(self._chunks)

    @property
    def closed(self) -> bool:
        """True if it was closed before its end."""
        return self._closed and not self._whole

    def close(self) -> None:
        """Cancel what was called, from any thread."""
        self._closed = True
        if self._answer is not None:
            self._answer.close()
        self._release()

    def _read(self) -> Iterator[Chunk]:
        try:
            self._answer, self._release, obj, container = self._begin()
        except StreamError as error:
            self.outcome = "refused"
            raise errors.of_stream(error) from error
        except AgentError as error:
            raise self._error_of(error) from error
        try:
            if self._closed:
                return
            yield from self._pass_on(self._answer, f"{obj.kind.lower()} `{obj.name}`")
            if self._closed:
                return
            self._whole = True
            self._calls.note_answer(obj)
        except AgentError as error:
            if self._closed:
                return
            self._calls.note_failure(obj, container, error)
            raise self._error_of(error) from error
        finally:
            self.close()

    def _pass_on(self, answer: AgentAnswer, subject: str) -> Iterator[Chunk]:
        beginning = f"what listens on the agent's port in {subject} answered with"
        status, headers = answer.head()
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if not (200 <= status < 300 or 400 <= status < 600) or kind not in ("", *_TYPES):
            raise AgentError("BadAnswer", f"{beginning} HTTP status {status} and type `{kind[:40]}`")
        passed = {name: headers[name] for name in _PASSED_UP if name in headers}
        yield Chunk(HEAD, json.dumps({"status": status, "headers": passed}).encode())
        size = 0
        while data := answer.read():
            size += len(data)
            if kind != EVENTS and size > _PLAIN_BYTES:
                raise AgentError("BadAnswer", f"{beginning} over {_PLAIN_BYTES >> 20} MiB")
            yield Chunk(BODY, data)
        if not self._closed:  # else reading ended because of that
            self.outcome = "ok" if status < 400 else "refused"

    def _error_of(self, error: AgentError) -> errors.ServiceError:
        self.outcome = self._calls.outcome_of(error)
        kind = AgentTimeout if error.kind == "TimedOut" else AgentUnavailable
        return kind(f"{error}; {_ADVICE}")


def result_of(data: bytes) -> ToolResult:
    """Read an answer of `mcp/execute`. Raises ValueError."""
    if len(data) > RESULT_BYTES:
        raise ValueError(f"over {RESULT_BYTES >> 10} KiB")
    try:
        answer = json.loads(data, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError("text that is not UTF-8") from error
    except ValueError as error:
        raise ValueError("something that is not JSON") from error
    if not isinstance(answer, dict):
        raise ValueError("JSON that is no object")
    success, output, why, code = (answer.get(name) for name in ("success", "output", "error", "exitCode"))
    if not isinstance(success, bool) or not isinstance(output, str) or not isinstance(why, str | None):
        raise ValueError("no success, output and error")
    if isinstance(code, bool) or not isinstance(code, int | None) or not -1 < (code or 0) < 1 << 31:
        raise ValueError("no exit code")
    return ToolResult(success, output, why, code, answer.get("result"))


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _seconds(call: AgentCall, limit: float | None) -> float | None:
    """Return the time for the whole answer; None: a subscription, or a command without a limit."""
    if call.lasting:
        return None
    if agent_call.runs_commands(call.uses):
        return None if limit is None else limit * len(call.uses) + _SPARE_SECONDS
    return _CALL_SECONDS + agent_call.waited_seconds(call.uses)


def _no_agent(obj: StoredObject) -> str:
    return (
        f"{obj.kind.lower()} `{obj.name}` has no agent: add `agent: {{}}` to its template (this makes a new container)"
    )


_EXECUTE = AgentRequest("POST", "/mcp/execute", {"content-type": "application/json", "accept": "application/json"})
_ADVICE = "see `paddock why` and the sandbox's log; `paddock exec` works without it"
