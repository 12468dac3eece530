"""Events of a folder in a sandbox, as its agent's inotify says them. Nothing of an answer is trusted."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from controller.kinds.common.chunk import Chunk
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.registry import Kind
from controller.kinds.runtime.agent_call import AgentRequest
from controller.ports import AgentAnswer, AgentError
from controller.service import errors
from controller.service.exec.agent_calls import AgentCalls
from controller.service.exec.streams import SandboxStreams

_CHANGES = ("", "create", "write", "remove", "rename", "chmod")
_LINE_BYTES, _NAME_BYTES = 32 << 10, 4096  # Linux has no longer paths
_SILENCE_SECONDS = 30.0  # the agent says something every 10
_BEGIN_SECONDS = 5.0
_JSON = {"content-type": "application/json"}


class FolderWatches:
    """The use-case. Each call may block."""

    def __init__(self, streams: SandboxStreams, calls: AgentCalls) -> None:
        self._streams, self._calls = streams, calls

    def open(self, kind: Kind, namespace: str, name: str, path: str, *, recursive: bool) -> "FolderEvents | None":
        """Watch a folder; None if the sandbox's agent can't. It is in use until the result is closed.

        Raises ServiceError.
        """
        obj = self._streams.object(kind, namespace, name)
        container, release = self._streams.enter(kind, namespace, name, lambda container: container)
        with ExitStack() as lease:
            lease.callback(release)
            answer = self._answer(obj, container, path, recursive=recursive)
            return None if answer is None else FolderEvents(answer, lease.pop_all().close)

    def _answer(self, obj: StoredObject, container: Container, path: str, *, recursive: bool) -> AgentAnswer | None:
        port = self._calls.port(obj, container)
        if port is None:
            return None
        body = json.dumps({"path": path, "recursive": recursive}).encode()
        request = AgentRequest("POST", "/watch", _JSON, body)
        try:
            answer = self._calls.ask(obj, container, port, request, seconds=_BEGIN_SECONDS)
            status, _ = answer.head()
        except AgentError:
            return None
        if status != 200:
            answer.close()
            return None
        return answer


class FolderEvents(Iterator[Chunk]):
    """The events, to be read on one thread: `stream` is the change, `data` the name below the folder.

    A rename has the old name. One without a change comes at times when nothing happens. Closing it, from any thread,
    ends it. Raises ServiceError.
    """

    def __init__(self, answer: AgentAnswer, release: Callable[[], None]) -> None:
        self._answer, self._release = answer, release
        self._buffer = bytearray()
        self._closed = False
        self._events = self._read()

    def __next__(self) -> Chunk:
        return next(self._events)

    def close(self) -> None:
        """End the watch, from any thread."""
        self._closed = True
        self._answer.close()
        self._release()

    def _read(self) -> Iterator[Chunk]:
        try:
            while True:
                self._answer.allow(_SILENCE_SECONDS)
                data = self._answer.read()
                if not data:
                    break
                self._buffer += data
                *lines, unfinished = self._buffer.split(b"\n")
                self._buffer = unfinished
                if len(unfinished) > _LINE_BYTES:
                    raise ValueError("a line without an end")
                yield from map(event_of, lines)
        except (AgentError, ValueError) as error:
            if not self._closed:
                raise errors.ServiceUnavailable(f"the folder is not watched any more: {error}") from error
        finally:
            self.close()


def event_of(line: bytes | bytearray) -> Chunk:
    """Read a line of an agent. Raises ValueError."""
    if len(line) > _LINE_BYTES:
        raise ValueError("a line that is too long")
    try:
        fields = json.loads(line)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    if not isinstance(fields, dict) or fields.get("lost") is not None:
        raise ValueError("there were too many events, or too many folders")
    name, change = fields.get("name", ""), fields.get("change", "")
    if not isinstance(name, str) or not isinstance(change, str) or change not in _CHANGES:
        raise ValueError("something that is no event")
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ValueError("a name that is not below the folder")
    data = name.encode("utf-8", "replace")
    if len(data) > _NAME_BYTES:
        raise ValueError("a name that is too long")
    return Chunk(change, data)
