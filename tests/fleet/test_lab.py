"""The lab of several hosts itself: a daemon and a sandbox on one, a partition, a power cut."""

import pytest

from tests.daemon import wait_for
from tests.lab.fleet import Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.docker]

_SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: first}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {cpu: 100m, memory: 16Mi, pids: 16}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def test_a_daemon_of_one_host_makes_its_sandbox_there(hosts: Fleet) -> None:
    daemon = hosts["two"].daemon(PADDOCK_HOST_NAME="host", PADDOCK_SCHEDULER="single")
    daemon.apply(_SANDBOX)
    wait_for("the sandbox is Ready", lambda: daemon.condition("first", "Ready").get("status") == "True")
    assert len(hosts["two"].docker("ps", "-q", "--filter", "label=paddock.name=first").split()) == 1
    assert daemon.paddock("exec", "first", "--", "echo", "hello").stdout == "hello\n"
    assert daemon.stop() == 0


def test_a_partitioned_host_is_down_and_comes_back(hosts: Fleet) -> None:
    hosts["three"].cut()
    wait_for("it is missed", lambda: hosts.nodes(hosts["one"])["three"] == "down")
    hosts["three"].mend()
    wait_for("it is back", lambda: hosts.nodes(hosts["one"])["three"] == "ready")


def test_a_leader_without_power_is_replaced(hosts: Fleet) -> None:
    leader = hosts.leader()
    leader.power_off()
    fleet_host = hosts.leader()
    assert fleet_host is not leader
    wait_for("it is missed", lambda: hosts.nodes(fleet_host)[leader.name] == "down")
    leader.engine.start()
    wait_for("it is back", lambda: hosts.nodes(fleet_host)[leader.name] == "ready")
