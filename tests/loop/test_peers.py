"""Peers through the loop: one sealed bridge a namespace, joined by those that ask for it, and gone with the last."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import permutations

import pytest

from controller.kinds.common.labels import peers_name, sealed_name
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import ConnectNetwork
from controller.kinds.planning.snapshot import Snapshot
from controller.plan.base.memo import Memo
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import IMAGE, UPLINK
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness
from tests.plan.case_file import decide

SHARED = peers_name("default")


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    made = LoopHarness(world.store())
    made.engine.add_image(IMAGE)
    yield made
    made.close()


def apply(house: LoopHarness, name: str = "web", *, peers: bool = True, **spec: object) -> str:
    small = {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 16}}
    network = {"peers": "Allowed"} if peers else {}
    house.apply(name, template={"securityLevel": "development"}, resources=small, network=network, **spec)
    found = house.get(name)
    assert found is not None
    return found.uid


def running(house: LoopHarness, name: str = "web", **said: bool) -> str:
    uid = apply(house, name, **said)
    house.settle()
    assert house.condition(name, "Ready") == "True Running"
    assert house.condition(name, "NetworkReady") == "True Sealed"
    return uid


def networks(house: LoopHarness, name: str = "web") -> tuple[str, ...]:
    return house.engine.box(house.container_name(name)).networks


def said(house: LoopHarness, type_: str, name: str = "web") -> str:
    found = house.get(name)
    assert found is not None
    return next(str(each["message"]) for each in found.status["conditions"] if each["type"] == type_)


def test_it_is_joined_before_its_first_process_runs(house: LoopHarness) -> None:
    uid = running(house)
    box = house.container_name("web")
    calls = [str(each) for each in house.engine.calls]
    subnet = house.engine.networks[SHARED].subnet
    made = calls.index(f"make-network {SHARED} sealed {subnet}")
    joined = calls.index(f"connect {box} to {SHARED}")
    assert made < joined < calls.index(f"start {box}")
    assert subnet.endswith("/24")
    assert networks(house) == tuple(sorted((sealed_name(uid), SHARED)))
    (join,) = [each for each in house.engine.calls if isinstance(each, ConnectNetwork) and each.network == SHARED]
    assert join.aliases == ("web", "web.peers.internal")
    assert "joined with the others of namespace default" in said(house, "NetworkReady")
    house.settle()
    assert len(house.engine.calls) == len(calls)


def test_all_that_ask_for_it_share_one_bridge_and_nobody_else_is_on_it(house: LoopHarness) -> None:
    for name, peers in (("web", True), ("db", True), ("alone", False)):
        apply(house, name, peers=peers)
    house.settle()
    assert [SHARED in networks(house, name) for name in ("web", "db", "alone")] == [True, True, False]
    assert sum(each.role == "peers" for each in house.engine.networks.values()) == 1


def test_no_subnet_of_a_sandbox_is_within_the_shared_one(house: LoopHarness) -> None:
    for number in range(20):
        apply(house, f"box{number}", peers=number % 2 == 0)
    house.settle()
    found = [each.subnet for each in house.engine.networks.values()]
    shared = house.engine.networks[SHARED].subnet.rpartition(".")[0]
    assert [each for each in found if each.startswith(f"{shared}.")] == [f"{shared}.0/24"]


def test_it_is_joined_and_left_while_it_runs(house: LoopHarness) -> None:
    uid = running(house, peers=False)
    before = house.engine.box(house.container_name("web")).id
    running(house)
    assert networks(house) == tuple(sorted((sealed_name(uid), SHARED)))
    assert house.condition("web", "Outdated").startswith("False")
    running(house, peers=False)
    assert networks(house) == (sealed_name(uid),)
    assert house.engine.box(house.container_name("web")).id == before
    assert [each.memory.peers for each in house.store.instances()] == ["", ""]


def test_the_bridge_goes_when_nobody_asks_for_it_any_more(house: LoopHarness) -> None:
    running(house)
    running(house, "db")
    house.delete("web")
    house.settle()
    house.clock.advance(200)
    house.settle()
    assert SHARED in house.engine.networks
    house.delete("db")
    house.settle()
    house.clock.advance(200)
    house.settle()
    assert set(house.engine.networks) == {UPLINK}


def test_one_taken_off_by_hand_is_joined_again_and_one_put_on_by_hand_taken_off(house: LoopHarness) -> None:
    uid = running(house)
    other = running(house, "alone", peers=False)
    house.engine.connect(house.container_name("web"), sealed_name(uid))
    house.engine.connect(house.container_name("alone"), sealed_name(other), SHARED)
    house.settle()
    assert networks(house) == tuple(sorted((sealed_name(uid), SHARED)))
    assert networks(house, "alone") == (sealed_name(other),)
    assert house.condition("web", "Secured").startswith("True")


def test_a_stopped_one_whose_bridge_was_removed_is_made_anew(house: LoopHarness) -> None:
    uid = running(house)
    apply(house, runState="Suspended")
    house.settle()
    box = house.engine.box(house.container_name("web"))
    assert box.state is State.EXITED
    house.engine.remove_network(SHARED)
    running(house)
    assert networks(house) == tuple(sorted((sealed_name(uid), SHARED)))
    assert house.engine.box(house.container_name("web")).id != box.id


def test_nothing_is_joined_without_the_guard(house: LoopHarness) -> None:
    uid = running(house, peers=False)
    house.engine.unguarded = "the table is gone"
    house.engine.observe_now()
    apply(house)
    house.settle()
    assert networks(house) == (sealed_name(uid),)
    assert house.condition("web", "NetworkReady") == "False NetworkUnguarded"
    house.engine.unguarded = ""
    house.engine.observe_now()
    house.settle()
    assert SHARED in networks(house)


def test_a_subnet_that_somebody_else_has_is_not_tried_again(house: LoopHarness) -> None:
    running(house)
    taken = house.engine.networks[SHARED].subnet
    house.delete("web")
    house.settle()
    house.clock.advance(200)
    house.settle()
    house.settle()
    house.engine.take_subnet(taken)
    apply(house)
    for _ in range(4):
        house.settle()
        house.clock.advance(60)
    assert house.condition("web", "Ready") == "True Running"
    assert house.engine.networks[SHARED].subnet != taken


def test_where_policy_forbids_it_a_stored_one_is_refused(house: LoopHarness) -> None:
    apply(house)
    house.policy = replace(Policy(), peers=False)
    house.daemon()
    house.settle()
    assert house.condition("web", "Accepted") == "False Refused"
    assert "setting peers" in said(house, "Accepted")
    assert SHARED not in house.engine.networks


def test_networks_that_come_or_go_are_decided_as_by_a_new_planner(house: LoopHarness) -> None:
    for name, peers in (("web", True), ("db", True), ("alone", False)):
        running(house, name, peers=peers)
    house.apply("plain")
    house.settle()
    seen = house.turn.last
    assert seen is not None
    assert len(seen.observed.networks) == 5
    gone: list[Iterable[str]] = [(), *((each,) for each in seen.observed.networks), seen.observed.networks]
    hosts = [_without(seen, *names) for names in gone]
    mattered = 0
    for before, after in permutations(hosts, 2):
        memo = Memo()
        for _ in range(2):
            decide(before, memo)
        # Settled on what was seen before, they must see what is there now.
        settled = len(memo.settled)
        ours, anew = decide(after, memo), decide(after)
        assert [str(each) for each in ours.groups] == [str(each) for each in anew.groups]
        assert replace(ours.writes, ceilings=()) == replace(anew.writes, ceilings=())
        mattered += settled == len(seen.sandboxes) and bool(ours.groups)
    assert mattered > 3


def _without(host: Snapshot, *names: str) -> Snapshot:
    left = {key: each for key, each in host.observed.networks.items() if key not in names}
    return replace(host, observed=replace(host.observed, networks=left))


def named(house: LoopHarness, name: str, peer_names: dict[str, str]) -> None:
    small = {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 16}}
    network = {"peers": "Allowed", "peerNames": peer_names}
    house.apply(name, template={"securityLevel": "development"}, resources=small, network=network)
    house.settle()


def test_new_names_of_peers_attach_it_anew(house: LoopHarness) -> None:
    named(house, "web", {"db": "shop-db"})
    box = house.container_name("web")
    assert house.engine.box(box).seen(readable=True).peer_names == (("db", "shop-db"),)
    count = len(house.engine.calls)
    house.settle()
    assert len(house.engine.calls) == count
    named(house, "web", {"db": "shop-db", "cache": "shop-cache"})
    assert [str(call) for call in house.engine.calls[count:]] == [
        f"disconnect {box} from {SHARED}",
        f"connect {box} to {SHARED}",
    ]
    assert house.engine.box(box).seen(readable=True).peer_names == (("cache", "shop-cache"), ("db", "shop-db"))
    assert house.condition("web", "Ready") == "True Running"
