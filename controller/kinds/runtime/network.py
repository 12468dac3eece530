"""Paddock's own bridges: configuration and observed state. A bridge is never changed, only created and removed."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import ClassVar

from controller.kinds.runtime.container import stable_hash

RULES_LOST = "EngineRulesLost"
RESTART = "restart the engine (`systemctl restart docker`), which writes them again"


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

    `message` says why nothing may rely on them ("": in force). `lost`: they were read, and are missing or incomplete.
    Otherwise a message means that they could not be read. `resolvers` are the name servers that they let through,
    `upstreams` the upstream proxies (`ADDRESS . PORT`).
    """

    message: str = ""
    lost: bool = False
    resolvers: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineRules:
    """The engine's firewall rules, as read. Connections of the sources `translated` leave with the host's address.

    `forwarded` are the bridges whose traffic is passed on; `forwards_all`: what no rule drops is. `unread` is why some
    could not be read ("": they were).
    """

    translated: frozenset[IPv4Network] = frozenset()
    forwarded: frozenset[str] = frozenset()
    forwards_all: bool = True
    unread: str = ""

    def translates(self, subnet: str) -> bool:
        """Return True if the connections of that subnet leave with the host's address."""
        network = IPv4Network(subnet)
        return network in self.translated or any(network.subnet_of(subnet_range) for subnet_range in self.translated)

    def leads_out(self, bridge: str, subnet: str) -> bool | None:
        """Return True if the bridge leads to the Internet; None: that is not known."""
        leads = (self.forwards_all or bridge in self.forwarded) and self.translates(subnet)
        return None if not leads and self.unread else leads


@dataclass(frozen=True, slots=True)
class Network:
    """One of our bridges, as the engine has it."""

    id: str
    """Engine's id."""
    name: str
    """Name."""
    uid: str
    """Uid of its object; empty: many share it."""
    role: str
    """Role: sealed, uplink and the like."""
    config_hash: str
    """Hash of the config that it was created from."""
    subnet: str
    """Subnet (CIDR)."""
    namespace: str = ""
    """Namespace of its object."""
    object_name: str = ""
    """Name of its object."""
    is_linked: bool = True
    """The kernel has it, too."""
    leads_out: bool | None = True
    """The engine's rules let it reach the Internet; None: unknown. A sealed one is not asked for that."""


@dataclass(frozen=True, slots=True)
class EnsureNetwork:
    """Create the bridge, unless it exists as configured. One of ours that differs is recreated if it is empty."""

    verb: ClassVar[str] = "make-network"

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

    verb: ClassVar[str] = "remove-network"

    uid: str
    name: str
    why: str

    def __str__(self) -> str:
        return f"remove-network {self.name}"
