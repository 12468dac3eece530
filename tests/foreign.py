"""A daemon whose sandboxes are all on another host: tests that use it reach each of them through that host's daemon."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.kinds.planning.binding import BOUND_KINDS, UNBOUND, host_of
from controller.ports import StoreError
from controller.store.sql_store import SqlStore
from tests.daemon import RunningDaemon
from tests.two_hosts import two_hosts

_PAUSE_SECONDS = 0.02
# Tests that this mode leaves out, by the beginnings of their ids, with the reason: most are about one daemon by nature.
LEFT_OUT = {
    "tests/e2e/test_agent_stages.py": "it kills the daemon that drives the runs, and starts it on a store of its own",
    "tests/e2e/test_faults.py": "what one daemon does without an engine or a store, and with clients that stall",
    "tests/e2e/test_growing.py": "its own hosts",
    "tests/e2e/test_hung_containers.py": "an engine of the test's own, for one daemon",
    "tests/e2e/test_mcp_packages.py": "a lab with an Internet of its own, in the network namespace of one daemon",
    "tests/e2e/test_mcpserver.py::test_containers_are_removed_on_disconnect_all": "it kills the daemon that leads, and"
    " the host without an engine would take over",
    "tests/e2e/test_metrics.py": "the families that one daemon exports",
    "tests/e2e/test_orphans.py": "rows are taken out of a SQLite file",
    "tests/e2e/test_postgres.py": "a database for one daemon",
    "tests/e2e/test_roles.py": "its own hosts",
    "tests/e2e/test_stateful.py": "one daemon that is killed and started at random",
    "tests/e2e/test_standby.py": "two daemons of one host",
    "tests/e2e/test_stores.py": "the state folder of one daemon, with its SQLite file",
    "tests/e2e/test_two_hosts.py": "its own hosts",
}


@contextmanager
def foreign(folder: Path, **settings: Any) -> Iterator[RunningDaemon]:
    """Two hosts of which the asked one, `a`, has no engine. What names no host is bound to `b`, as by a scheduler."""
    with two_hosts(folder, **settings) as (two_host, second), _bound_to(second):
        two_host.elsewhere = second
        yield two_host


@contextmanager
def _bound_to(daemon: RunningDaemon) -> Iterator[None]:
    store, stopping = SqlStore(daemon.environment["PADDOCK_DATABASE_URL"]), threading.Event()
    store.open()

    def run() -> None:
        while not stopping.wait(_PAUSE_SECONDS):
            try:
                if any(host_of(stored, UNBOUND) == UNBOUND for kind in BOUND_KINDS for stored in store.list(kind)[0]):
                    _bind(store)
            except StoreError:
                continue

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        store.close()


def _bind(store: SqlStore) -> None:
    with store.transaction() as transaction:
        for kind in BOUND_KINDS:
            for stored in transaction.list(kind):
                if host_of(stored, UNBOUND) == UNBOUND and stored.deleted_at is None:
                    transaction.put(replace(stored, status={**stored.status, "host": "b"}))
