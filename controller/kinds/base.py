"""What every spec model shares: camelCase fields, nothing unknown, nothing coerced, frozen once read."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, Strict
from pydantic.alias_generators import to_camel

Text = Annotated[str, Strict()]
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]

# RFC 1123 label, as Kubernetes has it; 52 leaves room for the prefix and suffix of a container's name.
Name = Annotated[
    str,
    Strict(),
    Field(
        min_length=1,
        max_length=52,
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        description="lower-case letters, digits and `-`, starting and ending with a letter or digit",
    ),
]


class Live:
    """Marks a field of a template that reaches a running container: it is no part of the template's hash."""


LIVE = Live()


def live_fields(model: type[BaseModel]) -> set[str]:
    """The fields of a model that are marked so."""
    return {name for name, info in model.model_fields.items() if LIVE in info.metadata}


class Model(BaseModel):
    """A part of a spec as users write it. Unknown fields are errors; see `admit` for how they are worded."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
        validate_default=False,
    )
