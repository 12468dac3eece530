"""Arguments and results of tools as models, and their JSON schemas.

Models that call tools often send a nested object or list as a JSON string: it is accepted where no string is. So is
null for a field that may be left out.
"""

from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from controller.documents.error_messages import faults
from controller.kinds.base import FORM
from controller.kinds.common.problem import field_text
from controller.service.errors import BadRequest
from controller.service.parsing import loads

_NESTED = {"object", "array"}
_MOST_FIELDS = 16  # of an object in the audit log
_MOST_FIELD_LETTERS = 32


class Arguments(BaseModel):
    """Base of all tools' arguments, and of the objects in them. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _parse_json_strings(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        nested, required = _nested_fields(cls), {name for name, each in cls.model_fields.items() if each.is_required()}
        given = {name: value for name, value in given.items() if value is not None or name in required}
        return {name: _parsed(value) if name in nested else value for name, value in given.items()}


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


def validated(model: type[Arguments], given: Mapping[str, Any]) -> Any:
    """Return the arguments as an instance of the model. Raises BadRequest with every error."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        found = faults(model, error, (), lambda _path: "")
        causes = [{"field": field_text(each.path), "message": each.message, "reason": each.reason} for each in found]
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


def _parsed(value: Any) -> Any:
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
