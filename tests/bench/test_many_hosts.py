"""A hundred hosts with a thousand sandboxes each on one PostgreSQL: what one daemon of them pays.

PADDOCK_BENCH_HOSTS says how many hosts there are. The baseline of each figure is the same call on one host's sandboxes.
"""

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import httpx
import psycopg
import pytest

from controller.kinds.planning.snapshot import Sandbox
from controller.kinds.registry import discover
from controller.loop.desired import Desired
from controller.loop.garbage import GarbageCollector
from controller.plan.fleet.placements import Place, Settled, placements
from controller.policy.levels.levels import Policy
from controller.ports.fleet import ManyHosts
from controller.ports.scheduler import Placed, PlacedRecord
from controller.store.sql_store import SqlStore
from tests.bench.test_growth import best_ms
from tests.bench.test_store import SPEC, status
from tests.contract.store_backends import instance, new_sandbox
from tests.daemon import start_daemon, wait_for
from tests.fleet_files import Authority
from tests.postgres import new_database

pytestmark = [pytest.mark.bench, pytest.mark.postgres, pytest.mark.timeout(1800)]
HOSTS, OF_EACH, PAGE, LOT = int(os.environ.get("PADDOCK_BENCH_HOSTS", "100")), 1000, 500, 1000


def fill(store: SqlStore, hosts: int) -> None:
    for host in range(hosts):
        name = f"host-{host:03}"
        bound = {**status(1), "host": name, "binding": 1}
        sandboxes = [
            new_sandbox(f"b-{name}-{at:04}", f"team-{at % 10}", spec=SPEC, status=bound) for at in range(OF_EACH)
        ]
        for begin in range(0, OF_EACH, LOT):
            with store.transaction() as transaction:
                for sandbox in sandboxes[begin : begin + LOT]:
                    stored = transaction.put(sandbox)
                    transaction.put_instance(instance(stored, host=name))


@pytest.fixture(scope="module")
def databases() -> Iterator[tuple[str, str]]:
    """The URLs of two databases."""
    with new_database() as database, new_database() as many:
        yield database, many


@pytest.fixture(scope="module")
def stores(databases: tuple[str, str]) -> Iterator[tuple[SqlStore, SqlStore]]:
    """A store of one host, and one of many."""
    created = []
    for hosts, url in zip((1, HOSTS), databases, strict=True):
        created.append(SqlStore(url, wait_seconds=60))
        created[-1].open()
        start = time.perf_counter()
        fill(created[-1], hosts)
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("ANALYZE")  # as the server does by itself soon after
        print(f"{hosts * OF_EACH} sandboxes stored in {time.perf_counter() - start:.0f} s")
    yield created[0], created[1]
    for store in created:
        store.close()


def both(stores: tuple[SqlStore, SqlStore], what: str, action: Callable[[SqlStore], object], rounds: int = 7) -> None:
    best_mse, many = (best_ms(lambda store=entry: action(store), rounds) for entry in stores)  # type: ignore[misc]
    print(f"{what}: {many:.1f} ms of {HOSTS} hosts, {best_mse:.1f} ms of one: {many / max(best_mse, 0.001):.2f}")


def test_what_a_host_reads(stores: tuple[SqlStore, SqlStore]) -> None:
    middle = ("team-5", "b-host-000-0500")
    both(
        stores,
        f"a page of {PAGE} (goal: 50 ms)",
        lambda store: list(store.page("Sandbox", after=middle, limit=PAGE).objects),
    )
    both(stores, "one sandbox", lambda store: store.get("Sandbox", "team-1", "b-host-000-0001"))
    both(stores, "the instances of one host", lambda store: store.instances(host="host-000"), 3)
    both(stores, "the leases", lambda store: store.leases())
    both(stores, "nothing new", lambda store: store.changes(store.revision()))


def test_a_host_starts_and_follows(stores: tuple[SqlStore, SqlStore]) -> None:
    for store, hosts in zip(stores, (1, HOSTS), strict=True):
        desired = Desired(store, GarbageCollector(store, discover()), ManyHosts("host-000"))
        start = time.perf_counter()
        refresh = desired.refresh()
        seconds = time.perf_counter() - start
        assert len(refresh) == OF_EACH
        settled = best_ms(desired.refresh)
        print(f"a host's start {hosts} in all: {seconds:.2f} s (5 s); a refresh without news {settled:.2f} ms (5 ms)")
    print(f"memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


def test_a_settled_round_of_the_leader(stores: tuple[SqlStore, SqlStore]) -> None:
    policy = Policy(scheduler="swarm")
    for store, hosts in zip(stores, (1, HOSTS), strict=True):
        desired = Desired(store, GarbageCollector(store, discover()), ManyHosts("host-000"), everywhere=True)
        start = time.perf_counter()
        sandboxes: list[Sandbox] = list(desired.refresh().values())
        read = time.perf_counter() - start
        requested = [step.placement for step in placements(sandboxes, policy, {}).steps if isinstance(step, Place)]
        settled: Settled = {}

        # The scheduler returns the same objects as long as nothing changes there.
        records = {placement.uid: PlacedRecord(replace(placement), Placed(placement.host)) for placement in requested}

        def decide(
            sandboxes: list[Sandbox] = sandboxes, records: dict[str, PlacedRecord] = records, settled: Settled = settled
        ) -> float:
            started_at = time.perf_counter()
            assert placements(sandboxes, policy, records, settled=settled).steps == ()
            return (time.perf_counter() - started_at) * 1000

        decide()
        best = min(decide() for _ in range(5))
        print(f"a settled round over {hosts * OF_EACH}: {best:.1f} ms (goal: 50 ms); all read in {read:.2f} s")


def test_a_daemon_without_a_host(stores: tuple[SqlStore, SqlStore], databases: tuple[str, str], tmp_path: Path) -> None:
    """A real one over the store of many: it starts, lists all of them page by page, and stays small."""
    assert stores
    files = Authority(tmp_path / "authority").files("front")
    settings = {
        "PADDOCK_DATABASE_URL": databases[1],
        "PADDOCK_HOST_NAME": "front",
        "PADDOCK_SCHEDULER": "manual",
        "PADDOCK_ROLES": '["api"]',
        "PADDOCK_FLEET_CERT_FILE": str(files.cert),
        "PADDOCK_FLEET_KEY_FILE": str(files.key),
        "PADDOCK_FLEET_CA_FILE": str(files.authority),
    }
    start = time.perf_counter()
    daemon = start_daemon(tmp_path / "front", prefix=(), **settings)
    try:
        started = time.perf_counter() - start
        transport = httpx.HTTPTransport(uds=str(daemon.socket))
        with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as client:
            wait_for("its first pass is done", lambda: client.get("/readyz").status_code == 200)
            after, took, count = "", [], 0
            while True:
                started_at = time.perf_counter()
                query = {"limit": str(PAGE)} | ({"continue": after} if after else {})
                document = client.get("/apis/paddock/v1alpha1/sandboxes", params=query).json()
                took.append((time.perf_counter() - started_at) * 1000)
                count += len(document["items"])
                after = document["metadata"].get("continue", "")
                if not after:
                    break
        assert count == HOSTS * OF_EACH
        most = next(
            line for line in Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines() if "HWM" in line
        )
        print(
            f"a daemon without a host over {count}: serves after {started:.1f} s (5 s); a page of {PAGE} as its client"
            f" sees it p50 {statistics.median(took):.0f} ms; at most {int(most.split()[1]) >> 10} MiB (600)"
        )
    finally:
        daemon.stop()


def live_some(url: str, first: int, count: int) -> None:
    """Store whole lives, one after the other, as a daemon does: 7 transactions each."""
    store = SqlStore(url, wait_seconds=60)
    store.open()
    for at in range(first, first + count):
        with store.transaction() as transaction:
            stored = transaction.put(new_sandbox(f"life-{at}", "lives", spec=SPEC, status=status(1)))
        with store.transaction() as transaction:
            transaction.put_instance(instance(stored, host="host-001"))
        for step in range(4):
            with store.transaction() as transaction:
                sandbox = transaction.get("Sandbox", "lives", stored.name)
                assert sandbox is not None
                transaction.put(replace(sandbox, status={**status(1), "step": step}))
        with store.transaction() as transaction:
            observed = transaction.get("Sandbox", "lives", stored.name)
            assert observed is not None
            transaction.remove(observed)
    store.close()


def test_lives_of_all_hosts(stores: tuple[SqlStore, SqlStore], databases: tuple[str, str]) -> None:
    """The store's part of lives on four hosts at once: each has a process of its own, as its daemon is one."""
    assert stores
    hosts, number = 4, 200
    with ProcessPoolExecutor(hosts, mp_context=get_context("spawn")) as processes:
        list(processes.map(live_some, [databases[1]] * hosts, range(0, -hosts, -1), [1] * hosts))  # they are started
        start = time.perf_counter()
        list(processes.map(live_some, [databases[1]] * hosts, range(0, hosts * number, number), [number] * hosts))
        print(f"lives on one store: {hosts * number / (time.perf_counter() - start):.0f}/s (goal: 200)")
