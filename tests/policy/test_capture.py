"""Decision of a capture: parts, omissions and refusals."""

from dataclasses import replace

import pytest

from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.runtime.mount import BindMounts, Mount
from controller.policy.container.capture import CapturePlan, CaptureRefusal, has_moved_on, plan_capture

RUNNING = Container("c", "a", "source", State.RUNNING, started_at=1.0)
MOUNTS = (
    Mount("/src", "host", "/home/src"),
    Mount("/cache", "memory"),
    Mount("/data", "volume", "data"),
    Mount("/shared", "volume", "shared"),
    Mount("/models", "volume", "models", read_only=True),
    Mount("/run/secret", "secret", "key", read_only=True),
)
REQUEST = CaptureRequest(
    *("s1", "default", "first", "a", "source", RUNNING, "development"),
    bind=BindMounts("source", "a", "default", "tiny", "", (), MOUNTS, "why"),
    tmpfs=("/tmp",),
    writable=True,
    shared=frozenset({"shared"}),
)


def plan_of(container: Container = RUNNING, *, is_local: bool = True) -> CapturePlan:
    decision = plan_capture(REQUEST, container, is_local=is_local)
    assert isinstance(decision, CapturePlan)
    return decision


def test_writable_folders_become_parts_in_order() -> None:
    plan = plan_of()
    assert [(folder.kind, folder.path, folder.volume) for folder in plan.folders] == [
        ("tmpfs", "/tmp", ""),
        ("tmpfs", "/cache", ""),
        ("volume", "/data", "data"),
        ("volume", "/shared", "shared"),
    ]
    assert plan.captures_root
    assert [omission.name for omission in plan.omitted] == ["/src", "/shared", "/models"]


@pytest.mark.parametrize(
    ("state", "is_local", "freezes"),
    [
        (State.RUNNING, True, True),
        (State.PAUSED, True, False),
        (State.EXITED, True, False),
        (State.RUNNING, False, False),
    ],
)
def test_only_a_running_sandbox_here_is_frozen(state: State, is_local: bool, freezes: bool) -> None:
    assert plan_of(replace(RUNNING, state=state), is_local=is_local).freezes == freezes


def test_from_another_machine_only_the_root_layer_comes() -> None:
    plan = plan_of(is_local=False)
    assert (plan.captures_root, plan.folders) == (True, ())
    assert [omission.name for omission in plan.omitted] == ["/tmp", *(mount.path for mount in MOUNTS)]
    refusal = plan_capture(replace(REQUEST, writable=False), RUNNING, is_local=False)
    assert isinstance(refusal, CaptureRefusal)
    assert (refusal.reason, refusal.is_retried) == ("EngineElsewhere", False)


@pytest.mark.parametrize("change", [{"uid": "another"}, {"state": State.DEAD}, {"state": State.RESTARTING}])
def test_a_changed_container_is_tried_again(change: dict[str, object]) -> None:
    refusal = plan_capture(REQUEST, replace(RUNNING, **change), is_local=True)
    assert isinstance(refusal, CaptureRefusal)
    assert (refusal.reason, refusal.is_retried) == ("NotCapturable", True)


def test_one_that_stood_still_must_stay_so() -> None:
    stopped = replace(RUNNING, state=State.EXITED)
    assert not has_moved_on(stopped, stopped)
    assert has_moved_on(stopped, replace(stopped, state=State.RUNNING, started_at=2.0))
    assert not has_moved_on(RUNNING, replace(RUNNING, state=State.EXITED))  # frozen by us: its cgroup tells
