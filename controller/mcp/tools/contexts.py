"""Code that keeps its variables: code.run in the context of its language, where the sandbox has an agent."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.kinds.access.access import AccessRequest
from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.context import Execution, Language
from controller.kinds.runtime.secret import Environment
from controller.kinds.sandbox import KIND as SANDBOX
from controller.mcp.text import plain, shorten
from controller.mcp.tool import Call
from controller.service.context.contexts import NO_CONTEXTS, ContextStream
from controller.service.errors import Conflict

LANGUAGES: Mapping[str, Language] = {"python": "python", "node": "javascript", "bash": "bash"}
_PICTURES = ("image/png", "image/jpeg")
_MOST_PICTURES = 8
_MOST_KEPT = 1 << 20  # characters of one stream
_EXIT_CODES = {"ok": 0, "error": 1, "timeout": 124, "interrupted": 130, "died": 1}


@dataclass(slots=True)
class Outcome:
    """Outcome of an execution. `pictures` are a MIME type and base64 each."""

    stdout: str = ""
    stderr: str = ""
    values: list[str] = field(default_factory=list)
    pictures: list[tuple[str, str]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    done: Mapping[str, Any] = field(default_factory=dict)
    lost: str = ""

    @property
    def exit_code(self) -> int:
        """Return what a command would have ended with."""
        status = str(self.done.get("status", "died"))
        code = self.done.get("code") if self.done.get("code") is not None else self.done.get("exitCode")
        return int(code) if code is not None and status in ("ok", "error", "died") else _EXIT_CODES[status]

    def take(self, chunk: Chunk) -> None:
        """Take one event."""
        fields = json.loads(chunk.data)
        if chunk.stream == "stdout":
            self.stdout = shorten(self.stdout + fields["text"], _MOST_KEPT)
        elif chunk.stream == "stderr":
            self.stderr = shorten(self.stderr + fields["text"], _MOST_KEPT)
        elif chunk.stream == "result":
            self._result(fields["data"])
        elif chunk.stream == "error":
            trace = fields["traceback"] or f"{fields['name']}: {fields['value']}"
            self.stderr += trace if fields["name"] != "ExitCode" else ""
        elif chunk.stream == "notice":
            self.notices.append(fields["text"])
        elif chunk.stream == "started":
            self.lost = fields["lost"]
        elif chunk.stream == "done":
            self.done = fields

    def _result(self, data: Mapping[str, Any]) -> None:
        pictures = [(mime, data[mime]) for mime in _PICTURES if isinstance(data.get(mime), str)][:1]
        if pictures and len(self.pictures) < _MOST_PICTURES:
            self.pictures += pictures
        elif pictures:
            self.notices.append("a picture was left out: too many")
        else:
            text = data.get("text/markdown", data.get("text/plain"))
            self.values.append(plain(text) if isinstance(text, str) else ", ".join(data))


async def run_in_context(
    call: Call, namespace: str, name: str, code: str, language: Language, env: Environment, seconds: float | None
) -> Outcome | None:
    """Run code in the sandbox's context of a language; None: the sandbox has none. Raises ServiceError."""
    record = call.use("use", namespace, name, "contexts/execute", language=language, characters=len(code))
    opened: list[ContextStream] = []

    def start() -> ContextStream:
        record()
        execution = Execution(code, language=language, env=env, timeout_seconds=seconds)
        opened.append(call.services.contexts.execute(SANDBOX, namespace, name, execution))
        return opened[0]

    def collect(chunks: Iterator[Chunk]) -> Outcome:
        outcome = Outcome()
        for chunk in chunks:
            outcome.take(chunk)
        return outcome

    try:
        return await call.read(start, collect)
    except Conflict as error:
        if any(cause.get("reason") == NO_CONTEXTS for cause in error.causes):
            return None
        raise
    finally:
        if opened:
            asked = AccessRequest("use", SANDBOX.name, namespace, name, "contexts/execute")
            call.services.contexts.record_end(asked, opened[0])
