"""The daemon with its store on PostgreSQL, and a lost connection."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.daemon import docker, remove_containers, start_daemon, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.postgres]
BOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: stored}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def admin() -> psycopg.Connection:
    url = os.environ["PADDOCK_TEST_POSTGRES"].replace("postgresql+psycopg://", "postgresql://")
    return psycopg.connect(url, autocommit=True)


@pytest.fixture
def database() -> Iterator[str]:
    """Create a database for this test; yield its URL."""
    name = f"paddock_{uuid.uuid4().hex}"
    with admin() as connection:
        connection.execute(f"CREATE DATABASE {name}")
    before, _, options = os.environ["PADDOCK_TEST_POSTGRES"].partition("?")
    yield f"{before.rsplit('/', 1)[0]}/{name}?{options}"
    with admin() as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_postgresql_survives_a_lost_connection(tmp_path: Path, database: str) -> None:
    daemon = start_daemon(tmp_path, PADDOCK_DATABASE_URL=database)
    instance = ""
    try:
        daemon.apply(BOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=30s", "sandbox/stored")
        held = daemon.get("stored")["status"]["instanceRef"]["name"]
        instance = docker("inspect", "-f", '{{index .Config.Labels "paddock.instance"}}', held)
        with admin() as connection:
            name = database.rsplit("/", 1)[1].split("?")[0]
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        docker("kill", held)
        wait_for("it is repaired all the same", lambda: daemon.get("stored")["status"]["restartCount"] == 1)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=30s", "sandbox/stored")
        daemon.paddock("delete", "sandbox", "stored", "--timeout=30s")
        assert docker("ps", "-aq", "--filter", f"label=paddock.instance={instance}") == ""
    finally:
        assert daemon.stop() == 0
        if instance:
            remove_containers(instance)
