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


@contextmanager
def foreign(folder: Path, **settings: Any) -> Iterator[RunningDaemon]:
    """Two hosts of which the asked one, `a`, has no engine. What names no host is bound to `b`, as by a scheduler."""
    with two_hosts(folder, **settings) as (asked, other), _bound_to(other):
        asked.elsewhere = other
        yield asked


@contextmanager
def _bound_to(daemon: RunningDaemon) -> Iterator[None]:
    store, stopping = SqlStore(daemon.environment["PADDOCK_DATABASE_URL"]), threading.Event()
    store.open()

    def run() -> None:
        while not stopping.wait(_PAUSE_SECONDS):
            try:
                if any(host_of(each, UNBOUND) == UNBOUND for kind in BOUND_KINDS for each in store.list(kind)[0]):
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
            for each in transaction.list(kind):
                if host_of(each, UNBOUND) == UNBOUND and each.deleted_at is None:
                    transaction.put(replace(each, status={**each.status, "host": "b"}))
