"""A command that outlives its client, in a real box: it goes on, and ends when it is told to, whatever the daemon does.

The script writes on, so that one which minds that nobody reads it any more is found out.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, docker, remove_containers, running, start_daemon, wait_for

pytestmark = pytest.mark.docker

BOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: busy}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 1, idleTimeoutSeconds: %d}
"""
WRITES = "while [ ! -e /tmp/stop ]; do echo a line; sleep 0.02; done; echo done > /tmp/done; exit 5"


def state(daemon: RunningDaemon, id_: str) -> str:
    lines = daemon.paddock("execs", "busy").stdout.splitlines()
    return next((line.split()[1] for line in lines if line.startswith(id_)), "")


def processes(container: str) -> str:
    return docker("top", container, "-o", "pid,args")


def log(daemon: RunningDaemon, id_: str) -> str:
    return daemon.paddock("logs", "busy", "--exec", id_).stdout


def begin(daemon: RunningDaemon, timeout: str, *command: str) -> str:
    return daemon.paddock("exec", "-d", f"--timeout={timeout}", "busy", "--", *command).stdout.strip()


def ready(daemon: RunningDaemon, idle_seconds: int = 1800) -> str:
    """The box's container."""
    daemon.apply(BOX % idle_seconds)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/busy")
    return docker("ps", "-aq", "--filter", f"label=paddock.instance={daemon.instance_id()}").strip()


def test_it_outlives_its_client_and_not_its_kill(tmp_path: Path) -> None:
    with running(tmp_path, PADDOCK_RESYNC_SECONDS="1") as daemon:
        container = ready(daemon)
        id_ = begin(daemon, "0", "sh", "-c", "echo begun; sleep 31415 & sleep 31415")
        wait_for("its words", lambda: log(daemon, id_) == "begun\n")
        assert "sleep 31415" in processes(container)
        assert state(daemon, id_) == "Running"
        daemon.paddock("execs", "busy", "--kill", id_)
        wait_for("it is killed", lambda: state(daemon, id_) == "Killed")
        wait_for("all of it is gone", lambda: "sleep 31415" not in processes(container))
        assert log(daemon, id_) == "begun\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The state folder of daemons that follow each other."""
    yield tmp_path
    daemon = start_daemon(tmp_path)
    daemon.stop()
    remove_containers(daemon.instance_id())


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_it_outlives_its_daemon_and_is_found_again(folder: Path, end: str) -> None:
    daemon = start_daemon(folder)
    container = ready(daemon, idle_seconds=2)
    ends, killed = begin(daemon, "0", "sh", "-c", WRITES), begin(daemon, "0", "sleep", "31415")
    late = begin(daemon, "5", "sleep", "27182")
    wait_for("its words", lambda: "a line" in log(daemon, ends))
    getattr(daemon, end)()
    assert "sleep 31415" in processes(container)
    daemon = start_daemon(folder)
    try:
        assert state(daemon, ends) == state(daemon, killed) == "Running"
        assert log(daemon, ends).startswith("a line\n")
        assert "the daemon was started again" in log(daemon, ends)
        daemon.paddock("execs", "busy", "--kill", killed)
        wait_for("it is killed", lambda: state(daemon, killed) == "Killed")
        wait_for("and its process is gone", lambda: "sleep 31415" not in processes(container))
        wait_for("one whose time was over was killed", lambda: state(daemon, late) == "TimedOut")
        assert "sleep 27182" not in processes(container)
        daemon.paddock("exec", "busy", "--", "touch", "/tmp/stop")
        wait_for("its own end", lambda: state(daemon, ends) == "Exited")
        found = daemon.paddock("execs", "busy", "-o", "json").stdout
        assert '"exitCode": 5' in found
        assert docker("ps", "-q", "--filter", f"id={container}"), "a box in use was not reaped"
        daemon.paddock("wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/busy")
    finally:
        daemon.stop()
