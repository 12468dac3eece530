"""Bridge networks of this instance: listed, created and removed by name.

Docker allows two networks of one name, so the kernel's name of the bridge is the lock: the engine refuses a second one.
Foreign networks are never touched, whatever their name.
"""

import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from docker.types import IPAMConfig, IPAMPool

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.docker.view import View
from controller.kinds.common import labels as own
from controller.kinds.planning.outcome import Ok, Outcome, Transient, Waiting
from controller.kinds.runtime.network import EnsureNetwork, Network, NetworkConfig, RemoveNetwork
from controller.ports import Firewall

SUBNET_TAKEN = "SubnetTaken"
_BUSY_SECONDS = 1.0
_SEALED = "pdx"
_BRIDGE = "com.docker.network.bridge."


class Networks:
    """Bridges of this instance. Thread-safe: one call at a time, so that a list never overwrites newer data."""

    def __init__(self, instance_id: str, client: Client, view: View, firewall: Firewall | None = None) -> None:
        """Without a `firewall`, the engine's kernel is not this host's: what it has is not known."""
        self._instance_id, self._client, self._view, self._firewall = instance_id, client, view, firewall
        self._lock, self._showing = threading.Lock(), threading.Lock()
        self._listed: Mapping[str, Network] = {}
        self._leads_out: Mapping[str, bool | None] = {}  # by id, of those that were listed at the last reading

    def observe_now(self) -> None:
        """List all our bridges into the view, and read the engine's rules for them. Raises Fault."""
        with self._lock:
            self._look()
        self.read_rules()

    def read_rules(self) -> None:
        """Read which of the listed bridges lead out. One that is made later counts as such until the next reading."""
        with self._showing:
            open_ = {network.id: network for network in self._listed.values() if not network.name.startswith(_SEALED)}
            if self._firewall is None or not open_:
                self._leads_out = {}
            else:
                rules = self._firewall.engine_rules({network.subnet for network in open_.values() if network.subnet})
                self._leads_out = {id_: rules.leads_out(network.name, network.subnet) for id_, network in open_.items()}
            self._show()

    def ensure(self, action: EnsureNetwork) -> Outcome:
        """Create the bridge, or replace one of another configuration. Raises Fault."""
        desired = action.labels[own.CONFIG_HASH]
        with self._lock:
            stored = self._look().get(action.name)
            if stored is not None and (stored.uid, stored.config_hash, stored.is_linked) == (action.uid, desired, True):
                return Ok()
            if stored is not None and stored.uid != action.uid:
                return _name_conflict(action.name, f"the object with uid {stored.uid}")
            if stored is not None:
                refusal = self._drop(stored)
                if refusal is not None:
                    return refusal
            outcome = self._make(action)
            self._look()
            return outcome

    def remove(self, action: RemoveNetwork) -> Outcome:
        """Remove the bridge of that object. Raises Fault."""
        with self._lock:
            stored = self._look().get(action.name)
            if stored is None:
                return Ok()
            if stored.uid != action.uid:
                return _name_conflict(action.name, f"the object with uid {stored.uid or '(many)'}")
            refusal = self._drop(stored)
            self._look()
            return refusal or Ok()

    def _look(self) -> Mapping[str, Network]:
        label = f"{own.INSTANCE}={self._instance_id}"
        rows = self._client.call("networks.list", lambda api: api.networks(filters={"label": [label]}))
        with self._showing:
            self._listed = {network.name: network for network in map(_network, rows)}
            return self._show()

    def _show(self) -> Mapping[str, Network]:
        """Put the listed bridges into the view, with what this host's kernel has of them."""
        links = {name for _, name in socket.if_nameindex()} if self._firewall is not None else None
        networks = {
            name: replace(
                network, is_linked=links is None or name in links, leads_out=self._leads_out.get(network.id, True)
            )
            for name, network in self._listed.items()
        }
        self._view.networks(MappingProxyType(networks))
        return networks

    def _make(self, action: EnsureNetwork) -> Outcome:
        try:
            self._client.call("networks.create", lambda api: api.create_network(**body(action.config, action.labels)))
        except Fault as fault:
            if fault.unreachable:
                raise
            if "overlap" in fault.message.lower():
                message = f"subnet {action.config.subnet}: already in use on this host: {fault.message}"
                return Transient(SUBNET_TAKEN, message)
            if fault.status == 409 or "already exists" in fault.message or "same bridge name" in fault.message:
                return _name_conflict(action.name, "another owner")
            raise
        return Ok()

    def _drop(self, network: Network) -> Outcome | None:
        """Remove it; return None once it is gone."""
        try:
            self._client.call("networks.remove", lambda api: api.remove_network(network.id))
        except Fault as fault:
            if fault.is_gone:
                return None
            if fault.status == 403 or "active endpoints" in fault.message:
                return Waiting(_BUSY_SECONDS, "NetworkInUse", f"{network.name}: {fault.message}")
            raise
        return None


def body(config: NetworkConfig, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of docker-py's create_network. The host has no address on a sealed bridge."""
    options = {
        f"{_BRIDGE}name": config.name,
        # Egress containers never talk to each other; on a sealed bridge the sandbox talks to its proxy.
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


def _name_conflict(name: str, holder: str) -> Outcome:
    message = f"the network {name} belongs to {holder}; remove it (`docker network rm {name}`)"
    return Transient("NameConflict", message)
