"""SandboxTemplates in use: neither deleted nor replaced while a sandbox or a pool names them."""

from collections.abc import Iterator

import pytest

from controller.service import errors
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def test_a_template_in_use_is_not_deleted(harness: LoopHarness) -> None:
    harness.apply_template("tiny", image=TINY)
    harness.refer("a", "tiny")
    with pytest.raises(errors.Conflict, match="used by sandbox a"):
        harness.delete("tiny", "sandboxtemplate")
    harness.delete("a")
    harness.settle()
    harness.delete("tiny", "sandboxtemplate")
    assert harness.store.get("SandboxTemplate", "default", "tiny") is None


@pytest.mark.parametrize("restarted", [False, True])
def test_template_goes_with_its_last_user(harness: LoopHarness, restarted: bool) -> None:
    harness.apply_template("tiny", image=TINY)
    harness.refer("a", "tiny")
    apply_pool(harness, "warm", "tiny", warmReplicas=1)
    harness.settle()
    harness.delete("warm", "sandboxpool")
    with pytest.raises(errors.Conflict, match="is used by sandbox a;"):
        harness.delete("tiny", "sandboxtemplate")
    harness.delete("a")
    harness.delete("tiny", "sandboxtemplate")
    if restarted:
        harness.daemon()
    remaining = []
    while harness.store.get("SandboxTemplate", "default", "tiny"):
        remaining.append((harness.names(), harness.store.get("SandboxPool", "default", "warm") is not None))
        plan = harness.run_pass()
        if plan.next_wake is not None:
            harness.clock.advance(max(0.0, plan.next_wake - harness.clock.now()))
        assert len(remaining) < 60
    assert (["a"], True) in remaining
    assert (harness.names(), harness.store.get("SandboxPool", "default", "warm"), harness.ours()) == ([], None, {})


def test_nothing_starts_from_a_template_that_is_being_deleted(harness: LoopHarness) -> None:
    harness.apply_template("tiny", image=TINY)
    harness.refer("a", "tiny")
    harness.settle()
    harness.delete("a")
    harness.delete("tiny", "sandboxtemplate")
    harness.refer("late", "tiny")
    harness.settle()
    assert harness.names() == ["late"]
    assert harness.condition("late", "Accepted") == "False Refused"
    assert harness.store.get("SandboxTemplate", "default", "tiny") is None
    harness.apply_template("tiny", image=TINY)
    harness.settle()
    assert harness.condition("late", "Ready") == "True Running"


def test_a_template_that_would_never_run_is_refused(harness: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match=r"spec\.user"):
        harness.apply_template("root", image=TINY, user="0:0")
    harness.apply_template("files", image=TINY, tmpfs=[{"mountPath": "/data", "size": "256Mi"}])
    harness.refer("a", "files", resources={"limits": {"memory": "64Mi"}})
    harness.settle()
    assert harness.condition("a", "Accepted") == "False Refused"
    assert harness.ours() == {}
