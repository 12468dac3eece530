"""What a spec may say of its own confinement: what narrows a security level, and profiles are made of."""

from typing import Annotated, Literal

from pydantic import Field

from controller.kinds.base import Flag, Form, Model, Text

NetworkMode = Literal["none", "sealed", "public"]
SeccompName = Literal["minimal", "standard", "log-only"]
Capability = Annotated[
    Text,
    Field(min_length=1, max_length=32, pattern=r"^[A-Z][A-Z_]*$"),
    Form("a capability's name in capitals, without CAP_, such as NET_BIND_SERVICE"),
]


class NetworkReach(Model):
    """What it can reach."""

    mode: NetworkMode
    """none: only itself; sealed: listed names, through a proxy of its own; public: the Internet."""


class Narrowing(Model):
    """What is left out is as it is without this."""

    capabilities: Annotated[tuple[Capability, ...] | None, Field(max_length=64)] = None
    """Those of the level that it keeps; an empty list: none."""
    no_new_privileges: Flag | None = None
    """Whether setuid programs give it nothing."""
    read_only_root_filesystem: Flag | None = None
    """Whether it can write in volumes and tmpfs folders only; /tmp and /workspace are such."""
    seccomp_profile: SeccompName | None = None
    """The list of system calls that it may make, of Paddock's own."""
    network: NetworkReach | None = None
    """What it can reach."""


class Security(Narrowing):
    """Narrows the security level, field by field; whatever would widen it is refused."""

    run_as_non_root: Flag | None = None
    """Whether root is refused; a spec that names no user then has an id that no host user has."""
