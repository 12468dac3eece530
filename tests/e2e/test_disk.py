"""limits.disk end to end on a real engine: enforced, required, or measured and stopped."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, running, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]
GRANTS = json.dumps({"writableRoot": True, "lowestUserID": 0})
PROFILE = """
apiVersion: paddock/v1alpha1
kind: SecurityProfile
metadata: {name: scratch}
spec: {base: full-isolation, readOnlyRootFilesystem: false, lowestUserID: 0}
"""
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %(name)s}
spec:
  template:
    image: paddock/test-tiny:1
    command: ["sh", "-c", "dd if=/dev/zero of=/file bs=1048576 count=%(mib)d; exec sleep 1000000"]
    securityLevel: scratch
    user: "0:0"
  resources:
    limits: {cpu: 200m, memory: 64Mi, pids: 16, disk: 16Mi}
    disk: {enforcement: %(enforcement)s}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    with running(tmp_path, periods={"layers": 1}, PADDOCK_PROFILE_GRANTS=GRANTS) as created:
        created.paddock("apply", "-f", "-", stdin=PROFILE)
        yield created


def condition(daemon: RunningDaemon, plural: str, name: str, type_: str) -> tuple[str, str]:
    namespace = "" if plural == "hosts" else "default"
    objects = {document["metadata"]["name"]: document for document in daemon.objects(plural, namespace)}
    document: dict[str, Any] = objects[name]
    observed = [entry for entry in document["status"].get("conditions", ()) if entry["type"] == type_]
    return (observed[0]["status"], observed[0]["reason"]) if observed else ("", "")


def enforceable(daemon: RunningDaemon) -> str:
    return condition(daemon, "hosts", daemon.works_at.host, "DiskQuotaEnforceable")[0]


def apply(daemon: RunningDaemon, name: str, mib: int, enforcement: str = "BestEffort") -> str:
    text = SANDBOX % {"name": name, "mib": mib, "enforcement": enforcement}
    done = daemon.paddock("apply", "-f", "-", stdin=text, check=False)
    return done.stderr if done.returncode else ""


def not_accepted(daemon: RunningDaemon, name: str) -> str:
    document = daemon.condition(name, "Accepted")
    return str(document["message"]) if document.get("status") == "False" else ""


def test_a_sandbox_keeps_to_its_disk_limit(daemon: RunningDaemon) -> None:
    wait_for("the engine was tried", lambda: enforceable(daemon) != "Unknown")
    enforced = enforceable(daemon)
    assert apply(daemon, "small", 8) == ""
    assert apply(daemon, "large", 32) == ""
    if enforced == "True":
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=30s", "sandbox/large")
        assert condition(daemon, "sandboxes", "large", "DiskQuotaEnforced") == ("True", "StorageOption")
        return
    answer = apply(daemon, "sure", 8, "Required") or wait_for(
        "its host refuses it", lambda: not_accepted(daemon, "sure")
    )
    assert "can't be Required on this host" in answer
    wait_for(
        "it is stopped",
        lambda: condition(daemon, "sandboxes", "large", "Finished") == ("True", "DiskLimitExceeded"),
        seconds=240,
    )
    assert condition(daemon, "sandboxes", "large", "DiskQuotaEnforced") == ("False", "Soft")
    assert condition(daemon, "sandboxes", "small", "Ready") == ("True", "Running")
    assert "DiskLimitExceeded" in daemon.paddock("events", "sandbox/large").stdout
