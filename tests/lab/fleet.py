"""Three Docker hosts on one switch, and a PostgreSQL that all of them reach.

    one, two, three: network, mount and UTS namespaces, with an engine of its own each --veth-- `switch`: PostgreSQL

Each host has its own address, hostname, data root, state folder and mounts, so that three daemons of one store do not
meet in the file system. Hosts can be cut off the switch, and their engines ended, killed and frozen. Needs root.

    with fleet() as hosts:
        hosts.form_swarm()
        hosts["two"].cut(); hosts["two"].mend()
        daemon = hosts["two"].daemon()
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.daemon import RunningDaemon, start_daemon, wait_for
from tests.lab.engine import Namespaces, PrivateEngine
from tests.lab.postgres import Postgres, postgres

NAMES = ("one", "two", "three")
TINY = "paddock/test-tiny:1"
SWITCH = "192.0.2.1"
_STORE = "postgresql+psycopg://"
_TOOLS = ("nsenter", "unshare", "ip", "dockerd", "iptables", "hostname")


def impossible() -> str:
    """Return the reason that the lab can't be created here; "" if it can."""
    if os.geteuid() != 0:
        return "a lab of several hosts needs root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"a lab of several hosts needs {', '.join(missing)}" if missing else ""


@dataclass
class FleetHost:
    """One host: `engine` may be ended and started, `daemons` are those that were started on it."""

    name: str
    address: str
    folder: Path
    engine: PrivateEngine
    fleet: "Fleet"
    node_id: str = ""  # in the swarm
    daemons: list[RunningDaemon] = field(default_factory=list)

    @property
    def namespaces(self) -> Namespaces:
        return self.engine.namespaces

    def docker(self, *arguments: str, check: bool = True, seconds: float = 120.0) -> str:
        return self.engine.docker(*arguments, check=check, seconds=seconds)

    def cut(self) -> None:
        """Partition: no packet leaves or reaches it, and no connection is reset."""
        self.fleet.switch.run("ip", "link", "set", f"to-{self.name}", "down")

    def mend(self) -> None:
        """Undo `cut`."""
        self.fleet.switch.run("ip", "link", "set", f"to-{self.name}", "up")

    @contextmanager
    def without_ports(self, *ports: int) -> Iterator[None]:
        """Partition of one kind: packets to and from these TCP and UDP ports of other machines are dropped."""
        rules = [
            (chain, *("-p", protocol, way, str(port), *("-i" if chain == "INPUT" else "-o", "eth0"), *("-j", "DROP")))
            for port in ports
            for protocol in ("tcp", "udp")
            for chain in ("INPUT", "OUTPUT")
            for way in ("--dport", "--sport")
        ]
        for rule in rules:
            self.namespaces.run("iptables", "-I", *rule)
        try:
            yield
        finally:
            for rule in rules:
                self.namespaces.run("iptables", "-D", *rule)

    def power_off(self) -> None:
        """End its daemons, its engine and all containers at once; `start` starts the engine again."""
        for daemon in self.daemons:
            daemon.kill()
        self.engine.crash_host()

    def daemon(self, *, ready: bool = True, folder: Path | None = None, **settings: str) -> RunningDaemon:
        """Start `paddock serve` on this host over its engine and the fleet's database; of a folder, one at a time.

        It runs in the host's namespaces: what it mounts is not seen by another host. It is ended with the lab.
        """
        folder = folder or self.folder / "paddock"
        started = start_daemon(
            folder,
            ready=ready,
            prefix=self.namespaces.enter(),
            **{
                "PADDOCK_DOCKER_HOST": self.engine.base_url,
                "PADDOCK_DATABASE_URL": self.fleet.database_url,
                "PADDOCK_HOST_NAME": self.name,
                "PADDOCK_SCHEDULER": "manual",
                **settings,
            },
        )
        self.daemons.append(started)
        return started


@dataclass
class Fleet:
    """The hosts by name; `database_url` is the one that is reached from each of them."""

    folder: Path
    switch: Namespaces
    database: Postgres
    hosts: dict[str, FleetHost] = field(default_factory=dict)

    @property
    def database_url(self) -> str:
        return self.database.network_url

    def __getitem__(self, name: str) -> FleetHost:
        return self.hosts[name]

    def __iter__(self) -> Iterator[FleetHost]:
        return iter(self.hosts.values())

    def form_swarm(self, managers: int = 3, *, heartbeat: str = "1s") -> None:
        """Make the engines one swarm: the first `managers` hosts are its managers. A worker is missed in 3 heartbeats.

        Each node has the label `paddock.host`, its host's name.
        """
        first, *fleet_hosts = self
        pool = ("--default-addr-pool", "10.201.0.0/16", "--dispatcher-heartbeat", heartbeat)
        where = ("--listen-addr", first.address, "--advertise-addr", first.address)
        first.docker("swarm", "init", *where, *pool)
        for at, fleet_host in enumerate(fleet_hosts, start=1):
            token = first.docker("swarm", "join-token", "-q", "manager" if at < managers else "worker")
            where = ("--listen-addr", fleet_host.address, "--advertise-addr", fleet_host.address)
            fleet_host.docker("swarm", "join", "--token", token, *where, f"{first.address}:2377")
        for entry in self:
            entry.node_id = entry.docker("info", "--format", "{{.Swarm.NodeID}}")
            first.docker("node", "update", "--label-add", f"paddock.host={entry.name}", entry.node_id)
        wait_for("every node is ready", lambda: set(self.nodes(first).values()) == {"ready"})

    def nodes(self, asked: FleetHost) -> dict[str, str]:
        """Return the state of each node (ready, down, unknown), by hostname, as a manager has it."""
        output = asked.docker("node", "inspect", *asked.docker("node", "ls", "-q").split())
        return {entry["Description"]["Hostname"]: entry["Status"]["State"] for entry in json.loads(output)}

    def leader(self) -> FleetHost:
        """Return the host whose engine leads the swarm, as the first manager that answers says."""

        def found() -> FleetHost | None:
            for fleet_host in self:
                with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
                    ids = fleet_host.docker("node", "ls", "-q", check=False, seconds=20).split()
                    listed: list[Any] = json.loads(fleet_host.docker("node", "inspect", *ids, check=False) or "[]")
                    for node in listed:
                        if node.get("ManagerStatus", {}).get("Leader"):
                            return next(host for host in self if host.node_id == node["ID"])
            return None

        led: FleetHost = wait_for("the swarm has a leader", found)
        return led

    def close(self) -> None:
        """End all daemons and engines, and remove the namespaces, whatever fails on the way."""
        with contextlib.ExitStack() as last:
            for fleet_host in self:
                last.callback(fleet_host.namespaces.close)
            _at_once(_end, self)


def _end(host: FleetHost) -> None:
    for daemon in host.daemons:
        with contextlib.suppress(ProcessLookupError):
            daemon.process.send_signal(signal.SIGCONT)
        daemon.kill()
    host.engine.close()


@contextmanager
def fleet(*images: str, names: Iterable[str] = NAMES) -> Iterator[Fleet]:
    """Hosts that are up and have these images (TINY if none), and are gone with everything at the end."""
    folder, switch = Path(tempfile.mkdtemp(prefix="pdf-")), Namespaces()
    with contextlib.ExitStack() as last:
        last.callback(shutil.rmtree, folder, ignore_errors=True)
        last.callback(switch.close)
        _lay_switch(switch)
        database = last.enter_context(postgres(switch, SWITCH))
        created = Fleet(folder, switch, database)
        last.callback(created.close)
        for at, name in enumerate(names, start=11):
            created.hosts[name] = _host(created, name, f"{SWITCH.rpartition('.')[0]}.{at}")
        saved = folder / "images.tar"
        subprocess.run(["docker", "save", "-o", str(saved), *(images or (TINY,))], check=True, timeout=300)

        def start(host: FleetHost) -> None:
            host.engine.start().docker("load", "-q", "-i", str(saved))

        _at_once(start, created)
        saved.unlink()
        yield created


def _at_once(do: Callable[[FleetHost], None], hosts: Iterable[FleetHost]) -> None:
    with ThreadPoolExecutor(8) as workers:
        for done in [workers.submit(do, host) for host in hosts]:
            done.result()


def _lay_switch(switch: Namespaces) -> None:
    switch.run("ip", "link", "add", "switch", "type", "bridge")
    switch.run("ip", "address", "add", f"{SWITCH}/24", "dev", "switch")
    switch.run("ip", "link", "set", "switch", "up")


def _host(made: Fleet, name: str, address: str) -> FleetHost:
    folder, namespaces = made.folder / name, Namespaces(hostname=name)
    folder.mkdir()
    host = FleetHost(name, address, folder, PrivateEngine(folder, namespaces=namespaces), made)
    port = f"to-{name}"
    made.switch.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(namespaces.pid))
    made.switch.run("ip", "link", "set", port, "master", "switch", "up")
    namespaces.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
    namespaces.run("ip", "link", "set", "eth0", "up")
    namespaces.run("ip", "route", "add", "default", "via", SWITCH)
    namespaces.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
    # Mounts of daemons of one store are named alike.
    namespaces.run("sh", "-c", "mkdir -p /run/paddock && mount -t tmpfs tmpfs /run/paddock")
    # Where engines of older versions keep their id.
    namespaces.run("sh", "-c", "mkdir -p /etc/docker && mount -t tmpfs tmpfs /etc/docker")
    return host
