"""Bridges of ours: seen by one list, made and removed by name. Docker's networks are made twice as readily as once.

The kernel's name of a bridge is the lock: the engine refuses a second bridge of one name. Networks of others are never
touched, whatever they are called.
"""

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from docker.types import IPAMConfig, IPAMPool

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.observe.view import View
from controller.kinds.common import labels as own
from controller.kinds.planning.outcome import Ok, Outcome, Transient, Waiting
from controller.kinds.runtime.network import EnsureNetwork, Network, NetworkConfig, RemoveNetwork

SUBNET_TAKEN = "SubnetTaken"
_BUSY_SECONDS = 1.0
_BRIDGE = "com.docker.network.bridge."


class Networks:
    """Thread-safe. Only one thread at a time makes, removes or lists, so that a list never undoes what is newer."""

    def __init__(self, instance_id: str, client: Client, view: View) -> None:
        self._instance_id, self._client, self._view = instance_id, client, view
        self._lock = threading.Lock()

    def look(self) -> None:
        """All bridges of ours, into the view. Raises Fault."""
        with self._lock:
            self._look()

    def ensure(self, action: EnsureNetwork) -> Outcome:
        """Make the bridge if it is not there as wanted. Raises Fault."""
        wanted = action.labels[own.CONFIG_HASH]
        with self._lock:
            found = self._look().get(action.name)
            if found is not None and (found.uid, found.config_hash) == (action.uid, wanted):
                return Ok()
            if found is not None and found.uid != action.uid:
                return _taken(action.name, f"the object with uid {found.uid}")
            if found is not None:
                refused = self._drop(found)
                if refused is not None:
                    return refused
            outcome = self._make(action)
            self._look()
            return outcome

    def remove(self, action: RemoveNetwork) -> Outcome:
        """Remove the bridge if it is ours and that object's. Raises Fault."""
        with self._lock:
            found = self._look().get(action.name)
            if found is None:
                return Ok()
            if found.uid != action.uid:
                return _taken(action.name, f"the object with uid {found.uid or '(many)'}")
            refused = self._drop(found)
            self._look()
            return refused or Ok()

    def _look(self) -> Mapping[str, Network]:
        label = f"{own.INSTANCE}={self._instance_id}"
        rows = self._client.call("networks.list", lambda api: api.networks(filters={"label": [label]}))
        found = {each.name: each for each in map(_network, rows)}
        self._view.networks(MappingProxyType(found))
        return found

    def _make(self, action: EnsureNetwork) -> Outcome:
        try:
            self._client.call("networks.create", lambda api: api.create_network(**body(action.config, action.labels)))
        except Fault as fault:
            if fault.unreachable:
                raise
            if "overlap" in fault.words.lower():
                words = f"{action.config.subnet} is in use on this host already: {fault.words}"
                return Transient(SUBNET_TAKEN, words)
            if fault.status == 409 or "already exists" in fault.words or "same bridge name" in fault.words:
                return _taken(action.name, "somebody else")
            raise
        return Ok()

    def _drop(self, network: Network) -> Outcome | None:
        """Remove it; None: it is gone."""
        try:
            self._client.call("networks.remove", lambda api: api.remove_network(network.id))
        except Fault as fault:
            if fault.gone:
                return None
            if fault.status == 403 or "active endpoints" in fault.words:
                return Waiting(_BUSY_SECONDS, "NetworkInUse", f"{network.name}: {fault.words}")
            raise
        return None


def body(config: NetworkConfig, labels: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of docker-py's create_network. A sealed bridge gives the host no address: it is out of reach."""
    options = {
        f"{_BRIDGE}name": config.name,
        # Between egress containers there is nothing to say; on a sealed bridge the box speaks with its proxy.
        f"{_BRIDGE}enable_icc": "true" if config.sealed else "false",
        f"{_BRIDGE}enable_ip_masquerade": "false" if config.sealed else "true",
    }
    if config.sealed:
        options[f"{_BRIDGE}inhibit_ipv4"] = "true"
    pool = IPAMPool(subnet=config.subnet, iprange=config.handed_out or None)
    return {
        "name": config.name,
        "driver": "bridge",
        "options": options,
        "ipam": IPAMConfig(pool_configs=[pool]),
        "check_duplicate": True,
        "internal": config.sealed,
        "labels": dict(labels),
        "enable_ipv6": False,
    }


def _network(row: Mapping[str, Any]) -> Network:
    labels = row.get("Labels") or {}
    pools = (row.get("IPAM") or {}).get("Config") or [{}]
    return Network(
        id=str(row["Id"]),
        name=str(row["Name"]),
        uid=labels.get(own.UID, ""),
        role=labels.get(own.ROLE, ""),
        config_hash=labels.get(own.CONFIG_HASH, ""),
        subnet=str(pools[0].get("Subnet", "")),
        namespace=labels.get(own.NAMESPACE, ""),
        object_name=labels.get(own.NAME, ""),
    )


def _taken(name: str, holder: str) -> Outcome:
    words = f"the network {name} belongs to {holder}; remove that one (`docker network rm {name}`)"
    return Transient("NameConflict", words)
