"""Contract of a scheduler that chooses hosts: the fake, and Docker Swarm on three engines (`make test-fleet`)."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from controller.ports.scheduler import (
    Availability,
    Liveness,
    Lost,
    Pending,
    Placed,
    PlacedRecord,
    SchedulerError,
    SchedulerProblem,
    StaleBinding,
    Suspended,
)
from tests.contract.scheduler_worlds import FakeWorld, SwarmWorld, World, becomes, placed_on, placement, state, swarm
from tests.daemon import wait_for
from tests.lab.fleet import Fleet

KINDS = ("fake", pytest.param("swarm", marks=[pytest.mark.fleet, pytest.mark.docker]))
BIG = 0.6  # of a host: two have no room on one


@pytest.fixture(scope="module")
def made_once() -> Iterator[dict[str, Fleet]]:
    """The lab, once a test needs it."""

    class Lazy(dict[str, Fleet]):
        def __missing__(self, kind: str) -> Fleet:
            self[kind] = last.enter_context(swarm())
            return self[kind]

    with ExitStack() as last:
        yield Lazy()


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, made_once: dict[str, Fleet]) -> Iterator[World]:
    if request.param == "fake":
        yield FakeWorld()
        return
    real = SwarmWorld(made_once["swarm"])
    yield real
    real.tidy()


def test_it_chooses_a_host_and_forgets_it(world: World) -> None:
    assert world.scheduler.ping()
    desired = placement(world, node_selector={}, labels={"paddock.name": "first"})
    assert isinstance(world.scheduler.place(desired), Pending)
    host = placed_on(world, desired.uid)
    assert host in world.names
    assert world.scheduler.list() == [PlacedRecord(desired, Placed(host))]
    assert world.scheduler.place(desired) == Placed(host)
    world.scheduler.release(desired.uid)
    world.scheduler.release(desired.uid)
    assert world.scheduler.list() == []


def test_full_hosts_are_left_out(world: World) -> None:
    several = [placement(world, BIG) for _ in world.names]
    for entry in several:
        world.scheduler.place(entry)
    assert {placed_on(world, one_placement.uid) for one_placement in several} == set(world.names)
    one_more = placement(world, BIG)
    world.scheduler.place(one_more)
    waiting = becomes(world, one_more.uid, lambda now: isinstance(now, Pending) and "no suitable node" in now.message)
    assert "insufficient resources" in waiting.message
    freed = placed_on(world, several[0].uid)
    world.scheduler.release(several[0].uid)
    assert placed_on(world, one_more.uid) == freed


def test_it_heeds_fitness_and_labels(world: World) -> None:
    first, second, third = world.names
    labels = {"disk": "ssd", "example.org/zone": "a_b", "spare": ""}
    world.scheduler.set_host(second, fit=True, labels=labels)
    world.scheduler.set_host(third, fit=False, labels=labels)
    document = {host.name: host for host in world.scheduler.hosts()}
    assert document[second].labels == labels
    assert (document[first].fit, document[second].fit, document[third].fit) == (True, True, False)
    chosen = placement(world, node_selector=labels)
    world.scheduler.place(chosen)
    assert placed_on(world, chosen.uid) == second
    nowhere = placement(world, node_selector={"disk": "tape"})
    world.scheduler.place(nowhere)
    becomes(world, nowhere.uid, lambda now: isinstance(now, Pending) and bool(now.message))
    world.scheduler.set_host(first, fit=True, labels={"disk": "tape"})
    assert placed_on(world, nowhere.uid) == first


def test_a_pinned_one_stays_whatever_the_labels(world: World) -> None:
    desired = placement(world)
    world.scheduler.place(desired)
    host = placed_on(world, desired.uid)
    assert world.scheduler.pin(desired.uid, 1, host) == Placed(host)
    world.scheduler.set_host(host, fit=False, labels={}, availability=Availability.PAUSED)
    assert world.scheduler.pin(desired.uid, 1, host) == Placed(host)
    assert world.scheduler.place(desired) == Placed(host), "asked again without its host, it is still pinned"
    assert world.scheduler.list() == [PlacedRecord(replace(desired, host=host), Placed(host))]
    second = placement(world, host=host)
    world.scheduler.place(second)
    becomes(world, second.uid, lambda now: isinstance(now, Pending) and "no suitable node" in now.message)


def test_a_suspended_one_keeps_its_host_only(world: World) -> None:
    host = world.names[1]
    sleeper, second = placement(world, BIG, host=host), placement(world, BIG, host=host)
    world.scheduler.place(sleeper)
    assert placed_on(world, sleeper.uid) == host
    assert world.scheduler.place(replace(sleeper, running=False)) == Suspended(host)
    world.scheduler.place(second)
    assert placed_on(world, second.uid) == host, "it reserves nothing"
    world.scheduler.place(sleeper)
    becomes(world, sleeper.uid, lambda now: isinstance(now, Pending) and "no suitable node" in now.message)
    world.scheduler.release(second.uid)
    assert placed_on(world, sleeper.uid) == host


def test_a_reservation_grows_where_there_is_room(world: World) -> None:
    host = world.names[2]
    grown, second = placement(world, 0.3, host=host), placement(world, 0.3, host=host)
    for entry in (grown, second):
        world.scheduler.place(entry)
        assert placed_on(world, entry.uid) == host
    further = replace(grown, memory_bytes=2 * grown.memory_bytes)
    world.scheduler.place(further)
    assert placed_on(world, grown.uid) == host
    assert world.scheduler.list()[sorted([grown.uid, second.uid]).index(grown.uid)].placement == further
    world.scheduler.place(replace(grown, memory_bytes=3 * grown.memory_bytes))
    becomes(world, grown.uid, lambda now: isinstance(now, Pending) and "insufficient" in now.message)
    world.scheduler.place(further)
    assert placed_on(world, grown.uid) == host


def test_an_earlier_binding_changes_nothing(world: World) -> None:
    first = placement(world, host=world.names[1])
    world.scheduler.place(first)
    assert placed_on(world, first.uid) == world.names[1]
    second = replace(first, binding=2, host="", node_selector={"side": "left"})
    world.scheduler.set_host(world.names[2], fit=True, labels={"side": "left"})
    world.scheduler.place(second)
    assert placed_on(world, first.uid) == world.names[2], "a later binding asks for a host again"
    with pytest.raises(StaleBinding):
        world.scheduler.place(first)
    with pytest.raises(StaleBinding):
        world.scheduler.pin(first.uid, 1, world.names[0])
    with pytest.raises(StaleBinding):
        world.scheduler.pin("nobody", 1, world.names[0])
    world.scheduler.release(first.uid, 1)
    assert state(world, first.uid) == Placed(world.names[2])
    world.scheduler.release(first.uid, 2)
    assert state(world, first.uid) is None


def test_unknown_hosts_are_not_made_up(world: World) -> None:
    desired = placement(world, host="elsewhere")
    assert isinstance(world.scheduler.place(desired), Lost)
    assert world.scheduler.list() == []
    with pytest.raises(SchedulerError) as refusal:
        world.scheduler.set_host("elsewhere", fit=True, labels={})
    assert refusal.value.problem is SchedulerProblem.REFUSED


def test_a_drained_host_is_left(world: World) -> None:
    host = world.names[0]
    pinned, loose = placement(world, host=host), placement(world, node_selector={"side": "right"})
    for name in world.names[:2]:
        world.scheduler.set_host(name, fit=True, labels={"side": "right"})
    world.scheduler.place(pinned)
    world.scheduler.place(loose)
    assert placed_on(world, pinned.uid) == host
    was = placed_on(world, loose.uid)
    world.scheduler.set_host(was, fit=True, labels={"side": "right"}, availability=Availability.DRAINED)
    becomes(world, loose.uid, lambda now: isinstance(now, Placed) and now.host != was)
    world.scheduler.set_host(host, fit=True, labels={}, availability=Availability.DRAINED)
    becomes(world, pinned.uid, lambda now: isinstance(now, Pending) and bool(now.message))
    world.scheduler.set_host(host, fit=True, labels={}, availability=Availability.ACTIVE)
    assert placed_on(world, pinned.uid) == host


def test_a_dead_host_is_lost_by_its_word(world: World) -> None:
    _, dead, name = world.names
    pinned, idle = placement(world, host=dead), placement(world, host=dead, running=False)
    loose = placement(world, node_selector={"side": "up"})
    world.scheduler.set_host(dead, fit=True, labels={"side": "up"})
    for entry in (pinned, loose):
        world.scheduler.place(entry)
        assert placed_on(world, entry.uid) == dead
    assert world.scheduler.place(idle) == Suspended(dead)
    world.scheduler.set_host(name, fit=True, labels={"side": "up"})
    world.stop_host(dead)
    try:
        for one_placement in (pinned, idle):
            becomes(world, one_placement.uid, lambda now: isinstance(now, Lost) and now.host == dead)
        assert placed_on(world, loose.uid) == name
        assert {host.name: host.liveness for host in world.scheduler.hosts()}[dead] is Liveness.DOWN
        assert isinstance(world.scheduler.place(pinned), Lost)
    finally:
        world.start_host(dead)
    assert placed_on(world, pinned.uid) == dead
    becomes(world, idle.uid, lambda now: now == Suspended(dead))
    assert placed_on(world, loose.uid) == name


def test_one_removed_out_of_band_can_be_placed_again(world: World) -> None:
    desired = placement(world, host=world.names[1])
    world.scheduler.place(desired)
    assert placed_on(world, desired.uid) == world.names[1]
    world.remove_out_of_band(desired.uid)
    assert state(world, desired.uid) is None
    with pytest.raises(StaleBinding):
        world.scheduler.pin(desired.uid, 1, world.names[1])
    world.scheduler.place(desired)
    assert placed_on(world, desired.uid) == world.names[1]


def test_a_watch_wakes_at_a_choice_and_at_a_change(world: World) -> None:
    woken: list[bool] = []
    desired = placement(world)
    stop = world.scheduler.watch(lambda: woken.append(isinstance(state(world, desired.uid), Placed)))
    try:
        world.scheduler.place(desired)
        wait_for("it wakes when a host is chosen", lambda: any(woken))
        woken.clear()
        world.scheduler.set_host(world.names[1], fit=False, labels={})
        wait_for("it wakes when a host changes", lambda: woken)
    finally:
        stop()
