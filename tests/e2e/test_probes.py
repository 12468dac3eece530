"""Probes end to end on a real engine, also for sandboxes without a network."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, docker, running, wait_for

pytestmark = pytest.mark.docker

SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %(name)s}
spec:
  template:
    image: paddock/python:1
    command: %(command)s
    %(probes)s
  lifecycle: {shutdownGracePeriodSeconds: 1, startupDeadlineSeconds: %(deadline)s}
"""
# It serves once somebody has made the file.
SERVER = """["sh", "-c", "while ! test -e go; do sleep 0.1; done; exec python3 -m http.server 8500 --bind 127.0.0.1"]"""


def sandbox(name: str, probes: str, *, command: str = '["sleep", "1000000"]', deadline: int = 60) -> str:
    return SANDBOX % {"name": name, "probes": probes, "command": command, "deadline": deadline}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        yield created


def status(daemon: RunningDaemon, name: str) -> dict[str, Any]:
    document: dict[str, Any] = daemon.get(name).get("status", {})
    return document


def ready(daemon: RunningDaemon, name: str) -> None:
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")


def not_ready(daemon: RunningDaemon, name: str, words: str) -> None:
    wait_for(f"{name} says {words}", lambda: words in daemon.condition(name, "Ready").get("message", ""))
    assert daemon.condition(name, "Ready")["status"] == "False"


def test_servers_are_ready_once_their_ports_answer(daemon: RunningDaemon) -> None:
    document = {"tcp": "tcpSocket: {port: 8500}", "http": "httpGet: {port: 8500}"}
    probes = {name: f"readiness: {{{action}, periodSeconds: 1}}" for name, action in document.items()}
    daemon.apply("---".join(sandbox(name, probe, command=SERVER) for name, probe in probes.items()))
    for name in probes:
        not_ready(daemon, name, "port 8500: connection refused")
        daemon.paddock("exec", name, "--", "touch", "go")
        ready(daemon, name)


def test_ready_is_remembered_by_the_next_daemon_and_a_changed_probe_recreates_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.apply(sandbox("web", "readiness: {exec: {command: [test, -e, go]}, periodSeconds: 1}"))
        not_ready(daemon, "web", "exit code 1")
        daemon.paddock("exec", "web", "--", "touch", "go")
        ready(daemon, "web")
        before = daemon.get("web")["status"]
        daemon.paddock("exec", "web", "--", "rm", "go")
        daemon.works_at.kill()
        daemon.works_at.start_again()
        ready(daemon, "web")
        daemon.apply(sandbox("web", "liveness: {exec: {command: ['true']}, periodSeconds: 1}"))
        wait_for("the change is seen", lambda: status(daemon, "web")["observedGeneration"] == 2)
        after = status(daemon, "web")
        assert after["instanceRef"] == before["instanceRef"]
        assert after["restartCount"] == 0
        ready(daemon, "web")  # Unknown until it has observed; not ready for ever if it did not remember


def test_a_failing_liveness_probe_restarts_the_sandbox(daemon: RunningDaemon) -> None:
    liveness = (
        "liveness: {exec: {command: [sh, -c, 'echo sick; test ! -e sick']}, periodSeconds: 1, failureThreshold: 2}"
    )
    daemon.apply(sandbox("sick", liveness))
    ready(daemon, "sick")
    before = status(daemon, "sick")["instanceRef"]
    daemon.paddock("exec", "sick", "--", "touch", "sick")
    wait_for("it was restarted", lambda: status(daemon, "sick")["restartCount"] == 1)
    ready(daemon, "sick")
    assert status(daemon, "sick")["instanceRef"] == before
    assert status(daemon, "sick")["lastTermination"]["reason"] == "Killed"
    output = daemon.paddock("events", "sandbox/sick").stdout
    assert "the liveness probe failed 2 times in a row: exit code 1: sick" in output


def test_a_missed_startup_deadline_stops_and_backs_off(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox("late", "readiness: {tcpSocket: {port: 1}, periodSeconds: 1}", deadline=1))
    wait_for("it backs off", lambda: daemon.condition("late", "Degraded").get("reason") == "CrashLoopBackOff")
    assert status(daemon, "late")["lastTermination"]["reason"] == "StartFailed"
    name = status(daemon, "late")["instanceRef"]["name"]
    assert docker("inspect", "-f", "{{.State.Running}}", name) == "false"
