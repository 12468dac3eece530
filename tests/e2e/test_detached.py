"""Detached commands in a real sandbox: they survive client and daemon, and end when killed.

The script writes on, so that one which minds that nobody reads it any more is found out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, docker, running, wait_for
from tests.raw_client import DetachedExec, Paddock, Sandbox

pytestmark = pytest.mark.docker

SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: busy}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0, idleTimeoutSeconds: %d}
"""
WRITES = "while [ ! -e /tmp/stop ]; do echo a line; sleep 0.02; done; echo done > /tmp/done; exit 5"


@contextmanager
def sandbox_of(daemon: RunningDaemon) -> Iterator[Sandbox]:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        yield paddock.sandbox("busy")


def found(sandbox: Sandbox, id_: str) -> DetachedExec:
    return next(detached_exec for detached_exec in sandbox.execs() if detached_exec.id == id_)


def processes(container: str) -> str:
    return docker("top", container, "-o", "pid,args")


def ready(daemon: RunningDaemon, idle_seconds: int = 1800) -> str:
    """Return the sandbox's container."""
    daemon.apply(SANDBOX % idle_seconds)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/busy")
    return docker("ps", "-aq", "--filter", f"label=paddock.instance={daemon.instance_id()}").strip()


def test_it_outlives_its_client_and_not_its_kill(tmp_path: Path) -> None:
    with running(tmp_path, PADDOCK_RESYNC_SECONDS="1") as daemon:
        container = ready(daemon)
        script = "echo begun; sleep 31415 & sleep 31415"
        id_ = daemon.paddock("exec", "-d", "--timeout=0", "busy", "--", "sh", "-c", script).stdout.strip()
        with sandbox_of(daemon) as sandbox:
            wait_for("its words", lambda: sandbox.exec_log(id_) == b"begun\n")
            assert "sleep 31415" in processes(container)
            assert f"{id_}   Running" in daemon.paddock("execs", "busy").stdout
            daemon.paddock("execs", "busy", "--kill", id_)
            wait_for("it is killed", lambda: found(sandbox, id_).state == "Killed")
            wait_for("all of it is gone", lambda: "sleep 31415" not in processes(container))
            assert daemon.paddock("logs", "busy", "--exec", id_).stdout == "begun\n"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_it_outlives_its_daemon_and_is_found_again(tmp_path: Path, end: str) -> None:
    with running(tmp_path) as daemon:
        container = ready(daemon, idle_seconds=5)
        with sandbox_of(daemon) as sandbox:
            ends = sandbox.detach(["sh", "-c", WRITES], timeout_seconds=0).id
            killed = sandbox.detach(["sleep", "31415"], timeout_seconds=0).id
            late = sandbox.detach(["sleep", "27182"], timeout_seconds=3).id
            wait_for("its words", lambda: b"a line" in sandbox.exec_log(ends))
            attached = sandbox.start(["sleep", "16180"], timeout_seconds=4)
            attached.wait_started()
        getattr(daemon.works_at, end)()
        assert "sleep 31415" in processes(container)
        daemon.works_at.start_again()
        with sandbox_of(daemon) as sandbox:
            assert found(sandbox, ends).state == found(sandbox, killed).state == "Running"
            assert sandbox.exec_log(ends).startswith(b"a line\n")
            assert b"the daemon was restarted" in sandbox.exec_log(ends)
            sandbox.kill_exec(killed)
            wait_for("it is killed", lambda: found(sandbox, killed).state == "Killed")
            wait_for("and its process is gone", lambda: "sleep 31415" not in processes(container))
            wait_for("one whose time was over was killed", lambda: found(sandbox, late).state == "TimedOut")
            assert "sleep 27182" not in processes(container)
            if end == "kill":  # a daemon that is stopped has ended it
                (remaining,) = [
                    detached_exec.id for detached_exec in sandbox.execs() if detached_exec.command == ("sleep", "16180")
                ]
                wait_for("the attached one ends in time", lambda: found(sandbox, remaining).state == "TimedOut")
            wait_for("and its process is gone", lambda: "sleep 16180" not in processes(container))
            sandbox.exec(["touch", "/tmp/stop"])
            wait_for("its own end", lambda: found(sandbox, ends).state != "Running")
            assert (found(sandbox, ends).state, found(sandbox, ends).exit_code) == ("Exited", 5)
        # In use it was not reaped, and now it is.
        wait_for("it is idle", lambda: not docker("ps", "-q", "--filter", f"id={container}"))
