"""Clusters of the scheduler contract: hosts, and somebody who breaks them."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from controller.ports.scheduler import Availability, Liveness, Placed, Placement, PlacementState, Scheduler
from controller.scheduler.swarm.scheduler import SwarmScheduler
from controller.scheduler.swarm.services import service_name
from tests.daemon import wait_for
from tests.fakes.scheduler import FakeScheduler, fake_cluster
from tests.lab.fleet import Fleet, FleetHost, fleet


class Cluster(Protocol):
    """`names` are the hosts', all of them up, active and fit at the begin of a test."""

    names: tuple[str, ...]

    @property
    def scheduler(self) -> Scheduler: ...
    def stop_host(self, name: str) -> None: ...
    def start_host(self, name: str) -> None: ...
    def remove_out_of_band(self, uid: str) -> None: ...


class FakeCluster:
    def __init__(self) -> None:
        self._fake = fake_cluster()
        self.names = tuple(host.name for host in self._fake.hosts())

    @property
    def scheduler(self) -> FakeScheduler:
        return self._fake

    def stop_host(self, name: str) -> None:
        self._fake.set_liveness(name, Liveness.DOWN)

    def start_host(self, name: str) -> None:
        self._fake.set_liveness(name, Liveness.UP)

    def remove_out_of_band(self, uid: str) -> None:
        self._fake.remove_out_of_band(uid)


class SwarmCluster:
    """The first host's engine is asked; the others may be stopped."""

    def __init__(self, hosts: Fleet) -> None:
        self.fleet = hosts
        self.names = tuple(host.name for host in hosts)
        self._scheduler = SwarmScheduler(self.asked.engine.base_url, uuid.uuid4().hex)
        for fleet_host in hosts:
            SwarmScheduler(fleet_host.engine.base_url, "any").prepare()
            self._scheduler.set_host(fleet_host.name, fit=True, labels={}, availability=Availability.ACTIVE)

    @property
    def scheduler(self) -> SwarmScheduler:
        return self._scheduler

    @property
    def asked(self) -> FleetHost:
        return next(iter(self.fleet))

    def stop_host(self, name: str) -> None:
        self.fleet[name].power_off()

    def start_host(self, name: str) -> None:
        self.fleet[name].engine.start()

    def remove_out_of_band(self, uid: str) -> None:
        self.asked.docker("service", "rm", service_name(uid))

    def tidy(self) -> None:
        """Release everything, and wait until the engines have ended it: the next test counts on empty hosts."""
        for placed_record in self.scheduler.list():
            self.scheduler.release(placed_record.placement.uid)
        wait_for("no task is left", lambda: not self.containers("-a"))

    def containers(self, *options: str) -> list[str]:
        """Return the placeholders' containers on every host that is up; with "-a", also those that have ended."""
        label = "label=com.docker.swarm.service.name"
        return [
            text
            for fleet_host in self.fleet
            if fleet_host.engine.up
            for text in fleet_host.docker("ps", "-q", "--no-trunc", *options, "--filter", label).split()
        ]

    def running(self, count: int) -> list[str]:
        """Wait until so many placeholders run: one is placed before it does. Return their containers."""
        wait_for("the placeholders run", lambda: len(self.containers()) == count)
        return self.containers()


@contextmanager
def swarm() -> Iterator[Fleet]:
    """One swarm of three managers, for a module."""
    with fleet() as hosts:
        hosts.form_swarm()
        yield hosts


def placement(cluster: Cluster, share: float = 0.01, **fields: object) -> Placement:
    """Return a new placement that reserves this share of a host's memory."""
    size = min(host.memory_bytes for host in cluster.scheduler.hosts())
    return Placement(str(uuid.uuid4()), 1, int(size * share) >> 20 << 20, 10, **fields)  # type: ignore[arg-type]


def state(cluster: Cluster, uid: str) -> PlacementState | None:
    """Return the state of a placement, None if there is none."""
    return next(
        (placed_record.state for placed_record in cluster.scheduler.list() if placed_record.placement.uid == uid), None
    )


def becomes(cluster: Cluster, uid: str, true: Callable[[PlacementState], bool]) -> PlacementState:
    """Wait until the placement's state is so, and return it."""
    observed: list[PlacementState] = []

    def so() -> bool:
        now = state(cluster, uid)
        observed[:] = [now] if now is not None else []
        return now is not None and true(now)

    with contextlib.suppress(AssertionError):
        wait_for("the state", so)
    assert observed, "it is not there"
    assert true(observed[0]), observed
    return observed[0]


def placed_on(cluster: Cluster, uid: str) -> str:
    """Wait until it is placed; return the host."""
    observed = becomes(cluster, uid, lambda now: isinstance(now, Placed))
    assert isinstance(observed, Placed)
    return observed.host
