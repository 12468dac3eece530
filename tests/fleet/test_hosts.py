"""Many hosts on one store, placed by hand: a daemon on each, and any of them asked."""

from collections.abc import Iterator, Mapping

import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.lab.fleet import NAMES, Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.docker, pytest.mark.timeout(600)]

_SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: {name}}}
spec:
  {host}
  template: {{image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}}
  resources: {{limits: {{cpu: 100m, memory: 16Mi, pids: 16}}}}
  lifecycle: {{shutdownGracePeriodSeconds: 0}}
"""
_QUOTA = """
apiVersion: paddock/v1alpha1
kind: Quota
metadata: {name: small}
spec: {hard: {sandboxes: 2}}
"""

_POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"], resources: {limits: {memory: 16Mi, pids: 16}}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: tiny}, warmReplicas: 2, host: two, shutdownGracePeriodSeconds: 0}
"""
_CLAIM = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: claimed}
spec: {templateRef: {name: tiny}, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""


def sandbox(name: str, host: str = "") -> str:
    return _SANDBOX.format(name=name, host=f"host: {host}" if host else "priority: 0")


@pytest.fixture(scope="module")
def daemons(hosts: Fleet) -> Iterator[dict[str, RunningDaemon]]:
    """A daemon on each host."""
    created = {name: hosts[name].daemon() for name in NAMES}
    yield created
    for daemon in created.values():
        daemon.stop()


def containers(hosts: Fleet, name: str) -> dict[str, int]:
    """Return how many containers of a sandbox each host has."""
    return {
        host.name: len(host.docker("ps", "-aq", "--filter", f"label=paddock.name={name}").split()) for host in hosts
    }


def reason(daemon: RunningDaemon, name: str, type_: str = "Ready") -> str:
    """Return the reason of a condition, or True where it holds."""
    condition = daemon.condition(name, type_)
    return "True" if condition.get("status") == "True" else str(condition.get("reason", ""))


def leading(daemons: Mapping[str, RunningDaemon]) -> str | None:
    """Return the host whose daemon decides for all, as their metrics say."""
    return next((name for name, daemon in daemons.items() if _leads(daemon)), None)


def _leads(daemon: RunningDaemon) -> bool:
    if daemon.process.poll() is not None:
        return False
    return any("fleet lease taken" in line for line in daemon.log)


def test_a_sandbox_runs_on_the_host_that_it_names(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemon = daemons["one"]
    daemon.apply(sandbox("there", "two"))
    wait_for("it is Ready", lambda: reason(daemon, "there") == "True")
    assert containers(hosts, "there") == {"one": 0, "two": 1, "three": 0}
    assert daemons["three"].get("there")["status"]["host"] == "two"
    output = daemon.paddock("apply", "-f", "-", stdin=sandbox("there", "one"), check=False)
    assert output.returncode != 0
    assert "spec.host: is on host `two`, and can't move" in output.stdout + output.stderr
    daemon.paddock("delete", "sandbox", "there")
    wait_for("it is gone", lambda: sum(containers(hosts, "there").values()) == 0)


def test_one_without_a_host_waits_for_a_person(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    three = daemons["three"]
    three.apply(sandbox("nowhere"))
    wait_for("somebody says so", lambda: reason(three, "nowhere", "Scheduled") == "NoHost")
    assert "paddock host list" in three.condition("nowhere", "Scheduled")["message"]
    three.apply(sandbox("nowhere", "three"))
    wait_for("it is Ready", lambda: reason(three, "nowhere") == "True")
    assert containers(hosts, "nowhere") == {"one": 0, "two": 0, "three": 1}
    three.apply(sandbox("unused"))
    wait_for("it waits", lambda: reason(three, "unused", "Scheduled") == "NoHost")
    three.paddock("delete", "sandbox", "nowhere", "unused")
    wait_for("both are gone", lambda: not three.get("nowhere") and not three.get("unused"))


def test_a_quota_counts_what_all_hosts_hold(daemons: Mapping[str, RunningDaemon]) -> None:
    daemon = daemons["one"]
    daemon.apply(_QUOTA)
    for name, host in (("a", "one"), ("b", "two")):
        daemon.apply(sandbox(name, host))
        wait_for(f"{name} is Ready", lambda name=name: reason(daemon, name) == "True")
    daemon.apply(sandbox("c", "three"))
    wait_for("the third waits", lambda: reason(daemon, "c", "Scheduled") == "QuotaExceeded")
    daemon.paddock("delete", "sandbox", "a")
    wait_for("its place is taken", lambda: reason(daemon, "c") == "True")
    daemon.paddock("delete", "sandbox", "b", "c")
    daemon.paddock("delete", "quota", "small")
    wait_for("all are gone", lambda: not any(daemon.get(name) for name in "abc"))


def test_any_daemon_claims_a_warm_sandbox_of_any_host(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemon = daemons["one"]
    daemon.apply(_POOL)
    daemon.paddock("wait", "--for=jsonpath={.status.readyReplicas}=2", "--timeout=60s", "sandboxpool/warm")
    warm = set(hosts["two"].docker("ps", "-q", "--no-trunc").split())

    daemon.apply(_CLAIM)
    wait_for("it is Ready", lambda: reason(daemon, "claimed") == "True")
    status = daemon.get("claimed")["status"]
    assert (status["launchType"], status["host"]) == ("Warm", "two")
    assert status["instanceRef"]["containerID"] in warm
    daemon.paddock("delete", "sandbox", "claimed")
    daemon.paddock("delete", "sandboxpool", "warm")
    wait_for("all are gone", lambda: not hosts["two"].docker("ps", "-aq"))
    daemon.paddock("delete", "sandboxtemplate", "tiny")


def test_a_killed_daemon_leaves_its_sandboxes_running(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    """The role of the fleet goes to another host; nothing moves; the same daemon comes back to what it had."""
    host = wait_for("one leads", lambda: leading(daemons))
    second = next(name for name in NAMES if name != host)
    daemon = daemons[second]
    daemon.apply(sandbox("stays", host))
    wait_for("it is Ready", lambda: reason(daemon, "stays") == "True")
    daemons[host].kill()
    remaining = {name: entry for name, entry in daemons.items() if name != host}
    wait_for("another leads", lambda: leading(remaining))
    daemon.apply(sandbox("nowhere"))
    wait_for("it decides", lambda: reason(daemon, "nowhere", "Scheduled") == "NoHost")
    wait_for("nobody can tell", lambda: reason(daemon, "stays") == "HostLost")
    assert containers(hosts, "stays")[host] == 1
    daemons[host] = hosts[host].daemon()
    wait_for("it is Ready again", lambda: reason(daemon, "stays") == "True")
    daemon.paddock("delete", "sandbox", "stays", "nowhere")
    wait_for("it removes its own", lambda: sum(containers(hosts, "stays").values()) == 0)
