"""The hosts that share a store, as `paddock doctor` finds them without a daemon."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from controller.kinds.meta import StoredObject
from controller.kinds.observed.doctor import FailingCondition, HostSighting
from controller.store.doctor import inspect_store
from tests.contract.store_backends import BACKENDS, Backend, make_backend


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


class Seconds:
    """The clock of this machine, ahead by some seconds."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def now(self) -> float:
        return time.time() + self._ahead


def test_hosts_are_alive_by_their_leases(backend: Backend) -> None:
    store, lease = backend.store(), backend.store().lease("host/host")
    paddock = {"version": "1.2", "instanceID": store.instance_id}
    away = {"type": "EngineReachable", "status": "False", "reason": "NoAnswer", "message": "no engine"}
    document = {
        "paddock": paddock,
        "address": "10.0.0.2:9466",
        "conditions": [away, {**away, "type": "MemoryPressure"}],
    }
    with store.transaction() as transaction:
        transaction.put(StoredObject("Host", "", "host", "uid-host", {}, status=document))
        transaction.put(StoredObject("Host", "", "new", "uid-new", {}))
    plain = inspect_store(backend.url, schema=backend.schema)
    assert (plain.hosts, plain.skew_seconds) == ((), None), "a single host's store is not asked"
    for acquired in (True, False):
        if acquired:
            assert lease.acquire() == ""
        else:
            lease.release()
        store_facts = inspect_store(backend.url, Seconds(3600), schema=backend.schema)
        away_now = FailingCondition("EngineReachable", "EngineReachable is False (no engine)")
        failing = (away_now,) if acquired else ()
        assert store_facts.hosts == (
            HostSighting("host", "1.2", is_alive=acquired, address="10.0.0.2:9466", failing=failing),
            HostSighting("new", "", is_alive=False),
        )
    skew = store_facts.skew_seconds  # only a server has a clock of its own
    assert skew is None if backend.schema is None else -3660 < skew < -3540


def test_what_the_database_refuses_is_told(backend: Backend) -> None:
    backend.store()
    with backend.database() as database, database.writing() as connection:
        connection.execute(text("ALTER TABLE objects RENAME TO others"))
    assert "does not have the tables" in inspect_store(backend.url, Seconds(0), schema=backend.schema).trouble
