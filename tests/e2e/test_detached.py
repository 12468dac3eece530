"""A command that outlives its client, in a real box: it goes on, and ends when it is told to."""

from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, docker, running, wait_for

pytestmark = pytest.mark.docker

BOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: busy}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi}}
"""


def state(daemon: RunningDaemon) -> str:
    return daemon.paddock("execs", "busy").stdout.splitlines()[1].split()[1]


def processes(container: str) -> str:
    return docker("top", container, "-o", "pid,args")


def test_it_outlives_its_client_and_not_its_kill_nor_its_daemon(tmp_path: Path) -> None:
    with running(tmp_path, PADDOCK_RESYNC_SECONDS="1") as daemon:
        daemon.apply(BOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/busy")
        container = docker("ps", "-q", "--filter", f"label=paddock.instance={daemon.instance_id()}").strip()
        script = "echo begun; sleep 31415 & sleep 31415"
        id_ = daemon.paddock("exec", "-d", "--timeout=0", "busy", "--", "sh", "-c", script).stdout.strip()
        wait_for("its words", lambda: daemon.paddock("logs", "busy", "--exec", id_).stdout == "begun\n")
        assert "sleep 31415" in processes(container)
        assert state(daemon) == "Running"
        daemon.paddock("execs", "busy", "--kill", id_)
        wait_for("it is killed", lambda: state(daemon) == "Killed")
        wait_for("all of it is gone", lambda: "sleep 31415" not in processes(container))
        assert daemon.paddock("logs", "busy", "--exec", id_).stdout == "begun\n"
        daemon.paddock("exec", "-d", "--timeout=0", "busy", "--", "sleep", "27182")
        wait_for("the second one runs", lambda: "sleep 27182" in processes(container))
        assert daemon.stop() == 0
        wait_for("a daemon that stops ends it", lambda: "sleep 27182" not in processes(container))
