"""A sandbox's own firewalled bridge with access to the Internet and, if requested, the local network.

sandbox -- pdp-<id> or pdl-<id> (/28, masqueraded) -- the firewall (inet paddock) -- Internet

The firewall rules block this host, special and private ranges, and other sandboxes, by the bridge's name. They are in
force before any bridge of that name exists.
"""

from dataclasses import dataclass, replace

from controller.kinds.common.labels import local_name, public_name
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.network import NetworkConfig
from controller.kinds.sandbox import NetworkSpec


@dataclass(frozen=True, slots=True)
class Open:
    """The bridge that a sandbox needs; `local`: with access to the local network, too."""

    network: str
    local: bool = False

    def bridge(self, subnet: str) -> NetworkConfig:
        """Return the bridge on that subnet."""
        return NetworkConfig(self.network, subnet, sealed=False)


def behind(config: ContainerConfig, way: Open) -> ContainerConfig:
    """Return the sandbox's container config on its bridge; the engine resolves names."""
    return replace(config, network_mode=way.network, dns=())


def opened(uid: str, network: NetworkSpec) -> Open:
    """Return the bridge of that object."""
    local = network.local_network == "Allowed"
    return Open(local_name(uid) if local else public_name(uid), local)
