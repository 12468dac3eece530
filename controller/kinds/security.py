"""What a spec may say of its own confinement: what narrows a security level, and profiles are made of."""

from typing import Annotated, Literal

from pydantic import Field

from controller.kinds.base import Flag, Model, Text

NetworkMode = Literal["none", "sealed", "public"]
SeccompName = Literal["minimal", "standard", "log-only"]
Capability = Annotated[
    Text,
    Field(
        min_length=1,
        max_length=32,
        pattern=r"^[A-Z][A-Z_]*$",
        description="a capability's name in capitals, without CAP_, such as NET_BIND_SERVICE",
    ),
]


class NetworkReach(Model):
    """What it can reach."""

    mode: NetworkMode


class Narrowing(Model):
    """What is left out is as it is without this."""

    capabilities: Annotated[tuple[Capability, ...] | None, Field(max_length=64)] = None
    no_new_privileges: Flag | None = None
    read_only_root_filesystem: Flag | None = None
    seccomp_profile: SeccompName | None = None
    network: NetworkReach | None = None


class Security(Narrowing):
    """Narrows the security level, field by field; whatever would widen it is refused."""

    run_as_non_root: Flag | None = None
