"""Two daemons on one store: one acts, the other waits, and takes over when the first ends. No engine is needed."""

import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.store_backends import BACKENDS
from tests.daemon import RunningDaemon, start_daemon, wait_for

SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: one}
spec: {template: {image: "paddock/test-tiny:1"}}
"""


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of this test's own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shared' / 'paddock.db'}"
        return
    import psycopg

    server = os.environ["PADDOCK_TEST_POSTGRES"]
    name = f"paddock_{uuid.uuid4().hex}"
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        before, _, options = server.partition("?")
        yield f"{before.rsplit('/', 1)[0]}/{name}?{options}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def start(folder: Path, url: str, **settings: str) -> RunningDaemon:
    folder.mkdir()
    nowhere = f"unix://{folder / 'no-engine.sock'}"
    return start_daemon(folder, ready=False, PADDOCK_DATABASE_URL=url, PADDOCK_DOCKER_HOST=nowhere, **settings)


def says(daemon: RunningDaemon, words: str) -> None:
    wait_for(f"it says: {words}", lambda: words in "".join(daemon.log), seconds=60)


def test_a_standby_takes_over(tmp_path: Path, url: str) -> None:
    first = start(tmp_path / "first", url)
    second = None
    try:
        says(first, '"serving"')
        first.apply(SANDBOX)
        second = start(tmp_path / "second", url)
        says(second, "standby: waiting for the leader lease")
        says(second, f"pid {first.process.pid}")
        assert not second.socket.exists()
        first.kill()
        says(second, '"serving"')
        assert second.get("one")["metadata"]["name"] == "one"
        assert second.stop() == 0
    finally:
        for daemon in filter(None, (first, second)):
            daemon.kill()


def test_a_standby_stops_and_no_wait_is_refused(tmp_path: Path, url: str) -> None:
    first = start(tmp_path / "first", url)
    remaining = []
    try:
        says(first, '"serving"')
        remaining = [start(tmp_path / "second", url), start(tmp_path / "third", url, PADDOCK_STANDBY="false")]
        says(remaining[0], "standby: waiting for the leader lease")
        assert remaining[0].stop() == 0
        assert remaining[1].process.wait(60) == 1
        says(remaining[1], f"held by another Paddock daemon: pid {first.process.pid}")
        assert first.stop() == 0
    finally:
        for daemon in (first, *remaining):
            daemon.kill()


@pytest.mark.postgres
@pytest.mark.parametrize("url", BACKENDS[1:], indirect=True)
def test_a_frozen_daemon_exits_when_it_resumes(tmp_path: Path, url: str) -> None:
    first = start(tmp_path / "first", url)
    second = None
    try:
        says(first, '"serving"')
        second = start(tmp_path / "second", url)
        says(second, "standby: waiting for the leader lease")
        first.process.send_signal(signal.SIGSTOP)
        says(second, '"serving"')
        second.apply(SANDBOX)
        wait_for("its status", lambda: second.condition("one", "Ready"))
        before = second.get("one")["metadata"]["resourceVersion"]
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(60) == 1
        says(first, "leader lease lost to another daemon; exiting")
        assert second.get("one")["metadata"]["resourceVersion"] == before
        assert second.stop() == 0
    finally:
        for daemon in filter(None, (first, second)):
            daemon.process.send_signal(signal.SIGCONT)
            daemon.kill()


def test_a_store_restored_from_a_backup_is_noticed_and_confirmed(tmp_path: Path) -> None:
    """The daemon reports it at every start until the operator removes the named file."""
    folder, engine = tmp_path / "state", f"unix://{tmp_path / 'no-engine.sock'}"
    database, backup, mark = folder / "paddock.db", tmp_path / "backup.db", folder / "lineage.json"
    assert start_daemon(folder, PADDOCK_DOCKER_HOST=engine).stop() == 0
    shutil.copy(database, backup)
    daemon = start_daemon(folder, PADDOCK_DOCKER_HOST=engine)
    daemon.apply(SANDBOX)
    assert daemon.stop() == 0
    for path in folder.glob("paddock.db*"):
        path.unlink()
    shutil.copy(backup, database)
    for _ in range(2):
        daemon = start_daemon(folder, PADDOCK_DOCKER_HOST=engine)
        try:
            says(daemon, "it was restored from a backup")
            says(daemon, str(mark))
        finally:
            assert daemon.stop() == 0
    mark.unlink()
    daemon = start_daemon(folder, PADDOCK_DOCKER_HOST=engine)
    assert daemon.stop() == 0
    assert "it was restored" not in "".join(daemon.log)
