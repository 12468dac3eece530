"""Workspaces through the real middle of the house: cold, warm, moved, missing, and never another's."""

from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import RenameContainer
from controller.kinds.runtime.mount import BindMounts, HostRoot
from controller.policy.levels.levels import Policy
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_claims import actions, events
from tests.loop.test_pools import apply_pool, boxes, launch

FOLDER = {"hostPath": "/srv/projects/a", "readOnly": True}


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store(), policy=Policy(host_roots=(HostRoot(path="/srv/projects"),)))
    yield harness
    harness.close()


def filled(house: LoopHarness, **template: Any) -> LoopHarness:
    house.apply_template("t", image=TINY, command=["sleep", "1000000"], workspace={}, **template)
    apply_pool(house, warmReplicas=2)
    house.settle()
    return house


def bound(house: LoopHarness, name: str) -> list[str]:
    return [bound_mount.mount for bound_mount in house.engine.box(house.container_name(name)).seen(readable=True).bound]


def test_a_member_has_nothing_bound_and_a_claim_has_it_before_it_is_ready(house: LoopHarness) -> None:
    filled(house)
    assert [house.engine.box(name).mounts for name in boxes(house)] == [(), ()]
    house.refer("a", "t", workspace=FOLDER)
    first = house.run_pass()
    assert (len(actions(first, BindMounts)), actions(first, RenameContainer)) == (1, [])
    assert house.condition("a", "Ready") == "False MountsMissing"
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    assert house.condition("a", "Secured") == "True Attested"
    assert bound(house, "a") == ["/workspace from host folder /srv/projects/a read-only"]
    assert launch(house, "a").startswith("Warm")


def test_a_claim_that_names_no_folder_gets_one_in_memory(house: LoopHarness) -> None:
    filled(house)
    house.refer("a", "t")
    house.settle()
    assert bound(house, "a") == ["/workspace from memory 64Mi"]
    assert launch(house, "a").startswith("Warm")


def test_a_pool_whose_sandboxes_have_no_place_serves_no_workspace_and_says_so(house: LoopHarness) -> None:
    house.apply_template("t", image=TINY, command=["sleep", "1000000"])
    apply_pool(house, warmReplicas=1)
    house.settle()
    house.refer("a", "t", workspace=FOLDER)
    house.settle()
    assert "slots [], desired [/workspace]" in launch(house, "a")
    assert "slots [], desired [/workspace]" in events(house, "a")["ColdStart"]
    assert bound(house, "a") == ["/workspace from host folder /srv/projects/a read-only"]


def test_a_sandbox_with_a_workspace_is_never_handed_out_again(house: LoopHarness) -> None:
    """A store that was put back takes it for a member: nothing but what is bound tells that it is none."""
    filled(house)
    member = next(instance for instance in house.store.instances() if instance.role == "warm")
    box = house.engine.box(member.name)
    house.engine.act(
        BindMounts(member.uid, box.name, "default", TINY, "", (), (next(iter(_asked(house))),), "by a claim", box.id)
    )
    house.settle()
    assert box.name not in boxes(house)


def _asked(house: LoopHarness) -> Any:
    house.apply("other", template={"workspace": {}}, workspace=FOLDER)
    house.settle()
    return house.engine.box(house.container_name("other")).mounts


def test_secrets_come_with_the_claim_and_hold_up_the_start_in_words(house: LoopHarness) -> None:
    secrets = [{"name": "token", "mountPath": "/run/secrets/token"}]
    filled(house, secrets=secrets)
    assert [house.engine.box(name).mounts for name in boxes(house)] == [(), ()], "a member is nobody's yet"
    house.refer("a", "t")
    house.settle()
    assert "/run/secrets/token from secret token" in bound(house, "a")
    assert launch(house, "a").startswith("Warm")
    house.engine.secrets = set()
    house.apply("b", template={"secrets": secrets})
    house.settle(seconds=0)
    assert house.condition("b", "Ready") == "False SecretMissing"
    house.engine.secrets = {"token"}
    house.settle()
    assert house.condition("b", "Ready") == "True Running"


def test_volumes_are_bound_cold_and_warm(house: LoopHarness) -> None:
    filled(house, volumes=[{"name": "cache", "mountPath": "/cache", "size": "8Mi", "readOnly": True}])
    house.refer("a", "t", workspace={"volume": {"name": "work", "size": "16Mi"}})
    house.settle()
    arguments = ["/cache from volume cache of 8Mi read-only", "/workspace from volume work of 16Mi read-write"]
    assert sorted(bound(house, "a")) == arguments
    assert launch(house, "a").startswith("Warm")


def test_a_member_without_a_record_is_replaced_and_never_handed_out(house: LoopHarness) -> None:
    filled(house)
    lost = boxes(house)
    for name in lost:
        house.engine.lose_record(name)
    house.engine.observe_now(full=True)
    house.run_pass()
    house.refer("a", "t")
    house.settle()
    assert launch(house, "a").startswith("Cold")
    assert not set(lost) & set(boxes(house))
