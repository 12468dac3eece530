"""Security fields of a spec that narrow a security level, and that profiles are made of."""

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
    """Network access."""

    mode: NetworkMode
    """none: no network. sealed: listed host names, through a proxy of its own. public: the Internet."""


class Narrowing(Model):
    """Restrictions of a level. A field left out leaves the level as it is."""

    capabilities: Annotated[tuple[Capability, ...] | None, Field(max_length=64)] = None
    """Capabilities of the level to keep; an empty list keeps none."""
    no_new_privileges: Flag | None = None
    """True: setuid programs gain no privileges."""
    read_only_root_filesystem: Flag | None = None
    """True: only volumes and tmpfs folders are writable, such as /tmp and /workspace."""
    seccomp_profile: SeccompName | None = None
    """One of Paddock's own seccomp profiles."""
    network: NetworkReach | None = None
    """Network access."""


class Security(Narrowing):
    """Narrows the security level, field by field; anything that would widen it is refused."""

    run_as_non_root: Flag | None = None
    """True: refuse root. A spec without a user gets an id that no host user has."""
