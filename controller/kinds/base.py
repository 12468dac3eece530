"""Base of every spec model: camelCase fields, unknown fields refused, no coercion, frozen."""

import ast
import inspect
import sys
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, Strict
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

FORM = "x-form"  # the key of a JSON schema that holds a Form

Text = Annotated[str, Strict()]
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]


@dataclass(frozen=True, slots=True)
class Form:
    """Form that a value must have, in words. Error messages and `paddock explain` show it.

    The docstring below a field says what the field does. A form belongs to the type, wherever it is used.
    """

    text: str

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core_schema), FORM: self.text}


# RFC 1123 label, as Kubernetes has it; 52 leaves room for the prefix and suffix of a container's name.
Name = Annotated[
    str,
    Strict(),
    Field(min_length=1, max_length=52, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"),
    Form("lower-case letters, digits and `-`, starting and ending with a letter or digit"),
]


class Live:
    """Marker of a template field that is changed in a running container. It is not part of the template's hash."""


LIVE = Live()


def live_fields(model: type[BaseModel]) -> set[str]:
    """Return the fields of a model that have the marker LIVE."""
    return {name for name, info in model.model_fields.items() if LIVE in info.metadata}


class Model(BaseModel):
    """A part of a spec as users write it. Unknown fields are errors; documents/error_messages.py words them."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
        validate_default=False,
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema, with the docstring below each field as its description."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _field_docstrings(cls).items():
            if name in cls.model_fields:
                properties[cls.model_fields[name].alias or name].setdefault("description", text)
        return schema


# Read when a schema is asked for. pydantic's use_attribute_docstrings costs 60 ms at the start of every process.
def _field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a model, inherited ones too, by field."""
    docstrings: dict[str, str] = {}
    for ancestor in reversed(model.__mro__):
        if issubclass(ancestor, Model):
            docstrings |= _docstrings(ancestor.__module__).get(ancestor.__name__, {})
    return docstrings


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings below the fields of each class of a module."""
    by_class: dict[str, dict[str, str]] = {}
    classes = (
        statement
        for statement in ast.parse(inspect.getsource(sys.modules[module])).body
        if isinstance(statement, ast.ClassDef)
    )
    for definition in classes:
        for field, below in pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    by_class.setdefault(definition.name, {})[name] = inspect.cleandoc(text)
    return by_class
