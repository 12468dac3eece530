"""The bridge that joins the sandboxes of one namespace that ask for it. Pure.

web -- pdx-n<id> (sealed /24) -- db

It is sealed like their own bridges: no host address, no egress, no route. Each sandbox keeps its own bridge and its own
proxy besides it. A sandbox that forwards traffic for another is not prevented.
"""

from controller.kinds.common.labels import peers_name
from controller.kinds.runtime.network import NetworkConfig

ROLE = "peers"
DOMAIN = "peers.internal"  # no outside resolver knows these names, and no proxy is used for them
PREFIX = 24


def bridge(namespace: str, subnet: str) -> NetworkConfig:
    """Return the bridge of that namespace on that subnet."""
    return NetworkConfig(peers_name(namespace), subnet, sealed=True)


def names(name: str) -> tuple[str, ...]:
    """Return a sandbox's names on that bridge. Programs that use a proxy find it by the longer one alone."""
    return name, f"{name}.{DOMAIN}"
