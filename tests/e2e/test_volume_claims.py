"""Two claims of one pool on the real engine: each has its own retained volume."""

from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, running

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: t}
spec:
  image: paddock/test-tiny:1
  command: [sleep, infinity]
  volumeClaimTemplates: [{name: data, mountPath: /data, size: 8Mi}]
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: p}
spec: {templateRef: {name: t}, warmReplicas: 2, shutdownGracePeriodSeconds: 0}
"""
CLAIM = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: NAME}
spec: {templateRef: {name: t}, host: HOST, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""


def claim(daemon: RunningDaemon, *names: str) -> None:
    text = CLAIM.replace("HOST", daemon.works_at.host)  # a volume that stays is on one host
    daemon.apply("---".join(text.replace("NAME", name) for name in names))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", *(f"sandbox/{name}" for name in names))


def volumes(daemon: RunningDaemon) -> dict[str, dict[str, Any]]:
    return {entry["metadata"]["name"]: entry for entry in daemon.objects("volumes")}


def in_sandbox(daemon: RunningDaemon, name: str, script: str) -> str:
    return daemon.paddock("exec", name, "--", "sh", "-c", script).stdout.strip()


def test_each_claim_writes_and_reads_its_own(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        # Through another host's daemon none is claimed that has to reserve more, such as its volume.
        launched = "Warm" if daemon.works_at is daemon else "Cold"
        daemon.apply(POOL)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandboxpool/p")
        assert volumes(daemon) == {}
        claim(daemon, "a", "b")
        for name in ("a", "b"):
            assert daemon.get(name)["status"]["launchType"] == launched
            assert in_sandbox(daemon, name, f"echo of {name} > /data/{name}; ls /data | grep -v lost") == name
        data_a = volumes(daemon)["data-a"]
        assert data_a["spec"] == {"size": "8Mi", "reclaimPolicy": "Retain", "sandbox": "a"}
        assert data_a["status"]["usedBy"] == [{"kind": "Sandbox", "name": "a"}]
        assert (data_a["status"]["phase"], data_a["status"]["mounted"], bool(data_a["status"]["used"])) == (
            "Bound",
            True,
            True,
        )
        output = daemon.paddock("delete", "volume", "data-a", check=False)
        assert "`data-a` is used by sandbox a" in output.stderr
        daemon.paddock("delete", "sandbox", "a", "b", "--timeout=60s")
        assert daemon.paddock("delete", "volume", "data-b").stdout == 'volume.paddock "data-b" deleted\n'
        assert [(name, volume["status"]["phase"]) for name, volume in volumes(daemon).items()] == [
            ("data-a", "Released")
        ]
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandboxpool/p")
        claim(daemon, "a")
        assert daemon.get("a")["status"]["launchType"] == launched
        assert in_sandbox(daemon, "a", "cat /data/a; ls /data | grep -v lost") == "of a\na"
        assert daemon.paddock("attest", "a").returncode == 0
        assert sorted(path.name for path in daemon.works_at.folder.glob("volumes/default/*")) == [
            "data-a.claim",
            "data-a.img",
        ]
