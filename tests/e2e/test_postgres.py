"""The daemon with its store on PostgreSQL, and a lost connection."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import docker, remove_containers, start_daemon, wait_for
from tests.postgres import admin, new_database

pytestmark = [pytest.mark.docker, pytest.mark.postgres]
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: stored}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


@pytest.fixture
def database() -> Iterator[str]:
    with new_database() as url:
        yield url


def test_postgresql_survives_a_lost_connection(tmp_path: Path, database: str) -> None:
    daemon = start_daemon(tmp_path, PADDOCK_DATABASE_URL=database)
    instance = ""
    try:
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=30s", "sandbox/stored")
        reserved = daemon.get("stored")["status"]["instanceRef"]["name"]
        instance = docker("inspect", "-f", '{{index .Config.Labels "paddock.instance"}}', reserved)
        with admin() as connection:
            name = database.rsplit("/", 1)[1].split("?", maxsplit=1)[0]
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        docker("kill", reserved)
        wait_for("it is repaired all the same", lambda: daemon.get("stored")["status"]["restartCount"] == 1)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=30s", "sandbox/stored")
        daemon.paddock("delete", "sandbox", "stored", "--timeout=30s")
        assert docker("ps", "-aq", "--filter", f"label=paddock.instance={instance}") == ""
    finally:
        assert daemon.stop() == 0
        if instance:
            remove_containers(instance)
