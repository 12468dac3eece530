"""A quota for one of two sandboxes on a real engine: the second starts once the first is deleted."""

from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, running, wait_for

pytestmark = pytest.mark.docker
QUOTA = """
apiVersion: paddock/v1alpha1
kind: Quota
metadata: {name: main}
spec: {hard: {memory: 100Mi, sandboxes: 5}}
"""
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {cpu: 100m, memory: %s, pids: 32}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def memory_used(daemon: RunningDaemon) -> str:
    return str(daemon.object("quotas", "main").get("status", {}).get("used", {}).get("memory", ""))


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.apply(QUOTA)
        daemon.apply(SANDBOX % ("first", "64Mi"))
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/first")
        daemon.apply(SANDBOX % ("second", "64Mi"))
        wait_for("it waits", lambda: daemon.condition("second", "Scheduled").get("reason") == "QuotaExceeded")
        output = daemon.paddock("describe", "sandbox", "second").stdout
        assert "quota default/main: memory: 64Mi requested, 64Mi of 100Mi used" in output
        wait_for("the quota tells", lambda: memory_used(daemon) == "64Mi")
        assert "64Mi/100Mi" in daemon.paddock("get", "quota").stdout
        assert "hostquota" not in daemon.paddock("get", "hostquota").stdout
        daemon.paddock("delete", "sandbox", "first", "--timeout=60s")
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/second")
        assert daemon.condition("second", "Scheduled")["status"] == "True"
