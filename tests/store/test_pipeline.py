"""Messages to a server: few, each of them whole; and the answers of their statements."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import bindparam, literal_column, make_url, select, text, update

from controller.kinds.meta import Event, StoredObject
from controller.store import pipeline
from controller.store.connect import connect
from controller.store.database import Database, Quick
from controller.store.schema import meta, objects
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import Backend, insert, make_backend, new_sandbox, refusal
from tests.daemon import wait_for
from tests.examples import examples

pytestmark = pytest.mark.postgres
_SENT_AT_ONCE = 8192  # what libpq keeps until it is told to send
_REVISION = Quick(select(meta.c.revision))
_MOVE = Quick(update(meta).values(revision=bindparam("to")))


def write(database: Database, *statements: tuple[Quick, dict[str, Any]]) -> None:
    with database.writing() as connection:
        for statement, parameters in statements:
            statement.run(connection, parameters)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with make_backend("postgres", tmp_path) as created:
        yield created


class Wire:
    """A socket in front of the server's that notes what clients send."""

    def __init__(self, folder: Path, target: str) -> None:
        self.sent: list[bytearray] = []  # of each connection
        self.cut_after = b""  # words of a message, after which it loses what comes next, and the connection
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                sent = bytearray()
                self.sent.append(sent)
                for source, target, note in ((client, server, sent), (server, client, bytearray())):
                    threading.Thread(target=self._forward, args=(source, target, note), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, note: bytearray) -> None:
        with suppress(OSError), source, target:
            while piece := source.recv(1 << 16):
                if self.cut_after and self.cut_after in note:
                    self.cut_after = b""
                    break
                note += piece
                target.sendall(piece)
            for connection in (source, target):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()

    def exchanges(self) -> Iterator[list[tuple[str, int]]]:
        """Yield the messages up to each Sync: their types and sizes."""
        for sent in self.sent:
            observed: list[tuple[str, int]] = []
            at = struct.unpack_from("!i", sent)[0]  # after the first one, which has no type
            while at < len(sent):
                size = 1 + struct.unpack_from("!i", sent, at + 1)[0]
                observed.append((chr(sent[at]), size))
                at += size
                if observed[-1][0] in "SQ":
                    yield observed
                    observed = []


@pytest.fixture
def wired(backend: Backend, tmp_path: Path) -> Iterator[tuple[SqlStore, Wire]]:
    """A store, and what it sends."""
    url = make_url(backend.url)
    wire = Wire(tmp_path, f"{url.query['host']}/.s.PGSQL.5432")
    store = SqlStore(url.update_query_dict({"host": str(tmp_path)}).render_as_string(False), schema=backend.schema)
    try:
        store.open()
        yield store, wire
    finally:
        store.close()
        wire.close()


def test_what_holds_the_counter_row_goes_in_whole_messages(wired: tuple[SqlStore, Wire]) -> None:
    """A client that is frozen between two parts of one would leave the server waiting for the other with it."""
    store, wire = wired
    with store.transaction() as transaction:
        small = [transaction.put(new_sandbox(f"small-{at}", spec={"x": "y" * 100 * at})) for at in range(60)]
    with store.transaction() as transaction:
        transaction.put(new_sandbox("large", spec={"x": [str(at) for at in range(20_000)]}))
        transaction.put(new_sandbox("next-to-it"))
    with store.transaction() as transaction:
        for stored in small[::2]:
            transaction.remove(stored)
    assert len(store.list("Sandbox")[0]) == 32
    together = [exchange for exchange in wire.exchanges() if sum(kind == "E" for kind, _ in exchange) > 1]
    assert len(together) > 10
    assert max(sum(size for _, size in entry) for entry in together) < _SENT_AT_ONCE
    large = [exchange for exchange in wire.exchanges() if sum(size for _, size in exchange) >= _SENT_AT_ONCE]
    assert ["".join(kind for kind, _ in entry) for entry in large] == ["BDES"] * len(large), "half a Bind does nothing"
    assert large


def test_a_write_is_one_message_to_read_and_one_to_write(wired: tuple[SqlStore, Wire]) -> None:
    store, wire = wired

    def exchanges(obj: StoredObject) -> list[int]:
        """Numbers of statements of each message that puts it."""
        before = len(list(wire.exchanges()))
        with store.transaction() as transaction:
            transaction.put(obj)
        return [sum(kind == "E" for kind, _ in exchange) for exchange in list(wire.exchanges())[before:]]

    exchanges(new_sandbox("first"))  # prepares the statements
    exchanges(new_sandbox("first", spec={"x": 0}))
    assert exchanges(new_sandbox()) == [3, 5], "begin, take, read; insert, change, move, count, commit"
    assert exchanges(new_sandbox(spec={"x": 1})) == [3, 4]
    assert store.revision() == 4
    before = len(list(wire.exchanges()))
    assert store.revision() == 4
    assert len(list(wire.exchanges())) == before + 1


def test_writers_queue_up_before_they_lock_the_row(backend: Backend) -> None:
    """The server wakes one of them at a time."""
    store, connection = backend.store(), connect(backend.url, schema=backend.schema)
    waits = text("SELECT count(*) FROM pg_locks WHERE objid = 'meta'::regclass AND NOT granted")

    def write() -> None:
        with store.transaction() as transaction:
            transaction.put(new_sandbox())

    with connection.reading() as looking, connection.writing() as first, ThreadPoolExecutor() as threads:
        first.execute(text("SELECT pg_advisory_xact_lock('meta'::regclass::oid::bigint)"))
        writing = threads.submit(write)
        wait_for("it queues up", lambda: looking.execute(waits).scalar_one() == 1)
        first.execute(text("SELECT revision FROM meta FOR UPDATE NOWAIT"))
        first.rollback()
        writing.result(60)
    assert store.revision() == 1
    connection.close()


def test_who_lost_the_lease_writes_nothing_though_all_goes_at_once(backend: Backend) -> None:
    """The answer to who holds it is heard before the commit is sent."""
    store, second = backend.store(), backend.store()
    old, new = store.lease(seconds=0.001), second.lease(seconds=60.0)
    assert old.acquire() == ""
    wait_for("it ran out", lambda: new.acquire() == "")

    def write() -> None:
        with store.transaction() as transaction:
            transaction.add_event(Event(new_sandbox().ref, "Normal", "Late", "words", 1.0))

    def write_nonetheless() -> None:
        with store.transaction() as transaction:
            assert "is held by" in str(refusal(lambda: transaction.get("Sandbox", "default", "box")))
            transaction.put(new_sandbox())

    assert "is held by" in str(refusal(write))
    refusal(write_nonetheless)
    assert (second.events(), second.list("Sandbox")) == ([], ([], 0))
    old.release()
    new.release()


def test_a_lease_whose_renewal_is_lost_at_the_commit_says_so(wired: tuple[SqlStore, Wire]) -> None:
    store, wire = wired
    lease = store.lease(seconds=60.0)
    assert lease.acquire() == ""
    wire.cut_after = b"UPDATE leases SET expires_at"
    assert "unreachable" in str(refusal(lease.renew))
    assert lease.renew()
    lease.release()


def test_an_interrupt_amid_an_exchange_is_what_is_raised(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backend.store()
    answers = pipeline._answers

    def interrupted(_: object) -> Any:
        monkeypatch.setattr(pipeline, "_answers", answers)
        raise KeyboardInterrupt

    def interrupt(action: Callable[[], object]) -> None:
        monkeypatch.setattr(pipeline, "_answers", interrupted)
        with pytest.raises(KeyboardInterrupt):
            action()

    def write() -> None:
        with store.transaction() as transaction:
            transaction.put(new_sandbox())

    interrupt(write)
    interrupt(store.revision)
    write()
    assert store.list("Sandbox")[1] == 1


def test_a_statement_that_fails_is_said_and_leaves_nothing(backend: Backend) -> None:
    backend.store()
    wrong = Quick(select(meta.c.revision / literal_column("0")))
    with backend.database() as database:
        with pytest.raises(psycopg.errors.DivisionByZero):
            write(database, (_MOVE, {"to": 7}), (wrong, {}), (_MOVE, {"to": 8}))
        assert database.rows(_REVISION, {})[0]["revision"] == 0
        with pytest.raises(psycopg.errors.DivisionByZero):
            database.rows(wrong, {})
        write(database, (_MOVE, {"to": 9}))
        assert database.rows(_REVISION, {})[0]["revision"] == 9


def test_other_statements_come_after_those_kept_back(backend: Backend) -> None:
    backend.store()
    with backend.database() as database:
        with database.writing() as connection:
            _MOVE.run(connection, {"to": 5})
            assert connection.execute(text("SELECT revision FROM meta")).scalar_one() == 5
        with database.reading() as connection:
            heard: list[Any] = []
            _REVISION.run_then(connection, {}, heard.extend)
            assert heard == []
            connection.execute(text("SELECT 1"))
            assert heard == [{"revision": 5}]


def test_the_server_keeps_the_statements_used_last(backend: Backend) -> None:
    backend.store()
    many = [Quick(select(meta.c.revision, literal_column(str(at)).label("at"))) for at in range(130)]
    with backend.database() as database, database.reading() as connection:
        for _ in range(2):
            for at, quick in enumerate(many):
                assert quick.rows(connection, {})[0]["at"] == at
                assert many[0].rows(connection, {})[0]["at"] == 0
        stored = connection.execute(text("SELECT statement FROM pg_prepared_statements")).scalars().all()
        assert len(stored) == 100
        assert {str(at) for at in (0, 129)} <= {entry.split()[2] for entry in stored if "AS at" in entry}


def test_a_migration_meanwhile_spoils_no_statement_for_long(backend: Backend) -> None:
    """The server refuses a prepared statement whose columns are others now. If it told nothing before, we ask anew."""
    backend.store()
    ids = Quick(select(meta.c.instance_id))
    with backend.database() as database, backend.database() as migrating:

        def alter(kind: str) -> None:
            with migrating.migrating() as connection:
                connection.execute(text(f"ALTER TABLE meta ALTER COLUMN instance_id TYPE {kind}"))

        with database.writing() as connection:
            before = ids.rows(connection, {})
        alter("text")
        with database.writing() as connection:
            assert ids.rows(connection, {}) == before
        alter("varchar")
        assert database.rows(ids, {}) == before
        with suppress(psycopg.errors.FeatureNotSupported), database.writing() as connection:
            connection.execute(text("SELECT 1"))
            alter("text")
            ids.rows(connection, {})
            pytest.fail("it was told what it did not ask for")
        with database.writing() as connection:
            assert ids.rows(connection, {}) == before


@given(
    words=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    number=st.integers(-(2**63), 2**63 - 1),
    at=st.floats(allow_nan=False),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(100))
def test_values_come_back_as_they_went(backend: Backend, words: str, number: int, at: float) -> None:
    row = {
        **dict.fromkeys(("uid", "kind", "namespace", "name", "labels", "annotations", "finalizers"), words),
        **dict.fromkeys(("owner_references", "spec", "last_applied", "status"), words),
        **dict.fromkeys(("generation", "resource_version"), number),
        "created_at": at,
        "deleted_at": None,
    }
    if not backend.stores:
        backend.store()
    with backend.database() as database, suppress(_NotKept), database.writing() as connection:
        Quick(objects.insert(), list(row)).run(connection, row)
        rows = Quick(select(objects).where(objects.c.uid == bindparam("named"))).rows(connection, {"named": words})
        assert [dict(document) for document in rows] == [row]
        raise _NotKept


class _NotKept(Exception):
    """Rolls back."""


@pytest.mark.parametrize("encoding", ["latin1", "utf8"])
def test_text_is_text_whatever_the_encoding_of_the_url(backend: Backend, encoding: str) -> None:
    url = make_url(backend.url).update_query_dict({"client_encoding": encoding})
    store = replace(backend, url=url.render_as_string(hide_password=False)).store()
    [sandbox] = [
        store.get("Sandbox", "default", stored.name) for stored in insert(store, new_sandbox(spec={"x": "é ü €"}))
    ]
    assert sandbox is not None
    assert sandbox.spec == {"x": "é ü €"}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("instance_id", "a\0b"),
        ("instance_id", "\ud800"),
        ("revision", 2**63),
        ("revision", "x"),
        ("revision", object()),
    ],
)
def test_values_that_a_column_does_not_take_are_refused(backend: Backend, column: str, value: object) -> None:
    backend.store()
    with backend.database() as database:
        with pytest.raises((psycopg.Error, UnicodeEncodeError)):
            write(database, (Quick(update(meta).values({column: bindparam("to")})), {"to": value}))
        assert database.rows(_REVISION, {})[0]["revision"] == 0
