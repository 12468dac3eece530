"""The main job once, from end to end, for engines on which not every test is run."""

import os
from pathlib import Path

import pytest

from tests.daemon import docker, running, wait_for
from tests.e2e.test_sandbox import container, named, ready, sandbox_document

pytestmark = [pytest.mark.docker, pytest.mark.newer]


def test_apply_exec_kill_repair_delete(tmp_path: Path) -> None:
    assert docker("version", "--format", "{{.Server.Version}}") == os.environ["PADDOCK_TEST_NEWER"]
    with running(tmp_path, prefix=()) as daemon:  # as users start it
        daemon.apply(sandbox_document("smoke"))
        ready(daemon, "smoke")
        assert daemon.condition("smoke", "Secured")["status"] == "True"
        assert daemon.condition("smoke", "Resized")["status"] == "True"
        done = daemon.paddock("exec", "smoke", "--", "sh", "-c", "echo out; exit 7", check=False)
        assert (done.stdout, done.returncode) == ("out\n", 7)
        docker("kill", container(daemon, "smoke")["Id"])
        wait_for("it is repaired", lambda: daemon.get("smoke")["status"].get("restartCount") == 1)
        ready(daemon, "smoke")
        assert "Killed: exit code 137" in daemon.paddock("events", "sandbox/smoke").stdout
        daemon.paddock("delete", "sandbox", "smoke", "--timeout=30s")
        assert (named(daemon, "smoke"), daemon.get("smoke")) == ("", {})
