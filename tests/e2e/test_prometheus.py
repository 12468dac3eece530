"""A real Prometheus scrapes a real daemon with busy sandboxes: every panel of the dashboards has something to show."""

import contextlib
import json
import math
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemon import RunningDaemon, docker, running, wait_for
from tests.deploy.test_grafana import DEPLOY, EVERY, without_variables
from tests.engine.test_engine_witness import engines_disk

pytestmark = [pytest.mark.docker, pytest.mark.prometheus]
AROUND = """
apiVersion: paddock/v1alpha1
kind: Quota
metadata: {name: all}
spec: {hard: {cpu: 8, memory: 4Gi, pids: 1000, sandboxes: 9}}
---
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: tiny}, warmReplicas: 1}
---
"""
BOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sh", "-c", "%s"]}
  resources: {limits: {cpu: 100m, memory: 32Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
BUSY = {
    "spins": "while :; do :; done",
    "forks": "while :; do sleep 1 & sleep 1; done",
    "reads": "while :; do dd if=/bin/busybox of=/dev/null bs=1M iflag=direct; sleep 1; done",
}
# What rightly shows nothing here: at full isolation there is no network to count.
SILENT = {("sandbox.json", "Network")}


class Prometheus:
    """One that runs, asked over its API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def up(self) -> bool:
        try:
            return bool(self.get("/api/v1/query", query="up == 1")["result"])
        except OSError:
            return False

    def shows(self, expr: str) -> bool:
        """Whether there is a number to draw."""
        found = self.get("/api/v1/query", query=expr)["result"]
        return any(not math.isnan(float(each["value"][1])) for each in found)


@contextlib.contextmanager
def prometheus(folder: Path, target: str, every: str = "1s") -> Iterator[Prometheus]:
    """Debian's own, with our rules, that scrapes `target` so often."""
    folder.mkdir()
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": every, "evaluation_interval": every}
    config["rule_files"] = [str(DEPLOY / "prometheus" / each) for each in config["rule_files"]]
    [job] = config["scrape_configs"]
    job["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=log, stdout=log)
    try:
        made = Prometheus(f"http://{address}")
        wait_for("Prometheus scrapes", lambda: process.poll() is not None or made.up(), 60)
        assert process.poll() is None, (folder / "log").read_text()
        yield made
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    # With cgroup v1, kernels from 6.10 on count a disk's bytes once a limit of it was set somewhere: one never met.
    docker("run", "--rm", "--device-write-bps", f"{engines_disk()}:1tb", "paddock/test-tiny:1", "true")
    with running(tmp_path_factory.mktemp("daemon"), PADDOCK_RESYNC_SECONDS="1") as made:
        yield made


@pytest.fixture(scope="module")
def asked(daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has seen the sandboxes come and change: rates need a before and an after."""
    target = urllib.parse.urlsplit(daemon.metrics_url()).netloc
    with prometheus(tmp_path_factory.mktemp("prometheus") / "p", target) as made:
        boxes = "---".join(BOX % each for each in BUSY.items())
        daemon.apply(AROUND + boxes)
        names = [f"sandbox/{name}" for name in BUSY]
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", *names)
        daemon.apply(boxes.replace("100m", "120m"))
        yield made


def test_promtool_finds_nothing_wrong_with_a_scrape(daemon: RunningDaemon, asked: Prometheus) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None
    with urllib.request.urlopen(daemon.metrics_url(), timeout=30) as answer:
        text = answer.read()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
    assert b'sandbox="spins"' in text


def test_every_panel_has_something_to_show(asked: Prometheus) -> None:
    panels = {(board, panel) for board, panel, _ in EVERY}

    def silent() -> set[tuple[str, str]]:
        return panels - {(board, panel) for board, panel, expr in EVERY if asked.shows(without_variables(expr))}

    with contextlib.suppress(AssertionError):  # what differs is told below
        wait_for("data for every panel", lambda: silent() == SILENT, 45)
    assert silent() == SILENT
