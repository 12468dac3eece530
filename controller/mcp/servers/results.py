"""Results and notifications of other people's servers, as clients get them. All is untrusted: bounded and cleaned.

Whatever treats a whole result may take a while: call it in a thread, unless it `is_small`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import mcp_types as types
import structlog
from mcp.shared.exceptions import MCPError
from mcp_types import methods
from pydantic import BaseModel, TypeAdapter, ValidationError

from controller.kinds.common.json_size import json_bytes
from controller.kinds.common.plural import counted
from controller.mcp.calls import MESSAGE_BYTES
from controller.mcp.names import listed_name
from controller.mcp.servers.notices import MESSAGE, UPDATED, Notice, Params
from controller.mcp.servers.session import LEGACY, MODERN
from controller.mcp.servers.target import Target
from controller.mcp.text import plain, strip_controls, visible
from controller.policy import foreign_tools
from controller.service.mcp.server import Server

IN_SANDBOX = "paddock/isSandboxed"
_MOST_BLOCKS = 1000  # of a result
_MOST_DEPTH = 64  # of objects and lists in it
_MOST_URI_LETTERS = 2048
_SMALL, _PART = 8192, 64  # letters of a small result; the least that a part of it counts
_MOST_LOG_BYTES = 16 << 10
_PADDOCKS_SCHEME = "sandbox:"  # of URIs that only Paddock's own server has
_SKIPPED = re.compile(r"[\s\x00-\x20]")  # what parsers of URIs may skip
_CURSOR = re.compile(r"[0-9]{1,9}")
_MOST_VALUES = 100  # of a completion: so many the protocol allows
_INPUT_WANTED = "input_required"
_log = structlog.get_logger("paddock.mcp")
_CONTENT: TypeAdapter[Any] = TypeAdapter(types.ContentBlock)
_CONTENTS: TypeAdapter[Any] = TypeAdapter(types.TextResourceContents | types.BlobResourceContents)
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
Item = TypeVar("Item", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Naming:
    """Names and URIs of one server at an address: of all of a namespace they have the server's name in front."""

    server: Server
    target: Target

    def name(self, own_name: str) -> str:
        """Return the name of a tool or prompt as listed."""
        return own_name if self.target.name else listed_name(f"{self.server.obj.name}.{own_name}")

    def uri(self, own_uri: str) -> str:
        """Return a URI, or a URI template, as listed."""
        return own_uri if self.target.name else f"{self.server.obj.name}+{own_uri}"

    def may_read(self, uri: str) -> bool:
        """Return True if clients get the resource."""
        spec = self.server.spec.resources
        return not names_a_sandbox(uri) and foreign_tools.is_listed(uri, spec.allow, spec.deny)

    def may_prompt(self, name: str) -> bool:
        """Return True if clients get the prompt."""
        spec = self.server.spec.prompts
        return foreign_tools.is_listed(name, spec.allow, spec.deny)


def names_a_sandbox(uri: str) -> bool:
    """Return True for a URI of Paddock's own server: a client that has both would read another sandbox there."""
    return _SKIPPED.sub("", uri).lower().startswith(_PADDOCKS_SCHEME)


def is_small(raw: Params) -> bool:
    """Return True if what a server answered is little text, in few parts."""
    return _letters_left(raw, _SMALL) >= 0


def _letters_left(value: Any, letters: int) -> int:
    """Return the letters that remain after a value, below 0 for one that is too large. Ends soon, and not deep."""
    letters -= max(_PART, len(value)) if isinstance(value, str) else _PART
    parts = chain.from_iterable(value.items()) if isinstance(value, Mapping) else value
    for element in parts if isinstance(value, Mapping | list) else ():
        if letters < 0:
            break
        letters = _letters_left(element, letters)
    return letters


def call_result(raw: Params, tool: str, naming: Naming) -> types.CallToolResult:
    """Return the result of a tool; its own metadata is dropped."""
    try:
        return _call_result(raw, tool, naming)
    except RecursionError:
        return failed_result(f"the result of {tool} is nested too deeply to be passed on")


def failed_result(text: str) -> types.CallToolResult:
    """Return the result of a call that failed."""
    return types.CallToolResult(content=[_text(text)], is_error=True)


def read_result(raw: Params, uri: str, naming: Naming) -> types.ReadResourceResult:
    """Return the contents of a resource. Raises MCPError."""
    contents = []
    for content in _bound(raw, f"the resource {uri[:200]}").get("contents") or ():
        checked = _valid(_CONTENTS, _with_uri(content, naming))
        if checked is not None:
            contents.append(checked)
    return types.ReadResourceResult(contents=contents, _meta={IN_SANDBOX: True})


def prompt_result(raw: Params, name: str, naming: Naming) -> types.GetPromptResult:
    """Return the messages of a prompt. Raises MCPError."""
    prompt = _bound(raw, f"the prompt {name[:100]}")
    messages = []
    for message in prompt.get("messages") or ():
        content = _valid(_CONTENT, _block(message.get("content"), naming)) if isinstance(message, dict) else None
        if content is not None and message.get("role") in ("user", "assistant"):
            messages.append(types.PromptMessage(role=message["role"], content=content))
    text = prompt.get("description")
    description = foreign_tools.plain(text, foreign_tools.MOST_DESCRIPTION) if isinstance(text, str) else None
    return types.GetPromptResult(description=description, messages=messages, _meta={IN_SANDBOX: True})


def completion_result(raw: Params) -> types.CompleteResult:
    """Return proposed values."""
    completion = raw.get("completion")
    values = completion.get("values") if isinstance(completion, dict) else None
    proposals = (
        [foreign_tools.plain(text) for text in values if isinstance(text, str)] if isinstance(values, list) else []
    )
    has_more = len(proposals) > _MOST_VALUES or (isinstance(completion, dict) and completion.get("hasMore") is True)
    return types.CompleteResult(completion=types.Completion(values=proposals[:_MOST_VALUES], has_more=has_more))


def listed_resources(raw: Iterable[Params], naming: Naming) -> list[types.Resource]:
    """Return the resources that clients get."""
    keys = ("name", "title", "description", "uri", "mimeType", "size")
    return _valid_entries(types.Resource, raw, "uri", keys, naming)


def listed_templates(raw: Iterable[Params], naming: Naming) -> list[types.ResourceTemplate]:
    """Return the templates of resources that clients get."""
    keys = ("name", "title", "description", "uriTemplate", "mimeType")
    return _valid_entries(types.ResourceTemplate, raw, "uriTemplate", keys, naming)


def listed_prompts(raw: Iterable[Params], naming: Naming) -> list[types.Prompt]:
    """Return the prompts that clients get."""
    prompts = []
    for definition in raw:
        name = definition.get("name")
        if not isinstance(name, str) or not foreign_tools.is_name(name) or not naming.may_prompt(name):
            continue
        prompt = foreign_tools.definition(definition, ("name", "title", "description", "arguments"))
        prompts.append(_valid(types.Prompt, {**prompt, "name": naming.name(name)}))
    return [prompt for prompt in prompts if prompt is not None]


def page_of(method: str, key: str, listed: Sequence[Item], cursor: str | None = None) -> tuple[list[Item], str | None]:
    """Return the items of a list by name, as many as fit a message, and the cursor of the next page if there are more.

    Only items that every version of the protocol has. Raises MCPError for a wrong cursor.
    """
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        raise MCPError(types.INVALID_PARAMS, "cursor: not one of this server's; list again without it")
    first = int(cursor or 0)
    page = list[Item]()
    size = 0
    in_order = sorted(listed, key=lambda entry: str(getattr(entry, "name", "")))
    for number, entry in enumerate(in_order[first:], first):
        as_json = entry.model_dump(mode="json", by_alias=True, exclude_none=True)
        item_bytes = json_bytes(as_json)
        if not _is_of_all_versions(method, key, as_json) or item_bytes > MESSAGE_BYTES:
            _log.warning(
                "mcp item left out of a list", method=method, name=getattr(entry, "name", ""), bytes=item_bytes
            )
            continue
        size += item_bytes
        if size > MESSAGE_BYTES:
            return page, str(number)
        page.append(entry)
    return page, None


def notification(notice: Notice, naming: Naming | None) -> Params | None:
    """Return the parameters of a notice as clients get them; None: they don't. `naming` None: of Paddock's own."""
    if naming is None:
        return {}
    if notice.method == UPDATED:
        uri = notice.params.get("uri")
        if not isinstance(uri, str) or len(uri) > _MOST_URI_LETTERS or not naming.may_read(uri):
            return None
        return {"uri": naming.uri(plain(uri))}
    if notice.method != MESSAGE:
        return {}
    level, logger = notice.params.get("level"), notice.params.get("logger")
    try:
        data = _clean(notice.params.get("data"))
    except RecursionError:
        return None
    if level not in LEVELS or json_bytes(data) > _MOST_LOG_BYTES:
        return None
    logger_name = foreign_tools.plain(logger, 128) if isinstance(logger, str) else ""
    full_logger = logger_name if naming.target.name else ".".join(filter(None, (naming.server.obj.name, logger_name)))
    return {"level": level, "data": data, **({"logger": full_logger} if full_logger else {})}


def _valid_entries(
    model: type[Item], raw: Iterable[Params], key: str, keys: Sequence[str], naming: Naming
) -> list[Item]:
    checked = []
    for definition in raw:
        uri = definition.get(key)
        usable = (
            isinstance(uri, str) and 0 < len(uri) <= _MOST_URI_LETTERS and uri == foreign_tools.plain(uri, len(uri))
        )
        if usable and naming.may_read(str(uri)):
            fields = foreign_tools.definition(definition, keys)
            checked.append(_valid(model, {**fields, key: naming.uri(str(uri))}))
    return [entry for entry in checked if entry is not None]


def _is_of_all_versions(method: str, key: str, item: Mapping[str, Any]) -> bool:
    """Return True if clients of every version can read an item: one that they can't would cost them the whole list."""
    result = {key: [item], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    try:
        for version in (LEGACY, MODERN):
            methods.serialize_server_result(method, version, result)
    except ValidationError:
        return False
    return True


def _valid(model: Any, value: Any) -> Any:
    """Return the value as the model has it; None if it is not valid."""
    try:
        return model.validate_python(value) if isinstance(model, TypeAdapter) else model.model_validate(value)
    except ValidationError:
        return None


def _bound(raw: Params, subject: str) -> dict[str, Any]:
    """Return a result without terminal control. Raises MCPError."""
    if raw.get("resultType") == _INPUT_WANTED:
        raise MCPError(types.INTERNAL_ERROR, f"{subject}: the server asks for sampling, roots or input; refused")
    too_large = MCPError(types.INTERNAL_ERROR, f"{subject} is larger than {MESSAGE_BYTES >> 10} KiB; ask for less")
    if json_bytes(raw) > MESSAGE_BYTES:  # before anything is made of it
        raise too_large
    try:
        cleaned = _clean(dict(raw))
    except RecursionError:
        raise MCPError(types.INTERNAL_ERROR, f"{subject} is nested too deeply to be passed on") from None
    if json_bytes(cleaned) > MESSAGE_BYTES:  # with its escapes
        raise too_large
    if any(isinstance(field, list) and len(field) > _MOST_BLOCKS for field in cleaned.values()):
        raise MCPError(types.INTERNAL_ERROR, f"{subject} has more than {_MOST_BLOCKS} blocks; ask for less")
    return {key: field for key, field in cleaned.items() if isinstance(field, list | str)}


def _call_result(raw: Params, tool: str, naming: Naming) -> types.CallToolResult:
    """Return the result of a tool, bounded and with nothing in it but what the protocol knows."""
    content = raw.get("content")
    if raw.get("resultType") == _INPUT_WANTED:
        return failed_result(f"{tool} asks for sampling, roots or input; servers in sandboxes get none of these")
    if isinstance(content, list) and len(content) > _MOST_BLOCKS:
        return failed_result(f"the result of {tool} has more than {_MOST_BLOCKS} blocks; ask for less")
    too_large = f"the result of {tool} is larger than {MESSAGE_BYTES >> 10} KiB; ask for less"
    if json_bytes(raw) > MESSAGE_BYTES:  # before anything is made of it
        return failed_result(too_large)
    structured = _clean(raw.get("structuredContent"))
    structured = structured if isinstance(structured, dict) else None
    if content is None and structured is not None:
        content = []
    if not isinstance(content, list):
        return failed_result(f"the result of {tool} is not valid: its content is no list")
    blocks = [_valid(_CONTENT, _block(block, naming)) for block in content]
    valid_blocks = [block for block in blocks if block is not None]
    checked_result = types.CallToolResult(
        content=[*valid_blocks, *_left_out(len(blocks) - len(valid_blocks))],
        structured_content=structured,
        is_error=raw.get("isError") is True,
        _meta={IN_SANDBOX: True},
    )
    return (
        failed_result(too_large)
        if json_bytes(checked_result.model_dump(mode="json", by_alias=True)) > MESSAGE_BYTES
        else checked_result
    )


def _left_out(count: int) -> list[types.TextContent]:
    """Return what clients read in the place of blocks that are not valid."""
    return [_text(f"[{counted(count, 'block')} left out: not valid]")] if count else []


def _block(value: Any, naming: Naming) -> Any:
    """Return a block of content without terminal control, with URIs as clients know them."""
    block = _clean(value)
    if not isinstance(block, dict):
        return block
    if block.get("type") == "resource":
        return {**block, "resource": _with_uri(block.get("resource"), naming)}
    return _with_uri(block, naming) if block.get("type") == "resource_link" else block


def _with_uri(value: Any, naming: Naming) -> Any:
    """Return contents of a resource, or a link to it, without metadata, and with its URI as clients know it.

    None: its URI is that of a sandbox.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("uri"), str):
        return value
    if names_a_sandbox(value["uri"]):
        return None
    return {**{key: field for key, field in value.items() if key != "_meta"}, "uri": naming.uri(value["uri"])}


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def _clean(value: Any, depth: int = _MOST_DEPTH) -> Any:
    """Return a value of JSON without terminal control in any of its texts, and without what can't be seen.

    Raises RecursionError.
    """
    if isinstance(value, str):
        return visible(strip_controls(value))
    if not isinstance(value, dict | list):
        return value
    if not depth:
        raise RecursionError
    if isinstance(value, list):
        return [_clean(element, depth - 1) for element in value]
    return {visible(strip_controls(key)): _clean(field, depth - 1) for key, field in value.items()}
