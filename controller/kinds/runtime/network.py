"""Paddock's own bridges: configuration and observed state. A bridge is never changed, only created and removed."""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.kinds.runtime.container import stable_hash


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Configuration of a bridge. `name` is the kernel's interface name too: at most 15 characters.

    `subnet` is its address range (CIDR), `handed_out` the part for containers without an explicit address ("": all of
    it). `sealed`: no traffic in or out, and no host address on it. Containers on another bridge reach the outside, but
    not each other.
    """

    name: str
    subnet: str
    handed_out: str = ""
    sealed: bool = True

    def hash(self) -> str:
        return stable_hash(self)


@dataclass(frozen=True, slots=True)
class FirewallState:
    """Observed state of the host's firewall rules for networks.

    `words` say why nothing may rely on them ("": in force). `lost`: they were read, and are missing or incomplete.
    Otherwise a message means that they could not be read. `resolvers` are the name servers that they let through.
    """

    words: str = ""
    lost: bool = False
    resolvers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Network:
    """One of our bridges as the engine has it. `uid` is that of its object ("": shared by many)."""

    id: str
    name: str
    uid: str
    role: str
    config_hash: str
    subnet: str
    namespace: str = ""
    object_name: str = ""


@dataclass(frozen=True, slots=True)
class EnsureNetwork:
    """Create the bridge, unless it exists as configured. One of ours that differs is recreated if it is empty."""

    uid: str
    config: NetworkConfig
    labels: Mapping[str, str]
    why: str

    @property
    def name(self) -> str:
        return self.config.name

    def __str__(self) -> str:
        kind = "sealed" if self.config.sealed else "guarded"
        return f"make-network {self.config.name} {kind} {self.config.subnet}"


@dataclass(frozen=True, slots=True)
class RemoveNetwork:
    """Remove an unused bridge. A missing bridge is a success."""

    uid: str
    name: str
    why: str

    def __str__(self) -> str:
        return f"remove-network {self.name}"
