"""Tools of other people's MCP servers, as clients get them: filtered, capped, cleaned and pinned. All is untrusted."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from controller.kinds.common.json_size import json_bytes
from controller.kinds.mcpserver import KIND, ServerTools
from controller.policy.access import is_glob_of

MOST_TOOLS = 128
MOST_DESCRIPTION = 2048
MOST_DEPTH = 32  # of objects and lists in a definition
MOST_LIST_BYTES = 900 << 10  # of all definitions: the official client refuses events over 1 MiB
_MOST_TEXT = 1024  # of any other text of a definition
_MOST_SCHEMA_BYTES = 64 << 10
_MARK = 16  # hexadecimal digits
_MOST_CHANGES, _MOST_SHOWN = 20, 500  # changes that are shown, and letters of a description there
_MOST_NAME = 128  # as the protocol has it
_NAME = re.compile(rf"[A-Za-z0-9_./-]{{1,{_MOST_NAME}}}")
_PADDOCKS = re.compile(rf"(?:{'|'.join(KIND.built_in)})[./].*", re.IGNORECASE)
_MOST_LEFT_OUT = 2000  # letters that name the tools which are left out
_HINTS: Mapping[str, type] = MappingProxyType(
    {"title": str, **dict.fromkeys(("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), bool)}
)
_KEPT = ("name", "title", "description", "inputSchema", "outputSchema")
Tool = Mapping[str, Any]
Pin = Literal["first", "same", "changed"]


@dataclass(frozen=True, slots=True)
class Offered:
    """Tools that clients get, by name. `left_out` says, for people, what was dropped and why: too large ones first."""

    tools: Mapping[str, Tool]
    left_out: tuple[str, ...] = ()

    def left_out_text(self) -> str:
        """Return the names and reasons of what is left out, as many as a condition has room for; "" if nothing is."""
        texts, room = list[str](), _MOST_LEFT_OUT
        for text in self.left_out:
            room -= len(text)
            if room < 0:
                break
            texts.append(text)
        unnamed = len(self.left_out) - len(texts)
        return "; ".join([*texts, *([f"and {unnamed} more"] if unnamed else [])])


def digest_of(listed: Sequence[Tool]) -> str:
    """Return the digest of a server's definitions, in any order, as it sent them; without too deep ones."""
    tools = (tool for tool in listed if not is_too_deep(tool))  # nobody gets the others
    texts = sorted(json.dumps(tool, sort_keys=True, separators=(",", ":")) for tool in tools)
    return f"sha256:{hashlib.sha256(chr(10).join(texts).encode('utf-8', 'surrogatepass')).hexdigest()}"


def pin(current_digest: str, approved: str, pinned: str, changed: str = "") -> Pin:
    """Compare the digest of a server's tools with the approved one of its spec, else with that of its first use.

    `changed` is that of a change that nobody looked at ("": none). A server that changed once is not believed again,
    whatever it lists, until somebody approves one of the two.
    """
    if approved:
        return "same" if current_digest == approved else "changed"
    if changed:
        return "changed"
    return "first" if not pinned else "same" if current_digest == pinned else "changed"


def marks(listed: Sequence[Tool]) -> dict[str, str]:
    """Return a short digest of each definition by the name of its tool, to tell later which ones changed."""
    tools = [tool for tool in listed if isinstance(tool.get("name"), str) and is_name(tool["name"])]
    return {tool["name"]: digest_of([tool]).removeprefix("sha256:")[:_MARK] for tool in tools[:MOST_TOOLS]}


def changes(before: Mapping[str, str] | None, listed: Sequence[Tool]) -> list[dict[str, str]]:
    """Return what changed since those marks, for people: the tool, how, and the description that it has now.

    Without marks, as older versions left none, all that is listed.
    """
    now = marks(listed)
    descriptions = {
        tool["name"]: plain(str(tool.get("description", "")), _MOST_SHOWN) for tool in listed if tool.get("name") in now
    }
    entries: list[dict[str, str]] = []
    for name, mark in now.items():
        how = "listed" if before is None else "changed" if name in before else "added"
        if before is None or before.get(name) != mark:
            entries.append({"tool": name, "change": how, "description": descriptions[name]})
    removed = [name for name in before or () if name not in now]
    return [*entries, *({"tool": name, "change": "removed", "description": ""} for name in removed)][:_MOST_CHANGES]


def offered(listed: Sequence[Tool], tools: ServerTools, *, verified: bool, paddocks: Container[str] = ()) -> Offered:
    """Return the tools that clients get. The annotations of a server that is not verified are dropped.

    `paddocks` are names of Paddock's own tools, which no other tool has.
    """
    offered_tools: dict[str, Tool] = {}
    left_out: list[str] = []
    too_large: list[str] = []
    total = 0
    for tool in listed:
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            label = name if isinstance(name, str | int | float) else type(name).__name__
            left_out.append(f"{plain(str(label), 40)!r}: not a name of at most {_MOST_NAME} letters, digits and `_./-`")
        elif name in paddocks or _PADDOCKS.fullmatch(name):
            left_out.append(f"{name}: only tools of Paddock have such a name")
        elif name in offered_tools:
            left_out.append(f"{name}: listed twice")
        elif not is_allowed(name, tools):
            continue
        elif is_too_deep(tool):
            left_out.append(f"{name}: its definition is nested deeper than {MOST_DEPTH} levels")
        elif json_bytes(tool) > _MOST_SCHEMA_BYTES:
            too_large.append(f"{name}: its definition is larger than {_MOST_SCHEMA_BYTES >> 10} KiB")
        elif not isinstance(tool.get("inputSchema"), dict):
            left_out.append(f"{name}: it has no input schema")
        elif fault := _fault((cleaned := _clean(tool, verified=verified))["inputSchema"]):
            left_out.append(f"{name}: its input schema is not valid: {fault}")
        elif len(offered_tools) >= MOST_TOOLS:
            left_out.append(f"{name}: more than {MOST_TOOLS} tools")
        elif total + (size := json_bytes(cleaned)) > MOST_LIST_BYTES:
            too_large.append(f"{name}: the definitions together are larger than {MOST_LIST_BYTES >> 10} KiB")
        else:
            total += size
            offered_tools[name] = cleaned
    return Offered(offered_tools, (*too_large, *left_out))


def is_too_deep(value: Any, most: int = MOST_DEPTH) -> bool:
    """Return True if objects and lists are nested deeper than this. Deeper values can't be treated safely."""
    level = [value]
    for _ in range(most + 1):
        level = [node for node in level if isinstance(node, Mapping | list)]
        level = [child for node in level for child in (node.values() if isinstance(node, Mapping) else node)]
        if not level:
            return False
    return any(isinstance(node, Mapping | list) for node in level)


def is_allowed(name: str, tools: ServerTools) -> bool:
    """Return True if clients may call the tool."""
    return is_listed(name, tools.allow, tools.deny)


def is_listed(text: str, allow: Iterable[str], deny: Iterable[str]) -> bool:
    """Return True if a pattern allows this name or URI, and none denies it."""
    return _matches(text, allow) and not _matches(text, deny)


def is_name(text: str) -> bool:
    """Return True if it can be the name of a tool or a prompt."""
    return _NAME.fullmatch(text) is not None


def audited_name(text: str) -> str:
    """Return the name of a tool or a prompt as the audit log has it: a caller's own words, cleaned and cut."""
    return plain(text[: 4 * _MOST_NAME], _MOST_NAME)


def definition(fields: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return these fields of a definition that is not a tool's, with every text cleaned and bounded."""
    cleaned = {key: fields[key] for key in keys if key in fields and not is_too_deep(fields[key])}
    for key, content in cleaned.items():
        cleaned[key] = plain(content, MOST_DESCRIPTION) if isinstance(content, str) else _clean_texts(content)
    return cleaned


def plain(text: str, most: int = _MOST_TEXT) -> str:
    """Return the text without control, format and zero-width characters, at most so long; tabs and line feeds stay."""
    cleaned = "".join(
        character for character in text if character in "\t\n" or unicodedata.category(character)[0] != "C"
    )
    return cleaned if len(cleaned) <= most else f"{cleaned[: most - 1]}…"


def _clean(tool: Tool, *, verified: bool) -> Tool:
    cleaned = {key: tool[key] for key in _KEPT if key in tool}
    for key, most in (("title", _MOST_TEXT), ("description", MOST_DESCRIPTION)):
        if key in cleaned:
            cleaned[key] = plain(str(cleaned[key]), most)
    for key in ("inputSchema", "outputSchema"):
        if key in cleaned:
            cleaned[key] = _clean_texts(cleaned[key])
    cleaned["inputSchema"].setdefault("type", "object")  # that is what the protocol demands
    output = cleaned.get("outputSchema", {"type": "object"})
    if not isinstance(output, dict) or _fault(output):
        del cleaned["outputSchema"]
    annotations = _clean_texts(tool.get("annotations"))
    if verified and isinstance(annotations, dict):
        hints = {key: value for key, value in annotations.items() if key in _HINTS}
        cleaned["annotations"] = {key: value for key, value in hints.items() if isinstance(value, _HINTS[key])}
    return cleaned


def _fault(schema: Mapping[str, Any]) -> str:
    """Return why clients of some version could not read a schema, and the whole list with it; "" if all can."""
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("type") != "object":
        return "its `type` must be `object`"
    if properties is not None and not _is_of(properties, dict, dict | bool):
        return "its `properties` must be schemas by name"
    if required is not None and not _is_of(required, list, str):
        return "its `required` must be a list of names"
    return "" if isinstance(schema.get("$schema"), str | None) else "its `$schema` must be text"


def _is_of(value: Any, container_type: type, element_type: Any) -> bool:
    """Return True for an object or list of this type, all of whose values are of the type `element_type`."""
    values = value.values() if isinstance(value, dict) else value
    return isinstance(value, container_type) and all(isinstance(element, element_type) for element in values)


def _clean_texts(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_clean_texts(element) for element in value]
    if isinstance(value, dict):
        return {plain(key, 256): _clean_texts(element) for key, element in value.items()}
    return value


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(is_glob_of(pattern, name) for pattern in patterns)
