"""Failures that only a server has: not there, gone, refusing, read only."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, bindparam, make_url, select, text, update

from controller.kinds.planning.plan import StatusWrite, Writes
from controller.ports import StoreError
from controller.store.connect import connect
from controller.store.database import Quick
from controller.store.schema import meta
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import Backend, insert, make_backend, new_sandbox, refusal
from tests.daemon import wait_for
from tests.lab.postgres import postgres

pytestmark = pytest.mark.postgres


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with make_backend("postgres", tmp_path) as created:
        yield created


def cut(connection: Connection, name: str) -> int:
    """End the sessions of that application name, as an administrator or a restart does."""
    exec_driver_sql = connection.exec_driver_sql(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = %s", (name,)
    )
    return int(exec_driver_sql.scalar_one())


def named(backend: Backend, name: str) -> SqlStore:
    """A store whose sessions `cut` can find."""
    url = make_url(backend.url).update_query_dict({"application_name": name})
    return replace(backend, url=url.render_as_string(hide_password=False)).store()


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    store = SqlStore(f"postgresql://me:secret@/paddock?host={tmp_path}")
    error = str(refusal(store.open))
    assert "unreachable; check that the server runs" in error
    assert "secret" not in error
    assert "not open" in store.ping()


def test_a_database_that_is_not_there() -> None:
    url = make_url(os.environ["PADDOCK_TEST_POSTGRES"]).set(database="nowhere").render_as_string(False)
    assert '"nowhere" does not exist' in str(refusal(SqlStore(url).open))


def test_any_spelling_of_the_scheme_means_psycopg(backend: Backend) -> None:
    for scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        url = backend.url.replace(backend.url.split(":", 1)[0], scheme, 1)
        store = SqlStore(url, schema=backend.schema)
        try:
            store.open()
            assert store.ping() == ""
        finally:
            store.close()


def test_a_server_that_restarts_is_found_again(backend: Backend) -> None:
    store = named(backend, backend.schema or "")
    insert(store, new_sandbox("before"))
    database = connect(os.environ["PADDOCK_TEST_POSTGRES"])
    try:
        with database.reading() as connection:
            assert cut(connection, backend.schema or "") >= 1
    finally:
        database.close()
    assert [stored.name for stored in store.list("Sandbox")[0]] == ["before"]
    assert store.ping() == ""


def test_a_cut_connection_is_not_used_for_one_read_or_write(backend: Backend) -> None:
    store = named(backend, backend.schema or "")
    insert(store, new_sandbox("before"))
    database = connect(os.environ["PADDOCK_TEST_POSTGRES"])

    def cut_now() -> None:
        with database.reading() as connection:
            assert cut(connection, backend.schema or "") >= 1

    try:
        cut_now()
        assert store.get("Sandbox", "default", "before") is not None
        cut_now()
        insert(store, new_sandbox("after"))
        cut_now()
        assert store.revision() == 2
    finally:
        database.close()


def test_a_read_that_is_refused_leaves_its_connection_as_it_was(backend: Backend) -> None:
    """One read needs no transaction; the next user of its connection does."""
    backend.store()
    with backend.database() as database:
        with pytest.raises(Exception, match="Event"):
            database.rows(Quick(select(meta).where(meta.c.revision == bindparam("of"))), {"of": threading.Event()})
        with suppress(KeyError), database.writing() as connection:
            connection.execute(update(meta).values(revision=99))
            raise KeyError
        [row] = database.rows(Quick(select(meta.c.revision)), {})
        assert row["revision"] == 0


def test_a_server_lost_within_a_transaction_has_kept_nothing_of_it(backend: Backend) -> None:
    store = named(backend, backend.schema or "")
    database = connect(os.environ["PADDOCK_TEST_POSTGRES"])

    def write() -> None:
        with store.transaction() as transaction:
            transaction.put(new_sandbox())
            transaction.flush()
            with database.reading() as connection:
                cut(connection, backend.schema or "")
            transaction.instances()

    try:
        assert "unreachable" in str(refusal(write))
    finally:
        database.close()
    assert store.list("Sandbox") == ([], 0)
    assert [stored.resource_version for stored in insert(store, new_sandbox())] == [1]


def test_a_server_that_only_reads(backend: Backend) -> None:
    insert(backend.store(), new_sandbox())
    url = make_url(backend.url).update_query_dict({"options": "-c default_transaction_read_only=on"})
    store = SqlStore(url.render_as_string(hide_password=False), schema=backend.schema)
    try:
        assert "not writable" in str(refusal(store.open))
    finally:
        store.close()


def test_readers_cannot_write(backend: Backend) -> None:
    backend.store()
    with backend.database() as database, pytest.raises(Exception, match="read-only"), database.reading() as connection:
        connection.exec_driver_sql("UPDATE meta SET revision = 99")


def test_every_wait_has_an_end(backend: Backend) -> None:
    database = connect(backend.url, schema=backend.schema, wait_seconds=0.5)
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "client_encoding")
    try:
        with database.writing() as connection:
            scalar_ones = [connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names]
    finally:
        database.close()
    assert scalar_ones == ["500ms", "30s", "1min", "UTF8"]


@pytest.mark.parametrize("default", ["read committed", "repeatable read", "serializable"])
def test_writers_see_what_is_committed_while_they_wait(backend: Backend, default: str) -> None:
    """Whatever the server's default: the lease is checked once the counter row is ours."""
    options = f"-c default_transaction_isolation={default.replace(' ', chr(92) + ' ')}"
    url = make_url(backend.url).update_query_dict({"options": options})
    database = connect(url.render_as_string(hide_password=False), schema=backend.schema)
    try:
        with database.writing() as connection:
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
        with database.reading() as connection:
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "repeatable read"
    finally:
        database.close()


def test_a_writer_that_is_frozen_is_idle_to_the_server(backend: Backend) -> None:
    """So that its time-out ends the transaction, and with it the wait of all others, wherever it froze."""
    store = named(backend, backend.schema or "")
    database = connect(os.environ["PADDOCK_TEST_POSTGRES"])
    states = text("SELECT state FROM pg_stat_activity WHERE application_name = :name AND xact_start IS NOT NULL")

    def state() -> list[str]:
        with database.reading() as connection:
            return list(connection.execute(states, {"name": backend.schema}).scalars())

    try:
        with suppress(KeyError), store.transaction() as transaction:
            assert state() == [], "nothing was asked for yet: it holds nothing"
            transaction.put(new_sandbox())
            assert state() == ["idle in transaction"]
            transaction.flush()
            transaction.instances()  # what was kept back goes first
            assert state() == ["idle in transaction"]
            raise KeyError
    finally:
        database.close()


def test_a_writer_that_stops_reading_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine is frozen or cut off in the middle of a large answer: no time-out of PostgreSQL's own ends that."""
    monkeypatch.setattr("controller.store.postgres._UNREAD_SECONDS", 1.0)
    with postgres(address="127.0.0.2") as server:
        store, second = SqlStore(server.network_url), SqlStore(server.network_url)
        try:
            store.open()
            with suppress(StoreError), store.transaction() as transaction:
                transaction.put(new_sandbox("mine"))
                transaction.flush()
                client = transaction._connection.connection.driver_connection.pgconn
                client.send_query(b"SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
                second.open()
                insert(second, new_sandbox())
            assert [stored.name for stored in second.list("Sandbox")[0]] == [new_sandbox().name]
        finally:
            store.close()
            second.close()


def test_a_statement_that_takes_too_long_is_said(backend: Backend) -> None:
    store = backend.store()

    def slow() -> None:
        with store.transaction() as transaction:
            connection = transaction._connection
            connection.exec_driver_sql("SET LOCAL statement_timeout = 50")
            connection.exec_driver_sql("SELECT pg_sleep(30)")

    error = refusal(slow)
    assert type(error) is StoreError
    assert "did not answer in time" in str(error)


def test_commits_of_others_wake_a_follower(backend: Backend) -> None:
    """Own commits don't, nor those of who follows nobody, to another store of the database, and after the end."""
    store, second = backend.store(), backend.store()
    [stored] = insert(store, new_sandbox())
    wakes = Wakes()
    end = store.follow(wakes)
    wakes.wait("it is connected", 1)
    lease = store.lease("fleet", seconds=60.0)
    assert lease.acquire() == ""
    insert(store.writing_as(lease), new_sandbox("own"))
    insert(store, new_sandbox("own-too"))
    with make_backend("postgres", Path()) as elsewhere:
        apart = elsewhere.store()
        apart.follow(lambda: None)
        insert(apart, new_sandbox())
    child = backend.child("write_following", "theirs")
    assert child.says() == "ready"
    child.go()
    assert child.says() == "done"
    wakes.wait("it heard of a process", 2)
    insert(second, new_sandbox("alone"))
    other_end = second.follow(lambda: None)
    second.record(Writes(statuses=(StatusWrite(stored.ref, {"x": 1}),)))
    wakes.wait("it heard of a pass", 3)
    end()
    end()
    insert(second, new_sandbox("unheard"))
    assert wakes.count == 3
    other_end()
    lease.release()


def test_a_follower_that_lost_its_server_connects_again(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    store, second, wakes = named(backend, backend.schema or ""), backend.store(), Wakes()
    end = store.follow(wakes)
    wakes.wait("it is connected", 1)
    with backend.database() as database, database.reading() as connection:
        assert cut(connection, backend.schema or "") >= 1
    wakes.wait("it is connected again", 2)
    second.follow(lambda: None)
    insert(second, new_sandbox())
    wakes.wait("it heard of a commit", 3)
    end()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("sqlalchemy")] == []


def test_a_closed_store_follows_no_more(backend: Backend) -> None:
    store, wakes = backend.store(), Wakes()
    store.follow(wakes)
    wakes.wait("it is connected", 1)
    store.close()
    wait_for("its thread ended", lambda: not followers())


class Wakes:
    """Counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1

    def wait(self, what: str, count: int) -> None:
        wait_for(what, lambda: self.count >= count)
        assert self.count == count


def followers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "store follower"]
