"""AppArmor, SELinux and runtime fields of a template."""

from typing import Annotated

from pydantic import Field

from controller.kinds.base import Form, Model, Text

RuntimeName = Annotated[
    Text,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"),
    Form("a runtime of the engine, such as runsc; the operator must allow it"),
]
ProfileName = Annotated[
    Text,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$"),
    Form("an AppArmor profile that is loaded on the host: docker-default, or one that the operator allows"),
]

Level = Annotated[
    Text,
    Field(pattern=r"^s[0-9]{1,2}(-s[0-9]{1,2})?(:c[0-9]{1,4}([.,]c[0-9]{1,4}){0,15})?$"),
    Form("a level, such as s0:c1,c2"),
]
Type = Annotated[Text, Field(pattern=r"^[a-z][a-z0-9_]{0,60}_t$"), Form("a type, such as container_t")]


class SELinuxOptions(Model):
    """The SELinux label of the sandbox's processes. `level` separates it from others; `type` sets its permissions."""

    level: Level | None = None
    type: Type | None = None
