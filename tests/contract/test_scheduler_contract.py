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
from tests.contract.clusters import Cluster, FakeCluster, SwarmCluster, becomes, placed_on, placement, state, swarm
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
def cluster(request: pytest.FixtureRequest, made_once: dict[str, Fleet]) -> Iterator[Cluster]:
    if request.param == "fake":
        yield FakeCluster()
        return
    real = SwarmCluster(made_once["swarm"])
    yield real
    real.tidy()


def test_it_chooses_a_host_and_forgets_it(cluster: Cluster) -> None:
    assert cluster.scheduler.ping()
    desired = placement(cluster, node_selector={}, labels={"paddock.name": "first"})
    assert isinstance(cluster.scheduler.place(desired), Pending)
    host = placed_on(cluster, desired.uid)
    assert host in cluster.names
    assert cluster.scheduler.list() == [PlacedRecord(desired, Placed(host))]
    assert cluster.scheduler.place(desired) == Placed(host)
    cluster.scheduler.release(desired.uid)
    cluster.scheduler.release(desired.uid)
    assert cluster.scheduler.list() == []


def test_full_hosts_are_left_out(cluster: Cluster) -> None:
    several = [placement(cluster, BIG) for _ in cluster.names]
    for entry in several:
        cluster.scheduler.place(entry)
    assert {placed_on(cluster, one_placement.uid) for one_placement in several} == set(cluster.names)
    one_more = placement(cluster, BIG)
    cluster.scheduler.place(one_more)
    waiting = becomes(cluster, one_more.uid, lambda now: isinstance(now, Pending) and "no suitable node" in now.message)
    assert "insufficient resources" in waiting.message
    freed = placed_on(cluster, several[0].uid)
    cluster.scheduler.release(several[0].uid)
    assert placed_on(cluster, one_more.uid) == freed


def test_it_heeds_fitness_and_labels(cluster: Cluster) -> None:
    first, second, third = cluster.names
    labels = {"disk": "ssd", "example.org/zone": "a_b", "spare": ""}
    cluster.scheduler.set_host(second, fit=True, labels=labels)
    cluster.scheduler.set_host(third, fit=False, labels=labels)
    document = {host.name: host for host in cluster.scheduler.hosts()}
    assert document[second].labels == labels
    assert (document[first].fit, document[second].fit, document[third].fit) == (True, True, False)
    chosen = placement(cluster, node_selector=labels)
    cluster.scheduler.place(chosen)
    assert placed_on(cluster, chosen.uid) == second
    nowhere = placement(cluster, node_selector={"disk": "tape"})
    cluster.scheduler.place(nowhere)
    becomes(cluster, nowhere.uid, lambda now: isinstance(now, Pending) and bool(now.message))
    cluster.scheduler.set_host(first, fit=True, labels={"disk": "tape"})
    assert placed_on(cluster, nowhere.uid) == first


def test_a_pinned_one_stays_whatever_the_labels(cluster: Cluster) -> None:
    desired = placement(cluster)
    cluster.scheduler.place(desired)
    host = placed_on(cluster, desired.uid)
    assert cluster.scheduler.pin(desired.uid, 1, host) == Placed(host)
    cluster.scheduler.set_host(host, fit=False, labels={}, availability=Availability.PAUSED)
    assert cluster.scheduler.pin(desired.uid, 1, host) == Placed(host)
    assert cluster.scheduler.place(desired) == Placed(host), "asked again without its host, it is still pinned"
    assert cluster.scheduler.list() == [PlacedRecord(replace(desired, host=host), Placed(host))]
    second = placement(cluster, host=host)
    cluster.scheduler.place(second)
    becomes(cluster, second.uid, lambda now: isinstance(now, Pending) and "no suitable node" in now.message)


def test_a_suspended_one_keeps_its_host_only(cluster: Cluster) -> None:
    host = cluster.names[1]
    sleeper, second = placement(cluster, BIG, host=host), placement(cluster, BIG, host=host)
    cluster.scheduler.place(sleeper)
    assert placed_on(cluster, sleeper.uid) == host
    assert cluster.scheduler.place(replace(sleeper, running=False)) == Suspended(host)
    cluster.scheduler.place(second)
    assert placed_on(cluster, second.uid) == host, "it reserves nothing"
    cluster.scheduler.place(sleeper)
    becomes(cluster, sleeper.uid, lambda now: isinstance(now, Pending) and "no suitable node" in now.message)
    cluster.scheduler.release(second.uid)
    assert placed_on(cluster, sleeper.uid) == host


def test_a_reservation_grows_where_there_is_room(cluster: Cluster) -> None:
    host = cluster.names[2]
    grown, second = placement(cluster, 0.3, host=host), placement(cluster, 0.3, host=host)
    for entry in (grown, second):
        cluster.scheduler.place(entry)
        assert placed_on(cluster, entry.uid) == host
    further = replace(grown, memory_bytes=2 * grown.memory_bytes)
    cluster.scheduler.place(further)
    assert placed_on(cluster, grown.uid) == host
    assert cluster.scheduler.list()[sorted([grown.uid, second.uid]).index(grown.uid)].placement == further
    cluster.scheduler.place(replace(grown, memory_bytes=3 * grown.memory_bytes))
    becomes(cluster, grown.uid, lambda now: isinstance(now, Pending) and "insufficient" in now.message)
    cluster.scheduler.place(further)
    assert placed_on(cluster, grown.uid) == host


def test_an_earlier_binding_changes_nothing(cluster: Cluster) -> None:
    first = placement(cluster, host=cluster.names[1])
    cluster.scheduler.place(first)
    assert placed_on(cluster, first.uid) == cluster.names[1]
    second = replace(first, binding=2, host="", node_selector={"side": "left"})
    cluster.scheduler.set_host(cluster.names[2], fit=True, labels={"side": "left"})
    cluster.scheduler.place(second)
    assert placed_on(cluster, first.uid) == cluster.names[2], "a later binding asks for a host again"
    with pytest.raises(StaleBinding):
        cluster.scheduler.place(first)
    with pytest.raises(StaleBinding):
        cluster.scheduler.pin(first.uid, 1, cluster.names[0])
    with pytest.raises(StaleBinding):
        cluster.scheduler.pin("nobody", 1, cluster.names[0])
    cluster.scheduler.release(first.uid, 1)
    assert state(cluster, first.uid) == Placed(cluster.names[2])
    cluster.scheduler.release(first.uid, 2)
    assert state(cluster, first.uid) is None


def test_unknown_hosts_are_not_made_up(cluster: Cluster) -> None:
    desired = placement(cluster, host="elsewhere")
    assert isinstance(cluster.scheduler.place(desired), Lost)
    assert cluster.scheduler.list() == []
    with pytest.raises(SchedulerError) as refusal:
        cluster.scheduler.set_host("elsewhere", fit=True, labels={})
    assert refusal.value.problem is SchedulerProblem.REFUSED


def test_a_drained_host_is_left(cluster: Cluster) -> None:
    host = cluster.names[0]
    pinned, loose = placement(cluster, host=host), placement(cluster, node_selector={"side": "right"})
    for name in cluster.names[:2]:
        cluster.scheduler.set_host(name, fit=True, labels={"side": "right"})
    cluster.scheduler.place(pinned)
    cluster.scheduler.place(loose)
    assert placed_on(cluster, pinned.uid) == host
    was = placed_on(cluster, loose.uid)
    cluster.scheduler.set_host(was, fit=True, labels={"side": "right"}, availability=Availability.DRAINED)
    becomes(cluster, loose.uid, lambda now: isinstance(now, Placed) and now.host != was)
    cluster.scheduler.set_host(host, fit=True, labels={}, availability=Availability.DRAINED)
    becomes(cluster, pinned.uid, lambda now: isinstance(now, Pending) and bool(now.message))
    cluster.scheduler.set_host(host, fit=True, labels={}, availability=Availability.ACTIVE)
    assert placed_on(cluster, pinned.uid) == host


def test_a_dead_host_is_lost_by_its_word(cluster: Cluster) -> None:
    _, dead, name = cluster.names
    pinned, idle = placement(cluster, host=dead), placement(cluster, host=dead, running=False)
    loose = placement(cluster, node_selector={"side": "up"})
    cluster.scheduler.set_host(dead, fit=True, labels={"side": "up"})
    for entry in (pinned, loose):
        cluster.scheduler.place(entry)
        assert placed_on(cluster, entry.uid) == dead
    assert cluster.scheduler.place(idle) == Suspended(dead)
    cluster.scheduler.set_host(name, fit=True, labels={"side": "up"})
    cluster.stop_host(dead)
    try:
        for one_placement in (pinned, idle):
            becomes(cluster, one_placement.uid, lambda now: isinstance(now, Lost) and now.host == dead)
        assert placed_on(cluster, loose.uid) == name
        assert {host.name: host.liveness for host in cluster.scheduler.hosts()}[dead] is Liveness.DOWN
        assert isinstance(cluster.scheduler.place(pinned), Lost)
    finally:
        cluster.start_host(dead)
    assert placed_on(cluster, pinned.uid) == dead
    becomes(cluster, idle.uid, lambda now: now == Suspended(dead))
    assert placed_on(cluster, loose.uid) == name


def test_one_removed_out_of_band_can_be_placed_again(cluster: Cluster) -> None:
    desired = placement(cluster, host=cluster.names[1])
    cluster.scheduler.place(desired)
    assert placed_on(cluster, desired.uid) == cluster.names[1]
    cluster.remove_out_of_band(desired.uid)
    assert state(cluster, desired.uid) is None
    with pytest.raises(StaleBinding):
        cluster.scheduler.pin(desired.uid, 1, cluster.names[1])
    cluster.scheduler.place(desired)
    assert placed_on(cluster, desired.uid) == cluster.names[1]


def test_a_watch_wakes_at_a_choice_and_at_a_change(cluster: Cluster) -> None:
    woken: list[bool] = []
    desired = placement(cluster)
    stop = cluster.scheduler.watch(lambda: woken.append(isinstance(state(cluster, desired.uid), Placed)))
    try:
        cluster.scheduler.place(desired)
        wait_for("it wakes when a host is chosen", lambda: any(woken))
        woken.clear()
        cluster.scheduler.set_host(cluster.names[1], fit=False, labels={})
        wait_for("it wakes when a host changes", lambda: woken)
    finally:
        stop()
