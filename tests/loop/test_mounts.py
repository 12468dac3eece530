"""Workspaces through the real middle of the code: cold, warm, moved, missing, and never another's."""

from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import RenameContainer
from controller.kinds.runtime.mount import BindMounts, HostRoot
from controller.policy.levels.levels import Policy
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_claims import actions, events
from tests.loop.test_pools import apply_pool, containers, launch

FOLDER = {"hostPath": "/srv/projects/a", "readOnly": True}


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store(), policy=Policy(host_roots=(HostRoot(path="/srv/projects"),)))
    yield harness
    harness.close()


def filled(harness: LoopHarness, **template: Any) -> LoopHarness:
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"], workspace={}, **template)
    apply_pool(harness, warmReplicas=2)
    harness.settle()
    return harness


def bound(harness: LoopHarness, name: str) -> list[str]:
    return [
        bound_mount.mount
        for bound_mount in harness.engine.container(harness.container_name(name)).seen(readable=True).bound
    ]


def test_a_member_has_nothing_bound_and_a_claim_has_it_before_it_is_ready(harness: LoopHarness) -> None:
    filled(harness)
    assert [harness.engine.container(name).mounts for name in containers(harness)] == [(), ()]
    harness.refer("a", "t", workspace=FOLDER)
    first = harness.run_pass()
    assert (len(actions(first, BindMounts)), actions(first, RenameContainer)) == (1, [])
    assert harness.condition("a", "Ready") == "False MountsMissing"
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    assert harness.condition("a", "Secured") == "True Attested"
    assert bound(harness, "a") == ["/workspace from host folder /srv/projects/a read-only"]
    assert launch(harness, "a").startswith("Warm")


def test_a_claim_that_names_no_folder_gets_one_in_memory(harness: LoopHarness) -> None:
    filled(harness)
    harness.refer("a", "t")
    harness.settle()
    assert bound(harness, "a") == ["/workspace from memory 64Mi"]
    assert launch(harness, "a").startswith("Warm")


def test_a_pool_whose_sandboxes_have_no_place_serves_no_workspace_and_says_so(harness: LoopHarness) -> None:
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"])
    apply_pool(harness, warmReplicas=1)
    harness.settle()
    harness.refer("a", "t", workspace=FOLDER)
    harness.settle()
    assert "slots [], desired [/workspace]" in launch(harness, "a")
    assert "slots [], desired [/workspace]" in events(harness, "a")["ColdStart"]
    assert bound(harness, "a") == ["/workspace from host folder /srv/projects/a read-only"]


def test_a_sandbox_with_a_workspace_is_never_handed_out_again(harness: LoopHarness) -> None:
    """A store that was put back takes it for a member: nothing but what is bound tells that it is none."""
    filled(harness)
    member = next(instance for instance in harness.store.instances() if instance.role == "warm")
    sandbox = harness.engine.container(member.name)
    harness.engine.act(
        BindMounts(
            member.uid, sandbox.name, "default", TINY, "", (), (next(iter(_asked(harness))),), "by a claim", sandbox.id
        )
    )
    harness.settle()
    assert sandbox.name not in containers(harness)


def _asked(harness: LoopHarness) -> Any:
    harness.apply("other", template={"workspace": {}}, workspace=FOLDER)
    harness.settle()
    return harness.engine.container(harness.container_name("other")).mounts


def test_secrets_come_with_the_claim_and_hold_up_the_start_in_words(harness: LoopHarness) -> None:
    secrets = [{"name": "token", "mountPath": "/run/secrets/token"}]
    filled(harness, secrets=secrets)
    assert [harness.engine.container(name).mounts for name in containers(harness)] == [(), ()], (
        "a member is nobody's yet"
    )
    harness.refer("a", "t")
    harness.settle()
    assert "/run/secrets/token from secret token" in bound(harness, "a")
    assert launch(harness, "a").startswith("Warm")
    harness.engine.secrets = set()
    harness.apply("b", template={"secrets": secrets})
    harness.settle(seconds=0)
    assert harness.condition("b", "Ready") == "False SecretMissing"
    harness.engine.secrets = {"token"}
    harness.settle()
    assert harness.condition("b", "Ready") == "True Running"


def test_volumes_are_bound_cold_and_warm(harness: LoopHarness) -> None:
    filled(harness, volumes=[{"name": "cache", "mountPath": "/cache", "size": "8Mi", "readOnly": True}])
    harness.refer("a", "t", workspace={"volume": {"name": "work", "size": "16Mi"}})
    harness.settle()
    arguments = ["/cache from volume cache of 8Mi read-only", "/workspace from volume work of 16Mi read-write"]
    assert sorted(bound(harness, "a")) == arguments
    assert launch(harness, "a").startswith("Warm")


def test_a_member_without_a_record_is_replaced_and_never_handed_out(harness: LoopHarness) -> None:
    filled(harness)
    lost = containers(harness)
    for name in lost:
        harness.engine.lose_record(name)
    harness.engine.observe_now(full=True)
    harness.run_pass()
    harness.refer("a", "t")
    harness.settle()
    assert launch(harness, "a").startswith("Cold")
    assert not set(lost) & set(containers(harness))
