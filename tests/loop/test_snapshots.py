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
from tests.contract.store_backends import Backend
from tests.daemon import wait_for
from tests.loop.harness import TINY, LoopHarness


class SnapshotHarness(LoopHarness):
    """The loop with a keeper of snapshots, which takes its steps where a test says so."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend.store())
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
def harness(backend: Backend) -> Iterator[SnapshotHarness]:
    made = SnapshotHarness(backend)
    yield made
    made.keeper.stop()
    made.close()


def test_a_snapshot_is_taken_once(harness: SnapshotHarness) -> None:
    harness.apply("a", template={"workspace": {}})
    harness.settle()
    harness.snapshot("first")
    harness.keep()
    assert harness.captured("first") == "True Captured"
    (request,) = harness.snapshots.requests
    assert [mount.path for mount in request.bind.mounts if mount.kind == "memory"] == ["/workspace"]
    found = harness.stored("first")
    assert found is not None
    assert found.status["sizeBytes"] == {"root": 0, "tmpfs": 1024, "volumes": 0}
    harness.keep()
    assert len(harness.snapshots.requests) == 1


def test_the_message_names_contexts_that_are_not_in_it(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    sandbox = harness.store.get("Sandbox", "default", "a")
    assert sandbox is not None
    (container,) = harness.engine.observe().containers[sandbox.uid]
    harness.activity.contexts(sandbox.uid, (container.id, container.started_at), (("python", "python"),))
    harness.settle()
    harness.snapshot("first")
    harness.keep()
    snapshot = harness.stored("first")
    assert snapshot is not None
    message = stored_condition(snapshot, "Captured")["message"]
    assert message.endswith("variables of its code contexts (python) are not in it, their files are")


def test_a_missing_sandbox_is_waited_for(harness: SnapshotHarness) -> None:
    harness.snapshot("first")
    harness.keep()
    assert harness.captured("first") == "False SandboxMissing"
    harness.apply("a")
    harness.keep()
    assert harness.captured("first") == "True Captured"


def test_a_starting_sandbox_is_waited_for(harness: SnapshotHarness) -> None:
    harness.engine.fail_next(CreateContainer, Transient("EngineFailed", "busy"))
    harness.apply("a")
    harness.snapshot("first")
    harness.run_pass()
    harness.run_pass()
    harness.keeper.step()
    assert harness.captured("first") == "Unknown SandboxStarting"
    harness.keep()
    assert harness.captured("first") == "True Captured"


def test_a_failing_sandbox_is_captured_as_it_ended(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle(seconds=0)
    for _ in range(3):
        harness.engine.exit(harness.container_name("a"), 1)
        harness.settle(seconds=0)
        harness.clock.advance(1)
    harness.snapshot("first")
    harness.run_pass()
    harness.keeper.step()
    harness.keeper.wait()
    (request,) = harness.snapshots.requests
    assert request.container.state is State.EXITED


def test_no_answer_of_the_engine_is_no_missing_sandbox(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.engine.go_down()
    harness.snapshot("first")
    harness.run_pass()
    harness.keeper.step()
    assert harness.captured("first") == "Unknown EngineUnreachable"
    harness.engine.come_up()
    harness.keep()
    assert harness.captured("first") == "True Captured"


def test_a_sandbox_deleted_during_its_capture_leaves_nothing(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.snapshots.failures = [SnapshotError("NotCapturable", "its container is gone", retry=True)]
    harness.snapshot("first")
    harness.run_pass()
    harness.keeper.step()
    harness.keeper.wait()
    harness.delete("a")
    harness.clock.advance(10)
    harness.keep()
    assert harness.captured("first") == "False SandboxMissing"
    assert not harness.snapshots.stored
    harness.delete("first", "sandboxsnapshot")
    harness.keep()
    assert harness.stored("first") is None


@pytest.mark.parametrize("change", ["resize", "rename"])
def test_a_change_during_a_capture_disturbs_neither(harness: SnapshotHarness, change: str) -> None:
    """New limits, and the take-over of a pool's member, which gets its name after its claim."""
    if change == "rename":
        prepare(harness)
        harness.refer("a", "prepared")
        harness.engine.fail_next(RenameContainer, Transient("EngineError", "a test"))
        harness.run_pass()
    else:
        harness.apply("a")
        harness.settle()
    begun, ending = threading.Event(), threading.Event()
    harness.snapshots.before_capture = lambda: (begun.set(), ending.wait(30))
    harness.snapshot("first")
    harness.run_pass()
    harness.keeper.step()
    assert begun.wait(30)
    if change == "resize":
        harness.apply("a", resources={"limits": {"memory": "96Mi"}})
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    container = harness.engine.container(harness.container_name("a"))
    assert change == "rename" or container.limits.memory_bytes == 96 << 20
    ending.set()
    harness.keep()
    assert harness.captured("first") == "True Captured"
    assert harness.snapshots.requests[0].container.id == container.id


def test_a_failed_capture_is_retried_only_if_that_may_help(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.snapshots.failures = [SnapshotError("EngineFailed", "busy", retry=True), SnapshotError("TooLarge", "large")]
    harness.snapshot("first")
    harness.keep()
    assert harness.captured("first") == "Unknown EngineFailed"
    harness.clock.advance(10)
    harness.keep()
    assert harness.captured("first") == "False TooLarge"
    harness.clock.advance(1000)
    harness.keep()
    assert len(harness.snapshots.requests) == 2


def test_a_refused_capture_backs_off_with_one_event(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.snapshots.failures = [SnapshotError("EngineFailed", "the engine commits nothing", retry=True)] * 10
    harness.snapshot("first")
    harness.settle(seconds=0)
    waits = []
    for count in range(1, 11):
        harness.keeper.step()
        harness.keeper.wait()
        seconds = harness.keeper.step()
        harness.settle(seconds=0)
        assert len(harness.snapshots.requests) == count
        assert harness.captured("first") == "Unknown EngineFailed"
        assert seconds is not None
        waits.append(round(seconds))
        harness.clock.advance(seconds)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    events = [event for event in harness.store.events(namespace="default") if event.reason == "EngineFailed"]
    assert [(event.message, event.count) for event in events] == [("the engine commits nothing", 1)]
    harness.keep()
    assert harness.captured("first") == "True Captured"


def test_files_go_with_the_object_and_never_before_its_users(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.snapshot("first", ttlSeconds=60)
    harness.keep()
    harness.apply("b", restoreFrom={"snapshotRef": {"name": "first"}})
    with pytest.raises(errors.Conflict, match="is used by sandbox b"):
        harness.delete("first", "sandboxsnapshot")
    harness.clock.advance(100)
    harness.keep()
    assert harness.stored("first") is not None
    harness.delete("b")
    harness.keep()
    harness.clock.advance(100)
    harness.keep()
    assert harness.stored("first") is None
    assert not harness.snapshots.stored


def test_one_that_goes_with_its_sandbox_goes(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.snapshot("first", reclaimPolicy="Delete")
    harness.snapshot("second")
    harness.keep()
    harness.delete("a")
    harness.keep(4)
    assert harness.stored("first") is None
    assert harness.stored("second") is not None


def test_sweeps_spare_sandboxes_that_no_pass_has_seen(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.apply("b")
    harness.keeper.step()
    uids = {obj.uid for obj in harness.store.list("Sandbox")[0]}
    assert harness.snapshots.swept == [frozenset(uids)]
    assert len(uids) == 2


def test_captures_are_counted(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.snapshots.failures = [SnapshotError("TooLarge", "large")]
    harness.snapshot("large")
    harness.keep()
    harness.snapshot("first")
    harness.keep()
    counts = {
        name: harness.registry.get_sample_value(name)
        for name in ("paddock_snapshots", "paddock_snapshot_capture_seconds_count")
    }
    assert counts == {"paddock_snapshots": 1, "paddock_snapshot_capture_seconds_count": 1}
    assert harness.registry.get_sample_value("paddock_snapshot_storage_bytes") == 1024
    failures = harness.registry.get_sample_value("paddock_snapshot_capture_failures_total", {"reason": "TooLarge"})
    assert failures == 1


def test_periodic_snapshots_keep_the_last_ones(harness: SnapshotHarness) -> None:
    harness.apply("a", lifecycle={"snapshots": {"everySeconds": 60, "keepLast": 2}})
    harness.settle()
    for _ in range(5):
        harness.clock.advance(61)
        harness.keep(5)
    found, _ = harness.store.list("SandboxSnapshot")
    assert len(found) == 2
    assert len(harness.snapshots.requests) == 5


def test_failed_periodic_snapshots_push_out_no_good_ones(harness: SnapshotHarness) -> None:
    harness.apply("a", lifecycle={"snapshots": {"everySeconds": 60, "keepLast": 2}})
    harness.settle()
    for number in range(6):
        if number >= 2:
            harness.snapshots.failures = [SnapshotError("TooLarge", "large")]
        harness.clock.advance(61)
        harness.keep(5)
    found, _ = harness.store.list("SandboxSnapshot")
    states = sorted(str(stored_condition(obj, "Captured").get("status")) for obj in found)
    assert states == ["False", "True", "True"]
    assert len(harness.snapshots.stored) == 2


def test_periodic_snapshots_stay_within_the_count_quota(harness: SnapshotHarness) -> None:
    quota = {"kind": "Quota", "metadata": {"name": "q"}, "spec": {"hard": {"snapshots": 3}}}
    harness.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **quota}))])
    harness.apply("a", lifecycle={"snapshots": {"everySeconds": 60, "keepLast": 2}})
    harness.apply("b", lifecycle={"snapshots": {"everySeconds": 60, "keepLast": 1}})
    harness.settle()
    for _ in range(5):
        harness.clock.advance(61)
        for _ in range(6):
            harness.keep(1)
            assert len(harness.store.list("SandboxSnapshot")[0]) <= 3
    sources = [obj.spec["sandboxRef"]["name"] for obj in harness.store.list("SandboxSnapshot")[0]]
    assert sorted(sources) == ["a", "a", "b"]
    captures = [request.source_name for request in harness.snapshots.requests]
    assert captures.count("a") == 5, "its oldest one gave way"
    events = [event for event in harness.store.events(namespace="default") if event.reason == "QuotaExceeded"]
    assert {event.ref.name for event in events} == {"b"}, "its only one stays"


def test_an_import_that_was_cut_off_ends_with_a_reason(harness: SnapshotHarness) -> None:
    for name in ("moved", "slow"):
        document = {"kind": "SandboxSnapshot", "metadata": {"name": name}, "spec": {"imported": True}}
        harness.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **document}))])
    slow = harness.stored("slow")
    assert slow is not None
    harness.snapshots.under_way.add(slow.uid)
    harness.keep()
    assert (harness.captured("moved"), harness.captured("slow")) == ("Unknown Importing", "Unknown Importing")
    harness.clock.advance(61)
    harness.keep()
    assert (harness.captured("moved"), harness.captured("slow")) == ("False ImportCutOff", "Unknown Importing")
    harness.snapshots.take_in(slow.uid, "default", "slow", iter([b"good"]), 1, may_load_image=False)
    harness.keep()
    assert harness.captured("slow") == "True Captured"


def test_an_import_newer_than_the_last_pass_stays(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.snapshot("first")
    harness.keep()
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxSnapshot",
        "metadata": {"name": "moved"},
        "spec": {"imported": True},
    }
    harness.services.apply.apply([Source("test", json.dumps(document))])
    moved = harness.stored("moved")
    assert moved is not None
    harness.snapshots.take_in(moved.uid, "default", "moved", iter([b"good"]), 1, may_load_image=False)
    harness.snapshots.take_in("nobodys", "default", "stray", iter([b"good"]), 1, may_load_image=False)
    harness.keeper.step()
    assert moved.uid in harness.snapshots.stored
    assert "nobodys" not in harness.snapshots.stored


def test_one_newer_user_than_the_last_pass_keeps_it(harness: SnapshotHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.snapshot("first", ttlSeconds=60)
    harness.keep()
    harness.clock.advance(100)
    harness.apply("b", restoreFrom={"snapshotRef": {"name": "first"}})
    harness.keeper.step()
    found = harness.stored("first")
    assert found is not None
    assert found.deleted_at is None


def test_a_sandbox_begins_from_its_snapshot_before_its_start(harness: SnapshotHarness) -> None:
    harness.apply("a", template={"workspace": {}}, restoreFrom={"snapshotRef": {"name": "first"}, "at": "now"})
    harness.settle()
    names = [type(action).__name__ for action in harness.engine.calls]
    assert names.index("RestoreRoot") == names.index("CreateContainer") + 1
    assert names.index("StartContainer") > names.index("RestoreRoot")
    (restored,) = (action for action in harness.engine.calls if isinstance(action, RestoreRoot))
    assert (restored.key, restored.level) == ("first@now", "full-isolation")
    (bound, *_) = (action for action in harness.engine.calls if isinstance(action, BindMounts))
    assert bound.restore_from == "first@now"


def prepare(harness: SnapshotHarness) -> None:
    """Fill a pool whose members begin from a snapshot."""
    template = {
        "image": TINY,
        "command": ["sleep", "1"],
        "workspace": {},
        "restoreFrom": {"snapshotRef": {"name": "s"}},
    }
    harness.apply_template("prepared", **template)
    pool = {"kind": "SandboxPool", "metadata": {"name": "p"}, "spec": {"warmReplicas": 1}}
    pool["spec"]["templateRef"] = {"name": "prepared"}  # type: ignore[index]
    harness.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **pool}))])
    harness.settle(seconds=60)


def test_a_claim_from_a_prepared_pool_restores_nothing(harness: SnapshotHarness) -> None:
    """Its workspace has the files of the snapshot before the claim, which takes no longer than from another pool."""
    prepare(harness)
    (bound,) = (action for action in harness.engine.calls if isinstance(action, BindMounts))
    assert [mount.path for mount in bound.mounts if mount.kind == "memory"] == ["/workspace"]
    harness.engine.calls.clear()
    harness.refer("a", "prepared", workspace={"volume": {"name": "own", "size": "8Mi"}})
    harness.refer("b", "prepared")
    harness.settle(seconds=60)
    sandboxes = {obj.name: obj for obj in harness.store.list("Sandbox")[0]}
    assert {name: obj.status["launchType"] for name, obj in sandboxes.items()} == {"a": "Cold", "b": "Warm"}
    uids = [action.uid for action in harness.engine.calls if isinstance(action, BindMounts)]
    assert sandboxes["b"].uid not in uids
    assert harness.condition("a", "Ready").startswith("True")


def test_a_rollback_replaces_volumes_of_its_own_only(harness: SnapshotHarness) -> None:
    volumes = [
        {"name": "mine", "mountPath": "/mine", "size": "8Mi"},
        {"name": "ours", "mountPath": "/ours", "size": "8Mi"},
    ]
    harness.apply("b", template={"volumes": volumes[1:]})
    harness.apply("a", template={"volumes": volumes}, restoreFrom={"snapshotRef": {"name": "first"}, "at": "now"})
    harness.settle()
    bound = [action for action in harness.engine.calls if isinstance(action, BindMounts) and action.restore_from]
    assert bound[0].replaces == ("mine",)


def test_a_new_snapshot_to_begin_from_makes_a_new_container(harness: SnapshotHarness) -> None:
    harness.apply("a", restoreFrom={"snapshotRef": {"name": "first"}, "at": "1"})
    harness.settle()
    harness.apply("a", restoreFrom={"snapshotRef": {"name": "first"}, "at": "2"})
    harness.settle()
    keys = [action.key for action in harness.engine.calls if isinstance(action, RestoreRoot)]
    assert keys == ["first@1", "first@2"]


@pytest.fixture
def keeping(harness: SnapshotHarness) -> Iterator[SnapshotHarness]:
    """Return the harness while passes and the keeper go on beside the test."""
    ending = threading.Event()

    def go_on() -> None:
        while not ending.wait(0.01):
            harness.keep(1)

    thread = threading.Thread(target=go_on)
    thread.start()
    yield harness
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


def test_quotas_bound_number_and_size_of_snapshots(harness: SnapshotHarness) -> None:
    quota = {"kind": "Quota", "metadata": {"name": "q"}, "spec": {"hard": {"snapshots": 2, "snapshotStorage": 1500}}}
    harness.services.apply.apply([Source("test", json.dumps({"apiVersion": "paddock/v1alpha1", **quota}))])
    harness.apply("a")
    harness.settle()
    harness.snapshot("first")
    harness.keep()
    harness.snapshot("second")
    harness.keep()
    assert harness.snapshots.requests[-1].bytes_max == 1500 - 1024
    with pytest.raises(errors.Invalid, match="2 of at most 2 snapshots"):
        harness.snapshot("third")


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


def test_a_snapshot_that_can_not_be_taken_leaves_nothing(keeping: SnapshotHarness) -> None:
    with pytest.raises(errors.Conflict, match="SandboxMissing"):
        keeping.use_cases().take("default", "missing", "first")
    wait_for("its end", lambda: keeping.stored("first") is None)


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
