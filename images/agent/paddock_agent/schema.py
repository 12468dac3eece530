"""Checks of tool arguments against the small part of JSON Schema that the tools use."""

from __future__ import annotations

from .replies import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from typing import Any


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def check(schema: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return the arguments with their defaults; report all problems at once."""
    if not isinstance(given, dict):
        raise ToolError("arguments: must be an object")
    properties: dict[str, Any] = schema["properties"]
    problems = [f"{name}: is missing" for name in schema.get("required", ()) if name not in given]
    for name, value in given.items():
        if name not in properties:
            problems.append(f"{name}: is unknown; known are {', '.join(properties) or 'none'}")
        elif problem := _problem(properties[name], value):
            problems.append(f"{name}: {problem}")
    if problems:
        raise ToolError("\n".join(problems))
    defaults = {name: each["default"] for name, each in properties.items() if "default" in each}
    return {**defaults, **given}


def _problem(schema: dict[str, Any], value: Any) -> str:
    branches: list[dict[str, Any]] = schema.get("anyOf", [schema])
    fitting = [each for each in branches if _is(each["type"], value)]
    if not fitting:
        return f"must be {' or '.join(each['type'] for each in branches)}"
    schema = fitting[0]
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(schema['enum'])}"
    if isinstance(value, (int, float)) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"must be from {schema.get('minimum', 0)} to {schema.get('maximum', 'any')}"
    if isinstance(value, str) and "\0" in value and not schema.get("nul"):
        return "has a NUL character"
    if isinstance(value, list):
        return _first(_problem(schema["items"], each) for each in value) or ("" if value else "must not be empty")
    if isinstance(value, dict):
        return _first(_problem(schema["additionalProperties"], each) for each in value.values()) or _first(
            "has a name that is empty or has `=` or NUL" for name in value if not name or "=" in name or "\0" in name
        )
    return ""


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _first(problems: Any) -> str:
    return next((each for each in problems if each), "")
