"""Workspaces through the real middle of the house: cold, warm, moved, missing, and never another's."""

from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import CreateContainer, RenameContainer
from controller.kinds.runtime.mount import BindMounts, HostRoot
from controller.policy.levels.levels import Policy
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_claims import actions, events
from tests.loop.test_pools import apply_pool, boxes, launch

FOLDER = {"hostPath": "/srv/projects/a", "readOnly": True}


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    made = LoopHarness(world.store(), policy=Policy(host_roots=(HostRoot(path="/srv/projects"),)))
    yield made
    made.close()


def filled(house: LoopHarness, **template: Any) -> LoopHarness:
    house.apply_template("t", image=TINY, command=["sleep", "1000000"], workspace={}, **template)
    apply_pool(house, warmReplicas=2)
    house.settle()
    return house


def bound(house: LoopHarness, name: str) -> list[str]:
    return [each.mount for each in house.engine.box(house.container_name(name)).seen(readable=True).bound]


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
    member = next(each for each in house.store.instances() if each.role == "warm")
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


def test_another_folder_is_another_container_and_the_same_one_is_not(house: LoopHarness) -> None:
    house.apply("a", template={"workspace": {}}, workspace=FOLDER)
    house.settle()
    before = house.engine.box(house.container_name("a")).id
    house.apply("a", template={"workspace": {}}, workspace=FOLDER, priority=1)
    house.settle()
    assert house.engine.box(house.container_name("a")).id == before
    house.apply("a", template={"workspace": {}}, workspace={**FOLDER, "hostPath": "/srv/projects/b"})
    house.settle()
    assert house.engine.box(house.container_name("a")).id != before
    assert bound(house, "a") == ["/workspace from host folder /srv/projects/b read-only"]


def test_a_workspace_that_comes_later_makes_a_new_container(house: LoopHarness) -> None:
    house.apply("a")
    house.settle()
    before = house.engine.box(house.container_name("a")).id
    house.apply("a", workspace=FOLDER)
    house.settle()
    assert house.engine.box(house.container_name("a")).id != before
    assert bound(house, "a") == ["/workspace from host folder /srv/projects/a read-only"]


def test_what_is_unmounted_by_hand_is_bound_again(house: LoopHarness) -> None:
    house.apply("a", template={"workspace": {}}, workspace=FOLDER)
    house.settle()
    house.engine.unmount(house.container_name("a"), "/workspace")
    decided = house.run_pass()
    assert len(actions(decided, BindMounts)) == 1
    assert house.condition("a", "Ready") == "False MountsMissing"
    house.settle()
    assert house.condition("a", "Ready") == "True Running"


def test_what_is_mounted_over_it_by_hand_is_not_secured(house: LoopHarness) -> None:
    house.apply("a", template={"workspace": {}}, workspace=FOLDER)
    house.settle()
    box = house.engine.box(house.container_name("a"))
    seen = box.seen(readable=True).inside
    assert seen is not None
    box.tampered["mounts"] = tuple(
        each if each.path != "/workspace" else type(each)("/workspace", "ext4", writable=False, origin="8:1 /other")
        for each in seen.mounts
    )
    house.engine.observe_now(full=True)
    house.settle(seconds=0)
    assert house.condition("a", "Secured") == "False NotSecured"


def test_a_folder_that_is_not_there_holds_up_the_start_in_words(house: LoopHarness) -> None:
    house.engine.folders = set()
    house.apply("a", template={"workspace": {}}, workspace=FOLDER)
    house.settle(seconds=0)
    assert house.condition("a", "Ready") == "False MountRefused"
    assert boxes(house) == [], "nothing runs without what it asked for"
    house.engine.folders = None
    house.settle()
    assert house.condition("a", "Ready") == "True Running"


def test_all_is_bound_anew_before_each_start(house: LoopHarness) -> None:
    house.apply("a", template={"workspace": {}}, workspace=FOLDER)
    house.settle()
    name = house.container_name("a")
    house.engine.kill(name)
    house.engine.places.clear()  # as by a boot of the host
    house.settle()
    assert (house.condition("a", "Ready"), len(bound(house, "a"))) == ("True Running", 1)
    made = [each for each in house.engine.calls if isinstance(each, CreateContainer)]
    assert len(made) == 1


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
    words = ["/cache from volume cache of 8Mi read-only", "/workspace from volume work of 16Mi read-write"]
    assert sorted(bound(house, "a")) == words
    assert launch(house, "a").startswith("Warm")


def test_a_lost_record_kills_nothing(house: LoopHarness) -> None:
    house.apply("a", template={"workspace": {}}, workspace=FOLDER)
    house.settle()
    box = house.engine.box(house.container_name("a"))
    house.engine.lose_record(box.name)
    house.engine.observe_now(full=True)
    house.settle()
    assert house.condition("a", "Secured") == "Unknown MountsUnrecorded"
    assert house.condition("a", "Ready") == "True Running"
    house.engine.kill(box.name)
    house.settle()
    assert house.condition("a", "Secured") == "True Attested"
    assert house.engine.box(box.name).id == box.id, "its next start binds all anew"


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


@pytest.mark.parametrize("path", ["/tmp", "/workspace"])
def test_an_unmounted_folder_of_the_engines_comes_back_by_a_restart(house: LoopHarness, path: str) -> None:
    house.apply("a")
    house.settle()
    box = house.engine.box(house.container_name("a"))
    assert path in {each.path for each in box.seen(readable=True).inside.mounts}  # type: ignore[union-attr]
    house.engine.unmount_inside(box.name, path)
    house.engine.observe_now()
    house.run_pass()
    assert house.condition("a", "Secured") == "False MountsGone"
    house.settle()
    assert house.condition("a", "Secured") == "True Attested"
    assert (house.condition("a", "Ready"), house.engine.box(box.name).id) == ("True Running", box.id)
