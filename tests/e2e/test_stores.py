"""Stores on a real engine: two separate ones, and one restored with its whole state folder."""

import shutil
from pathlib import Path

import pytest

from tests.daemon import docker, running, start_daemon, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
QUICK = {"PADDOCK_ORPHAN_GRACE_SECONDS": "1", "PADDOCK_RESYNC_SECONDS": "1"}
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 16Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def held(instance_id: str) -> set[str]:
    """Ids of the containers of one store that run."""
    return set(docker("ps", "-q", "--no-trunc", "--filter", f"label=paddock.instance={instance_id}").split())


def test_two_daemons_with_stores_of_their_own_leave_each_other_alone(tmp_path: Path) -> None:
    with running(tmp_path / "one", **QUICK) as first_running, running(tmp_path / "two", **QUICK) as two:
        for daemon in (first_running, two):
            daemon.apply(SANDBOX % "same")
            daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/same")
        first, second = first_running.instance_id(), two.instance_id()
        texts, (ours,) = held(second), held(first)
        docker("rm", "-f", ours)
        wait_for("it is made anew", lambda: held(first) and held(first) != {ours}, 60)
        first_running.paddock("delete", "sandbox", "same")
        assert held(first) == set()
        first_running.kill()
        start_daemon(tmp_path / "one", **QUICK).stop()
        assert held(second) == texts
        assert two.condition("same", "Ready")["status"] == "True"


def test_a_restored_state_folder_removes_no_newer_container(tmp_path: Path) -> None:
    folder, backup = tmp_path / "state", tmp_path / "backup"
    with running(folder, **QUICK) as daemon:
        daemon.apply(SANDBOX % "old")
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/old")
        assert daemon.stop() == 0
        shutil.copytree(folder, backup)
        later = start_daemon(folder, **QUICK)
        later.apply(SANDBOX % "new")
        later.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/new")
        assert later.stop() == 0
        before = held(daemon.instance_id())
        assert len(before) == 2
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        restored = start_daemon(folder, **QUICK)
        try:
            wait_for("it says so", lambda: "it was restored from a backup" in "".join(restored.log), 60)
            restored.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/old")
            assert held(daemon.instance_id()) == before
            (folder / "lineage.json").unlink()
            wait_for("confirmed, it is swept", lambda: len(held(daemon.instance_id())) == 1, 60)
        finally:
            assert restored.stop() == 0
