"""From one host to many: what a single host kept goes on as it was, and a second host joins."""

from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, running, wait_for
from tests.fleet_files import Authority
from tests.postgres import new_database
from tests.two_hosts import host

pytestmark = [pytest.mark.docker, pytest.mark.postgres]
_BEFORE = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: old}
spec:
  template:
    image: "paddock/test-tiny:1"
    command: ["sleep", "1000000"]
    volumes: [{name: data, mountPath: /data, size: 16Mi}]
  resources: {limits: {memory: 32Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
---
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"], resources: {limits: {memory: 32Mi}}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: tiny}, warmReplicas: 1, shutdownGracePeriodSeconds: 0}
---
apiVersion: paddock/v1alpha1
kind: HostQuota
metadata: {name: host}
spec: {hard: {sandboxes: 7}}
"""


_CLAIM = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: claimed}
spec: {templateRef: {name: tiny}, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""


def container(daemon: RunningDaemon) -> str:
    return str(daemon.get("old")["status"]["instanceRef"]["containerID"])


def members(daemon: RunningDaemon) -> tuple[int, int]:
    """Return how many ready and how many claimed members the pool has."""
    status = daemon.object("sandboxpools", "warm")["status"]
    return status.get("readyReplicas", 0), status.get("claimedReplicas", 0)


def test_what_one_host_kept_goes_on_among_many(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    with new_database() as database, running(tmp_path / "first", PADDOCK_DATABASE_URL=database) as single:
        single.apply(_BEFORE)
        single.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/old")
        single.paddock("exec", "old", "--", "sh", "-c", "echo kept > /data/file")
        wait_for("the pool is filled", lambda: members(single) == (1, 0))
        before, identity = container(single), single.instance_id()
        single.stop()

        with host(tmp_path / "first", "host", database, authority) as first:
            first.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/old")
            assert container(first) == before, "it was not touched"
            assert first.instance_id() == identity
            wait_for("it knows which members are ready", first.is_ready)
            first.apply(_CLAIM)
            first.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/claimed")
            assert first.get("claimed")["status"]["launchType"] == "Warm"
            wait_for("its pool is filled again", lambda: members(first) == (1, 1))
            assert "7" in first.paddock("get", "hostquota", "host", "-o", "yaml").stdout
            nowhere = {"PADDOCK_DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
            with host(tmp_path / "second", "b", database, authority, **nowhere) as second:
                wait_for("it is known", lambda: "b" in first.paddock("host", "list").stdout)
                wait_for(
                    "it is reached",
                    lambda: second.paddock("exec", "old", "--", "true", check=False).returncode == 0,
                )
                assert second.paddock("exec", "old", "--", "cat", "/data/file").stdout == "kept\n"
                assert container(second) == before
