"""Placements by a scheduler: what it chooses is bound, kept, changed, given back, and after a crash gone on with."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import State
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.kinds.planning.snapshot import SweepRules
from controller.loop.fleet.placements import (
    IMAGE_SECONDS,
    LOSS_SECONDS,
    PENDING_SECONDS,
    REACH_SECONDS,
    PlacementKeeper,
)
from controller.plan.fleet.placements import GUARD
from controller.plan.fleet.refusal import REASON, REFUSAL_SECONDS
from controller.policy.levels.levels import Policy
from controller.ports import LeaseState
from controller.ports.scheduler import Availability, Liveness, Placed, SchedulerError, SchedulerProblem, Suspended
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend, make_backend
from tests.examples import examples
from tests.fakes.scheduler import FakeScheduler, fake_cluster
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_many_hosts import Hosts, found, two_hosts

_SWARM = Policy(scheduler="swarm")


def limits(memory: str) -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory}}}


class Killed(BaseException):
    """The daemon ends here."""


class Leases:
    """A store, with hosts whose lease has expired."""

    def __init__(self, store: Any) -> None:
        self._store, self.lost = store, set[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def leases(self) -> list[LeaseState]:
        return [LeaseState(f"host/{name}", "pid 1", 1, -1.0) for name in sorted(self.lost)]


@dataclass
class Fleet:
    """Two hosts of one scheduler. `keeper` is the leader's; `new_leader` has nothing but the store."""

    hosts: Hosts
    scheduler: FakeScheduler
    wakes: list[str] = field(default_factory=list)
    boot: list[float] = field(default_factory=lambda: [1000.0])

    def __post_init__(self) -> None:
        self.leases = Leases(self.hosts.one.store)
        self.new_leader()

    def new_leader(self, wrapped: Callable[[Any], Any] = lambda each: each) -> None:
        harness = self.hosts.one
        self.keeper = PlacementKeeper(
            wrapped(self.scheduler),
            wrapped(self.leases),
            harness.place,
            _SWARM,
            harness.clock,
            lambda: self.wakes.append("waits"),
            step_aside=lambda: self.wakes.append("rests"),
            boot=lambda: self.boot[0],
        )
        harness.reconcile_pass.placements = self.keeper

    def lose(self, host: str, seconds: float = 0.0, *, down: bool = True) -> None:
        """A host's daemon goes away, its machine too if it is `down`; so many seconds pass."""
        self.leases.lost.add(host)
        if down:
            self.scheduler.set_liveness(host, Liveness.DOWN)
        self.keeper.look()
        self.boot[0] += seconds

    def find(self, host: str) -> None:
        """A lost host comes back."""
        self.leases.lost.discard(host)
        self.scheduler.set_liveness(host, Liveness.UP)

    def settle(self) -> None:
        """Go on until all is done. The loops of lost hosts stand still."""
        if self.leases.lost:
            for _ in range(4):
                for harness in (self.hosts.one, self.hosts.two):
                    if harness.place.host not in self.leases.lost:
                        harness.settle(seconds=5)
                self.keeper.look()
            return
        for _ in range(3):
            self.hosts.settle()
            self.keeper.look()
        self.hosts.settle()

    def host_of(self, name: str) -> str:
        return str(found(self.hosts.one, name).status.get("host", ""))

    def state(self, name: str) -> object:
        uid = found(self.hosts.one, name).uid
        return next(
            (placed_record.state for placed_record in self.scheduler.list() if placed_record.placement.uid == uid), None
        )


@pytest.fixture
def fleet(backend: Backend) -> Iterator[Fleet]:
    with two_hosts(backend, (_SWARM, _SWARM)) as hosts:
        for harness in (hosts.one, hosts.two):
            report(harness)
        yield Fleet(hosts, fake_cluster(("one", "two")))


def report(harness: LoopHarness, **conditions: str) -> None:
    """Store the Host object as its daemon reports it."""
    with harness.store.transaction() as transaction:
        host = transaction.get("Host", "", harness.place.host)
        document = {"EngineReachable": "True", **conditions}
        status = {"conditions": [{"type": type_, "status": name} for type_, name in document.items()], "images": []}
        if host is None:
            host = StoredObject("Host", "", harness.place.host, f"uid-of-{harness.place.host}", spec={}, created_at=1.0)
        transaction.put(replace(host, status=status))


def change(harness: LoopHarness, name: str, **spec: object) -> None:
    """Change a host's spec, as `paddock host` does."""
    with harness.store.transaction() as transaction:
        host = transaction.get("Host", "", name)
        assert host is not None
        transaction.put(replace(host, spec={**host.spec, **spec}))


def test_the_scheduler_chooses_and_its_choice_is_kept(fleet: Fleet) -> None:
    for name in ("a", "b"):
        fleet.hosts.one.apply(name)
    fleet.settle()
    assert sorted(fleet.host_of(name) for name in ("a", "b")) == ["one", "two"]
    assert [len(harness.ours()) for harness in (fleet.hosts.one, fleet.hosts.two)] == [1, 1]
    for name in ("a", "b"):
        assert fleet.hosts.one.condition(name, "Ready") == "True Running"
        assert found(fleet.hosts.one, name).status["binding"] == 1
        assert fleet.state(name) == Placed(fleet.host_of(name))
    assert {placed_record.placement.host for placed_record in fleet.scheduler.list()} == {"one", "two"}, (
        "they are pinned"
    )


def test_one_that_fits_nowhere_waits_with_the_schedulers_words(fleet: Fleet) -> None:
    fleet.hosts.one.apply("large", **limits("100Gi"))
    fleet.settle()
    assert fleet.hosts.one.condition("large", "Scheduled") == "False Unschedulable"
    conditions = found(fleet.hosts.one, "large").status["conditions"]
    assert all(condition["message"] == "no suitable node (insufficient resources)" for condition in conditions)
    assert fleet.wakes, "the loop is woken to say so"


def quota(fleet: Fleet, **hard: object) -> None:
    spec = {"hard": hard}
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Quota", "metadata": {"name": "main"}, "spec": spec}
    fleet.hosts.one.services.apply.apply([Source("test", json.dumps(document))])


def places(fleet: Fleet) -> int:
    """The memory that the scheduler reserves, in GiB."""
    return (
        sum(
            placed_record.placement.memory_bytes
            for placed_record in fleet.scheduler.list()
            if placed_record.placement.running
        )
        >> 30
    )


def test_waiting_for_a_quota_holds_no_place(fleet: Fleet) -> None:
    quota(fleet, memory="4Gi")
    harness = fleet.hosts.one
    for at in range(6):
        harness.apply(f"s{at}", **limits("2Gi"))
        harness.clock.advance(1)
    fleet.settle()
    assert places(fleet) == 4
    assert [harness.condition(f"s{at}", "Scheduled") for at in range(6)] == [
        *["True Assigned"] * 2,
        *["False QuotaExceeded"] * 4,
    ]
    assert [fleet.host_of(f"s{at}") for at in range(2, 6)] == [""] * 4
    assert "sandbox/default/s2 is ahead of it" in str(found(harness, "s3").status["conditions"])
    harness.delete("s0")
    fleet.settle()
    assert harness.condition("s2", "Ready") == "True Running"
    assert places(fleet) == 4
    quota(fleet, memory="8Gi")
    fleet.settle()
    assert [harness.condition(f"s{at}", "Ready") for at in range(1, 5)] == ["True Running"] * 4


def test_one_bound_that_waits_for_a_quota_rests(fleet: Fleet) -> None:
    harness = fleet.hosts.one
    harness.apply("early", **limits("2Gi"))
    harness.apply("late", **limits("2Gi"))
    fleet.settle()
    harness.apply("late", **limits("2Gi"), runState="Suspended")
    fleet.settle()
    host = fleet.host_of("late")
    quota(fleet, memory="2Gi")
    harness.apply("late", **limits("2Gi"))
    fleet.settle()
    assert harness.condition("late", "Scheduled") == "False QuotaExceeded"
    assert (places(fleet), fleet.state("late")) == (2, Suspended(host))
    harness.delete("early")
    fleet.settle()
    assert harness.condition("late", "Ready") == "True Running"
    assert (places(fleet), fleet.host_of("late")) == (2, host)


def test_no_two_rounds_place_more_than_a_quota_allows(fleet: Fleet) -> None:
    quota(fleet, sandboxes=1)
    harness = fleet.hosts.one
    harness.apply("a")
    fleet.keeper.look()
    fleet.keeper.look()
    assert fleet.host_of("a"), "it is bound, and its daemon did not run yet"
    harness.apply("b")
    fleet.new_leader()
    fleet.keeper.look()
    assert len(fleet.scheduler.list()) == 1
    fleet.settle()
    assert (harness.condition("a", "Ready"), fleet.host_of("b")) == ("True Running", "")


APP = "team/app:1"


def has_image(fleet: Fleet, harness: LoopHarness, *images: str) -> None:
    """The host has these images, and says so."""
    for image in images:
        harness.engine.add_image(image)
    with fleet.hosts.one.store.transaction() as transaction:
        host = transaction.get("Host", "", harness.place.host)
        assert host is not None
        transaction.put(replace(host, status={**host.status, "images": list(images)}))


def test_a_sandbox_goes_where_its_image_is(fleet: Fleet) -> None:
    has_image(fleet, fleet.hosts.two, APP, "other:1")
    has_image(fleet, fleet.hosts.one, "other:1")
    for name in ("a", "b", "c"):
        fleet.hosts.one.apply(name, template={"image": APP})
    for name in ("d", "e"):
        fleet.hosts.one.apply(name, template={"image": "other:1"})
    fleet.settle()
    assert {fleet.host_of(name) for name in ("a", "b", "c")} == {"two"}
    assert fleet.hosts.one.condition("a", "Ready") == "True Running"
    assert {fleet.host_of(name) for name in ("d", "e")} == {"one"}, "the emptier one, which has it, too"


def test_a_host_that_listed_no_images_may_have_them(fleet: Fleet) -> None:
    """The first daemon lists its images; the other has joined just now."""
    has_image(fleet, fleet.hosts.one, APP)
    with fleet.hosts.one.store.transaction() as transaction:
        two = transaction.get("Host", "", "two")
        assert two is not None
        transaction.put(replace(two, status={"conditions": two.status["conditions"]}))
    fleet.hosts.two.engine.add_image(APP)
    for name in ("a", "b"):
        fleet.hosts.one.apply(name, template={"image": APP})
    fleet.settle()
    assert {fleet.host_of(name) for name in ("a", "b")} == {"one", "two"}


def test_a_host_without_the_image_pulls_it_where_the_others_are_full(fleet: Fleet) -> None:
    has_image(fleet, fleet.hosts.two, APP)
    fleet.hosts.one.engine.registry.add(APP)
    fleet.scheduler.join("two", memory_bytes=1 << 30)
    fleet.hosts.one.apply("a", template={"image": APP}, **limits("2Gi"))
    fleet.settle()
    assert fleet.hosts.one.condition("a", "Scheduled") == "False Unschedulable"
    fleet.boot[0] += IMAGE_SECONDS
    fleet.settle()
    assert (fleet.host_of("a"), fleet.hosts.one.condition("a", "Ready")) == ("one", "True Running")


def test_one_whose_image_a_host_cannot_get_is_started_where_it_is(fleet: Fleet) -> None:
    fleet.hosts.one.apply("a", template={"image": APP})
    fleet.settle()
    first = fleet.host_of("a")
    assert fleet.hosts.one.condition("a", "Ready") == "False ImagePullFailed"
    two = fleet.hosts.two if first == "one" else fleet.hosts.one
    has_image(fleet, two, APP)
    for harness in (fleet.hosts.one, fleet.hosts.two):
        harness.clock.advance(600)  # it tries again
    fleet.settle()
    assert (fleet.host_of("a"), fleet.hosts.one.condition("a", "Ready")) == (two.place.host, "True Running")
    assert "imageNeeded" not in found(fleet.hosts.one, "a").status
    events = [
        event.message for event in fleet.hosts.one.store.events(kind="Sandbox", name="a") if event.reason == REASON
    ]
    assert [f"host {two.place.host} has the image {APP}" in message for message in events] == [True]


def test_one_that_only_full_hosts_can_start_waits_for_them(fleet: Fleet) -> None:
    has_image(fleet, fleet.hosts.two, APP)
    fleet.scheduler.join("two", memory_bytes=1 << 30)
    fleet.hosts.one.apply("a", template={"image": APP}, **limits("2Gi"))
    fleet.settle()
    fleet.boot[0] += IMAGE_SECONDS
    fleet.settle()  # the other one is asked, and can't pull it
    for _ in range(3):
        fleet.boot[0] += IMAGE_SECONDS
        for harness in (fleet.hosts.one, fleet.hosts.two):
            harness.clock.advance(60)
        fleet.settle()
    assert (fleet.host_of("a"), fleet.hosts.one.condition("a", "Scheduled")) == ("", "False Unschedulable")
    assert found(fleet.hosts.one, "a").status["imageNeeded"] == APP
    assert found(fleet.hosts.one, "a").status["binding"] == 1, "nobody is asked twice"
    fleet.scheduler.join("two", memory_bytes=16 << 30)
    fleet.settle()
    assert (fleet.host_of("a"), fleet.hosts.one.condition("a", "Ready")) == ("two", "True Running")


def test_labels_select_hosts(fleet: Fleet) -> None:
    with fleet.hosts.one.store.transaction() as transaction:
        two = transaction.get("Host", "", "two")
        assert two is not None
        transaction.put(replace(two, labels={"disk": "fast"}))
    for name in ("a", "b", "c"):
        fleet.hosts.one.apply(name, nodeSelector={"disk": "fast"})
    fleet.settle()
    assert {fleet.host_of(name) for name in ("a", "b", "c")} == {"two"}


def test_one_with_a_network_is_placed_where_the_guard_is_in_force(fleet: Fleet) -> None:
    report(fleet.hosts.two, NetworkGuard="True")
    for name in ("a", "b", "c"):
        fleet.hosts.one.apply(name, securityLevel="development")
    fleet.settle()
    node_selectors = [placed_record.placement.node_selector for placed_record in fleet.scheduler.list()]
    assert node_selectors == [{GUARD: "true"}] * 3
    assert {fleet.host_of(name) for name in ("a", "b", "c")} == {"two"}


def test_hosts_without_an_engine_or_under_pressure_or_cordoned_get_nothing_new(fleet: Fleet) -> None:
    for trouble in ({"EngineReachable": "False"}, {"MemoryPressure": "True"}, {"StoreWritable": "False"}):
        report(fleet.hosts.two, **trouble)
        fleet.keeper.look()
        assert [host.fit for host in fleet.scheduler.hosts()] == [True, False], trouble
        report(fleet.hosts.two)
        fleet.keeper.look()
        assert [host.fit for host in fleet.scheduler.hosts()] == [True, True]
    change(fleet.hosts.one, "two", schedulable=False)
    fleet.keeper.look()
    assert [host.availability for host in fleet.scheduler.hosts()] == [Availability.ACTIVE, Availability.PAUSED]
    for name in ("a", "b", "c"):
        fleet.hosts.one.apply(name)
    fleet.settle()
    assert {fleet.host_of(name) for name in ("a", "b", "c")} == {"one"}


@pytest.mark.parametrize("closed", [{"schedulable": False}, {"drained": True, "schedulable": False}])
def test_a_host_that_is_closed_meanwhile_gives_back_what_it_did_not_start(
    fleet: Fleet, closed: dict[str, object]
) -> None:
    fleet.hosts.one.apply("a")
    fleet.keeper.look()
    fleet.keeper.look()
    host = fleet.host_of("a")
    assert host, "it is bound, and its daemon did not run yet"
    change(fleet.hosts.one, host, **closed)
    fleet.settle()
    assert fleet.hosts.one.condition("a", "Scheduled") == "False HostCordoned"
    for harness in (fleet.hosts.one, fleet.hosts.two):
        harness.clock.advance(REFUSAL_SECONDS)
    fleet.settle()
    second = {"one": "two", "two": "one"}[host]
    assert (fleet.host_of("a"), fleet.hosts.one.condition("a", "Ready")) == (second, "True Running")
    assert found(fleet.hosts.one, "a").status["binding"] == 2
    assert fleet.state("a") == Placed(second)
    assert sum(len(entry.ours()) for entry in (fleet.hosts.one, fleet.hosts.two)) == 1
    events = [
        event.message for event in fleet.hosts.one.store.events(kind="Sandbox", name="a") if event.reason == REASON
    ]
    assert len(events) == 1
    assert events[0].startswith(f"host {host} gives it back: HostCordoned: ")


def test_one_that_ran_here_and_one_that_names_its_host_are_never_given_back(fleet: Fleet) -> None:
    fleet.hosts.one.apply("ran")
    fleet.settle()
    host = fleet.host_of("ran")
    fleet.hosts.one.apply("ran", runState="Suspended")
    fleet.settle()
    change(fleet.hosts.one, host, schedulable=False)
    fleet.hosts.one.apply("ran")
    fleet.hosts.one.apply("named", host=host)
    fleet.settle()
    for harness in (fleet.hosts.one, fleet.hosts.two):
        harness.clock.advance(10 * REFUSAL_SECONDS)
    fleet.settle()
    for name in ("ran", "named"):
        assert (fleet.host_of(name), fleet.hosts.one.condition(name, "Scheduled")) == (host, "False HostCordoned")


def test_a_suspended_one_reserves_nothing_and_keeps_its_host(fleet: Fleet) -> None:
    fleet.hosts.one.apply("a")
    fleet.settle()
    host = fleet.host_of("a")
    fleet.hosts.one.apply("a", runState="Suspended")
    fleet.settle()
    assert fleet.state("a") == Suspended(host)
    fleet.hosts.one.apply("a")
    fleet.settle()
    assert (fleet.state("a"), fleet.host_of("a")) == (Placed(host), host)
    assert fleet.hosts.one.condition("a", "Ready") == "True Running"


def test_a_resize_changes_the_reservation_on_the_same_host(fleet: Fleet) -> None:
    fleet.hosts.one.apply("a", **limits("64Mi"))
    fleet.settle()
    host = fleet.host_of("a")
    fleet.hosts.one.apply("a", **limits("128Mi"))
    fleet.settle()
    (record,) = fleet.scheduler.list()
    assert (record.placement.memory_bytes, record.placement.host, record.state) == (128 << 20, host, Placed(host))


def test_a_resize_that_the_scheduler_has_no_room_for_says_so(fleet: Fleet) -> None:
    fleet.hosts.one.apply("a", **limits("64Mi"))
    fleet.settle()
    host = fleet.host_of("a")
    fleet.scheduler.join(host, memory_bytes=100 << 20)
    fleet.hosts.one.apply("a", **limits("128Mi"))
    fleet.settle()
    assert fleet.hosts.one.condition("a", "Resized") == "True InForce", "it may take a moment"
    fleet.hosts.one.clock.advance(PENDING_SECONDS)
    fleet.settle()
    assert fleet.hosts.one.condition("a", "Resized") == "False NotReserved"
    assert fleet.hosts.one.condition("a", "Ready") == "True Running"
    assert fleet.host_of("a") == host
    fleet.hosts.one.apply("a", **limits("64Mi"))
    fleet.settle()
    assert fleet.hosts.one.condition("a", "Resized") == "True InForce"


def test_a_deleted_one_gives_its_place_back(fleet: Fleet) -> None:
    fleet.hosts.one.apply("a")
    fleet.settle()
    fleet.hosts.one.delete("a")
    fleet.settle()
    assert (fleet.scheduler.list(), fleet.hosts.one.names()) == ([], [])


def test_a_placement_that_somebody_removed_is_made_again_on_its_host(fleet: Fleet) -> None:
    for name in ("a", "b", "c"):
        fleet.hosts.one.apply(name)
    fleet.settle()
    hosts = {name: fleet.host_of(name) for name in ("a", "b", "c")}
    for placed_record in fleet.scheduler.list():
        fleet.scheduler.remove_out_of_band(placed_record.placement.uid)
    fleet.new_leader()
    fleet.settle()
    assert {name: fleet.host_of(name) for name in hosts} == hosts
    assert {name: fleet.state(name) for name in hosts} == {name: Placed(host) for name, host in hosts.items()}


def test_a_dead_hosts_sandbox_stays_bound(fleet: Fleet) -> None:
    for name in ("a", "b"):
        fleet.hosts.one.apply(name)
    fleet.settle()
    before = {name: fleet.host_of(name) for name in ("a", "b")}
    fleet.scheduler.set_liveness("two", Liveness.DOWN)
    fleet.settle()
    fleet.scheduler.set_liveness("two", Liveness.UP)
    fleet.settle()
    assert {name: fleet.host_of(name) for name in ("a", "b")} == before
    assert {found(fleet.hosts.one, name).status["binding"] for name in before} == {1}


@pytest.mark.parametrize("problem", [SchedulerProblem.NO_LEADER, SchedulerProblem.UNREACHABLE])
def test_a_scheduler_that_does_not_answer_stops_nothing_that_runs(fleet: Fleet, problem: SchedulerProblem) -> None:
    fleet.hosts.one.apply("a")
    fleet.settle()
    fleet.scheduler.failure = SchedulerError(problem, "too few of its managers are there")
    fleet.hosts.one.apply("late")
    fleet.settle()
    assert fleet.hosts.one.condition("a", "Ready") == "True Running"
    assert fleet.hosts.one.condition("late", "Scheduled") == f"False {problem.value}"
    fleet.scheduler.failure = None
    fleet.settle()
    assert fleet.hosts.one.condition("late", "Ready") == "True Running"


def test_a_leader_that_does_not_reach_the_scheduler_leaves_the_lead_to_another(fleet: Fleet) -> None:
    for problem, rests in ((SchedulerProblem.NO_LEADER, 0), (SchedulerProblem.UNREACHABLE, 1)):
        fleet.scheduler.failure = SchedulerError(problem, "nobody answers")
        fleet.keeper.look()
        fleet.boot[0] += REACH_SECONDS / 2
        fleet.keeper.look()
        assert fleet.wakes.count("rests") == 0, "it may come back"
        fleet.boot[0] += REACH_SECONDS / 2
        fleet.keeper.look()
        assert fleet.wakes.count("rests") == rests


def test_only_the_leader_asks(fleet: Fleet) -> None:
    fleet.hosts.leader[0] = "two"
    fleet.hosts.one.apply("a")
    fleet.settle()
    assert fleet.scheduler.list() == []


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({"template": {"volumes": [{"name": "data", "mountPath": "/data", "size": "8Mi"}]}}, "volume data"),
        ({"workspace": {"volume": {"name": "w", "size": "8Mi"}}}, "volume w"),
        (
            {"template": {"volumeClaimTemplates": [{"name": "own", "mountPath": "/d", "size": "8Mi"}]}},
            "volume own-a",
        ),
        ({"securityLevel": "development", "network": {"peers": "Allowed"}}, "its peers' network"),
    ],
)
def test_what_is_on_one_host_is_never_guessed(fleet: Fleet, needs: dict[str, Any], words: str) -> None:
    fleet.hosts.one.apply("a", **needs)
    fleet.settle()
    assert fleet.hosts.one.condition("a", "Scheduled") == "False HostNeeded"
    assert words in str(found(fleet.hosts.one, "a").status["conditions"])
    assert fleet.scheduler.list() == []
    fleet.hosts.one.apply("a", host="two", **needs)
    fleet.settle()
    assert fleet.host_of("a") == "two"


def test_a_volume_that_goes_with_its_sandbox_is_no_reason_for_a_host(fleet: Fleet) -> None:
    own_document = {"name": "own", "mountPath": "/d", "size": "8Mi", "reclaimPolicy": "Delete"}
    fleet.hosts.one.apply("a", template={"volumeClaimTemplates": [own_document]})
    fleet.settle()
    assert fleet.host_of("a") != ""


def test_a_selector_needs_a_scheduler(backend: Backend) -> None:
    harness = LoopHarness(backend.store())
    with pytest.raises(errors.Invalid, match=r"spec\.nodeSelector: no scheduler chooses hosts here"):
        harness.apply("a", nodeSelector={"disk": "fast"})
    harness.close()


def test_a_selector_and_a_host_contradict_each_other(fleet: Fleet) -> None:
    with pytest.raises(errors.Invalid, match="`nodeSelector:` has no effect beside `host:`"):
        fleet.hosts.one.apply("a", nodeSelector={"disk": "fast"}, host="one")


class Mortal:
    """Calls go through to `of` until `left` of them are used up: the process ends before or after the next one."""

    def __init__(self, of: Any, left: list[int], *, after: bool) -> None:
        self._of, self._left, self._after = of, left, after

    def __getattr__(self, name: str) -> Any:
        observed = getattr(self._of, name)
        if name not in ("place", "pin", "release", "set_host", "transaction"):
            return observed

        def call(*arguments: Any, **named: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] < 0 and not self._after:
                raise Killed
            result = observed(*arguments, **named)
            if self._left[0] < 0 and name != "transaction":
                raise Killed
            return result

        return call


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_between_any_two_steps_loses_and_doubles_nothing(fleet: Fleet, after: bool) -> None:
    """The whole life of sandboxes, with the leader killed at the first, second, third ... step of each leader."""
    deaths = 0
    fleet.hosts.one.apply("bystander")
    fleet.settle()
    for steps in range(12):
        name = f"a{steps}"
        for change_ in (
            lambda name=name: fleet.hosts.one.apply(name),
            lambda name=name: fleet.hosts.one.apply(name, **limits("128Mi")),
            lambda name=name: fleet.hosts.one.apply(name, runState="Suspended"),
            lambda name=name: fleet.hosts.one.apply(name),
        ):
            change_()
            remaining = [steps % 4]
            fleet.new_leader(lambda each, left=remaining: Mortal(each, left, after=after))
            try:
                fleet.settle()
            except Killed:
                deaths += 1
            fleet.new_leader()
            fleet.settle()
            (host,) = {fleet.host_of(name)}
            assert found(fleet.hosts.one, name).status["binding"] == 1
            assert host in ("one", "two")
        assert fleet.state(name) == Placed(host)
        assert fleet.hosts.one.condition(name, "Ready") == "True Running"
        assert sum(len(harness.ours()) for harness in (fleet.hosts.one, fleet.hosts.two)) == 2
        assert len(fleet.scheduler.list()) == 2
        assert fleet.hosts.one.condition("bystander", "Ready") == "True Running"
        fleet.hosts.one.delete(name)
        fleet.settle()
        assert fleet.hosts.one.names() == ["bystander"]
    assert found(fleet.hosts.one, "bystander").status["binding"] == 1
    assert deaths > 10, "they did die"


def pool(fleet: Fleet, warm: int, image: str = TINY, **spec: object) -> None:
    fleet.hosts.one.apply_template("t", image=image, command=["sleep", "1000000"], **limits("64Mi"))
    spec = {"templateRef": {"name": "t"}, "warmReplicas": warm, "shutdownGracePeriodSeconds": 0, **spec}
    document = {"apiVersion": "paddock/v1alpha1", "kind": "SandboxPool", "metadata": {"name": "warm"}, "spec": spec}
    fleet.hosts.one.services.apply.apply([Source("test", json.dumps(document))])


def shares(fleet: Fleet) -> dict[str, int]:
    """Return the warmReplicas of a pool's parts, by host."""
    objects = fleet.hosts.one.store.list("SandboxPool")[0]
    return {stored.spec["host"]: stored.spec["warmReplicas"] for stored in objects if "host" in stored.spec}


def parent(fleet: Fleet) -> Mapping[str, Any]:
    sandbox_pool = fleet.hosts.one.store.get("SandboxPool", "default", "warm")
    assert sandbox_pool is not None
    return sandbox_pool.status


def made(fleet: Fleet) -> list[int]:
    return [len(harness.ours()) for harness in (fleet.hosts.one, fleet.hosts.two)]


def test_a_pool_that_names_no_host_is_spread_over_them(fleet: Fleet) -> None:
    pool(fleet, 4)
    fleet.settle()
    assert (shares(fleet), made(fleet)) == ({"one": 2, "two": 2}, [2, 2])
    status = parent(fleet)
    assert (status["replicas"], status["readyReplicas"]) == (4, 4)
    assert [f"{condition['type']} {condition['status']}" for condition in status["conditions"]] == [
        *("Ready True", "Accepted True", "Degraded False")
    ]


def test_warm_sandboxes_move_to_where_their_image_is(fleet: Fleet) -> None:
    pool(fleet, 4, image=APP)
    fleet.settle()
    assert shares(fleet) == {"one": 2, "two": 2}
    assert made(fleet) == [0, 0], "nobody can pull it"
    has_image(fleet, fleet.hosts.two, APP)
    fleet.settle()
    for harness in (fleet.hosts.one, fleet.hosts.two):
        harness.clock.advance(600)  # those that failed are tried again
    fleet.settle()
    assert (shares(fleet), made(fleet)) == ({"one": 0, "two": 4}, [0, 4])


def test_images_that_appear_move_no_warm_sandbox(fleet: Fleet) -> None:
    pool(fleet, 4)
    fleet.settle()
    before = {
        placed_record.placement.uid: (placed_record.placement, placed_record.state)
        for placed_record in fleet.scheduler.list()
    }
    has_image(fleet, fleet.hosts.one, TINY)
    fleet.settle()
    assert {
        placed_record.placement.uid: (placed_record.placement, placed_record.state)
        for placed_record in fleet.scheduler.list()
    } == before
    assert made(fleet) == [2, 2]
    pool(fleet, 5)
    fleet.settle()
    assert shares(fleet) == {"one": 3, "two": 2}, "another one goes where the image is"


def test_a_pools_size_is_followed_on_all_hosts(fleet: Fleet) -> None:
    for size in (2, 6, 0):
        pool(fleet, size)
        fleet.settle()
        assert (sum(shares(fleet).values()), sum(made(fleet))) == (size, size)
    assert fleet.scheduler.list() == []


@pytest.mark.parametrize("trouble", ["down", "drained", "unfit"])
def test_warm_sandboxes_of_a_host_in_trouble_are_made_elsewhere(fleet: Fleet, trouble: str) -> None:
    pool(fleet, 4)
    fleet.settle()
    if trouble == "down":
        fleet.scheduler.set_liveness("two", Liveness.DOWN)
    elif trouble == "drained":
        change(fleet.hosts.one, "two", schedulable=False, drained=True)
    else:
        report(fleet.hosts.two, EngineReachable="False")
    fleet.settle()
    assert shares(fleet) == {"one": 4, "two": 0}
    assert len(fleet.hosts.one.ours()) == 4


def test_a_claim_takes_one_and_the_pool_is_filled_again(fleet: Fleet) -> None:
    pool(fleet, 2)
    fleet.settle()
    fleet.hosts.one.refer("a", "t")
    fleet.settle()
    assert fleet.hosts.one.condition("a", "Ready") == "True Running"
    assert found(fleet.hosts.one, "a").status["launchType"] == "Warm"
    assert fleet.state("a") == Placed(fleet.host_of("a")), "it has a placement of its own now"
    assert (sum(shares(fleet).values()), sum(made(fleet)), parent(fleet)["claimedReplicas"]) == (2, 3, 1)


def test_a_pool_has_no_places_beyond_its_quota(fleet: Fleet) -> None:
    quota(fleet, memory="128Mi")
    pool(fleet, 4)
    fleet.settle()
    assert sum(shares(fleet).values()) == len(fleet.scheduler.list()) == sum(made(fleet)) == 2
    ready = parent(fleet)["conditions"][0]
    assert (ready["type"], ready["status"]) == ("Ready", "False")
    assert "quota default/main: memory" in ready["message"]
    quota(fleet, memory="256Mi")
    fleet.settle()
    assert sum(made(fleet)) == 4


def test_a_deleted_pool_leaves_nothing(fleet: Fleet) -> None:
    pool(fleet, 4)
    fleet.settle()
    fleet.hosts.one.delete("warm", "sandboxpool")
    fleet.settle()
    assert fleet.hosts.one.store.list("SandboxPool")[0] == []
    assert (fleet.scheduler.list(), made(fleet)) == ([], [0, 0])


def test_a_pool_that_fits_nowhere_says_so(fleet: Fleet) -> None:
    pool(fleet, 2)
    fleet.settle()
    fleet.hosts.one.apply_template("t", image=TINY, command=["sleep", "1000000"], **limits("100Gi"))
    fleet.settle()
    ready = parent(fleet)["conditions"][0]
    assert ready["status"] == "False"
    assert "2 without a host: no suitable node (insufficient resources)" in ready["message"]


def test_a_part_that_somebody_changed_is_put_right(fleet: Fleet) -> None:
    pool(fleet, 4)
    fleet.settle()
    with fleet.hosts.one.store.transaction() as transaction:
        sandbox_pool = transaction.get("SandboxPool", "default", "warm-two")
        assert sandbox_pool is not None
        transaction.put(replace(sandbox_pool, spec={**sandbox_pool.spec, "warmReplicas": 50}))
    fleet.settle()
    assert shares(fleet) == {"one": 2, "two": 2}


def test_another_pool_of_a_parts_name_is_left_alone(fleet: Fleet) -> None:
    pool(fleet, 0)
    document = {"apiVersion": "paddock/v1alpha1", "kind": "SandboxPool", "metadata": {"name": "warm-two"}}
    body = {"spec": {"templateRef": {"name": "t"}, "warmReplicas": 1, "host": "one"}}
    fleet.hosts.one.services.apply.apply([Source("test", json.dumps(document | body))])
    pool(fleet, 4)
    fleet.settle()
    own_stored = fleet.hosts.one.store.get("SandboxPool", "default", "warm-two")
    assert own_stored is not None
    assert own_stored.spec["warmReplicas"] == 1
    degraded = parent(fleet)["conditions"][2]
    assert (degraded["status"], degraded["reason"]) == ("True", "Refused")
    assert "sandboxpool warm-two is not its part on that host; rename one of them" in degraded["message"]


def recreated(fleet: Fleet, name: str = "a") -> str:
    """Return the host of a sandbox that is started elsewhere if its host is lost: `two`."""
    fleet.hosts.one.apply(name, onHostLoss="Recreate", nodeSelector={"rack": "b"})
    with fleet.hosts.one.store.transaction() as transaction:
        for host in ("one", "two"):
            stored = transaction.get("Host", "", host)
            assert stored is not None
            transaction.put(replace(stored, labels={"rack": "b"} if host == "two" else {}))
    fleet.settle()
    assert fleet.host_of(name) == "two"
    with fleet.hosts.one.store.transaction() as transaction:
        expected = transaction.get("Host", "", "one")
        assert expected is not None
        transaction.put(replace(expected, labels={"rack": "b"}))
    fleet.settle()
    return "two"


def test_one_that_may_is_started_elsewhere_and_its_old_copy_is_removed_first(fleet: Fleet) -> None:
    recreated(fleet)
    fleet.lose("two", LOSS_SECONDS)
    fleet.settle()
    assert (fleet.host_of("a"), fleet.hosts.one.condition("a", "Ready")) == ("one", "True Running")
    assert found(fleet.hosts.one, "a").status["binding"] == 3
    assert made(fleet) == [1, 1], "the lost host can't be reached"
    events = [event.message for event in fleet.hosts.one.store.events(kind="Sandbox", name="a")]
    assert "host two is down, and its daemon is away: started elsewhere" in events
    fleet.find("two")
    fleet.hosts.two.run_pass()
    assert made(fleet) == [1, 0], "the first thing that it does"
    fleet.settle()
    assert (fleet.host_of("a"), made(fleet)) == ("one", [1, 0])
    assert fleet.hosts.one.condition("a", "Ready") == "True Running"


@pytest.mark.parametrize(("seconds", "down"), [(LOSS_SECONDS - 0.1, True), (1e6, False)])
def test_it_is_not_moved_before_its_host_has_frozen_it_and_is_down(fleet: Fleet, seconds: float, down: bool) -> None:
    recreated(fleet)
    fleet.lose("two", seconds, down=down)
    fleet.settle()
    assert (fleet.host_of("a"), made(fleet)) == ("two", [0, 1])


def test_a_new_leader_counts_anew_how_long_a_host_is_away(fleet: Fleet) -> None:
    recreated(fleet)
    fleet.lose("two", LOSS_SECONDS)
    fleet.new_leader()
    fleet.settle()
    assert fleet.host_of("a") == "two"
    fleet.boot[0] += LOSS_SECONDS
    fleet.settle()
    assert fleet.host_of("a") == "one"


def test_one_that_stays_waits_for_its_host_until_a_person_releases_it(fleet: Fleet) -> None:
    for name in ("a", "b"):
        fleet.hosts.one.apply(name)
    fleet.hosts.one.apply("named", host="two")
    fleet.settle()
    mine = next(name for name in ("a", "b") if fleet.host_of(name) == "two")
    change(fleet.hosts.one, "two", outOfService=True, schedulable=False)
    fleet.settle()
    assert fleet.host_of(mine) == "two", "its daemon is there: nothing is released"
    change(fleet.hosts.one, "two", outOfService=False, schedulable=True)
    fleet.lose("two", 1e6)
    fleet.settle()
    assert fleet.host_of(mine) == "two"
    change(fleet.hosts.one, "two", outOfService=True, schedulable=False)
    fleet.settle()
    assert (fleet.host_of(mine), fleet.hosts.one.condition(mine, "Ready")) == ("one", "True Running")
    assert fleet.host_of("named") == "two"
    fleet.find("two")
    fleet.settle()
    assert made(fleet) == [2, 1]
    assert (fleet.host_of(mine), fleet.host_of("named")) == ("one", "two")


def test_what_a_lost_host_still_writes_is_dropped(fleet: Fleet) -> None:
    """It was frozen in the middle of a pass, and wakes."""
    recreated(fleet)
    late = StatusWrite(found(fleet.hosts.one, "a").ref, {**found(fleet.hosts.one, "a").status, "restartCount": 7})
    fleet.lose("two", LOSS_SECONDS)
    fleet.keeper.look()
    fleet.hosts.two.store.record(Writes(statuses=(late,)))
    assert "restartCount" not in found(fleet.hosts.one, "a").status
    fleet.settle()
    fleet.hosts.two.store.record(Writes(statuses=(late,)))
    assert fleet.host_of("a") == "one"


@pytest.mark.parametrize(
    ("spec", "words"),
    [({"host": "one"}, "`host: one` keeps it there"), ({}, "no scheduler chooses hosts here")],
)
def test_recreate_needs_a_scheduler_and_no_host(backend: Backend, spec: dict[str, Any], words: str) -> None:
    policies = (_SWARM, _SWARM) if spec else (Policy(scheduler="manual"), Policy(scheduler="manual"))
    with two_hosts(backend, policies) as hosts, pytest.raises(errors.Invalid, match=words):
        hosts.one.apply("a", onHostLoss="Recreate", **spec)


def test_in_a_store_that_went_back_a_second_copy_is_frozen_and_kept(fleet: Fleet) -> None:
    """The backup says host one; since then it was started on host two."""
    fleet.hosts.one.apply("a")
    fleet.settle()
    obj = found(fleet.hosts.one, "a")
    mine, harness = (
        (fleet.hosts.one, fleet.hosts.two) if obj.status["host"] == "one" else (fleet.hosts.two, fleet.hosts.one)
    )
    before = SweepRules(grace_seconds=60, share=1.0, withheld="the store went back")
    mine.reconcile_pass._sweep = lambda _revision: before
    with harness.store.transaction() as transaction:
        status = {**obj.status, "host": harness.place.host, "binding": 5}
        transaction.put(replace(obj, status=status))
    for _ in range(3):
        mine.settle(seconds=5)
    (container,) = mine.engine.observe().containers[obj.uid]
    assert container.state is State.PAUSED
    mine.reconcile_pass._sweep = lambda _revision: replace(before, withheld="")
    mine.settle(seconds=5)
    assert mine.ours() == {}


_ACTS = st.lists(
    st.sampled_from(
        [
            *(("apply", name) for name in "abc"),
            *(("suspend", name) for name in "ab"),
            *(("large", name) for name in "ab"),
            *(("delete", name) for name in "ab"),
            *(("remove", name) for name in "ab"),
            *(("down", name) for name in ("one", "two")),
            *(("up", name) for name in ("one", "two")),
            *(("cordon", name) for name in ("one", "two")),
            *(("uncordon", name) for name in ("one", "two")),
            ("leader", ""),
            ("settle", ""),
        ]
    ),
    max_size=14,
)


def _do(fleet: Fleet, act: str, name: str) -> None:
    harness, records = fleet.hosts.one, fleet.scheduler.list()
    stored = harness.get(name)
    if stored is not None and stored.deleted_at is not None:
        return
    match act:
        case "apply":
            harness.apply(name)
        case "suspend":
            harness.apply(name, runState="Suspended")
        case "large":
            harness.apply(name, **limits("1Gi"))
        case "delete" if stored is not None:
            harness.delete(name)
        case "remove" if stored is not None and any(record.placement.uid == stored.uid for record in records):
            fleet.scheduler.remove_out_of_band(stored.uid)
        case "down" | "up":
            fleet.scheduler.set_liveness(name, Liveness.UP if act == "up" else Liveness.DOWN)
        case "cordon" | "uncordon":
            change(harness, name, schedulable=act == "uncordon")
        case "leader":
            fleet.new_leader()
        case "settle":
            fleet.settle()


@settings(max_examples=examples(50), deadline=None)
@given(acts=_ACTS)
def test_whatever_happens_each_sandbox_is_where_it_is_bound_and_nowhere_else(acts: list[tuple[str, str]]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        make_backend("sqlite", Path(folder)) as backend,
        two_hosts(backend, (_SWARM, _SWARM)) as hosts,
    ):
        for harness in (hosts.one, hosts.two):
            report(harness)
        fleet = Fleet(hosts, fake_cluster(("one", "two")))
        bound: dict[str, tuple[str, int]] = {}
        for act, name in acts:
            _do(fleet, act, name)
            fleet.keeper.look()
            for sandbox in hosts.one.store.list("Sandbox")[0]:
                now = (str(sandbox.status.get("host", "")), int(sandbox.status.get("binding", 0)))
                before = bound.get(sandbox.uid, ("", 0))
                assert now[1] >= before[1], "bindings only grow"
                assert now[0] in ("", before[0]) or now[1] > before[1], "another host is another binding"
                bound[sandbox.uid] = now
        for name in ("one", "two"):
            fleet.scheduler.set_liveness(name, Liveness.UP)
            change(hosts.one, name, schedulable=True)
        fleet.settle()
        fleet.settle()
        remaining = {stored.uid: stored for stored in hosts.one.store.list("Sandbox")[0]}
        assert {placed_record.placement.uid for placed_record in fleet.scheduler.list()} == set(remaining)
        for record in fleet.scheduler.list():
            assert record.placement.host == remaining[record.placement.uid].status["host"]
        copies = [uid for harness in (hosts.one, hosts.two) for uid in harness.ours()]
        assert len(copies) == len(set(copies)), "there is one copy of each"
        writes = list(fleet.scheduler.list())
        fleet.keeper.look()
        assert list(fleet.scheduler.list()) == writes
