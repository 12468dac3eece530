"""A guarded bridge of a sandbox's own, with the Internet behind it and, where that is asked for, the local network.

    sandbox -- pdp-<id> or pdl-<id> (/28, masqueraded) -- the guard (inet paddock) -- Internet

What it may not reach (this host, special and private ranges, other sandboxes) is the guard's part, by the bridge's
name: the rules are in force before there is any bridge of that name.
"""

from dataclasses import dataclass, replace

from controller.kinds.common.labels import local_name, public_name
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.network import NetworkConfig
from controller.kinds.sandbox import NetworkSpec


@dataclass(frozen=True, slots=True)
class Open:
    """The bridge that a sandbox needs; `local`: it leads into the local network, too."""

    network: str
    local: bool = False

    def bridge(self, subnet: str) -> NetworkConfig:
        """The bridge on that subnet."""
        return NetworkConfig(self.network, subnet, sealed=False)


def behind(config: ContainerConfig, way: Open) -> ContainerConfig:
    """The sandbox's container on its bridge; names are the engine's to resolve."""
    return replace(config, network_mode=way.network, dns=())


def opened(uid: str, network: NetworkSpec) -> Open:
    """The bridge of that object."""
    local = network.local_network == "Allowed"
    return Open(local_name(uid) if local else public_name(uid), local)
