"""Two whole daemons on one PostgreSQL: host b with this machine's engine, and host a, whose engine is away."""

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.daemon import RunningDaemon, running, wait_for
from tests.fleet_files import Authority
from tests.postgres import new_database


@contextmanager
def two_hosts(folder: Path, **settings: str) -> Iterator[tuple[RunningDaemon, RunningDaemon]]:
    """Hosts a and b, which reach each other, with these settings."""
    authority = Authority(folder / "authority")
    with ExitStack() as stack:
        database = stack.enter_context(new_database())
        # Host b starts first, and so leads: host a can only pass on what it is asked.
        b = stack.enter_context(host(folder / "b", "b", database, authority, **settings))
        nowhere = {"PADDOCK_DOCKER_HOST": f"unix://{folder}/no.sock"}
        a = stack.enter_context(host(folder / "a", "a", database, authority, **settings | nowhere))
        daemons = (a, b)
        for daemon in daemons:
            wait_for("both know each other's address", lambda daemon=daemon: _addresses(daemon) == {"a", "b"})
        try:
            yield daemons
        finally:  # both, before their containers are removed: the other would put them back
            for daemon in daemons:
                daemon.stop()


def _addresses(daemon: RunningDaemon) -> set[str]:
    """Return the hosts whose addresses the daemon knows."""
    listed = daemon.objects("hosts", "")
    return {entry["metadata"]["name"] for entry in listed if entry["status"].get("address")}


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
    """Return a port that no connection gets as its own meanwhile: below those that the kernel gives out."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(20_000, 32_000))) as free:
            return int(free.getsockname()[1])
