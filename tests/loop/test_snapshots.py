"""Snapshots through the loop: taken once, kept as long as something begins from them, and forked within quotas."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import CreateContainer, RenameContainer
from controller.kinds.planning.outcome import Transient
from controller.kinds.runtime.mount import BindMounts
from controller.kinds.runtime.snapshot import RestoreRoot
from controller.loop.snapshots import SnapshotKeeper
from controller.metrics.meter import PrometheusMeter
from controller.metrics.registry import new_registry
from controller.policy.levels.levels import Policy
from controller.ports.snapshots import SnapshotError
from controller.service import errors
from controller.service.objects.apply import Source
from controller.service.sandbox.snapshots import SandboxSnapshots
from tests.contract.store_worlds import World
from tests.daemon import wait_for
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import containers


class SnapshotHarness(LoopHarness):
    """The loop with a keeper of snapshots, which takes its steps where a test says so."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store())
        self.registry = new_registry("0.1.0")
        meter = PrometheusMeter(self.registry, strict=True)
        self.keeper = SnapshotKeeper(self.store, self.snapshots, Policy(), self.clock, meter=meter)
        self.reconcile_pass.report_snapshots = self.keeper.passed

    def keep(self, rounds: int = 3) -> None:
        """Let passes and the keeper go on until nothing changes any more."""
        for _ in range(rounds):
            self.settle()
            self.keeper.step()
            self.keeper.wait()
            self.settle()

    def snapshot(self, name: str, sandbox: str = "a", **spec: object) -> None:
        document = {
            "apiVersion": "paddock/v1alpha1",
            "kind": "SandboxSnapshot",
            "metadata": {"name": name},
            "spec": {"sandboxRef": {"name": sandbox}, **spec},
        }
        self.services.apply.apply([Source("test", json.dumps(document))])

    def stored(self, name: str) -> StoredObject | None:
        return self.store.get("SandboxSnapshot", "default", name)

    def captured(self, name: str) -> str:
        found = self.stored(name)
        condition = stored_condition(found, "Captured") if found else {}
        return f"{condition.get('status')} {condition.get('reason')}"

    def use_cases(self) -> SandboxSnapshots:
        return self.services.snapshots


@pytest.fixture
def house(world: World) -> Iterator[SnapshotHarness]:
    made = SnapshotHarness(world)
    yield made
    made.keeper.stop()
    made.close()


def test_a_snapshot_is_taken_once(house: SnapshotHarness) -> None:
    house.apply("a", template={"workspace": {}})
    house.settle()
    house.snapshot("first")
    house.keep()
    assert house.captured("first") == "True Captured"
    (request,) = house.snapshots.requests
    assert [mount.path for mount in request.bind.mounts if mount.kind == "memory"] == ["/workspace"]
    found = house.stored("first")
    assert found is not None
    assert found.status["sizeBytes"] == {"root": 0, "tmpfs": 1024, "volumes": 0}
    house.keep()
    assert len(house.snapshots.requests) == 1


def test_the_message_names_contexts_that_are_not_in_it(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    sandbox = house.store.get("Sandbox", "default", "a")
    assert sandbox is not None
    (container,) = house.engine.observe().containers[sandbox.uid]
    house.activity.contexts(sandbox.uid, (container.id, container.started_at), (("python", "python"),))
    house.settle()
    house.snapshot("first")
    house.keep()
    snapshot = house.stored("first")
    assert snapshot is not None
    message = stored_condition(snapshot, "Captured")["message"]
    assert message.endswith("variables of its code contexts (python) are not in it, their files are")


def test_a_missing_sandbox_is_waited_for(house: SnapshotHarness) -> None:
    house.snapshot("first")
    house.keep()
    assert house.captured("first") == "False SandboxMissing"
    house.apply("a")
    house.keep()
    assert house.captured("first") == "True Captured"


def test_a_starting_sandbox_is_waited_for(house: SnapshotHarness) -> None:
    house.engine.fail_next(CreateContainer, Transient("EngineFailed", "busy"))
    house.apply("a")
    house.snapshot("first")
    house.run_pass()
    house.run_pass()
    house.keeper.step()
    assert house.captured("first") == "Unknown SandboxStarting"
    house.keep()
    assert house.captured("first") == "True Captured"


def test_a_failing_sandbox_is_captured_as_it_ended(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle(seconds=0)
    for _ in range(3):
        house.engine.exit(house.container_name("a"), 1)
        house.settle(seconds=0)
        house.clock.advance(1)
    house.snapshot("first")
    house.run_pass()
    house.keeper.step()
    house.keeper.wait()
    (request,) = house.snapshots.requests
    assert request.container.state is State.EXITED


def test_no_answer_of_the_engine_is_no_missing_sandbox(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    house.engine.go_down()
    house.snapshot("first")
    house.run_pass()
    house.keeper.step()
    assert house.captured("first") == "Unknown EngineUnreachable"
    house.engine.come_up()
    house.keep()
    assert house.captured("first") == "True Captured"


def test_a_sandbox_deleted_during_its_capture_leaves_nothing(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    house.snapshots.failures = [SnapshotError("NotCapturable", "its container is gone", retry=True)]
    house.snapshot("first")
    house.run_pass()
    house.keeper.step()
    house.keeper.wait()
    house.delete("a")
    house.clock.advance(10)
    house.keep()
    assert house.captured("first") == "False SandboxMissing"
    assert not house.snapshots.stored
    house.delete("first", "sandboxsnapshot")
    house.keep()
    assert house.stored("first") is None


def test_a_failed_capture_is_retried_only_if_that_may_help(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    house.snapshots.failures = [SnapshotError("EngineFailed", "busy", retry=True), SnapshotError("TooLarge", "large")]
    house.snapshot("first")
    house.keep()
    assert house.captured("first") == "Unknown EngineFailed"
    house.clock.advance(10)
    house.keep()
    assert house.captured("first") == "False TooLarge"
    house.clock.advance(1000)
    house.keep()
    assert len(house.snapshots.requests) == 2


def test_files_go_with_the_object_and_never_before_its_users(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    house.snapshot("first", ttlSeconds=60)
    house.keep()
    house.apply("b", restoreFrom={"snapshotRef": {"name": "first"}})
    with pytest.raises(errors.Conflict, match="is used by sandbox b"):
        house.delete("first", "sandboxsnapshot")
    house.clock.advance(100)
    house.keep()
    assert house.stored("first") is not None
    house.delete("b")
    house.keep()
    house.clock.advance(100)
    house.keep()
    assert house.stored("first") is None
    assert not house.snapshots.stored


def test_one_that_goes_with_its_sandbox_goes(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    house.snapshot("first", reclaimPolicy="Delete")
    house.snapshot("second")
    house.keep()
    house.delete("a")
    house.keep(4)
    assert house.stored("first") is None
    assert house.stored("second") is not None


def test_sweeps_spare_sandboxes_that_no_pass_has_seen(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    house.apply("b")
    house.keeper.step()
    uids = {obj.uid for obj in house.store.list("Sandbox")[0]}
    assert house.snapshots.swept == [frozenset(uids)]
    assert len(uids) == 2


def test_captures_are_counted(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    house.snapshots.failures = [SnapshotError("TooLarge", "large")]
    house.snapshot("large")
    house.keep()
    house.snapshot("first")
    house.keep()
    counts = {
        name: house.registry.get_sample_value(name)
        for name in ("paddock_snapshots", "paddock_snapshot_capture_seconds_count")
    }
    assert counts == {"paddock_snapshots": 1, "paddock_snapshot_capture_seconds_count": 1}
    assert house.registry.get_sample_value("paddock_snapshot_storage_bytes") == 1024
    failures = house.registry.get_sample_value("paddock_snapshot_capture_failures_total", {"reason": "TooLarge"})
    assert failures == 1


def test_periodic_snapshots_keep_the_last_ones(house: SnapshotHarness) -> None:
    house.apply("a", lifecycle={"snapshots": {"everySeconds": 60, "keepLast": 2}})
    house.settle()
    for _ in range(5):
        house.clock.advance(61)
        house.keep(5)
    found, _ = house.store.list("SandboxSnapshot")
    assert len(found) == 2
    assert len(house.snapshots.requests) == 5


def test_failed_periodic_snapshots_push_out_no_good_ones(house: SnapshotHarness) -> None:
    house.apply("a", lifecycle={"snapshots": {"everySeconds": 60, "keepLast": 2}})
    house.settle()
    for number in range(6):
        if number >= 2:
            house.snapshots.failures = [SnapshotError("TooLarge", "large")]
        house.clock.advance(61)
        house.keep(5)
    found, _ = house.store.list("SandboxSnapshot")
    states = sorted(str(stored_condition(obj, "Captured").get("status")) for obj in found)
    assert states == ["False", "True", "True"]
    assert len(house.snapshots.stored) == 2


def test_periodic_snapshots_stay_within_the_count_quota(house: SnapshotHarness) -> None:
    quota = {"kind": "Quota", "metadata": {"name": "q"}, "spec": {"hard": {"snapshots": 3}}}
    house.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **quota}))])
    house.apply("a", lifecycle={"snapshots": {"everySeconds": 60, "keepLast": 2}})
    house.apply("b", lifecycle={"snapshots": {"everySeconds": 60, "keepLast": 1}})
    house.settle()
    for _ in range(5):
        house.clock.advance(61)
        for _ in range(6):
            house.keep(1)
            assert len(house.store.list("SandboxSnapshot")[0]) <= 3
    sources = [obj.spec["sandboxRef"]["name"] for obj in house.store.list("SandboxSnapshot")[0]]
    assert sorted(sources) == ["a", "a", "b"]
    captures = [request.source_name for request in house.snapshots.requests]
    assert captures.count("a") == 5, "its oldest one gave way"
    events = [event for event in house.store.events(namespace="default") if event.reason == "QuotaExceeded"]
    assert {event.ref.name for event in events} == {"b"}, "its only one stays"


def test_an_import_that_was_cut_off_ends_with_a_reason(house: SnapshotHarness) -> None:
    for name in ("moved", "slow"):
        document = {"kind": "SandboxSnapshot", "metadata": {"name": name}, "spec": {"imported": True}}
        house.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **document}))])
    slow = house.stored("slow")
    assert slow is not None
    house.snapshots.under_way.add(slow.uid)
    house.keep()
    assert (house.captured("moved"), house.captured("slow")) == ("Unknown Importing", "Unknown Importing")
    house.clock.advance(61)
    house.keep()
    assert (house.captured("moved"), house.captured("slow")) == ("False ImportCutOff", "Unknown Importing")
    house.snapshots.take_in(slow.uid, "default", "slow", iter([b"good"]), 1, may_load_image=False)
    house.keep()
    assert house.captured("slow") == "True Captured"


def test_an_import_newer_than_the_last_pass_stays(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    house.snapshot("first")
    house.keep()
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxSnapshot",
        "metadata": {"name": "moved"},
        "spec": {"imported": True},
    }
    house.services.apply.apply([Source("test", json.dumps(document))])
    moved = house.stored("moved")
    assert moved is not None
    house.snapshots.take_in(moved.uid, "default", "moved", iter([b"good"]), 1, may_load_image=False)
    house.snapshots.take_in("nobodys", "default", "stray", iter([b"good"]), 1, may_load_image=False)
    house.keeper.step()
    assert moved.uid in house.snapshots.stored
    assert "nobodys" not in house.snapshots.stored


def test_one_newer_user_than_the_last_pass_keeps_it(house: SnapshotHarness) -> None:
    house.apply("a")
    house.settle()
    house.snapshot("first", ttlSeconds=60)
    house.keep()
    house.clock.advance(100)
    house.apply("b", restoreFrom={"snapshotRef": {"name": "first"}})
    house.keeper.step()
    found = house.stored("first")
    assert found is not None
    assert found.deleted_at is None


def test_a_sandbox_begins_from_its_snapshot_before_its_start(house: SnapshotHarness) -> None:
    house.apply("a", template={"workspace": {}}, restoreFrom={"snapshotRef": {"name": "first"}, "at": "now"})
    house.settle()
    names = [type(action).__name__ for action in house.engine.calls]
    assert names.index("RestoreRoot") == names.index("CreateContainer") + 1
    assert names.index("StartContainer") > names.index("RestoreRoot")
    (restored,) = (action for action in house.engine.calls if isinstance(action, RestoreRoot))
    assert (restored.key, restored.level) == ("first@now", "full-isolation")
    (bound, *_) = (action for action in house.engine.calls if isinstance(action, BindMounts))
    assert bound.restore_from == "first@now"


def prepare(house: SnapshotHarness, replicas: int = 1) -> None:
    """Fill a pool whose members begin from a snapshot."""
    template = {
        "image": TINY,
        "command": ["sleep", "1"],
        "workspace": {},
        "restoreFrom": {"snapshotRef": {"name": "s"}},
    }
    house.apply_template("prepared", **template)
    pool = {"kind": "SandboxPool", "metadata": {"name": "p"}, "spec": {"warmReplicas": replicas}}
    pool["spec"]["templateRef"] = {"name": "prepared"}  # type: ignore[index]
    house.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **pool}))])
    house.settle(seconds=60)


def test_a_claim_from_a_prepared_pool_restores_nothing(house: SnapshotHarness) -> None:
    """Its workspace has the files of the snapshot before the claim, which takes no longer than from another pool."""
    prepare(house)
    (bound,) = (action for action in house.engine.calls if isinstance(action, BindMounts))
    assert [mount.path for mount in bound.mounts if mount.kind == "memory"] == ["/workspace"]
    house.engine.calls.clear()
    house.refer("a", "prepared", workspace={"volume": {"name": "own", "size": "8Mi"}})
    house.refer("b", "prepared")
    house.settle(seconds=60)
    sandboxes = {obj.name: obj for obj in house.store.list("Sandbox")[0]}
    assert {name: obj.status["launchType"] for name, obj in sandboxes.items()} == {"a": "Cold", "b": "Warm"}
    uids = [action.uid for action in house.engine.calls if isinstance(action, BindMounts)]
    assert sandboxes["b"].uid not in uids
    assert house.condition("a", "Ready").startswith("True")


def test_a_prepared_claim_is_ready_once_it_is_renamed(house: SnapshotHarness) -> None:
    """Nothing but its name tells a restored store that it is used."""
    prepare(house, replicas=2)
    house.engine.fail_next(RenameContainer, Transient("EngineError", "a test"))
    house.refer("a", "prepared")
    for _ in range(3):
        house.run_pass()
        assert house.condition("a", "Ready") == "False Claiming"
    house.refer("b", "prepared")
    house.settle(seconds=60)
    assert [house.condition(name, "Ready") for name in "ab"] == ["True Running"] * 2
    assert {house.container_name(name) for name in "ab"} <= set(containers(house))


def test_a_rollback_replaces_volumes_of_its_own_only(house: SnapshotHarness) -> None:
    volumes = [
        {"name": "mine", "mountPath": "/mine", "size": "8Mi"},
        {"name": "ours", "mountPath": "/ours", "size": "8Mi"},
    ]
    house.apply("b", template={"volumes": volumes[1:]})
    house.apply("a", template={"volumes": volumes}, restoreFrom={"snapshotRef": {"name": "first"}, "at": "now"})
    house.settle()
    bound = [action for action in house.engine.calls if isinstance(action, BindMounts) and action.restore_from]
    assert bound[0].replaces == ("mine",)


def test_a_new_snapshot_to_begin_from_makes_a_new_container(house: SnapshotHarness) -> None:
    house.apply("a", restoreFrom={"snapshotRef": {"name": "first"}, "at": "1"})
    house.settle()
    house.apply("a", restoreFrom={"snapshotRef": {"name": "first"}, "at": "2"})
    house.settle()
    keys = [action.key for action in house.engine.calls if isinstance(action, RestoreRoot)]
    assert keys == ["first@1", "first@2"]


@pytest.fixture
def keeping(house: SnapshotHarness) -> Iterator[SnapshotHarness]:
    """Return the harness while passes and the keeper go on beside the test."""
    ending = threading.Event()

    def go_on() -> None:
        while not ending.wait(0.01):
            house.keep(1)

    thread = threading.Thread(target=go_on)
    thread.start()
    yield house
    ending.set()
    thread.join()


def test_forks_are_all_or_none_within_quotas(keeping: SnapshotHarness) -> None:
    quota = {"kind": "Quota", "metadata": {"name": "q"}, "spec": {"hard": {"sandboxes": 21}}}
    keeping.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **quota}))])
    keeping.apply("a", template={"volumes": [{"name": "data", "mountPath": "/data", "size": "8Mi"}]})
    wait_for("what it reserves", lambda: keeping.condition("a", "Ready").startswith("True"))
    use_cases = keeping.use_cases()
    with pytest.raises(errors.Conflict, match="20 of 50 forks fit"):
        use_cases.fork("default", "a", count=50)
    assert (keeping.names(), keeping.snapshots.stored) == (["a"], {})
    forks = use_cases.fork("default", "a", count=50, prefix="f", partial=True)
    assert [fork.name for fork in forks.sandboxes] == [f"f-{number}" for number in range(1, 21)]
    assert "sandboxes" in forks.reasons[0]
    spec = forks.sandboxes[0].spec
    assert spec["restoreFrom"]["snapshotRef"]["name"] == forks.snapshot.name
    assert spec["template"]["volumes"][0]["name"] == "data-f-1"


def test_quotas_bound_number_and_size_of_snapshots(house: SnapshotHarness) -> None:
    quota = {"kind": "Quota", "metadata": {"name": "q"}, "spec": {"hard": {"snapshots": 2, "snapshotStorage": 1500}}}
    house.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **quota}))])
    house.apply("a")
    house.settle()
    house.snapshot("first")
    house.keep()
    house.snapshot("second")
    house.keep()
    assert house.snapshots.requests[-1].bytes_max == 1500 - 1024
    with pytest.raises(errors.Invalid, match="2 of at most 2 snapshots"):
        house.snapshot("third")


def test_a_rollback_takes_a_snapshot_first(keeping: SnapshotHarness) -> None:
    keeping.apply("a")
    use_cases = keeping.use_cases()
    first = use_cases.fork("default", "a").snapshot
    done = use_cases.rollback("default", "a", first.name)
    assert done.backup is not None
    assert done.sandbox.spec["restoreFrom"]["snapshotRef"] == {"name": first.name}
    assert done.sandbox.generation == 2
    again = use_cases.rollback("default", "a", first.name, backup=False)
    assert again.backup is None
    with pytest.raises(errors.NotFound):
        use_cases.rollback("default", "a", "missing")


def test_a_refused_import_leaves_nothing(keeping: SnapshotHarness) -> None:
    use_cases = keeping.use_cases()
    with pytest.raises(errors.BadRequest, match="damaged"):
        use_cases.take_in("default", "moved", iter([b"bad"]))
    assert not keeping.snapshots.stored
    moved = use_cases.take_in("default", "other", iter([b"go", b"od"]))
    assert stored_condition(moved, "Captured")["status"] == "True"


def test_few_requests_wait_for_captures_at_once(keeping: SnapshotHarness) -> None:
    document = {"kind": "SandboxSnapshot", "metadata": {"name": "late"}, "spec": {"imported": True}}
    keeping.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **document}))])
    late = keeping.stored("late")
    assert late is not None
    use_cases = keeping.use_cases()
    with ThreadPoolExecutor(17) as threads:
        waits = [threads.submit(use_cases.wait, late) for _ in range(17)]
        try:
            wait_for("a refusal", lambda: any(wait.done() for wait in waits))
        finally:
            keeping.delete("late", "sandboxsnapshot")
        reasons = sorted(type(wait.exception()).__name__ for wait in waits)
    assert reasons == ["NotFound"] * 16 + ["TooManyRequests"]
