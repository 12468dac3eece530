"""Orphans on a real engine: a container without object is removed, a copy by `docker commit` stays."""

import sqlite3
from pathlib import Path

import pytest

from tests.daemon import docker, remove_image, running, start_daemon, wait_for

SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: {name}}}
spec:
  template: {{image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}}
  resources: {{limits: {{memory: 64Mi}}}}
"""


def forget(database: Path, name: str) -> None:
    """Delete an object's rows in the database."""
    connection = sqlite3.connect(database)
    with connection:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("DELETE FROM objects WHERE name = ?", (name,))
    connection.close()


@pytest.mark.docker
def test_an_orphan_is_removed_and_a_copy_of_it_is_not(tmp_path: Path) -> None:
    quick = {"PADDOCK_ORPHAN_GRACE_SECONDS": "1"}
    with running(tmp_path, **quick) as daemon:
        daemon.apply("---".join(SANDBOX.format(name=name) for name in ("kept", "lost")))
        for name in ("kept", "lost"):
            daemon.paddock("wait", "--for=condition=Ready", "--timeout=30s", f"sandbox/{name}")
        container_id = daemon.get("lost")["status"]["instanceRef"]["containerID"]
        image = f"paddock/test-copy:{container_id[:8]}"
        docker("commit", container_id, image)
        copy = docker("run", "-d", "--network", "none", image)
        try:
            daemon.kill()
            forget(tmp_path / "paddock.db", "lost")
            second = start_daemon(tmp_path, **quick)
            try:
                wait_for(
                    "the orphan is gone",
                    lambda: not docker("ps", "-aq", "--no-trunc", "--filter", f"id={container_id}"),
                )
                wait_for("it is told", lambda: "Orphaned" in [event["reason"] for event in second.objects("events")])
                assert "Orphaned" in second.paddock("events", "sandbox/lost").stdout
                assert docker("inspect", "-f", "{{.State.Running}}", copy) == "true"
                assert second.condition("kept", "Ready")["status"] == "True"
            finally:
                assert second.stop() == 0
        finally:
            docker("rm", "-f", copy)
            remove_image(image)
