"""The scheduler `swarm` on a real swarm, where the contract can't ask it of a fake."""

import json
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.ports.scheduler import Lost, Pending, Placed, SchedulerError, SchedulerProblem
from controller.scheduler.swarm.scheduler import SwarmScheduler
from controller.scheduler.swarm.services import service_name
from tests.contract.clusters import SwarmCluster, becomes, placed_on, placement
from tests.daemon import wait_for
from tests.lab.fleet import Fleet, fleet

pytestmark = [pytest.mark.fleet, pytest.mark.docker]


@pytest.fixture
def cluster(hosts: Fleet) -> Iterator[SwarmCluster]:
    swarm_cluster = SwarmCluster(hosts)
    yield swarm_cluster
    swarm_cluster.tidy()


def problem(scheduler: SwarmScheduler) -> SchedulerProblem | None:
    """Return why it can't decide, None if it can."""
    try:
        scheduler.ping()
    except SchedulerError as error:
        return error.problem
    return None


def test_pinning_and_labels_keep_the_placeholder(cluster: SwarmCluster) -> None:
    desired = placement(cluster)
    cluster.scheduler.place(desired)
    host = placed_on(cluster, desired.uid)
    before = cluster.running(1)
    assert cluster.scheduler.pin(desired.uid, 1, host) == Placed(host)
    for name in cluster.names:
        cluster.scheduler.set_host(name, fit=False, labels={"changed": "yes"})
    marker = placement(cluster, host=host)  # once this one is placed, the swarm has heeded what came before
    cluster.scheduler.place(marker)
    assert set(before) < set(cluster.running(2))


def test_a_placeholder_can_do_nothing(cluster: SwarmCluster) -> None:
    desired = placement(cluster, host="two")
    cluster.scheduler.place(desired)
    placed_on(cluster, desired.uid)
    (container,) = cluster.running(1)
    observed = json.loads(cluster.fleet["two"].docker("inspect", container))[0]
    config, host = observed["Config"], observed["HostConfig"]
    assert (config["User"], host["ReadonlyRootfs"], host["CapDrop"]) == ("65534:65534", True, ["ALL"])
    assert (host["Memory"], host["PidsLimit"], host["LogConfig"]["Type"]) == (16 << 20, 4, "none")
    assert not any(label.startswith("paddock.") for label in config["Labels"]), "no daemon takes it for its own"


def test_a_killed_placeholder_runs_again_on_its_host(cluster: SwarmCluster) -> None:
    desired = placement(cluster, host="three")
    cluster.scheduler.place(desired)
    placed_on(cluster, desired.uid)
    before = cluster.running(1)
    cluster.fleet["three"].docker("kill", *before)
    wait_for("another runs", lambda: [container for container in cluster.containers() if container not in before])
    assert placed_on(cluster, desired.uid) == "three"


def test_a_partitioned_host_is_lost_and_found(cluster: SwarmCluster) -> None:
    desired = placement(cluster, host="three")
    cluster.scheduler.place(desired)
    placed_on(cluster, desired.uid)
    cluster.running(1)
    start = time.monotonic()
    cluster.fleet["three"].cut()
    try:
        becomes(cluster, desired.uid, lambda now: isinstance(now, Lost))
        print(f"a partitioned host is Lost after {time.monotonic() - start:.1f} s")
        assert len(cluster.containers()) == 1, "its placeholder runs on"
    finally:
        cluster.fleet["three"].mend()
    assert placed_on(cluster, desired.uid) == "three"


def test_others_services_are_never_touched(cluster: SwarmCluster) -> None:
    swarm_scheduler, uid = SwarmScheduler(cluster.asked.engine.base_url, "another"), str(uuid.uuid4())
    cluster.asked.docker(
        "service",
        "create",
        "-d",
        "--no-resolve-image",
        "--replicas",
        "0",
        "--name",
        service_name(uid),
        "somebody/image:1",
    )
    mine = placement(cluster)
    try:
        for scheduler, name in ((cluster.scheduler, uid), (swarm_scheduler, mine.uid)):
            cluster.scheduler.place(mine)
            with pytest.raises(SchedulerError) as refusal:
                scheduler.release(name)
            assert refusal.value.problem is SchedulerProblem.REFUSED
            assert "docker service rm" in str(refusal.value)
        assert swarm_scheduler.list() == []
        assert [placed_record.placement for placed_record in cluster.scheduler.list()] == [mine]
    finally:
        cluster.asked.docker("service", "rm", service_name(uid))


def test_a_host_without_the_image_says_so(cluster: SwarmCluster) -> None:
    cluster.fleet["two"].docker("rmi", "paddock/placeholder:1")
    desired = placement(cluster, host="two")
    cluster.scheduler.place(desired)
    becomes(cluster, desired.uid, lambda now: isinstance(now, Pending) and "No such image" in now.message)
    SwarmScheduler(cluster.fleet["two"].engine.base_url, "any").prepare()
    assert placed_on(cluster, desired.uid) == "two"


def test_another_leader_goes_on(cluster: SwarmCluster) -> None:
    """The engine that is asked leads no more, or another one: placements stay, and new ones are made."""
    desired = placement(cluster, host="one")
    cluster.scheduler.place(desired)
    placed_on(cluster, desired.uid)
    leader = cluster.fleet.leader()
    fleet_host = next(entry for entry in cluster.fleet if entry is not leader)
    scheduler = SwarmScheduler(fleet_host.engine.base_url, cluster.scheduler._instance_id, timeout_seconds=60)
    start = time.monotonic()
    leader.engine.end(signal.SIGKILL)
    try:
        later = replace(desired, uid=str(uuid.uuid4()), host=fleet_host.name)  # the size of hosts is not asked now

        def places() -> bool:
            try:
                return isinstance(scheduler.place(later), Placed)
            except SchedulerError:
                return False

        wait_for("a new leader places", places, 120)
        print(f"a placement after the leader was killed took {time.monotonic() - start:.1f} s")
        assert desired.uid in {placed_record.placement.uid for placed_record in scheduler.list()}
    finally:
        leader.engine.start()
    assert placed_on(cluster, desired.uid) == "one"


def test_causes_of_no_answer_are_told_apart() -> None:
    with fleet() as hosts:
        scheduler = SwarmScheduler(hosts["one"].engine.base_url, "mine", timeout_seconds=60)
        assert problem(scheduler) is SchedulerProblem.NOT_A_MEMBER
        hosts.form_swarm(managers=2)
        assert problem(scheduler) is None
        worker = SwarmScheduler(hosts["three"].engine.base_url, "mine", timeout_seconds=60)
        assert problem(worker) is SchedulerProblem.NOT_A_MEMBER
        worker.prepare()
        assert hosts["three"].docker("images", "-q", "paddock/placeholder:1")
        hosts["two"].power_off()
        wait_for("the quorum is lost", lambda: problem(scheduler) is SchedulerProblem.NO_LEADER, 120)
        hosts["two"].engine.start()
        wait_for("the quorum is back", lambda: problem(scheduler) is None, 120)
        hosts["one"].engine.end()
        assert problem(scheduler) is SchedulerProblem.UNREACHABLE
