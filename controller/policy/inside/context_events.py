"""Events and descriptions of code contexts, read strictly: they come from within a sandbox. Pure.

| type | fields |
|---|---|
| started | context, language, engine, reason, fresh (a new interpreter), lost (why the state before is gone, or "") |
| stdout, stderr | text |
| result | main (the value of the last expression), data (by MIME type; bytes in base64), display, update, metadata |
| error | name, value, traceback |
| clear | wait (until the next output) |
| notice | text: something was left out |
| ping | none; every 5 s while it waits or runs |
| done | status, count, seconds, stateLost, exitCode (of an interpreter that ended, or null), code (of bash, or null) |
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from controller.kinds.runtime.context import (
    DONE_STATUSES,
    EVENT_TYPES,
    LANGUAGES,
    STATES,
    Completions,
    Context,
    ContextEvent,
    EventType,
)

LINE_BYTES = 8 << 20
EXECUTION_BYTES = 64 << 20
_MIME = re.compile(r"[a-z]+/[A-Za-z0-9.+-]{1,100}")
_CONTEXT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MOST_TYPES = 32  # of one result
_TEXTS = {"text": 1 << 20, "name": 256, "value": 16384, "traceback": 131_072}
_MOST_MEMORY = 1 << 50
_MOST_MATCHES, _MOST_MATCH = 200, 200


class EventReader:
    """Bytes of an answer in, events out; what is not one is dropped and counted."""

    def __init__(self, execution: str) -> None:
        self._execution = execution
        self._buffer = bytearray()
        self._searched = 0  # bytes of it that have no end of a line: a line may come byte by byte
        self._size = 0
        self._started = False
        self.done = False
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[ContextEvent]:
        """Yield the events that are whole. Raises ValueError if it is no answer of an execution at all."""
        self._size += len(data)
        if self._size > EXECUTION_BYTES:
            raise ValueError(f"over {EXECUTION_BYTES >> 20} MiB for one execution")
        self._buffer += data
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            self._searched = 0
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            event = self._event(line)
            if event is None:
                self.dropped += 1
                continue
            if event.type == "done" and self.dropped:
                message = f"{self.dropped} events were dropped by the daemon: they were not of their form"
                yield ContextEvent("notice", {"text": message})
            yield event
        self._searched = len(self._buffer)
        if len(self._buffer) > LINE_BYTES:
            raise ValueError("a line without an end")

    def _event(self, line: bytes) -> ContextEvent | None:
        """Read one line; None: it is not an event of this execution, or not at this place."""
        event = event_of(line, self._execution)
        if event is None or self.done:
            return None
        if event.type == "started":
            if self._started:
                return None
            self._started = True
        elif event.type == "done":
            self.done = True
        elif not self._started and event.type not in ("ping", "error"):
            return None
        return event


def event_of(line: bytes, execution: str) -> ContextEvent | None:
    """Read one event; None: it is not of its form, or of another execution."""
    if len(line) > LINE_BYTES:
        return None
    try:
        event = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("execution") != execution or event.get("type") not in EVENT_TYPES:
        return None
    kind = cast("EventType", event["type"])
    fields = _FIELDS[kind](event)
    return None if fields is None else ContextEvent(kind, fields)


def context_of(description: Any) -> Context | None:
    """Read the description of a context; None: it is not of its form."""
    if not isinstance(description, dict):
        return None
    name, language, state = description.get("name"), description.get("language"), description.get("state")
    if not isinstance(name, str) or not _CONTEXT_NAME.fullmatch(name):
        return None
    if language not in LANGUAGES or state not in STATES:
        return None
    texts = {key: description.get(key) for key in ("engine", "version", "reason", "cwd", "forkOf")}
    numbers = {key: description.get(key) for key in ("executions", "queued", "memoryBytes", "processes")}
    created = description.get("created")
    if not all(isinstance(text, str) and len(text) <= 4096 for text in texts.values()):
        return None
    if not all(_is_whole(number, _MOST_MEMORY) for number in numbers.values()) or not _is_seconds(created):
        return None
    return Context(
        name,
        language,
        state,
        engine=_plain(texts["engine"]),
        version=_plain(texts["version"]),
        reason=_plain(texts["reason"]),
        cwd=_plain(texts["cwd"]),
        fork_of=_plain(texts["forkOf"]),
        executions=cast("int", numbers["executions"]),
        queued=cast("int", numbers["queued"]),
        created=float(cast("float", created)),
        memory_bytes=cast("int", numbers["memoryBytes"]),
        processes=cast("int", numbers["processes"]),
    )


def completions_of(answer: Mapping[str, Any], code: str) -> Completions | None:
    """Read how code may go on; None: it is not of its form. What a terminal might obey is left out."""
    replaced, matches = answer.get("replaced"), answer.get("matches")
    if not _is_whole(replaced, len(code)) or not isinstance(matches, list) or len(matches) > _MOST_MATCHES:
        return None
    plain = (match for match in matches if isinstance(match, str) and match.isprintable() and len(match) <= _MOST_MATCH)
    return Completions(cast("int", replaced), tuple(plain))


def plain_text(text: Any) -> str:
    """Return untrusted text on one line, without control characters, and short."""
    return _plain(text)[:2000]


def _plain(text: Any) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(text)).strip()


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _is_whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def _texts(event: Mapping[str, Any], *names: str) -> dict[str, str] | None:
    """Return these texts, each within its bound; None: one is missing."""
    texts = {name: event.get(name) for name in names}
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    return {name: str(text)[: _TEXTS[name]] for name, text in texts.items()}


def _started_fields(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    context, language, fresh = event.get("context"), event.get("language"), event.get("fresh")
    texts = [event.get(name) for name in ("engine", "reason", "lost")]
    if not isinstance(context, str) or not _CONTEXT_NAME.fullmatch(context) or language not in LANGUAGES:
        return None
    if not isinstance(fresh, bool) or not all(isinstance(text, str) for text in texts):
        return None
    engine, reason, lost = (plain_text(text) for text in texts)
    fields = {"context": context, "language": language, "engine": engine, "reason": reason}
    return {**fields, "fresh": fresh, "lost": lost}


def _text(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return _texts(event, "text")


def _error(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return _texts(event, "name", "value", "traceback")


def _result(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    data, main, update, display = (event.get(name) for name in ("data", "main", "update", "display"))
    metadata = event.get("metadata", {})
    if not isinstance(data, dict) or not 0 < len(data) <= _MOST_TYPES:
        return None
    for mime, value in data.items():
        if not _MIME.fullmatch(mime) or not (isinstance(value, str) or mime.endswith("json")):
            return None
    if not isinstance(main, bool) or not isinstance(update, bool) or not isinstance(display, str):
        return None
    if not isinstance(metadata, dict) or len(metadata) > _MOST_TYPES:
        return None
    # What code in a sandbox prints is not trusted: only these fields go on, and bounded.
    return {"main": main, "update": update, "display": display[:128], "data": data, "metadata": metadata}


def _clear(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return {"wait": event.get("wait") is True}


def _nothing(_: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return {}


def _done(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    status, count, seconds, lost = (event.get(name) for name in ("status", "count", "seconds", "stateLost"))
    codes = {name: event.get(name) for name in ("exitCode", "code")}
    if status not in DONE_STATUSES or not _is_whole(count, 1 << 53) or not _is_seconds(seconds):
        return None
    if not isinstance(lost, bool) or not all(code is None or _is_whole(code, 255) for code in codes.values()):
        return None
    return {"status": status, "count": count, "seconds": seconds, "stateLost": lost, **codes}


_FIELDS = {
    "started": _started_fields,
    "stdout": _text,
    "stderr": _text,
    "result": _result,
    "error": _error,
    "clear": _clear,
    "notice": _text,
    "ping": _nothing,
    "done": _done,
}
