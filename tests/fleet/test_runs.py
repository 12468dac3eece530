"""Workflow runs on many hosts: each goes on where its sandbox is, whichever daemon dies; any daemon answers for it."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.fleet.test_hosts import leading
from tests.fleet_files import Authority
from tests.lab.fleet import NAMES, Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.docker, pytest.mark.timeout(600)]
_RUN = """
apiVersion: paddock/v1alpha1
kind: WorkflowRun
metadata: {{name: {name}}}
spec:
  workflow:
    sandbox:
      host: {host}
      template: {{image: "paddock/test-tiny:1", workspace: {{}}}}
      resources: {{limits: {{cpu: 100m, memory: 128Mi, pids: 16}}}}
    stages:
    - name: work
      exec:
        commands: ['echo began >> /workspace/log', 'while [ ! -e /workspace/go ]; do sleep 0.2; done', 'echo went']
    - {{name: dist, copy: {{from: /workspace/log, artifact: dist}}}}
"""


@dataclass
class Lab:
    """A daemon on each host, which reach each other: `leader` leads, runs are on `host`, and `asked` is the third."""

    hosts: Fleet
    authority: Authority
    daemons: dict[str, RunningDaemon]
    leader: str = ""
    host: str = ""
    asked: str = ""

    def start(self, name: str) -> None:
        files = self.authority.files(name)
        self.daemons[name] = self.hosts[name].daemon(
            PADDOCK_FLEET_ADDRESS=f"{self.hosts[name].address}:9466",
            PADDOCK_FLEET_CERT_FILE=str(files.cert),
            PADDOCK_FLEET_KEY_FILE=str(files.key),
            PADDOCK_FLEET_CA_FILE=str(files.authority),
        )

    def paddock(self, *arguments: str) -> str:
        return self.daemons[self.asked].paddock(*arguments).stdout

    def run(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.paddock("get", "workflowrun", name, "-o", "json"))
        return document

    def begin(self, name: str) -> None:
        self.daemons[self.asked].apply(_RUN.format(name=name, host=self.host))

    def state(self, name: str) -> str:
        return str(self.run(name)["status"]["stages"][0]["state"])

    def let_go(self, name: str) -> None:
        """Let the run's first stage end."""
        self.paddock("exec", self.run(name)["status"]["sandboxRef"]["name"], "--", "touch", "/workspace/go")

    def finish(self, name: str, folder: Path) -> None:
        """Wait for the run's good end, and look at what it left: each stage was done once."""
        wait_for("its end", lambda: "completionTime" in self.run(name)["status"], 60)
        status = self.run(name)["status"]
        assert (status["phase"], status["host"]) == ("Succeeded", self.host)
        assert [stage["attempt"] for stage in status["stages"]] == [1, 1]
        self.paddock("workflow", "artifacts", name, "--output", str(folder))
        assert (folder / "dist" / "log").read_text() == "began\n"


@pytest.fixture(scope="module")
def lab(hosts: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    created = Lab(hosts, Authority(tmp_path_factory.mktemp("authority")), {})
    for name in NAMES:
        created.start(name)
    created.leader = wait_for("one leads", lambda: leading(created.daemons))
    created.host, created.asked = (entry for entry in NAMES if entry != created.leader)
    yield created
    for daemon in created.daemons.values():
        daemon.stop()


def test_run_goes_on_when_the_leading_daemon_is_killed(lab: Lab, tmp_path: Path) -> None:
    lab.begin("r")
    wait_for("its stage runs", lambda: lab.state("r") == "Running", 60)
    lab.daemons[lab.leader].kill()
    lab.begin("later")
    start = time.monotonic()
    lab.let_go("r")
    lab.finish("r", tmp_path / "r")
    assert lab.paddock("workflow", "logs", "r", "work") == "went\n"
    print(f"finished {time.monotonic() - start:.1f} s after the leading daemon was killed")
    wait_for("one begun meanwhile runs", lambda: lab.state("later") == "Running", 60)
    print(f"one begun meanwhile runs after {time.monotonic() - start:.1f} s")
    lab.let_go("later")
    lab.finish("later", tmp_path / "later")
    lab.start(lab.leader)


def test_run_goes_on_when_its_host_is_back(lab: Lab, tmp_path: Path) -> None:
    lab.begin("lost")
    wait_for("its stage runs", lambda: lab.state("lost") == "Running", 60)
    lab.daemons[lab.host].kill()

    def reason() -> str:
        return str(lab.run("lost")["status"]["conditions"][0]["reason"])

    start = time.monotonic()
    wait_for("that is said", lambda: reason() == "HostLost", 60)
    print(f"lost after {time.monotonic() - start:.1f} s")
    lab.start(lab.host)
    wait_for("it is back", lambda: reason() == "RunInProgress", 60)
    lab.let_go("lost")
    lab.finish("lost", tmp_path)
