"""A hundred hosts with a thousand sandboxes each on one PostgreSQL: what one daemon of them pays.

PADDOCK_BENCH_HOSTS says how many hosts there are. The baseline of each figure is the same call on one host's sandboxes.
"""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from controller.kinds.planning.snapshot import Sandbox
from controller.kinds.registry import discover
from controller.loop.desired import Desired
from controller.loop.tasks.garbage import GarbageCollector
from controller.plan.capacity.placements import Place, Settled, placements
from controller.policy.levels.levels import Policy
from controller.ports.scheduler import Placed, PlacedRecord
from controller.store.sql_store import SqlStore
from tests.bench.test_growth import best_ms
from tests.contract.store_worlds import box, instance, make_world
from tests.store.test_store_bench import SPEC, status

pytestmark = [pytest.mark.bench, pytest.mark.postgres, pytest.mark.timeout(1800)]
HOSTS, OF_EACH, PAGE, LOT = int(os.environ.get("PADDOCK_BENCH_HOSTS", "100")), 1000, 500, 1000


def fill(store: SqlStore, hosts: int) -> None:
    for host in range(hosts):
        name = f"host-{host:03}"
        bound = {**status(1), "host": name, "binding": 1}
        made = [box(f"b-{name}-{at:04}", f"team-{at % 10}", spec=SPEC, status=bound) for at in range(OF_EACH)]
        for begin in range(0, OF_EACH, LOT):
            with store.transaction() as transaction:
                for each in made[begin : begin + LOT]:
                    stored = transaction.put(each)
                    transaction.put_instance(instance(stored, host=name))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SqlStore, SqlStore]]:
    """A store of one host, and one of many."""
    with ExitStack() as held:
        made = []
        for hosts in (1, HOSTS):
            world = held.enter_context(make_world("postgres", tmp_path_factory.mktemp("many"), new=True))
            made.append(world.store(wait_seconds=60))
            began = time.perf_counter()
            fill(made[-1], hosts)
            print(f"{hosts * OF_EACH} sandboxes stored in {time.perf_counter() - began:.0f} s")
        yield made[0], made[1]


def both(stores: tuple[SqlStore, SqlStore], what: str, action: Callable[[SqlStore], object], rounds: int = 7) -> None:
    one, many = (best_ms(lambda store=each: action(store), rounds) for each in stores)  # type: ignore[misc]
    print(f"{what}: {many:.1f} ms of {HOSTS} hosts, {one:.1f} ms of one: {many / max(one, 0.001):.2f}")


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
        desired = Desired(store, GarbageCollector(store, discover()), "host-000", "")
        began = time.perf_counter()
        found = desired.refresh()
        seconds = time.perf_counter() - began
        assert len(found) == OF_EACH
        settled = best_ms(desired.refresh)
        print(f"a host's start {hosts} in all: {seconds:.2f} s (5 s); a refresh without news {settled:.2f} ms (5 ms)")
    print(f"memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


def test_a_settled_round_of_the_leader(stores: tuple[SqlStore, SqlStore]) -> None:
    policy = Policy(scheduler="swarm")
    for store, hosts in zip(stores, (1, HOSTS), strict=True):
        desired = Desired(store, GarbageCollector(store, discover()), "host-000", "", everywhere=True)
        began = time.perf_counter()
        boxes: list[Sandbox] = list(desired.refresh().values())
        read = time.perf_counter() - began
        asked = [each.placement for each in placements(boxes, policy, {}).steps if isinstance(each, Place)]
        settled: Settled = {}

        def decide(asked: list = asked, boxes: list = boxes, settled: Settled = settled) -> object:  # type: ignore[type-arg]
            records = {each.uid: PlacedRecord(replace(each), Placed(each.host)) for each in asked}
            began = time.perf_counter()
            assert placements(boxes, policy, records, settled=settled).steps == ()
            return (time.perf_counter() - began) * 1000

        decide()
        best = min(decide() for _ in range(5))  # type: ignore[type-var]
        print(f"a settled round over {hosts * OF_EACH}: {best:.1f} ms (goal: 50 ms); all read in {read:.2f} s")


def test_lives_of_all_hosts(stores: tuple[SqlStore, SqlStore], tmp_path: Path) -> None:
    """The store's part: 7 transactions a life, by four writers."""
    from concurrent.futures import ThreadPoolExecutor

    many = stores[1]

    def live(at: int) -> None:
        made = box(f"life-{at}", "lives", spec=SPEC, status=status(1))
        with many.transaction() as transaction:
            stored = transaction.put(made)
        with many.transaction() as transaction:
            transaction.put_instance(instance(stored, host="host-001"))
        for step in range(4):
            with many.transaction() as transaction:
                found = transaction.get("Sandbox", "lives", stored.name)
                assert found is not None
                transaction.put(replace(found, status={**status(1), "step": step}))
        with many.transaction() as transaction:
            found = transaction.get("Sandbox", "lives", stored.name)
            assert found is not None
            transaction.remove(found)

    count, began = 400, time.perf_counter()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(live, range(count)))
    print(f"lives on one store: {count / (time.perf_counter() - began):.0f}/s (goal: 200)")
