"""Peers in the lab: those of a namespace that ask for it reach each other by name, others don't, and nothing opens."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.kinds.common.labels import peers_name
from tests.daemon import RunningDaemon, wait_for
from tests.lab import inet
from tests.lab.internet import Lab, impossible
from tests.security.test_sealed import CLOSED, SealedSandbox, direct, names

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]

PORT = 8000
SHARED = peers_name("default")
_SERVE = f"""
import socket, sys
with socket.create_server(("0.0.0.0", {PORT})) as door:
    print("up", flush=True)
    while True:
        door.accept()[0].close()
"""


class Peer(SealedSandbox):
    """A sandbox in which something listens on all its addresses."""

    namespace = "default"

    @property
    def uid(self) -> str:
        output = self.daemon.paddock("get", "sandbox", self.name, "-n", self.namespace, "-o", "json").stdout
        return str(json.loads(output)["metadata"]["uid"])

    def address(self, network: str) -> str:
        return str(self.inspect(self.container)["NetworkSettings"]["Networks"][network]["IPAddress"])

    def serve(self) -> subprocess.Popen[bytes]:
        pid = self.inspect(self.container)["State"]["Pid"]
        command = ["nsenter", f"--target={pid}", "--net", sys.executable, "-c", _SERVE]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        return server


def ready(place: Lab, daemon: RunningDaemon, name: str, *, peers: bool, namespace: str = "default") -> Peer:
    template = {
        "image": "paddock/test-tiny:1",
        "command": ["sleep", "100000"],
        "securityLevel": "development",
        "resources": {"limits": {"memory": "128Mi", "cpu": "250m"}},
    }
    spec = {
        "template": template,
        "network": {"peers": "Allowed" if peers else "Blocked"},
        "lifecycle": {"shutdownGracePeriodSeconds": 0},
    }
    metadata = {"name": name, "namespace": namespace}
    daemon.apply(json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": metadata, "spec": spec}))
    for condition in ("Ready", "NetworkReady"):
        daemon.paddock("wait", "-n", namespace, f"--for=condition={condition}", "--timeout=60s", f"sandbox/{name}")
    peer = Peer(place, daemon, name)
    peer.namespace = namespace
    return peer


@pytest.fixture(scope="module")
def daemon(place: Lab) -> Iterator[RunningDaemon]:
    created = place.daemon(place.folder / "peers", PADDOCK_RESYNC_SECONDS="2", PADDOCK_ORPHAN_GRACE_SECONDS="5")
    yield created
    created.stop()


@pytest.fixture(scope="module")
def web(place: Lab, daemon: RunningDaemon) -> Peer:
    return ready(place, daemon, "web", peers=True)


@pytest.fixture(scope="module")
def db(place: Lab, daemon: RunningDaemon) -> Iterator[Peer]:
    peer = ready(place, daemon, "db", peers=True)
    server = peer.serve()
    yield peer
    server.kill()
    server.communicate(timeout=60)


@pytest.fixture(scope="module")
def others(place: Lab, daemon: RunningDaemon) -> list[Peer]:
    """One of the same namespace that did not ask for it, and one of another namespace that did."""
    return [
        ready(place, daemon, "alone", peers=False),
        ready(place, daemon, "far", peers=True, namespace="elsewhere"),
    ]


COMPOSE_FILE = """\
services:
  web:
    image: paddock/test-tiny:1
    command: sh -c "wget -q -O - http://db:8080/ > /tmp/index.html && exec httpd -f -p 8000 -h /tmp"
    ports: ["8000"]
    depends_on: {seed: {condition: service_completed_successfully}}
    healthcheck: {test: "wget -q -O - http://localhost:8000/"}
  seed:
    image: paddock/test-tiny:1
    command: wget -q -O - http://db:8080/
    depends_on: {db: {condition: service_healthy}}
  db:
    image: paddock/test-tiny:1
    command: httpd -f -p 8080 -h /srv
    volumes: ["./index.html:/srv/index.html", "kept_data:/data"]
    healthcheck: {test: [CMD, wget, -q, -O, "-", "http://localhost:8080/"]}
volumes: {kept_data: {driver_opts: {size: 8m}}}
"""


def test_services_of_a_compose_file_start_and_meet(daemon: RunningDaemon, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE_FILE)
    (tmp_path / "index.html").write_text("from the database\n")
    files = ("compose", "-p", "shop", "-f", str(tmp_path / "compose.yaml"))
    try:
        up = daemon.paddock(*files, "up", "-d", "--timeout", "90s").stdout
        port = up.partition("127.0.0.1:")[2].partition(" ")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
            assert response.read() == b"from the database\n"
        assert f"127.0.0.1:{port}->8000" in daemon.paddock(*files, "ps").stdout
        nobody = daemon.paddock("compose", "-p", "shop", "exec", "-T", "db", "nslookup", "other", check=False)
        assert nobody.returncode != 0
    finally:
        daemon.paddock(*files, "down", "-v")
    assert daemon.paddock(*files, "ps", "-q").stdout == ""
    assert "shop-kept-data" not in daemon.paddock("get", "volumes").stdout


def test_peers_reach_each_other_by_name_and_their_environment_lets_them(web: Peer, db: Peer) -> None:
    address = db.address(SHARED)
    assert web.tries(["tcp", address, PORT]) == ["open"]
    for name in ("db", "db.peers.internal"):
        assert web.tries(["ask", "127.0.0.11", name, "udp"]) == [address]
    env = dict(entry.split("=", 1) for entry in web.inspect(web.container)["Config"]["Env"])
    assert ".peers.internal" in env["NO_PROXY"].split(",")
    attested = web.daemon.paddock("attest", web.name)
    assert attested.returncode == 0


def test_nobody_else_reaches_them(web: Peer, db: Peer, others: list[Peer]) -> None:
    addresses = [
        address
        for sandbox in (web, db)
        for address in (sandbox.address(SHARED), sandbox.address(f"pdx-{sandbox.uid[:8]}"))
    ]
    for peer in others:
        tries = peer.tries(*(["tcp", address, PORT] for address in addresses))
        assert set(tries) <= set(CLOSED) - {"refused"}, tries
        assert peer.tries(["ask", "127.0.0.11", "db.peers.internal", "udp"]) == ["nxdomain"]
        for network in peer.inspect(peer.container)["NetworkSettings"]["Networks"]:
            assert network != SHARED


def test_it_opens_nothing_else(place: Lab, web: Peer, db: Peer) -> None:
    """Probes 2 to 5; and a peer's own bridge and proxy are as far as any other's."""
    before = place.mark()
    subnet = json.loads(place.docker("network", "inspect", SHARED))[0]["IPAM"]["Config"][0]["Subnet"]
    gateway = subnet.partition("/")[0].rpartition(".")[0] + ".1"
    own_text = db.address(f"pdx-{db.uid[:8]}")
    attempts = [entry for entry in direct(web, db) if entry[1] != db.address(SHARED)]
    attempts += [
        ["tcp", address, port] for address in (gateway, own_text, db.proxy) for port in (PORT, inet.HOST_PORT, 3128)
    ]
    tries = web.tries(*attempts)
    assert set(tries) <= set(CLOSED), list(zip(attempts, tries, strict=True))
    answers = web.tries(*names(web, "peers"))
    assert set(answers) <= {*CLOSED, "nxdomain", "failed"}, answers
    assert not [name for name in place.names() if "peers" in name]
    assert place.packets(before) == set()


def test_it_is_left_and_joined_again_while_it_runs(place: Lab, daemon: RunningDaemon, web: Peer, db: Peer) -> None:
    address, before = db.address(SHARED), web.inspect(web.container)["Id"]
    ready(place, daemon, "web", peers=False)
    assert set(web.tries(["tcp", address, PORT])) <= set(CLOSED)
    assert list(web.inspect(web.container)["NetworkSettings"]["Networks"]) == [f"pdx-{web.uid[:8]}"]
    ready(place, daemon, "web", peers=True)
    assert web.tries(["tcp", address, PORT]) == ["open"]
    assert web.inspect(web.container)["Id"] == before


def test_flushed_rules_open_nothing_between_them_and_others(
    place: Lab, web: Peer, db: Peer, others: list[Peer]
) -> None:
    saved = place.host.run("iptables-save")
    for message in (("-F",), ("-P", "FORWARD", "ACCEPT"), ("-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")):
        place.host.run("iptables", *message)
    place.host.run("nft", "flush", "ruleset")
    try:
        for peer in others:
            tries = peer.tries(["tcp", db.address(SHARED), PORT])
            assert set(tries) <= set(CLOSED) - {"refused"}, tries
        observed = web.tries(*(entry for entry in direct(web, others[0])))
        assert set(observed) <= set(CLOSED), observed
    finally:
        place.guard()
        restore = place.host.enter("iptables-restore")
        subprocess.run(restore, input=saved, text=True, check=True, capture_output=True)


def test_the_bridge_goes_with_the_last_of_them(place: Lab, daemon: RunningDaemon, others: list[Peer]) -> None:
    far = peers_name("elsewhere")
    assert far in place.docker("network", "ls", "--format", "{{.Name}}").split()
    daemon.paddock("delete", "sandbox", others[1].name, "-n", "elsewhere")
    wait_for(
        "the bridge is gone",
        lambda: far not in place.docker("network", "ls", "--format", "{{.Name}}").split(),
        120,
    )
