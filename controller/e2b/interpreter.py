"""The code interpreter: code contexts, in the requests and lines of E2B's."""

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any

from starlette.types import Receive, Scope, Send

from controller.e2b.envd.workplace import Workplace
from controller.e2b.envs import Variables
from controller.e2b.fields import Fields
from controller.e2b.parts import Parts, Stream, on_thread
from controller.kinds.access.access import AccessRequest
from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.context import Context, Execution, Language, NewContext
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.context.contexts import ContextStream
from controller.service.errors import BadRequest, ServiceError
from controller.service.exec.relay import Relay

_LANGUAGES: Mapping[str, Language] = {
    "": "python",
    "python": "python",
    "javascript": "javascript",
    "js": "javascript",
    "bash": "bash",
    "sh": "bash",
}
_RESULTS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "application/vnd.paddock.data+json": "data",
    "application/vnd.paddock.chart+json": "chart",
}
_KEEPALIVE = {"type": "keepalive"}  # clients ignore what they don't know
_USE = "contexts/execute"


class InterpreterCalls:
    """The calls."""

    def __init__(self, parts: Parts, variables: Variables) -> None:
        self._parts, self._variables = parts, variables

    async def execute(self, place: Workplace, message: Fields) -> "Execute":
        """Run code in a context, and answer with its events. A client that leaves interrupts it; the state stays."""
        context, language = message.text("context_id", ""), message.text("language", "")
        if context and language:
            raise BadRequest("context_id and language exclude each other: a context has its own language")
        execution = Execution(
            message.text("code"),
            context,
            language_of(language),
            {**self._variables.of(place.obj.uid), **message.text_map("env_vars")},
            timeout_seconds=0.0,
        )
        use = partial(self._parts.use, place.namespace, place.name, _USE, context=context or execution.language)
        await on_thread(use)
        contexts = self._parts.services.contexts
        stream = await on_thread(contexts.execute, SANDBOX, place.namespace, place.name, execution)
        relay = Relay(lambda: stream)
        request = AccessRequest("use", SANDBOX.name, place.namespace, place.name, _USE)
        lines = _Lines(relay)
        try:
            await lines.begin()  # a refusal has a status of its own
        except BaseException:
            relay.stop()
            contexts.record_end(request, stream)
            raise
        return Execute(lines, stream, lambda: contexts.record_end(request, stream))

    async def list_contexts(self, place: Workplace) -> list[Mapping[str, Any]]:
        """Return the contexts of the sandbox."""
        self._parts.require("use", place.namespace, place.name, "contexts")
        contexts = await on_thread(self._parts.services.contexts.list, SANDBOX, place.namespace, place.name)
        return [context_json(context) for context in contexts]

    async def create_context(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Start an interpreter."""
        folder = message.text("cwd", "")
        new = NewContext(
            language_of(message.text("language", "")),
            cwd=place.absolute(folder) if folder else "",
            env=self._variables.of(place.obj.uid),
        )
        use = partial(self._parts.use, place.namespace, place.name, "contexts", language=new.language)
        await on_thread(use)
        create = self._parts.services.contexts.create
        return context_json(await on_thread(create, SANDBOX, place.namespace, place.name, new))

    async def restart_context(self, place: Workplace, name: str) -> None:
        """Give a context a new interpreter. Raises NotFound."""
        await on_thread(partial(self._parts.use, place.namespace, place.name, "contexts", context=name))
        await on_thread(self._parts.services.contexts.restart, SANDBOX, place.namespace, place.name, name)

    async def delete_context(self, place: Workplace, name: str) -> None:
        """End a context. Raises NotFound."""
        await on_thread(partial(self._parts.use, place.namespace, place.name, "contexts", context=name))
        await on_thread(self._parts.services.contexts.delete, SANDBOX, place.namespace, place.name, name)


class _Lines:
    """The events of an execution as lines of JSON."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self._chunks = relay.__aiter__()
        self._first: Chunk | None = None

    async def begin(self) -> None:
        """Wait for the first event. Raises ServiceError."""
        self._first = await anext(self._chunks, None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            if self._first is not None:
                for line in lines_of(self._first):
                    yield line
            async for chunk in self._chunks:
                for line in lines_of(chunk):
                    yield line
        except ServiceError as error:
            yield _line({"type": "error", "name": error.reason, "value": str(error), "traceback": ""})
        yield _line({"type": "end_of_execution"})


class Execute(Stream):
    """The answer of an execution. However it ends, so does the execution."""

    def __init__(self, lines: _Lines, stream: ContextStream, over: Any) -> None:
        super().__init__(lines.__aiter__(), media_type="application/json")
        self._relay, self._stream, self._over = lines.relay, stream, over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As the base class."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._relay.stop()
            self._over()


def lines_of(chunk: Chunk) -> Iterator[bytes]:
    """Yield E2B's lines for one event of an execution."""
    fields = json.loads(chunk.data)
    match chunk.stream:
        case "stdout" | "stderr":
            yield _line({"type": chunk.stream, "text": fields["text"], "timestamp": time.time_ns()})
        case "notice":
            yield _line({"type": "stderr", "text": f"[{fields['text']}]\n", "timestamp": time.time_ns()})
        case "result":
            yield _line(result_of(fields))
        case "error":
            yield _line({"type": "error", **{name: fields[name] for name in ("name", "value", "traceback")}})
        case "ping":
            yield _line(_KEEPALIVE)
        case "done":
            yield _line({"type": "number_of_executions", "execution_count": fields["count"]})


def result_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as E2B's clients read it: a text without its outer quotes, unknown types in `extra`."""
    result: dict[str, Any] = {"type": "result", "is_main_result": fields["main"]}
    extra = {}
    for mime, value in fields["data"].items():
        if mime in _RESULTS:
            result[_RESULTS[mime]] = value
        else:
            extra[mime] = value
    text = result.get("text")
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] == "'":
        result["text"] = text[1:-1]
    return {**result, "extra": extra} if extra else result


def language_of(name: str) -> Language:
    """Return the language of a name. Raises BadRequest."""
    language = _LANGUAGES.get(name.lower())
    if language is None:
        languages = ", ".join(sorted(set(_LANGUAGES.values())))
        raise BadRequest(f"language: `{name[:40]}` is not offered; there are {languages}")
    return language


def context_json(context: Context) -> Mapping[str, Any]:
    """Return a context as E2B's clients read it."""
    return {"id": context.name, "language": context.language, "cwd": context.cwd}


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
