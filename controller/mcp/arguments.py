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
    def _parse_json_strings(cls, arguments: Any) -> Any:
        if not isinstance(arguments, Mapping):
            return arguments
        arguments = cls._prepare(arguments)
        nested, required = _nested_fields(cls), {name for name, info in cls.model_fields.items() if info.is_required()}
        arguments = {name: value for name, value in arguments.items() if value is not None or name in required}
        return {name: parse_json(value) if name in nested else value for name, value in arguments.items()}

    @classmethod
    def _prepare(cls, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments by the names of the fields."""
        fields = dict(arguments)
        for other_name, name in cls.other_names.items():
            if other_name in fields and fields.get(name) in (None, fields[other_name]):
                fields[name] = fields.pop(other_name)
        return fields


class Result(BaseModel):
    """Base of all tools' results."""

    model_config = ConfigDict(frozen=True)


@cache
def schema_of(model: type[BaseModel], *, result: bool = False) -> dict[str, Any]:
    """Return the model's JSON schema without references and titles, which some LLM APIs refuse."""
    raw = model.model_json_schema(mode="serialization" if result else "validation")
    schema: dict[str, Any] = _inline(raw, raw.get("$defs", {}))
    schema.pop("$defs", None)
    return schema


def short_schema(model: type[BaseModel], names: Sequence[str]) -> dict[str, Any]:
    """Return the model's JSON schema with these fields only, and without what a model need not read.

    Others are accepted, and bounds are checked when the tool is called.
    """
    schema = schema_of(model)
    required = [name for name in schema.get("required", ()) if name in names]
    properties = {name: _shorten(schema["properties"][name]) for name in names}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _shorten(schema: Any) -> Any:
    """Return a part of a schema without bounds, defaults that are empty, and null."""
    if not isinstance(schema, Mapping):
        return schema
    options = [_shorten(option) for option in schema.get("anyOf", ()) if option.get("type") != "null"]
    shortened = {key: value for key, value in schema.items() if key not in (*_BOUNDS, "anyOf")}
    if shortened.get("default", 0) in ("", None, [], {}):
        del shortened["default"]
    if isinstance(shortened.get("items"), Mapping):
        shortened["items"] = _shorten(shortened["items"])
    if isinstance(shortened.get("additionalProperties"), Mapping):
        shortened["additionalProperties"] = _shorten(shortened["additionalProperties"])
    return {**shortened, **(options[0] if len(options) == 1 else {"anyOf": options} if options else {})}


def validate(model: type[Arguments], arguments: Mapping[str, Any]) -> Any:
    """Return the arguments as an instance of the model. Raises BadRequest with every error."""
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        fault_list = faults(model, error, (), lambda _path: "")
        causes = [
            {"field": field_text(fault.path), "message": _message(model, fault), "reason": fault.reason}
            for fault in fault_list
        ]
        lines = "\n".join(f"{cause['field'] or 'arguments'}: {cause['message']}" for cause in causes)
        raise BadRequest(f"the arguments are not valid; nothing was done\n{lines}", causes=causes) from error


def shape(value: Any, depth: int = 2) -> Any:
    """Return the types of arguments, for the audit log: the first names of fields, cut, and no value."""
    if isinstance(value, Mapping):
        if not depth:
            return f"object[{len(value)}]"
        first = islice(value.items(), _MOST_FIELDS)
        return {str(name)[:_MOST_FIELD_LETTERS]: shape(field, depth - 1) for name, field in first}
    if isinstance(value, list | tuple):
        return f"list[{len(value)}]"
    return {str: "string", bool: "boolean", int: "integer", float: "number"}.get(type(value), "null")


def _message(model: type[Arguments], fault: Fault) -> str:
    """Return the message of a fault. An unknown argument gets the name of a tool's, not of a spec's field."""
    if fault.reason != "FieldValueForbidden":
        return fault.message
    name = str(fault.path[-1])
    holder = model_fields.model_at(model, fault.path[:-1])
    known_names = list(model_fields.fields_by_spelling(holder)) if holder else []
    usual = _USUAL_NAMES.get(name.lower().replace("_", "").replace("-", ""), ())
    meant = next((candidate for candidate in usual if candidate in known_names), "") or model_fields.closest(
        name, known_names
    )
    return (
        f"unknown argument; did you mean `{meant}`?" if meant else f"unknown argument; known: {', '.join(known_names)}"
    )


@cache
def _nested_fields(model: type[BaseModel]) -> frozenset[str]:
    """Return the fields that take objects or lists, and no string."""
    properties = schema_of(model).get("properties", {})
    return frozenset(
        name for name, schema in properties.items() if _types(schema) & _NESTED and "string" not in _types(schema)
    )


def _types(schema: Mapping[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return {type_ for option in schema["anyOf"] for type_ in _types(option)}
    type_names = schema.get("type", ())
    return {type_names} if isinstance(type_names, str) else set(type_names)


def parse_json(value: Any) -> Any:
    """Return the object or list that a string holds as JSON; else the value itself."""
    if not isinstance(value, str):
        return value
    try:
        decoded = loads(value)
    except ValueError:
        return value
    return decoded if isinstance(decoded, dict | list) else value


def _inline(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inline(element, definitions) for element in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        target = definitions[str(schema["$ref"]).rpartition("/")[2]]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    inlined = {}
    for key, value in schema.items():
        if key == "properties":
            inlined[key] = {name: _inline(property_schema, definitions) for name, property_schema in value.items()}
        elif key not in ("title", "$defs", FORM):
            inlined[key] = _inline(value, definitions) if key != "default" else value
    return inlined
