"""Lab of two network namespaces: an engine whose only link leads to a simulated Internet.

    sandbox - egress - engine's namespace --veth-- `inet` namespace: DNS, web servers, a metadata service, two LANs

Nothing in it can reach a real address, nor the host's engine or rules. Needs root, nsenter, ip, nft and dockerd.
"""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.daemon import ROOT, RunningDaemon, start_daemon, wait_for
from tests.lab import inet
from tests.lab.engine import Namespaces, PrivateEngine

GUARD = ROOT / "deploy" / "paddock-guard.nft"
HOST_SIDE, INET_SIDE = "203.0.113.2", "203.0.113.1"
OWN_RESOLVER = "127.0.0.1"
_SERVED = (inet.DNS, inet.GIT, inet.OTHER, inet.PACKAGES, inet.METADATA, inet.LAN10, inet.LAN192)
_TOOLS = ("nsenter", "unshare", "ip", "nft", "dockerd", "iptables", "openssl")


def impossible() -> str:
    """Return the reason that the lab can't be created here; "" if it can."""
    if os.geteuid() != 0:
        return "the two-namespace lab needs root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"the two-namespace lab needs {', '.join(missing)}"
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"namespaces can't be made here: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass
class Lab:
    """`engine` is the private one, `log` what the Internet (and the host's loopback resolver) got to see."""

    folder: Path
    engine: PrivateEngine
    inet: Namespaces
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    marks: Iterator[int] = field(default_factory=lambda: itertools.count(20_000))
    # Entries of each log since `begin()`, and the length of the file that they were read from.
    entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)

    @property
    def host(self) -> Namespaces:
        return self.engine.namespaces

    def log(self, which: str = "internet") -> list[dict[str, Any]]:
        """Return what it got to see since the last `begin()`."""
        file = self.folder / f"{which}.log"
        requests = self.entries.setdefault(which, [])
        if file.exists():
            with file.open("rb") as stream:
                stream.seek(self.offsets.get(which, 0))
                lines, newline, _ = stream.read().rpartition(b"\n")  # a line may be half written
            self.offsets[which] = self.offsets.get(which, 0) + len(lines + newline)
            requests += [json.loads(line) for line in lines.splitlines() if line]
        return requests

    def begin(self) -> None:
        """Make it as new for the next module: guarded, without containers and networks, its logs empty."""
        self.remove_containers()
        networks = self.docker("network", "ls", "-q", "--filter", "type=custom").split()
        if networks:
            self.docker("network", "rm", *networks)
        self.set_resolver(OWN_RESOLVER)
        self.guard()
        for which in ("internet", "host"):
            self.log(which).clear()

    def remove_containers(self) -> None:
        """Remove every container of its engine, some at a time."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda id_: self.docker("rm", "-f", id_, check=False), self.docker("ps", "-aq").split()))

    def set_resolver(self, address: str) -> None:
        """Have the host's resolv.conf name this one."""
        (self.folder / "resolv.conf").write_text(f"nameserver {address}\n")

    def load(self, *images: str) -> None:
        """Give the engine those of these images that it does not have."""
        missing = [image for image in images if not self.docker("images", "-q", image)]
        if missing:
            self.engine.load(*missing)

    def mark(self) -> int:
        """Return the length of the Internet's log after all traffic so far; later entries are `since` it."""
        port = next(self.marks)
        self.host.run("bash", "-c", f"echo mark > /dev/udp/{INET_SIDE}/{port}")
        wait_for("the mark is logged", lambda: any(document.get("port") == port for document in self.log()))
        return len(self.log())

    def names(self) -> set[str]:
        """Every name that was asked of a DNS, wherever it stands."""
        return {
            document["name"] for which in ("internet", "host") for document in self.log(which) if "name" in document
        }

    def packets(self, since: int = 0) -> set[tuple[str, int]]:
        """Return the targets of packets (address, port)."""
        until = self.mark()
        observed = {
            (document["packet"], document["port"]) for document in self.log()[since:until] if "packet" in document
        }
        return {(to, port) for to, port in observed if to != INET_SIDE}

    def guard(self) -> None:
        """Load the guard, as its unit does."""
        self.host.run("nft", "-c", "-f", str(GUARD))
        self.host.run("nft", "-f", str(GUARD))

    def docker(self, *arguments: str, check: bool = True) -> str:
        return self.engine.docker(*arguments, check=check)

    def daemon(self, folder: Path, periods: Mapping[str, float] | None = None, **settings: str) -> RunningDaemon:
        """`paddock serve` in the engine's network namespace, as on any host; `periods` as of start_daemon."""
        address = self.engine.base_url
        return start_daemon(folder, network_of=self.host.pid, periods=periods, PADDOCK_DOCKER_HOST=address, **settings)

    def daemon_with_resolver(self, folder: Path) -> RunningDaemon:
        """The same with the lab's resolv.conf in place of this host's, in a mount namespace of its own."""
        bind = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        prefix = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", bind, str(self.folder / "resolv.conf"))
        address = self.engine.base_url
        return start_daemon(folder, prefix=prefix, network_of=self.host.pid, PADDOCK_DOCKER_HOST=address)

    def serve(self, namespaces: Namespaces, role: str) -> None:
        command = [sys.executable, inet.__file__, str(self.folder / f"{role}.log"), str(self.folder / "tls.pem"), role]
        server = subprocess.Popen(namespaces.enter(*command), stdout=subprocess.PIPE)
        self.servers.append(server)
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n", f"the lab's {role} does not come up"

    def close(self) -> None:
        for server in self.servers:
            server.kill()
            server.wait(60)
            if server.stdout:
                server.stdout.close()
        with contextlib.ExitStack() as last:  # the namespaces go, whatever becomes of the engine's end
            last.callback(self.inet.close)
            last.callback(self.engine.namespaces.close)
            self.engine.close()


@contextmanager
def lab(*images: str) -> Iterator[Lab]:
    """A lab that is up, guarded, and has these images; gone with all of it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="pdl-"))
    host, internet = Namespaces(), Namespaces()
    created = Lab(folder, PrivateEngine(folder, namespaces=host), internet)
    try:
        _wire(host, internet)
        _certificate(folder)
        created.set_resolver(OWN_RESOLVER)
        host.run("mount", "--bind", str(folder / "resolv.conf"), "/etc/resolv.conf")
        created.serve(internet, "internet")
        created.serve(host, "host")
        created.guard()
        created.engine.start()
        if images:
            created.engine.load(*images)
        yield created
    finally:
        created.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)


def _wire(host: Namespaces, internet: Namespaces) -> None:
    host.run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "in0", "netns", str(internet.pid))
    host.run("ip", "address", "add", f"{HOST_SIDE}/24", "dev", "up0")
    host.run("ip", "link", "set", "up0", "up")
    internet.run("ip", "address", "add", f"{INET_SIDE}/24", "dev", "in0")
    internet.run("ip", "link", "set", "in0", "up")
    for name in _SERVED:
        internet.run("ip", "address", "add", f"{name}/32", "dev", "lo")
    host.run("ip", "route", "add", "default", "via", INET_SIDE)
    # What leaks with a sandbox's own address finds its way back, too: a leak must not hide behind a missing route.
    internet.run("ip", "route", "add", "10.213.0.0/16", "via", HOST_SIDE)
    internet.run("ip", "route", "add", "172.16.0.0/12", "via", HOST_SIDE)
    host.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
    wait_for("the link is up", lambda: "state UP" in host.run("ip", "link", "show", "up0"))


def _certificate(folder: Path) -> None:
    """Make `tls.pem`, the servers' for *.example.org, signed by the authority `cert.pem`."""
    new = ("openssl", "req", "-newkey", "rsa:2048", "-nodes")
    names = folder / "names"
    names.write_text("subjectAltName=DNS:*.example.org")
    signed = ("-CA", str(folder / "cert.pem"), "-CAkey", str(folder / "authority.pem"), "-CAcreateserial")
    request = ("-subj", "/CN=servers", "-keyout", str(folder / "key.pem"), "-out", str(folder / "request.pem"))
    for command in (
        (*new, "-x509", "-days", "1", "-subj", "/CN=lab", "-keyout", signed[3], "-out", signed[1]),
        (*new, *request),
        (
            "openssl",
            "x509",
            "-req",
            "-in",
            request[-1],
            *signed,
            "-days",
            "1",
            "-extfile",
            str(names),
            "-out",
            str(folder / "leaf.pem"),
        ),
    ):
        subprocess.run(command, capture_output=True, check=True)
    (folder / "tls.pem").write_text((folder / "key.pem").read_text() + (folder / "leaf.pem").read_text())
