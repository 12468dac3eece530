"""A command of a request: its arguments, and its variables as values or secrets by name."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from controller.documents.error_messages import kind_of
from controller.kinds.runtime.secret import Environment, SecretRef
from controller.service.errors import BadRequest

_TEXT_CHARACTERS, _NAME_CHARACTERS = 1 << 20, 253
Text = Annotated[str, Field(max_length=_TEXT_CHARACTERS, pattern=r"^[^\x00]*$")]
_SHOWN_CHARACTERS = 60


def _not_one_string(command: Any) -> Any:
    """Refuse a command that is one string; the message shows the list to write."""
    if not isinstance(command, str):
        return command
    line = command if len(command) <= _SHOWN_CHARACTERS else command[: _SHOWN_CHARACTERS - 3] + "..."
    examples = {
        "shell": json.dumps(["sh", "-c", line], ensure_ascii=False),
        "program": json.dumps(["PROGRAM", "ARGUMENT"]),
    }
    message = "must be a list of strings, not one string; write {shell} for a shell command, or {program}"
    raise PydanticCustomError("list_type", message, examples)


def _argument(argument: Any) -> str:
    """Return an argument. It is bytes, of which those that are not UTF-8 are surrogate escapes."""
    if not isinstance(argument, str):
        raise PydanticCustomError("string_type", "must be text, not {kind}", {"kind": kind_of(argument)})
    try:
        os.fsencode(argument)
    except UnicodeEncodeError:
        raise PydanticCustomError("string_unicode", "must be valid text") from None
    if "\0" in argument or len(argument) > _TEXT_CHARACTERS:
        raise PydanticCustomError("string_too_long", "must have no NUL and at most 1 MiB")
    return argument


Argument = Annotated[
    str,
    PlainValidator(_argument),
    WithJsonSchema({"type": "string", "maxLength": _TEXT_CHARACTERS, "pattern": r"^[^\x00]*$"}),
]
Command = Annotated[list[Argument], Field(min_length=1, max_length=4096), BeforeValidator(_not_one_string)]


class SecretName(BaseModel):
    """A secret of this name in the sandbox's namespace; only the command gets its value."""

    model_config = ConfigDict(extra="forbid")

    secret: Annotated[str, Field(min_length=1, max_length=_NAME_CHARACTERS)]


def _one_fault(variable: Any) -> Any:
    """Refuse what is neither text nor a secret's name, in one message: a union has one for each of its types."""
    fault = ""
    if isinstance(variable, str):
        fault = "must have no NUL and at most 1 MiB" if "\0" in variable or len(variable) > _TEXT_CHARACTERS else ""
    elif isinstance(variable, dict):
        name = variable.get("secret")
        good = len(variable) == 1 and isinstance(name, str) and 0 < len(name) <= _NAME_CHARACTERS
        fault = "" if good else 'must be text or {"secret": "NAME"}; a secret has a name, and nothing else'
    elif not isinstance(variable, SecretName):
        fault = f'must be text or {{"secret": "NAME"}}, not {kind_of(variable)}; write the value as text'
    if fault:
        raise PydanticCustomError("variable", "{fault}", {"fault": fault})
    return variable


Variables = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^[^=\x00]+$")],
        Annotated[Text | SecretName, BeforeValidator(_one_fault)],
    ],
    Field(max_length=4096, description="by name: a value, or `{secret: NAME}`"),
]


def environment(variables: Mapping[str, str | SecretName]) -> Environment:
    """Convert the request's variables to the service's type."""
    return {
        name: SecretRef(variable.secret) if isinstance(variable, SecretName) else variable
        for name, variable in variables.items()
    }


def of_query(env: Iterable[str], secrets: Iterable[str]) -> Environment:
    """Parse a query's NAME=VALUE and NAME=SECRET. Raises BadRequest."""
    values: dict[str, str | SecretRef] = dict(_pair("env", "VALUE", assignment) for assignment in env)
    return {**values, **{name: SecretRef(secret) for name, secret in (_pair("secret", "SECRET", s) for s in secrets)}}


def _pair(parameter: str, value: str, text: str) -> tuple[str, str]:
    name, equals, content = text.partition("=")
    if not name or not equals or (parameter == "secret" and not content):
        raise BadRequest(f"{parameter} must be NAME={value}")
    return name, content
