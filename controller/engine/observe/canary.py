"""Canary: two short-lived containers that try connections which no sandbox may make.

One is on a sealed bridge, one on a guarded bridge, like sandboxes; both run only a waiting shell. Sockets in their
networks try listeners of this host on each of its addresses, the metadata service, hosts of the local network, and each
other. They are created by the same rules as sandboxes, and removed after the run; leftovers of a killed daemon are
removed by the next run.

Their bridges stay while a canary is needed: an engine (20.10) that is stopped during the removal of a network does not
start again, so networks are not created and removed for each run.

guard_watch.py sees within a moment that rules are gone; only this is the proof from inside that those which are there
hold, whatever other tables, bridges and kernels do with packets before them.
"""

import errno
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.create_config import create_body
from controller.engine.docker.errors import Fault, advised
from controller.engine.docker.networks import body
from controller.engine.docker.seccomp import NoProfile, profile
from controller.engine.kernel.network_namespace import NetworkUnreachable, socket_in
from controller.kinds.observed.canary import CanaryTry
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.network import NetworkConfig

LABEL = "paddock.canary"  # not `paddock.instance`: a canary is not a sandbox
METADATA = ("169.254.169.254", 80)
_SECONDS = 1.0
_MOST_ADDRESSES, _MOST_SUBNETS = 16, 32
_LOCAL, _ROUTES, _RESOLVERS = Path("/proc/self/net/fib_trie"), Path("/proc/self/net/route"), Path("/etc/resolv.conf")
# Ports to try on hosts of the local network; a refused connection is an answer, too.
_PRIVATE = tuple(IPv4Network(network) for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
_PRIVATE_PORTS = (80, 443)
_MOST_PRIVATE = 4


class DockerCanary:
    """ports.Canary over one engine. One run at a time; thread-safe."""

    def __init__(self, instance_id: str, client: Client) -> None:
        self._instance_id, self._client = instance_id, client
        self._lock = threading.Lock()
        short_id = instance_id.replace("-", "")[:8]
        self._open, self._sealed = f"pdp-c-{short_id}", f"pdx-c-{short_id}"

    def observe_now(self, config: ContainerConfig, range_: str) -> CanaryTry:
        """Run with containers like `config`, on networks of that range (CIDR). Never raises; takes some seconds."""
        with self._lock:
            try:
                self._remove_containers()
                return self._tried(config, range_)
            except Fault as fault:
                return CanaryTry(trouble=advised(fault))
            except (NetworkUnreachable, NoProfile, OSError) as error:
                return CanaryTry(trouble=str(error))
            finally:
                with suppress(Fault):
                    self._remove_containers()

    def clean(self) -> None:
        """Remove all leftovers of runs, including the bridges. Never raises."""
        with self._lock, suppress(Fault):
            self._remove_containers()
            for row in self._networks():
                self._drop("networks.remove", lambda api, id_=row["Id"]: api.remove_network(id_))

    def _remove_containers(self) -> None:
        label = {"label": [f"{LABEL}={self._instance_id}"]}
        for row in self._client.call("containers.list", lambda api: api.containers(all=True, filters=label)):
            self._drop("containers.remove", lambda api, id_=row["Id"]: api.remove_container(id_, force=True, v=True))

    def _networks(self) -> list[Any]:
        label = {"label": [f"{LABEL}={self._instance_id}"]}
        networks: list[Any] = self._client.call("networks.list", lambda api: api.networks(filters=label))
        return networks

    def _drop(self, operation: str, do: Any) -> None:
        try:
            self._client.call(operation, do)
        except Fault as fault:
            if not fault.is_gone:
                raise

    def _tried(self, config: ContainerConfig, range_: str) -> CanaryTry:
        labels = {LABEL: self._instance_id}
        with ExitStack() as sockets:
            containers, existing_names = [], {network["Name"] for network in self._networks()}
            for name in (self._open, self._sealed):
                if name not in existing_names:
                    self._make_network(name, range_, labels, sealed=name == self._sealed)
                containers.append(self._start(name, replace(config, network_mode=name), labels))
            aims = [*_host(sockets, range_), (*METADATA, "the metadata service"), *_local_network(range_)]
            listeners = [_listener(sockets, container) for container in containers]
            attempts = []
            for container, mine in zip(containers, listeners, strict=True):
                siblings = ((*listener, "another sandbox's network") for listener in listeners if listener != mine)
                attempts += [(container, address, port, what) for address, port, what in (*aims, *siblings)]
            controls = [(container, *mine, "") for container, mine in zip(containers, listeners, strict=True)]
            with ThreadPoolExecutor(32, thread_name_prefix="canary") as pool:
                answered = list(pool.map(lambda attempt: _answers(*attempt[:3]), [*attempts, *controls]))
        if not all(answered[len(attempts) :]):
            return CanaryTry(trouble="the canary can't even reach itself, so its result means nothing")
        reached = [attempt for attempt, open_ in zip(attempts, answered, strict=False) if open_]
        return CanaryTry(
            tuple(f"{what} ({address}) from {container.network}" for container, address, _, what in reached)
        )

    def _make_network(self, name: str, range_: str, labels: Mapping[str, str], *, sealed: bool) -> None:
        """Create a network on the last free subnet of the range; sandboxes' subnets may be anywhere in it."""
        fault: Fault | None = None
        for subnet in _last_subnets(range_):
            network_body = body(NetworkConfig(name, subnet, sealed=sealed), labels)
            try:
                self._client.call("networks.create", _creating(network_body))
            except Fault as refused:
                if "overlap" not in refused.message.lower():
                    raise
                fault = refused
                continue
            return
        raise fault or NetworkUnreachable(
            f"{range_} has no free subnet for a canary; set a larger PADDOCK_NETWORK_RANGE"
        )

    def _start(self, network: str, config: ContainerConfig, labels: Mapping[str, str]) -> "_Canary":
        seccomp = profile(config.seccomp) if config.seccomp else ""
        # Its shell waits on an open stdin without input.
        container_body = {**create_body(config, labels, config.image, seccomp), "OpenStdin": True}
        name = f"{config.name}-{network}"
        id_ = self._client.post("containers.create", f"/containers/create?name={name}", container_body)["Id"]
        self._client.call("containers.start", lambda api: api.start(id_))
        answer = self._client.call("containers.inspect", lambda api: api.inspect_container(id_))
        address = answer["NetworkSettings"]["Networks"][network]["IPAddress"]
        return _Canary(str(id_), int(answer["State"]["Pid"]), network, str(address))


class _Canary:
    """A running canary container."""

    def __init__(self, id_: str, pid: int, network: str, address: str) -> None:
        self.id, self.pid, self.network, self.address = id_, pid, network, address

    def socket(self) -> socket.socket:
        """Create a socket in its network. Raises NetworkUnreachable."""
        return socket_in(self.pid, self.id)


def _creating(network_body: Mapping[str, Any]) -> Callable[[Any], Any]:
    return lambda api: api.create_network(**network_body)


def _listener(sockets: ExitStack, container: _Canary) -> tuple[str, int]:
    """Listen in its network; return address and port."""
    link = sockets.enter_context(container.socket())
    link.bind((container.address, 0))
    link.listen(8)
    return container.address, link.getsockname()[1]


def _host(sockets: ExitStack, range_: str) -> Iterator[tuple[str, int, str]]:
    """Listen on this host's addresses, up to a limit; yield the targets."""
    for address in _addresses(_LOCAL.read_text(), range_)[:_MOST_ADDRESSES]:
        with suppress(OSError):  # the address may be gone by now
            link = sockets.enter_context(socket.socket())
            link.bind((address, 0))
            link.listen(8)
            yield address, link.getsockname()[1], "this host"


def _addresses(fib_trie: str, range_: str) -> list[str]:
    """Return the host's addresses except loopback, from the kernel's routing table; sandboxes' bridges last."""
    addresses: list[str] = []
    last = ""
    for line in fib_trie.splitlines():
        tokens = line.split()
        if "LOCAL" in tokens and "/32" in tokens and not last.startswith("127.") and last not in addresses:
            addresses.append(last)
        if tokens and tokens[0] == "|--":
            last = tokens[1]
    return sorted(addresses, key=lambda address: IPv4Address(address) in IPv4Network(range_))


def _local_network(range_: str) -> Iterator[tuple[str, int, str]]:
    """Yield targets on known private hosts: this host's routers and name servers."""
    own_addresses = (*_addresses(_LOCAL.read_text(), range_), "127.0.0.1")
    resolvers = _RESOLVERS.read_text() if _RESOLVERS.exists() else ""
    for address in _private_hosts(_ROUTES.read_text(), resolvers, own_addresses, range_)[:_MOST_PRIVATE]:
        yield from ((address, port, "the local network") for port in _PRIVATE_PORTS)


def _private_hosts(routes: str, resolvers: str, own_addresses: Collection[str], range_: str) -> list[str]:
    """Return private gateways of /proc/net/route and private name servers of resolv.conf, except this host."""
    rows = [line.split() for line in routes.splitlines()[1:]]
    gateways = [str(IPv4Address(socket.ntohl(int(row[2], 16)))) for row in rows if len(row) > 2 and int(row[2], 16)]
    name_servers = [
        tokens[1] for line in resolvers.splitlines() if len(tokens := line.split()) > 1 and tokens[0] == "nameserver"
    ]
    hosts = [host for host in (*gateways, *name_servers) if host not in own_addresses and _is_private(host)]
    return [host for host in dict.fromkeys(hosts) if IPv4Address(host) not in IPv4Network(range_)]


def _is_private(address: str) -> bool:
    try:
        return any(IPv4Address(address) in private_network for private_network in _PRIVATE)
    except AddressValueError:
        return False


def _last_subnets(range_: str) -> Iterator[str]:
    network = IPv4Network(range_)
    for number in range(1, min(_MOST_SUBNETS, network.num_addresses // 16) + 1):
        yield f"{network.broadcast_address + 1 - 16 * number}/28"


def _answers(container: _Canary, address: str, port: int) -> bool:
    """Tell whether a connection from within its network is answered: accepted or refused.

    The guard drops silently, before any rule of the host's refuses. A missing route is no answer.
    """
    with container.socket() as link:
        link.settimeout(_SECONDS)
        return link.connect_ex((address, port)) in (0, errno.ECONNREFUSED)
