"""Idleness and deadlines on a real engine and real cgroups."""

from collections.abc import Iterator

import pytest

from tests.daemon import RunningDaemon, docker, running, wait_for

pytestmark = pytest.mark.docker

SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "paddock/test-tiny:1", command: %s}
  lifecycle: {shutdownGracePeriodSeconds: 0, %s}
"""
SLEEPS = '["sleep", "1000000"]'


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        yield created


def state(daemon: RunningDaemon, name: str) -> str:
    """Inspect the sandbox's container by the engine."""
    own_texts = ("--filter", f"label=paddock.name={name}", "--filter", f"label=paddock.instance={daemon.instance_id()}")
    return docker("ps", "-a", *own_texts, "--format", "{{.State}}")


def test_an_idle_sandbox_is_suspended_and_the_next_exec_wakes_it(daemon: RunningDaemon) -> None:
    daemon.apply(SANDBOX % ("dozing", SLEEPS, "idleTimeoutSeconds: 2"))
    daemon.paddock("wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/dozing")
    assert state(daemon, "dozing") == "exited"
    dozing = daemon.get("dozing")
    assert (dozing["spec"]["runState"], dozing["status"]["lastTermination"]["reason"]) == ("Running", "IdleReaped")
    assert "IdleReaped" in daemon.paddock("get", "sandboxes").stdout
    done = daemon.paddock("exec", "dozing", "--", "echo", "hello")
    assert done.stdout == "hello\n"
    # Longer than its timeout, and not stopped under it.
    assert daemon.paddock("exec", "dozing", "--", "sh", "-c", "sleep 3; echo done").stdout == "done\n"
    wait_for("it dozes off again", lambda: state(daemon, "dozing") == "exited")
    assert daemon.get("dozing")["status"]["restartCount"] == 0


def test_a_busy_sandbox_is_not_suspended(daemon: RunningDaemon) -> None:
    daemon.apply(SANDBOX % ("lazy", SLEEPS, "idleTimeoutSeconds: 2"))
    daemon.apply(SANDBOX % ("busy", '["sh", "-c", "while :; do :; done"]', "idleTimeoutSeconds: 2"))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/busy")
    for _ in range(2):  # each time, `busy` had at least as long
        wait_for("the other one is suspended", lambda: state(daemon, "lazy") == "exited")
        daemon.paddock("exec", "lazy", "--", "true")
    assert state(daemon, "busy") == "running"
    assert daemon.get("busy")["status"].get("lastTermination") is None


def test_a_deadline_ends_it_and_its_time_to_live_removes_it(daemon: RunningDaemon) -> None:
    daemon.apply(SANDBOX % ("brief", SLEEPS, "activeDeadlineSeconds: 2, ttlSecondsAfterFinished: 1"))
    daemon.paddock("wait", "--for=condition=Finished", "--timeout=60s", "sandbox/brief")
    daemon.paddock("wait", "--for=delete", "--timeout=60s", "sandbox/brief")
    assert state(daemon, "brief") == ""
    assert "TTLExpired" in daemon.paddock("events", "sandbox/brief").stdout
