"""Plugin: a bundle of objects with a configuration, and the permissions that they need.

It is data: no code of it runs outside of sandboxes.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from controller.kinds.base import Form, Model, Name, Text
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.kinds.sandbox import HostName, age
from controller.kinds.workflow import ParameterName

Scalar = str | int | bool | None
MOST_OBJECTS = 64


class Permission(Model):
    """One permission: hosts to reach, a secret or a volume to use, or a security level to run at."""

    network: Annotated[tuple[HostName, ...] | None, Field(min_length=1, max_length=128)] = None
    """Whole host names that its sandboxes may reach."""
    secret: Name | None = None
    """Name of an operator's secret of the namespace."""
    volume: Name | None = None
    """Name of a volume of the namespace."""
    level: Annotated[Text | None, Field(min_length=1, max_length=52)] = None
    """Security level of its sandboxes, where it is not full-isolation."""

    @model_validator(mode="after")
    def _check_single(self) -> "Permission":
        if sum(content is not None for content in (self.network, self.secret, self.volume, self.level)) != 1:
            raise ValueError("needs exactly one of `network:`, `secret:`, `volume:` and `level:`")
        return self


class ConfigField(Model):
    """A setting of the plugin, for people to choose."""

    type: Literal["string", "integer", "boolean"] = "string"
    """Type of its values."""
    default: Any = None
    """Value where the configuration has none. Left out: it must be set."""
    description: Annotated[Text, Field(max_length=1024)] = ""
    """Description for people."""


class PluginSpec(Model):
    """Objects of the plugin's namespace, kept as written here. What they need must be declared, and granted."""

    version: Annotated[Text, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z][0-9A-Za-z.+-]*$"), Form("1.2.3")]
    """Version of the plugin."""
    type: Literal["MCPProvider", "LLMProvider", "Tool"]
    """Purpose of the plugin."""
    description: Annotated[Text, Field(max_length=1024)] = ""
    """Description for people."""
    author: Annotated[Text, Field(max_length=256)] = ""
    """Author of the plugin."""
    permissions: Annotated[tuple[Permission, ...], Field(max_length=64)] = ()
    """Permissions that the plugin declares to need."""
    granted: Annotated[tuple[Permission, ...], Field(max_length=64)] = ()
    """Permissions that the operator grants. Nothing of the plugin is created before they suffice."""
    configuration: Annotated[dict[ParameterName, ConfigField], Field(max_length=64)] = {}
    """Settings of the plugin, by name."""
    config: Annotated[dict[ParameterName, Any], Field(max_length=64)] = {}
    """Chosen values of the settings."""
    objects: Annotated[tuple[dict[str, Any], ...], Field(min_length=1, max_length=MOST_OBJECTS)]
    """Objects as documents with kind, metadata.name and spec. A scalar `$(config.NAME)` stands for that setting."""


def _ready(obj: StoredObject, _now: float) -> str:
    for type_ in ("Accepted", "Ready"):
        condition = next((stored for stored in obj.status.get("conditions", ()) if stored.get("type") == type_), None)
        if condition is None:
            return "Pending"
        if condition["status"] != "True":
            return str(condition["reason"])
    return "Ready"


KIND = Kind(
    name="Plugin",
    plural="plugins",
    short_names=("plug",),
    spec=PluginSpec,
    columns=(
        Column("STATUS", _ready),
        Column("VERSION", lambda obj, _now: str(obj.spec.get("version", "-"))),
        Column("TYPE", lambda obj, _now: str(obj.spec.get("type", "-"))),
        Column("OBJECTS", lambda obj, _now: str(len(obj.spec.get("objects", ())))),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
