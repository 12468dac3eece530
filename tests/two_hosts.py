"""Two whole daemons on one PostgreSQL: host b with this machine's engine, and host a, whose engine is away."""

import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from controller.kinds.meta import StoredObject
from controller.store.sql_store import SqlStore
from tests.daemon import RunningDaemon, running
from tests.fleet_files import Authority
from tests.postgres import new_database


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[RunningDaemon, RunningDaemon]]:
    """Hosts a and b, which reach each other."""
    authority = Authority(folder / "authority")
    with ExitStack() as held:
        database = held.enter_context(new_database())
        found = (
            held.enter_context(
                host(folder / "a", "a", database, authority, PADDOCK_DOCKER_HOST=f"unix://{folder}/no.sock")
            ),
            held.enter_context(host(folder / "b", "b", database, authority)),
        )
        for name, daemon in zip("ab", found, strict=True):
            announce(database, name, daemon.environment["PADDOCK_FLEET_ADDRESS"])
        yield found


def announce(database: str, name: str, address: str) -> None:
    """Store a host's address."""
    store = SqlStore(database)
    store.open()
    try:
        with store.transaction() as transaction:
            known = transaction.get("Host", "", name)
            made = known or StoredObject("Host", "", name, uid=str(uuid.uuid4()), spec={}, created_at=time.time())
            transaction.put(replace(made, status={**made.status, "address": address}))
    finally:
        store.close()


@contextmanager
def host(folder: Path, name: str, database: str, authority: Authority, **more: str) -> Iterator[RunningDaemon]:
    """The daemon of one host."""
    files = authority.files(name)
    settings = {
        "PADDOCK_DATABASE_URL": database,
        "PADDOCK_HOST_NAME": name,
        "PADDOCK_SCHEDULER": "manual",
        "PADDOCK_FLEET_ADDRESS": f"127.0.0.1:{_free_port()}",
        "PADDOCK_FLEET_CERT_FILE": str(files.cert),
        "PADDOCK_FLEET_KEY_FILE": str(files.key),
        "PADDOCK_FLEET_CA_FILE": str(files.authority),
        **more,
    }
    with running(folder, **settings) as daemon:
        yield daemon


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
