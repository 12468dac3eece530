"""The bridge on which those sandboxes of one namespace are joined that ask for it. Pure.

    web -- pdx-n<id> (sealed /24) -- db

It is sealed as their own bridges are, and leads nowhere else: no address of the host's, no way out, no route. Each of
them keeps its own bridge beside it, and its own proxy. What one passes on for another is its own affair.
"""

from controller.kinds.common.labels import peers_name
from controller.kinds.runtime.network import NetworkConfig

ROLE = "peers"
DOMAIN = "peers.internal"  # of names that no resolver outside knows, and that no proxy is asked for
PREFIX = 24


def bridge(namespace: str, subnet: str) -> NetworkConfig:
    """The bridge of that namespace on that subnet."""
    return NetworkConfig(peers_name(namespace), subnet, sealed=True)


def names(name: str) -> tuple[str, ...]:
    """What a sandbox of that name is called there. Programs that heed a proxy find it by the longer one alone."""
    return name, f"{name}.{DOMAIN}"
