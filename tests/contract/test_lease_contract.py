"""Contract of a store's leases: of each name one process acts at a time, whatever becomes of the one that did."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, text

from controller.kinds.access.audit import AuditEntry
from controller.kinds.meta import Event
from controller.kinds.planning.plan import Writes
from controller.store.lease import RowLease
from controller.store.schema import leases
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import BACKENDS, Backend, insert, make_backend, new_sandbox, refusal
from tests.daemon import wait_for

SHORT = 1.0


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Backend]:
    with make_backend("postgres", tmp_path) as created:
        yield created


def unopened(backend: Backend) -> SqlStore:
    store = SqlStore(backend.url, schema=backend.schema)
    backend.stores.append(store)
    return store


def test_one_has_it_and_gives_it_up(backend: Backend) -> None:
    """Also on a database that has no tables yet."""
    first, second = unopened(backend), unopened(backend)
    lease, store_lease = first.lease(), second.lease()
    assert not lease.is_held()
    assert lease.acquire() == ""
    assert lease.is_held()
    assert lease.renew()
    assert "pid" in store_lease.acquire()
    assert not store_lease.is_held()
    first.open()
    insert(first, new_sandbox("mine"))
    lease.release()
    assert not lease.is_held()
    assert store_lease.acquire() == ""
    second.open()
    insert(second, new_sandbox("mine-too"))
    store_lease.release()


def test_who_has_it_is_told_by_its_process(backend: Backend) -> None:
    holder, lease = backend.child("lead", 60.0), backend.store().lease()
    assert holder.says() == ""
    assert f"pid {holder.pid}" in lease.acquire()
    lease.release()


def test_the_lease_of_a_killed_process_is_free_again(backend: Backend) -> None:
    holder = backend.child("lead", SHORT)
    assert holder.says() == ""
    holder.kill()
    lease = backend.store().lease(seconds=SHORT)
    wait_for("it is ours", lambda: not lease.acquire())
    lease.release()


def test_another_store_has_a_lease_of_its_own(backend: Backend, tmp_path: Path) -> None:
    lease, store_lease = backend.store().lease(), SqlStore(f"sqlite:///{tmp_path / 'other.db'}").lease()
    assert lease.acquire() == store_lease.acquire() == ""
    lease.release()
    store_lease.release()


def test_leases_of_two_names_are_held_together(backend: Backend) -> None:
    host, fleet, late = backend.store().lease(), backend.store().lease("fleet"), backend.store().lease("fleet")
    assert host.acquire() == fleet.acquire() == ""
    assert "pid" in late.acquire()
    host.release()
    assert fleet.is_held()
    assert fleet.renew()
    assert "pid" in late.acquire()
    fleet.release()
    assert late.acquire() == ""
    late.release()


def test_hosts_of_one_file_exclude_each_other(tmp_path: Path) -> None:
    with make_backend("sqlite", tmp_path) as backend:
        first, second = backend.store().lease(), backend.store().lease("host/b")
        assert first.acquire() == ""
        assert "pid" in second.acquire()
        first.release()


def test_roles_of_one_process_share_a_file(tmp_path: Path) -> None:
    with make_backend("sqlite", tmp_path) as backend:
        store = backend.store()
        host, fleet = store.lease(), store.lease("fleet")
        assert host.acquire() == fleet.acquire() == fleet.acquire() == ""
        host.release()
        assert fleet.is_held()
        for name in ("host/host", "fleet"):
            assert "pid" in backend.child("lead", SHORT, name).says(), "either keeps out another process"
        fleet.release()
        assert backend.child("lead", SHORT, "fleet").says() == ""


def test_the_state_of_a_lease_is_read(backend: Backend) -> None:
    store = backend.store()
    assert list(store.leases()) == []
    lease = store.lease(seconds=60.0)
    assert lease.acquire() == ""
    [ours] = store.leases()
    assert ours.name == "daemon"
    assert "pid" in ours.holder
    assert 0 < ours.seconds_left <= 60.0
    lease.release()
    assert [lease_state.name for lease_state in store.leases() if lease_state.seconds_left > 0] == []
    child = backend.child("lead", 60.0)
    assert child.says() == ""
    [second] = store.leases()
    assert f"pid {child.pid}" in second.holder
    assert second.seconds_left > 0
    assert second.epoch in (0, ours.epoch + 1), "a file's has none"


def test_each_role_writes_by_its_own_lease(backend: Backend) -> None:
    store = backend.store()
    host, fleet = store.lease(), store.lease("fleet")
    assert host.acquire() == fleet.acquire() == ""
    of_host, of_fleet = store.writing_as(host), store.writing_as(fleet)
    insert(of_host, new_sandbox("of-host"))
    insert(of_fleet, new_sandbox("of-fleet"))
    assert [stored.name for stored in of_host.list("Sandbox")[0]] == ["of-fleet", "of-host"]
    assert of_host.instance_id == store.instance_id
    of_fleet.close()
    assert "not open" in str(refusal(of_host.revision))
    of_host.open()
    assert of_fleet.ping() == store.ping() == ""
    host.release()
    fleet.release()


@pytest.mark.postgres
def test_a_role_that_is_taken_over_leaves_the_other_one(postgres: Backend) -> None:
    store, second = postgres.store(), postgres.store()
    fleet, host = store.lease("fleet", seconds=0.001), store.lease("host/a", seconds=60.0)
    assert host.acquire() == fleet.acquire() == ""
    lease = second.lease("fleet", seconds=60.0)
    wait_for("it is taken over", lambda: not lease.acquire())
    late = store.writing_as(fleet)
    assert "the lease fleet is held by" in str(refusal(lambda: insert(late, new_sandbox("late"))))
    insert(store.writing_as(host), new_sandbox("of-host"))
    assert [stored.name for stored in late.list("Sandbox")[0]] == ["of-host"]
    assert {lease_state.name: lease_state.seconds_left > 0 for lease_state in store.leases()} == {
        "fleet": True,
        "host/a": True,
    }
    for store_lease in (fleet, host, lease):
        store_lease.release()


def test_a_file_is_the_same_by_any_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    first, second = (SqlStore(f"sqlite:///{tmp_path / folder / 'paddock.db'}").lease() for folder in ("real", "alias"))
    assert first.acquire() == ""
    assert second.acquire() != ""
    first.release()


def test_a_frozen_process_keeps_a_file(tmp_path: Path) -> None:
    """The kernel's lock can't run out: nobody ever writes beside its holder."""
    with make_backend("sqlite", tmp_path) as backend:
        holder = backend.child("lead", SHORT)
        assert holder.says() == ""
        holder.freeze()
        assert f"pid {holder.pid}" in backend.store().lease(seconds=SHORT).acquire()
        holder.thaw()
        holder.go()
        assert [holder.says() for _ in range(3)] == [True, "written", True]


@pytest.mark.postgres
def test_a_holder_that_wakes_up_late_writes_nothing_and_acts_no_more(postgres: Backend) -> None:
    holder = postgres.child("lead", SHORT)
    assert holder.says() == ""
    holder.freeze()
    store = postgres.store()
    lease = store.lease(seconds=60.0)
    wait_for("it is ours", lambda: not lease.acquire())
    holder.thaw()
    holder.go()
    acts, say, stored = (holder.says() for _ in range(3))
    assert (acts, stored) == (False, False)
    assert "leader lease is held by" in say
    assert store.list("Sandbox")[0] == []
    lease.release()


@pytest.mark.postgres
def test_a_lease_that_ran_out_and_was_not_taken_is_renewed(postgres: Backend) -> None:
    """As after a server that was away for longer than the lease lasts: nobody else has acted."""
    holder = postgres.child("lead", 0.001)
    assert holder.says() == ""
    holder.go()
    assert [holder.says() for _ in range(3)] == [False, "written", True]


@pytest.mark.postgres
def test_a_renewal_that_came_too_late_is_counted(postgres: Backend) -> None:
    lease, long = postgres.store().lease("host/a", seconds=0.001), postgres.store().lease("host/b", seconds=60.0)
    assert (lease.acquire(), long.acquire()) == ("", "")
    assert (lease.renew(), long.renew()) == (True, True)
    assert (lease.lapses, long.lapses) == (1, 0)
    for store_lease in (lease, long):
        store_lease.release()


@pytest.mark.postgres
def test_every_way_of_writing_is_fenced(postgres: Backend) -> None:
    first, second = postgres.store(), postgres.store()
    obj = insert(first, new_sandbox("there"))[0]
    old, new = first.lease(seconds=0.001), second.lease(seconds=60.0)
    assert old.acquire() == ""
    wait_for("it is taken over", lambda: not new.acquire())
    second.audit.append([AuditEntry(1.0, "ann", "", "exec")])
    revision = second.revision()
    event = Event(obj.ref, "Normal", "Late", "words", 1.0)
    for write in (
        lambda: insert(first, new_sandbox("late")),
        lambda: first.record(Writes(events=(event,))),
        lambda: first.prune(keep_changes=0, events_before=1e12),
        lambda: first.audit.append([AuditEntry(1.0, "late", "", "exec")]),
        lambda: first.audit.prune(before=1e12, keep=0),
    ):
        assert "leader lease is held by" in str(refusal(write))
    assert second.revision() == revision
    assert second.events() == []
    assert len(second.changes(0)) == 1
    assert [entry.actor for entry in second.audit.entries()] == ["ann"]
    old.release()
    assert new.renew(), "what is given up late is not ours to give"
    new.release()


@pytest.mark.postgres
def test_a_lease_is_not_taken_amid_an_append(postgres: Backend) -> None:
    """It holds no counter row, which takeovers wait for."""
    first, second = postgres.store(), postgres.store()
    old = first.lease(seconds=0.001)
    assert old.acquire() == ""
    new = SqlStore(postgres.url, schema=postgres.schema, wait_seconds=0.2).lease(seconds=60.0)
    with postgres.database() as database, database.writing() as connection:
        old.fence(connection, alone=True)
        connection.execute(text("SELECT 1"))  # what was kept back goes first
        wait_for("it ran out", lambda: all(lease.seconds_left <= 0 for lease in second.leases()))
        assert "is held by another process" in str(refusal(new.acquire))
    assert new.acquire() == ""
    for store_lease in (old, new):
        store_lease.release()


@pytest.mark.postgres
def test_what_is_held_ends_by_our_own_clock_before_the_server_gives_it_away(postgres: Backend) -> None:
    store, now = postgres.store(), [100.0]
    with postgres.database() as database:
        lease = RowLease(database, store.open, seconds=60.0, clock=lambda: now[0])
        assert lease.acquire() == ""
        now[0] += 49
        assert lease.is_held()
        now[0] += 2
        assert not lease.is_held()
        assert lease.renew()
        assert lease.is_held()
        lease.release()


@pytest.mark.postgres
def test_a_takeover_fences_one_name_alone(postgres: Backend) -> None:
    """Three processes: the frozen holder of host/a wakes up too late; host/b and the default host write on."""
    frozen = postgres.child("lead", SHORT, "host/a", "from-frozen")
    childs = [postgres.child("lead", 60.0, name, f"from-{name[-1]}") for name in ("host/b", "host/host")]
    assert [child.says() for child in (frozen, *childs)] == ["", "", ""]
    store = postgres.store()
    store_lease = store.lease("host/b")
    assert f"pid {childs[0].pid}" in store_lease.acquire()
    store_lease.release()
    frozen.freeze()
    lease = store.lease("host/a", seconds=60.0)
    wait_for("it is ours", lambda: not lease.acquire())
    for entry in (*childs, frozen):
        entry.thaw()
        entry.go()
    assert [[child.says() for _ in range(3)] for child in childs] == [[True, "written", True]] * 2
    acts, say, stored = (frozen.says() for _ in range(3))
    assert (acts, stored) == (False, False)
    assert "the lease host/a is held by" in say
    assert [one_stored.name for one_stored in store.list("Sandbox")[0]] == ["from-b", "from-t"]
    assert _epochs(postgres) == {"daemon": 1, "host/a": 2, "host/b": 1}
    lease.release()


@pytest.mark.postgres
def test_daemons_of_older_versions_are_excluded(postgres: Backend) -> None:
    """They know one row, `daemon`: it is the default host's, so either keeps the other away during an upgrade."""
    store = postgres.store()
    with postgres.database() as database, database.writing() as connection:
        row = {"name": "daemon", "holder": "pid 7 of old", "epoch": 41, "acquired_at": 0.0, "expires_at": 1e12}
        connection.execute(leases.insert().values(row))
    lease = store.lease(seconds=60.0)
    assert lease.acquire() == "pid 7 of old"
    with postgres.database() as database, database.writing() as connection:
        connection.execute(leases.update().values(expires_at=0.0))
    assert lease.acquire() == ""
    assert _epochs(postgres) == {"daemon": 42}, "an older holder that wakes up is fenced off"
    lease.release()


def _epochs(backend: Backend) -> dict[str, int]:
    with backend.database() as database, database.reading() as connection:
        return {row.name: row.epoch for row in connection.execute(select(leases))}
