"""A real Prometheus scrapes a daemon with busy sandboxes: every panel has data."""

import contextlib
import json
import math
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from anyio.from_thread import start_blocking_portal

from tests.daemon import RunningDaemon, wait_for
from tests.deploy.test_grafana import DEPLOY, EVERY, without_variables
from tests.e2e.helpers_specs import OTHER_KINDS
from tests.e2e.test_mcpserver import Talker
from tests.e2e.test_mcpserver import server as mcp_server
from tests.engine.test_engine_witness import disk_of
from tests.lab.engine import Namespaces
from tests.lab.internet import Lab, impossible

pytestmark = [
    pytest.mark.docker,
    pytest.mark.prometheus,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sh", "-c", "%s"]}
  resources: {limits: {cpu: 100m, memory: 32Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
TALKS = """
---
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: talks}
spec:
  template:
    image: "paddock/test-tiny:1"
    command: ["sh", "-c", "while :; do wget -q -O /dev/null http://git.example.org/; sleep 1; done"]
    securityLevel: development
  network: {allowedHosts: [git.example.org]}
  resources: {limits: {cpu: 100m, memory: 32Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
FROM_POOL = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec: {templateRef: {name: tiny}, poolPolicy: Require, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""
REQUESTS = "(sum(paddock_pool_claims_total) or vector(0)) + (sum(paddock_pool_claim_misses_total) or vector(0))"
# Panels that show what is wrong: nothing is, here.
WHEN_WRONG = {
    ("overview.json", "Firing alerts"),
    ("overview.json", "Not Ready"),
    ("pools.json", "Failed starts"),
    ("pools.json", "Retired members"),
    ("quotas.json", "Pending now"),
    ("quotas.json", "Became pending"),
    ("quotas.json", "Who waits"),
}
# Panels of hibernation, which needs compressed swap: tests/e2e/test_hibernation.py has it.
NEEDS_SWAP = {("overview.json", "Hibernated"), ("overview.json", "Wakes")}
# Panels of SSH and previews: tests/e2e/test_front_door.py has what they count.
OF_FRONT_DOOR = {
    ("controller.json", panel) for panel in ("SSH channels", "Preview requests", "Bytes of SSH and previews")
}
SERVER = r"""
while read -r line; do
  id=$(echo "$line" | sed -n 's/.*"id": *\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
    *'"server/discover"'*) said='"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}' ;;
    *'"tools/list"'*) said='"result": {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}' ;;
    *'"tools/call"'*) said='"result": {"content": [{"type": "text", "text": "hello"}]}' ;;
    *) said='"error": {"code": -32601, "message": "Method not found"}' ;;
  esac
  [ -z "$id" ] || echo "{\"jsonrpc\": \"2.0\", \"id\": $id, $said}"
done
"""
CALLS = "sum(paddock_mcp_server_calls_total)"
BUSY = {
    "spins": "while :; do :; done",
    "forks": "while :; do sleep 1 & sleep 1; done",
    "reads": "while :; do dd if=/bin/busybox of=/dev/null bs=1M iflag=direct; sleep 1; done",
}


class Prometheus:
    """One that runs in that network, asked over its API."""

    def __init__(self, url: str, host: Namespaces) -> None:
        self.url, self.host = url, host

    def get(self, path: str, **query: str) -> Any:
        return json.loads(fetched(self.host, f"{self.url}{path}?{urllib.parse.urlencode(query)}"))["data"]

    def up(self) -> bool:
        try:
            return bool(self.get("/api/v1/query", query="up == 1")["result"])
        except OSError:
            return False

    def shows(self, expr: str) -> bool:
        """Tell if the query returns a number."""
        found = self.get("/api/v1/query", query=expr)["result"]
        return any(not math.isnan(float(each["value"][1])) for each in found)


def fetched(host: Namespaces, url: str) -> bytes:
    """Return the response of a URL in that network."""

    def ask() -> bytes:
        with urllib.request.urlopen(url, timeout=30) as answer:
            found: bytes = answer.read()
            return found

    return host.within(ask)


@contextlib.contextmanager
def prometheus(folder: Path, host: Namespaces, target: str, every: str = "1s") -> Iterator[Prometheus]:
    """Debian's own, with our rules, that scrapes `target` so often. Both are in that network."""
    folder.mkdir()
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": every, "evaluation_interval": every}
    config["rule_files"] = [str(DEPLOY / "prometheus" / each) for each in config["rule_files"]]
    [job] = config["scrape_configs"]
    job["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with host.within(socket.socket) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        entered = host.enter(*command, f"--web.listen-address={address}")
        process = subprocess.Popen(entered, stderr=log, stdout=log)
    try:
        made = Prometheus(f"http://{address}", host)
        wait_for("Prometheus scrapes", lambda: process.poll() is not None or made.up(), 60)
        assert process.poll() is None, (folder / "log").read_text()
        yield made
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def scene(place: Lab, folder: Path, **settings: str) -> Iterator[RunningDaemon]:
    """Run a daemon in the lab, where sandboxes have networks and an Internet."""
    place.load("paddock/egress:1", "paddock/test-tiny:1")
    # With cgroup v1, kernels from 6.10 on count a disk's bytes once a limit of it was set somewhere: one never met.
    disk = disk_of(place.docker("info", "-f", "{{.DockerRootDir}}"))
    place.docker("run", "--rm", "--device-write-bps", f"{disk}:1tb", "paddock/test-tiny:1", "true")
    daemon = place.daemon(folder, **settings)
    try:
        yield daemon
    finally:
        daemon.stop()
        place.remove_containers()


@pytest.fixture(scope="module")
def both(shared_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, RunningDaemon]]:
    shared_lab.begin()
    with scene(shared_lab, tmp_path_factory.mktemp("daemon"), PADDOCK_RESYNC_SECONDS="1") as daemon:
        yield shared_lab, daemon


@pytest.fixture(scope="module")
def asked(both: tuple[Lab, RunningDaemon], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus that has scraped changes of the sandboxes, which rates need."""
    place, daemon = both
    target = urllib.parse.urlsplit(daemon.metrics_url()).netloc
    with prometheus(tmp_path_factory.mktemp("prometheus") / "p", place.host, target) as made:
        sandboxes = "---".join(SANDBOX % each for each in BUSY.items())
        daemon.apply(OTHER_KINDS + sandboxes + TALKS)
        daemon.apply(mcp_server("greeter", command="sh", args=["-c", SERVER], image="paddock/test-tiny:1"))
        names = [f"sandbox/{name}" for name in (*BUSY, "talks")]
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", *names)
        daemon.apply(sandboxes.replace("100m", "120m"))
        with start_blocking_portal() as portal:  # a rate needs a call after one that was scraped
            talk = Talker(daemon, portal)
            assert talk.text("greeter", "greet") == "hello"
            wait_for("the call is scraped", partial(made.shows, f"{CALLS} >= 1"), 60)
            assert talk.text("greeter", "greet") == "hello"
        for nth in range(1, 6):  # a rate needs two claims; Prometheus may show a member that is claimed already
            wait_for("a member", lambda: made.shows('sum(paddock_pool_containers{state="ready"}) > 0'), 60)
            daemon.apply(FROM_POOL % f"asks-{nth}")
            wait_for("the request is scraped", partial(made.shows, f"{REQUESTS} >= {nth}"), 60)
            if made.shows("sum(paddock_pool_claims_total) >= 2"):
                break
        yield made


def test_promtool_accepts_a_scrape(both: tuple[Lab, RunningDaemon], asked: Prometheus) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None
    place, daemon = both

    def scraped() -> bytes:
        try:
            return fetched(place.host, daemon.metrics_url())
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return b""  # on a slow machine Prometheus may have both places

    text = wait_for("a place for our own scrape", scraped)
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
    assert b'sandbox="spins"' in text


def test_every_panel_has_data(asked: Prometheus) -> None:
    def silent() -> list[tuple[str, str]]:
        shown = {(board, panel) for board, panel, expr in EVERY if asked.shows(without_variables(expr))}
        return sorted({(board, panel) for board, panel, _ in EVERY} - shown - WHEN_WRONG - NEEDS_SWAP - OF_FRONT_DOOR)

    with contextlib.suppress(AssertionError):  # which are silent is told below
        wait_for("data for every panel", lambda: not silent(), 45)
    assert silent() == []
