"""The nine figures and limit events of a real sandbox with a known load."""

import json
from pathlib import Path

import pytest

from tests.daemon import docker, running, wait_for

pytestmark = pytest.mark.docker
HELD, MIB = 31_000_000, 1 << 20
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: busy}
spec:
  template:
    image: "paddock/test-tiny:1"
    command: ["sh", "-c", "sleep 1000000 & head -c %d /dev/zero > /tmp/held; while :; do :; done"]
  resources: {limits: {cpu: 100m, memory: 32Mi, pids: 64}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def test_top_shows_the_load_and_a_limit_that_is_near_becomes_an_event(tmp_path: Path) -> None:
    with running(tmp_path, periods={"health": 1}, PADDOCK_RESYNC_SECONDS="1") as daemon:
        daemon.apply(SANDBOX % HELD)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/busy")

        def told() -> bool:
            return "MemoryNearLimit" in daemon.paddock("events", "sandbox/busy").stdout

        wait_for("memory near its limit is told", told, 60)
        usage = json.loads(daemon.paddock("top", "busy", "-o", "json").stdout)["usage"]
        assert 1 < usage["cpuPercent"] < 12, "a tenth of a processor is what it may have"
        assert HELD <= usage["memoryUsageBytes"] <= usage["memoryLimitBytes"] == 32 * MIB
        assert (usage["networkReceiveBytes"], usage["networkTransmitBytes"]) == (None, None), "it has none"
        sandbox = daemon.get("busy")["status"]["instanceRef"]["name"]
        assert usage["processes"] == len(docker("top", sandbox, "-eo", "pid").splitlines()) - 1
        assert usage["uptimeSeconds"] > 0
        line = daemon.paddock("top", "--no-headers").stdout.split()
        limit_at = line.index("32Mi")  # a fleet has a column more, for the host
        assert (line[0], line[limit_at : limit_at + 3]) == ("busy", ["32Mi", "-", "-"])
