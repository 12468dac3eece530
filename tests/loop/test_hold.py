"""The hold: what may be started elsewhere may run here until a time that only a renewed lease moves."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from controller.loop.fleet.placements import LOSS_SECONDS
from controller.loop.tasks.hold import HOLD_SECONDS, HostHold
from controller.policy.levels.levels import Policy
from controller.store.lease import LEASE_SECONDS
from tests.contract.store_backends import Backend
from tests.loop.test_many_hosts import Hosts, two_hosts


class Freezer:
    def __init__(self) -> None:
        self.calls: list[tuple[float, int]] = []
        self.broken = False

    def hold(self, deadline: float, containers: Iterable[tuple[str, int]]) -> None:
        if self.broken:
            raise OSError("no space left on device")
        self.calls.append((deadline, len(list(containers))))


@pytest.fixture
def hosts(backend: Backend) -> Iterator[Hosts]:
    with two_hosts(backend, (Policy(scheduler="swarm"), Policy(scheduler="swarm"))) as created:
        yield created


def bound(hosts: Hosts, name: str, **spec: object) -> None:
    """Apply a sandbox, bound to host one as by a scheduler."""
    hosts.one.apply(name, **spec)
    with hosts.one.store.transaction() as transaction:
        obj = transaction.get("Sandbox", "default", name)
        assert obj is not None
        transaction.put(replace(obj, status={"host": "one", "binding": 1}))
    hosts.one.settle(seconds=5)


def test_only_what_may_be_started_elsewhere_is_held_while_the_lease_is_renewed(hosts: Hosts) -> None:
    freezer, renewed = Freezer(), [0.0]
    hold = HostHold(freezer, lambda: renewed[0], lambda: hosts.one.reconcile_pass.last, hosts.one.engine.observe)
    hold.renew()
    assert freezer.calls == [], "no lease was renewed yet"
    bound(hosts, "stays")
    bound(hosts, "moves", onHostLoss="Recreate")
    renewed[0] = 100.0
    hold.renew()
    hold.renew()
    assert freezer.calls == [(100.0 + HOLD_SECONDS, 1)] * 2, "a lease that is not renewed moves nothing"
    hosts.one.engine.observe_now(full=True)
    freezer.broken = True
    hold.renew()
    freezer.broken, renewed[0] = False, 102.0
    hosts.one.delete("moves")
    hosts.one.settle(seconds=5)
    hold.renew()
    assert freezer.calls[-1] == (102.0 + HOLD_SECONDS, 0)


def test_it_is_frozen_before_anybody_may_start_it_elsewhere() -> None:
    """5 s are left for the freezing itself, and clocks that differ in speed."""
    assert LEASE_SECONDS + LOSS_SECONDS >= HOLD_SECONDS + 5
