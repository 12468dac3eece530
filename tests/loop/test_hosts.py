"""The Hosts of one store: each daemon stores its own, and shows those of the others."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.api.common.models import object_model
from controller.kinds.host import ENGINE, KIND, status_word
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Observation
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import FINALIZER
from controller.loop.fleet.hosts import HostImages, HostReport
from controller.ports import LeaseState, StoreError, Transaction
from controller.ports.fleet import ManyHosts, Reached
from controller.service import errors
from controller.service.listing import serialize
from controller.service.listing.field_selector import parse
from controller.service.sources.host import HostSource
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock
from tests.fakes.engine import FACTS, FakeEngine
from tests.migrated import open_store

SEEN = Observation(revision=1, blind="", facts=FACTS)
LIVE, GONE, STOPPED = 4.0, -100.0, -1.7e9  # seconds left of a lease


class FleetStore:
    """A store whose leases the test sets, by name. It counts the transactions, and fails if it is told to."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self.left: dict[str, float] = {}
        self.transactions, self.broken = 0, False

    def leases(self) -> Sequence[LeaseState]:
        return [LeaseState(name, f"pid 7 on {name}", 3, remaining) for name, remaining in self.left.items()]

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        if self.broken:
            raise StoreError("disk full")
        self.transactions += 1
        with self._store.transaction() as transaction:
            yield transaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Daemon:
    """A host's daemon, as far as Hosts go."""

    def __init__(self, store: FleetStore, name: str, clock: HandClock) -> None:
        self.seen = SEEN
        self.engine = FakeEngine(clock=clock, images=("team/app:1", "paddock/python:1"))
        self.images = HostImages(self.engine.image_store)
        self.source = HostSource(
            store,  # type: ignore[arg-type]  # what it uses of a store
            lambda: self.seen,
            place=ManyHosts(name),
            reached=Reached(f"{name}.example:8443"),
            now=clock.now,
            images=self.images.names,
        )
        self.refused = 0
        self.report = HostReport(self.source.reported, store, clock, self._refuse).report  # type: ignore[arg-type]

    def _refuse(self) -> None:
        self.refused += 1

    def shown(self) -> dict[str, StoredObject]:
        document = {stored.name: stored for stored in self.source.list(None, parse("", KIND), 0)}
        assert list(document) == sorted(document)
        for entry in document.values():
            object_model(KIND).model_validate(serialize.object_json(KIND, entry))
            assert self.source.get("", entry.name) == entry
        return document


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FleetStore]:
    with open_store(tmp_path) as created:
        yield FleetStore(created)


@pytest.fixture
def a(store: FleetStore, clock: HandClock) -> Daemon:
    return Daemon(store, "a", clock)


@pytest.fixture
def b(store: FleetStore, clock: HandClock) -> Daemon:
    """Another host; its daemon has stored it, and lives."""
    daemon = Daemon(store, "b", clock)
    daemon.report()
    store.left["host/b"] = LIVE
    return daemon


def conditions(obj: StoredObject) -> dict[str, str]:
    return {condition["type"]: f"{condition['status']} {condition['reason']}" for condition in obj.status["conditions"]}


def put(store: FleetStore, kind: str, name: str, **parts: Any) -> StoredObject:
    with store.transaction() as transaction:
        stored = StoredObject(kind, "default", name, f"uid-{name}", {"host": "b"}, finalizers=(FINALIZER,))
        return transaction.put(replace(stored, **parts))


def test_a_status_is_stored_when_it_changed_and_not_often(store: FleetStore, b: Daemon, clock: HandClock) -> None:
    stored = store.get("Host", "", "b")
    assert stored.status["address"] == "b.example:8443"
    assert "lastSeen" not in stored.status, "the lease says so, without a write"
    for _ in range(30):
        clock.advance(2)
        b.report()
    assert store.transactions == 1
    b.seen = replace(SEEN, blind="connection refused")
    b.report()
    b.seen = SEEN
    clock.advance(2)
    b.report()
    assert store.transactions == 2, "within ten seconds there is one write"
    clock.advance(10)
    b.report()
    assert (store.transactions, conditions(store.get("Host", "", "b"))["EngineReachable"]) == (3, "True Answered")


def test_only_its_first_engine_acts_for_a_host(store: FleetStore, clock: HandClock) -> None:
    first, daemon = Daemon(store, "b", clock), Daemon(store, "b", clock)
    first.seen = replace(SEEN, facts=replace(FACTS, engine_id="first"))
    daemon.seen = replace(SEEN, facts=replace(FACTS, engine_id="other", engine_version="99"))
    first.report()
    before = store.get("Host", "", "b")
    assert (before.annotations, before.status["engine"]["id"]) == ({ENGINE: "first"}, "first")
    daemon.report()
    assert (daemon.refused, first.refused, store.get("Host", "", "b").status) == (1, 0, before.status)
    [event] = store.events()
    assert event.reason == "OtherEngine"
    assert "its engine is first, this one is other" in event.message
    assert "paddock annotate host b paddock.dev/engine-" in event.message

    with store.transaction() as transaction:
        transaction.put(replace(before, annotations={}))  # a person: the first one is gone for good
    daemon.report()
    after = store.get("Host", "", "b")
    assert (daemon.refused, after.annotations, after.status["engine"]["version"]) == (1, {ENGINE: "other"}, "99")


def test_a_failed_or_undone_write_is_repeated(store: FleetStore, a: Daemon, clock: HandClock) -> None:
    store.broken = True
    a.report()
    store.broken = False
    a.report()
    stored = store.get("Host", "", "a")
    assert stored is not None
    with store.transaction() as transaction:
        transaction.remove(stored)
    clock.advance(60)
    a.report()
    assert store.get("Host", "", "a").uid == stored.uid


def test_a_report_keeps_what_people_wrote(store: FleetStore, b: Daemon, clock: HandClock) -> None:
    stored = store.get("Host", "", "b")
    with store.transaction() as transaction:
        transaction.put(replace(stored, spec={"schedulable": False}, labels={"disk": "fast"}, generation=1))
    b.seen = replace(SEEN, blind="connection refused")
    clock.advance(10)
    b.report()
    host = store.get("Host", "", "b")
    assert (host.spec, host.labels) == ({"schedulable": False}, {"disk": "fast"})
    assert conditions(host)["EngineReachable"] == "False NoAnswer"


def test_a_hosts_images_are_reported(store: FleetStore, b: Daemon, clock: HandClock) -> None:
    assert "images" not in store.get("Host", "", "b").status, "not listed yet"
    b.images.observe_now()
    clock.advance(10)
    b.report()
    assert store.get("Host", "", "b").status["images"] == ["paddock/python:1", "team/app:1"]
    assert b.shown()["b"].status["images"] == ["paddock/python:1", "team/app:1"]
    restarted = Daemon(store, "b", clock)
    restarted.report()
    assert store.get("Host", "", "b").status["images"] == ["paddock/python:1", "team/app:1"], "as before"
    for image in list(restarted.engine.images):
        restarted.engine.remove_image(image)
    restarted.images.observe_now()
    clock.advance(10)
    restarted.report()
    assert store.get("Host", "", "b").status["images"] == [], "that it has none is known, too"


def test_every_daemon_shows_all_hosts(store: FleetStore, a: Daemon, b: Daemon, clock: HandClock) -> None:
    limits = Limits(500, 64 << 20, 16)
    put(store, "Sandbox", "web")
    record = Instance("pdk-web", "uid-web", "Sandbox", "default", "web", "sandbox", limits, 0.0, host="b")
    store.record(Writes(instances=(record,)))
    printed = a.shown()
    assert list(printed) == ["a", "b"], "its own, stored or not, and the other"
    assert (
        conditions(printed["a"])["DaemonReachable"] == conditions(printed["b"])["DaemonReachable"] == "True LeaseHeld"
    )
    assert [status_word(stored, 0.0) for stored in printed.values()] == ["Ready", "Ready"]
    numbers = [(stored.status["instances"], stored.status["sandboxes"]) for stored in printed.values()]
    assert numbers == [(0, 0), (1, 1)]
    assert printed["b"].status["reserved"] == {"cpu": "500m", "memory": "64Mi"}
    assert printed["b"].status["lastSeen"] == serialize.timestamp(clock.now())
    assert printed["b"].status["capacity"] == {"cpu": "4", "memory": "16Gi"}
    assert printed["a"].uid != printed["b"].uid
    assert printed["b"].uid == b.shown()["b"].uid
    assert a.source.get("", "c") is None


@pytest.mark.parametrize(
    ("left", "reason", "word"),
    [
        ({"host/b": GONE}, "LeaseExpired", "Unknown (daemon away since {since})"),
        ({"host/b": STOPPED}, "LeaseReleased", "Unknown (daemon stopped)"),
        ({}, "LeaseExpired", "Unknown (daemon away)"),
    ],
)
def test_a_host_whose_daemon_is_away_is_unknown(
    store: FleetStore, a: Daemon, b: Daemon, clock: HandClock, left: dict[str, float], reason: str, word: str
) -> None:
    store.left = left
    stored = a.shown()["b"]
    assert conditions(stored)["DaemonReachable"] == f"Unknown {reason}"
    statuses = {status for type_, status in conditions(stored).items() if type_ != "DaemonReachable"}
    assert statuses == {"Unknown DaemonAway"}, "nobody knows if they still hold"
    assert status_word(stored, 0.0) == word.format(since=serialize.timestamp(clock.now() + GONE))
    assert ("lastSeen" in stored.status) == ("since" in word)
    closed = replace(stored, spec={"schedulable": False})
    assert status_word(closed, 0.0).endswith("),SchedulingDisabled")


def test_the_default_hosts_lease_has_its_old_name(store: FleetStore, a: Daemon, clock: HandClock) -> None:
    Daemon(store, "host", clock).report()
    store.left = {"daemon": LIVE, "fleet": LIVE}
    assert conditions(a.shown()["host"])["DaemonReachable"] == "True LeaseHeld"


def test_only_a_host_that_is_gone_is_removed(store: FleetStore, a: Daemon, b: Daemon) -> None:
    with pytest.raises(errors.Conflict, match="it is the host of the daemon that you ask"):
        a.source.delete("", "a")
    with pytest.raises(errors.Conflict, match=r"its daemon is running \(pid 7 on host/b\); stop it first"):
        a.source.delete("", "b")
    store.left["host/b"] = GONE
    web, pool = put(store, "Sandbox", "web"), put(store, "SandboxPool", "warm", spec={}, status={"host": "b"})
    elsewhere = put(store, "Sandbox", "other", spec={"host": "a"}, deleted_at=1.0)
    with pytest.raises(errors.Conflict, match="sandbox/default/web, sandboxpool/default/warm are bound to it; "):
        a.source.delete("", "b")
    with store.transaction() as transaction:
        for stored in (web, pool):
            transaction.put(replace(stored, deleted_at=1.0))
    removed = a.source.delete("", "b")
    assert removed is not None
    assert removed.name == "b"
    assert store.list("Host")[0] == []
    remaining = [entry for kind in ("Sandbox", "SandboxPool") for entry in store.list(kind)[0]]
    assert [entry.uid for entry in remaining] == [elsewhere.uid], "what only its daemon could release is gone with it"
    assert a.source.delete("", "b") is None
