"""Arguments and results of tools as models, and their JSON schemas.

Models that call tools often send a nested object or list as a JSON string: it is accepted where no string is. So is
null for a field that may be left out, and another usual name of some fields.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from controller.documents import model_fields
from controller.documents.error_messages import Fault, faults
from controller.kinds.base import FORM
from controller.kinds.common.problem import field_text
from controller.service.errors import BadRequest
from controller.service.parsing import loads

_NESTED = {"object", "array"}
_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems", "maxProperties", "minimum", "maximum", "exclusiveMinimum")
_MOST_FIELDS = 16  # of an object in the audit log
_MOST_FIELD_LETTERS = 32
# Arguments of other tools, without case and underscores, and their names here: the first that the tool has is meant.
_USUAL_NAMES: Mapping[str, tuple[str, ...]] = {
    "allowlist": ("allowedHosts",),
    "args": ("command", "arguments"),
    "buildargs": ("arguments",),
    "cmd": ("command", "code"),
    "container": ("id",),
    "containerid": ("id",),
    "contents": ("content",),
    "cpus": ("cpu",),
    "cwd": ("workingDir",),
    "data": ("content", "stdin"),
    "directory": ("path", "workingDir"),
    "entrypoint": ("command",),
    "environment": ("env",),
    "filepath": ("path",),
    "files": ("context",),
    "folder": ("path",),
    "hosts": ("allowedHosts",),
    "input": ("stdin",),
    "lang": ("language",),
    "length": ("maxBytes",),
    "limit": ("maxBytes", "tail"),
    "lines": ("tail",),
    "mem": ("memory",),
    "network": ("allowedHosts",),
    "sandbox": ("id",),
    "sandboxid": ("id",),
    "script": ("code", "command"),
    "source": ("code",),
    "text": ("content", "code"),
    "timeout": ("timeoutSeconds", "waitSeconds"),
    "timeoutms": ("timeoutSeconds", "waitSeconds"),
    "workdir": ("workingDir",),
    "workingdirectory": ("workingDir",),
    "yaml": ("file", "documents"),
}


class Arguments(BaseModel):
    """Base of all tools' arguments, and of the objects in them. Unknown fields are refused.

    `other_names` are accepted for fields: the field's name by each of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    other_names: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _parse_json_strings(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        given = cls._prepared(given)
        nested, required = _nested_fields(cls), {name for name, each in cls.model_fields.items() if each.is_required()}
        given = {name: value for name, value in given.items() if value is not None or name in required}
        return {name: parsed(value) if name in nested else value for name, value in given.items()}

    @classmethod
    def _prepared(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments by the names of the fields."""
        named = dict(given)
        for other, name in cls.other_names.items():
            if other in named and named.get(name) in (None, named[other]):
                named[name] = named.pop(other)
        return named


class Result(BaseModel):
    """Base of all tools' results."""

    model_config = ConfigDict(frozen=True)


@cache
def schema_of(model: type[BaseModel], *, result: bool = False) -> dict[str, Any]:
    """Return the model's JSON schema without references and titles, which some LLM APIs refuse."""
    raw = model.model_json_schema(mode="serialization" if result else "validation")
    made: dict[str, Any] = _inlined(raw, raw.get("$defs", {}))
    made.pop("$defs", None)
    return made


def short_schema(model: type[BaseModel], names: Sequence[str]) -> dict[str, Any]:
    """Return the model's JSON schema with these fields only, and without what a model need not read.

    Others are accepted, and bounds are checked when the tool is called.
    """
    whole = schema_of(model)
    required = [each for each in whole.get("required", ()) if each in names]
    properties = {each: _short(whole["properties"][each]) for each in names}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _short(schema: Any) -> Any:
    """Return a part of a schema without bounds, defaults that are empty, and null."""
    if not isinstance(schema, Mapping):
        return schema
    options = [_short(each) for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    kept = {key: value for key, value in schema.items() if key not in (*_BOUNDS, "anyOf")}
    if kept.get("default", 0) in ("", None, [], {}):
        del kept["default"]
    if isinstance(kept.get("items"), Mapping):
        kept["items"] = _short(kept["items"])
    if isinstance(kept.get("additionalProperties"), Mapping):
        kept["additionalProperties"] = _short(kept["additionalProperties"])
    return {**kept, **(options[0] if len(options) == 1 else {"anyOf": options} if options else {})}


def validated(model: type[Arguments], given: Mapping[str, Any]) -> Any:
    """Return the arguments as an instance of the model. Raises BadRequest with every error."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        found = faults(model, error, (), lambda _path: "")
        causes = [
            {"field": field_text(each.path), "message": _message(model, each), "reason": each.reason} for each in found
        ]
        lines = "\n".join(f"{each['field'] or 'arguments'}: {each['message']}" for each in causes)
        raise BadRequest(f"the arguments are not valid; nothing was done\n{lines}", causes=causes) from error


def shape(value: Any, depth: int = 2) -> Any:
    """Return the types of arguments, for the audit log: the first names of fields, cut, and no value."""
    if isinstance(value, Mapping):
        if not depth:
            return f"object[{len(value)}]"
        first = islice(value.items(), _MOST_FIELDS)
        return {str(name)[:_MOST_FIELD_LETTERS]: shape(each, depth - 1) for name, each in first}
    if isinstance(value, list | tuple):
        return f"list[{len(value)}]"
    return {str: "string", bool: "boolean", int: "integer", float: "number"}.get(type(value), "null")


def _message(model: type[Arguments], fault: Fault) -> str:
    """Return the message of a fault. An unknown argument gets the name of a tool's, not of a spec's field."""
    if fault.reason != "FieldValueForbidden":
        return fault.message
    name = str(fault.path[-1])
    holder = model_fields.model_at(model, fault.path[:-1])
    known = list(model_fields.spelled(holder)) if holder else []
    usual = _USUAL_NAMES.get(name.lower().replace("_", "").replace("-", ""), ())
    meant = next((each for each in usual if each in known), "") or model_fields.closest(name, known)
    return f"unknown argument; did you mean `{meant}`?" if meant else f"unknown argument; known: {', '.join(known)}"


@cache
def _nested_fields(model: type[BaseModel]) -> frozenset[str]:
    """Return the fields that take objects or lists, and no string."""
    properties = schema_of(model).get("properties", {})
    return frozenset(
        name for name, each in properties.items() if _types(each) & _NESTED and "string" not in _types(each)
    )


def _types(schema: Mapping[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return {type_ for each in schema["anyOf"] for type_ in _types(each)}
    found = schema.get("type", ())
    return {found} if isinstance(found, str) else set(found)


def parsed(value: Any) -> Any:
    """Return the object or list that a string holds as JSON; else the value itself."""
    if not isinstance(value, str):
        return value
    try:
        found = loads(value)
    except ValueError:
        return value
    return found if isinstance(found, dict | list) else value


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inlined(each, definitions) for each in part]
    if not isinstance(part, Mapping):
        return part
    if "$ref" in part:
        target = definitions[str(part["$ref"]).rpartition("/")[2]]
        part = {**target, **{key: value for key, value in part.items() if key != "$ref"}}
    made = {}
    for key, value in part.items():
        if key == "properties":
            made[key] = {name: _inlined(each, definitions) for name, each in value.items()}
        elif key not in ("title", "$defs", FORM):
            made[key] = _inlined(value, definitions) if key != "default" else value
    return made
