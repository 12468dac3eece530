"""A call of a tool from its arguments to its answer: rights, validation, limits, audit and metrics."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from pydantic import BaseModel

from controller.kinds.common.json_size import json_bytes
from controller.mcp.arguments import shape, validate
from controller.mcp.names import Style, Toolset
from controller.mcp.outputs import Outputs
from controller.mcp.sandboxes import ObjectArguments, existing_names
from controller.mcp.text import STREAM_BYTES, for_models, plain, shorten
from controller.mcp.tool import Call, IsHere, Picture, Progress, Tool
from controller.policy.access import decide_tool
from controller.ports import Meter
from controller.service.access import access
from controller.service.errors import BadRequest, Forbidden, NotFound, ServiceError, Unauthorized
from controller.service.parsing import SMALL_BYTES
from controller.service.services import Services

MESSAGE_BYTES = 900 << 10  # the official client refuses events over 1 MiB
OPTIONS_KEY = "paddock.mcp"  # in the scope of a request: the options of its address
_LEAST_TEXT = 1024
_PICTURE_BYTES = 256  # of what is around a picture, and of a notice
_INTERNAL = "internal error; the daemon's log has the details"
_log = structlog.get_logger("paddock.mcp")
_Outcome = Literal["ok", "error", "refused", "cancelled"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an endpoint's address: names of listed tools, namespace of calls that name none, no changes.

    Of the toolset `basic` few tools are listed, and a result is its text alone: what models need, and no more.
    `failure` is why the daemon of the sandbox's host did not answer: calls fail for it. `size_bytes` is the size of the
    request.
    """

    names: Style = "dots"
    namespace: str = "default"
    read_only: bool = False
    toolset: Toolset = "all"
    failure: ServiceError | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call. `data` is None for an error."""

    text: str
    data: Mapping[str, Any] | None = None
    pictures: tuple[Picture, ...] = ()

    @property
    def is_error(self) -> bool:
        return self.data is None


class Calls:
    """Carries out calls. The caller is that of the request (service.access).

    Work and changes are in the audit log before they happen. The entry of the call itself, with its duration, follows.
    """

    def __init__(self, services: Services, meter: Meter, outputs: Outputs, is_here: IsHere | None = None) -> None:
        self._services, self._meter, self._outputs, self._is_here = services, meter, outputs, is_here

    def visible(self, tool: Tool, options: Options) -> bool:
        """Return True if the caller may call the tool at all."""
        return not _refusal(tool, options)

    async def call(self, tool: Tool, raw_arguments: Mapping[str, Any], options: Options, progress: Progress) -> Answer:
        """Return the tool's answer; an error is an answer, too. Cancelling ends what the call does."""
        started_at, outcome = time.monotonic(), "cancelled"
        with access.through(tool.name):
            try:
                answer, outcome = await self._answer(tool, raw_arguments, options, progress)
            finally:
                seconds = time.monotonic() - started_at
                self._meter.count("paddock_mcp_tool_calls_total", tool=tool.name, outcome=outcome)
                detail = {"arguments": shape(raw_arguments), "result": outcome, "seconds": round(seconds, 3)}
                is_allowed = outcome != "refused"
                self._services.recorder.record_call(tool.name, options.namespace, detail, allowed=is_allowed)
        return answer

    async def _answer(
        self, tool: Tool, raw_arguments: Mapping[str, Any], options: Options, progress: Progress
    ) -> tuple[Answer, _Outcome]:
        """Run a tool with checked arguments; return its answer, and the outcome for the audit log."""
        try:
            if refusal := _refusal(tool, options):
                raise Forbidden(refusal)
            if options.failure is not None:
                raise options.failure
            if options.size_bytes > SMALL_BYTES:
                arguments = await self._services.parsing.run(
                    options.size_bytes, validate, tool.arguments, raw_arguments
                )
            else:
                arguments = validate(tool.arguments, raw_arguments)
            call = Call(
                self._services,
                options.namespace,
                progress,
                size_bytes=options.size_bytes,
                outputs=self._outputs,
                is_here=self._is_here,
            )
            try:
                return fit_answer(tool, await tool.run(call, arguments)), "ok"
            except NotFound as error:
                if not isinstance(arguments, ObjectArguments):
                    raise
                return Answer(error_text(error) + await existing_names(call, arguments)), "error"
        except ServiceError as error:
            is_refused = isinstance(error, Forbidden | Unauthorized)
            return Answer(error_text(error)), "refused" if is_refused else "error"
        except Exception:  # a bug must not end the client's connection
            _log.exception("tool call failed", tool=tool.name)
            return Answer(_INTERNAL), "error"


def fit_answer(tool: Tool, result: BaseModel | Mapping[str, Any]) -> Answer:
    """Return the result as an answer within the size of a message; long texts and lists are shortened for it."""
    data: dict[str, Any] = result.model_dump(mode="json") if isinstance(result, BaseModel) else dict(result)
    most = STREAM_BYTES
    while True:
        text = json.dumps(data, ensure_ascii=False)
        if (size := json_bytes([text, data])) <= MESSAGE_BYTES:
            return _with_pictures(result, data, text, MESSAGE_BYTES - size)
        most //= 2
        if tool.long_texts and most >= _LEAST_TEXT:
            data |= {name: shorten(data[name], most) for name in tool.long_texts} | {"truncated": True}
        elif len(data.get("items", ())) > 1:
            half = len(data["items"]) // 2
            data["more"] = data.get("more", 0) + len(data["items"]) - half
            data["items"] = data["items"][:half]
        else:
            raise BadRequest(f"the result of {tool.name} is larger than {MESSAGE_BYTES >> 10} KiB; ask for less")


def _with_pictures(result: BaseModel | Mapping[str, Any], data: dict[str, Any], text: str, room_bytes: int) -> Answer:
    """Return an answer with the pictures of a result that fit; a notice counts those that do not."""
    offered: Sequence[Picture] = getattr(result, "pictures", ())
    fitting: list[Picture] = []
    for picture in offered:
        room_bytes -= len(picture.data) + _PICTURE_BYTES
        if room_bytes < 0:
            break
        fitting.append(picture)
    if missing := len(offered) - len(fitting):
        notice = f"{missing} pictures were left out: an answer has {MESSAGE_BYTES >> 10} KiB; make them smaller"
        data = {**data, "notices": [*data.get("notices", ()), notice], "truncated": True}
        text = json.dumps(data, ensure_ascii=False)
    return Answer(text, data, tuple(fitting))


def error_text(error: ServiceError) -> str:
    """Return the message of an error for a model, with every cause of an invalid document by its field."""
    return for_models(plain(_message(error)))


def _message(error: ServiceError) -> str:
    if not error.causes or any("file" in cause and cause["file"] != "body" for cause in error.causes):
        return str(error)
    first, _, remainder = str(error).partition("\n")
    if not remainder:
        return first
    lines = (": ".join(filter(None, (str(cause.get("field", "")), str(cause["message"])))) for cause in error.causes)
    return "\n".join((first, *lines))


def _refusal(tool: Tool, options: Options) -> str:
    """Return why the caller may not call the tool; "" if they may."""
    if options.read_only and not tool.read_only:
        return f"{tool.name} makes changes, and this client is read-only; connect it without --read-only"
    asking = access.caller()
    return "" if asking is None else decide_tool(asking, tool.name, tool.role).reason
