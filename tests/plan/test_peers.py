"""Peers: one sealed bridge a namespace, joined by those that ask for it, and gone with the last."""

from collections.abc import Iterable
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
from tests.plan.case_file import decide
from tests.plan.history import History
from tests.small_sandboxes import apply_small

SHARED = peers_name("default")


@pytest.fixture
def history() -> History:
    created = History()
    created.engine.add_image(IMAGE)
    return created


def apply(history: History, name: str = "web", *, peers: bool = True, **spec: object) -> str:
    apply_small(history, name, "development", network={"peers": "Allowed"} if peers else {}, **spec)
    return history.object("Sandbox", name).uid


def running(history: History, name: str = "web", **said: bool) -> str:
    uid = apply(history, name, **said)
    history.settle()
    assert history.condition(name, "Ready") == "True Running"
    assert history.condition(name, "NetworkReady") == "True Sealed"
    return uid


def networks(history: History, name: str = "web") -> tuple[str, ...]:
    return history.engine.container(history.container_name(name)).networks


def said(history: History, type_: str, name: str = "web") -> str:
    return history.message(name, type_)


def test_it_is_joined_before_its_first_process_runs(history: History) -> None:
    uid = running(history)
    sandbox = history.container_name("web")
    calls = [str(entry) for entry in history.engine.calls]
    subnet = history.engine.networks[SHARED].subnet
    index = calls.index(f"make-network {SHARED} sealed {subnet}")
    joined = calls.index(f"connect {sandbox} to {SHARED}")
    assert index < joined < calls.index(f"start {sandbox}")
    assert subnet.endswith("/24")
    assert networks(history) == tuple(sorted((sealed_name(uid), SHARED)))
    (join,) = [entry for entry in history.engine.calls if isinstance(entry, ConnectNetwork) and entry.network == SHARED]
    assert join.aliases == ("web", "web.peers.internal")
    assert "joined with the others of namespace default" in said(history, "NetworkReady")
    history.settle()
    assert len(history.engine.calls) == len(calls)


def test_all_that_ask_for_it_share_one_bridge_and_nobody_else_is_on_it(history: History) -> None:
    for name, peers in (("web", True), ("db", True), ("alone", False)):
        apply(history, name, peers=peers)
    history.settle()
    assert [SHARED in networks(history, name) for name in ("web", "db", "alone")] == [True, True, False]
    assert sum(network.role == "peers" for network in history.engine.networks.values()) == 1


def test_no_subnet_of_a_sandbox_is_within_the_shared_one(history: History) -> None:
    for number in range(20):
        apply(history, f"box{number}", peers=number % 2 == 0)
    history.settle()
    subnets = [network.subnet for network in history.engine.networks.values()]
    shared = history.engine.networks[SHARED].subnet.rpartition(".")[0]
    assert [subnet for subnet in subnets if subnet.startswith(f"{shared}.")] == [f"{shared}.0/24"]


def test_it_is_joined_and_left_while_it_runs(history: History) -> None:
    uid = running(history, peers=False)
    before = history.engine.container(history.container_name("web")).id
    running(history)
    assert networks(history) == tuple(sorted((sealed_name(uid), SHARED)))
    assert history.condition("web", "Outdated").startswith("False")
    running(history, peers=False)
    assert networks(history) == (sealed_name(uid),)
    assert history.engine.container(history.container_name("web")).id == before
    assert [instance.state.network.peers_subnet for instance in history.instances()] == ["", ""]


def test_the_bridge_goes_when_nobody_asks_for_it_any_more(history: History) -> None:
    running(history)
    running(history, "db")
    history.delete("web")
    history.settle()
    history.clock.advance(200)
    history.settle()
    assert SHARED in history.engine.networks
    history.delete("db")
    history.settle()
    history.clock.advance(200)
    history.settle()
    assert set(history.engine.networks) == {UPLINK}


def test_one_taken_off_by_hand_is_joined_again_and_one_put_on_by_hand_taken_off(history: History) -> None:
    uid = running(history)
    second = running(history, "alone", peers=False)
    history.engine.connect(history.container_name("web"), sealed_name(uid))
    history.engine.connect(history.container_name("alone"), sealed_name(second), SHARED)
    history.settle()
    assert networks(history) == tuple(sorted((sealed_name(uid), SHARED)))
    assert networks(history, "alone") == (sealed_name(second),)
    assert history.condition("web", "Secured").startswith("True")


def test_a_stopped_one_whose_bridge_was_removed_is_made_anew(history: History) -> None:
    uid = running(history)
    apply(history, runState="Suspended")
    history.settle()
    sandbox = history.engine.container(history.container_name("web"))
    assert sandbox.state is State.EXITED
    history.engine.remove_network(SHARED)
    running(history)
    assert networks(history) == tuple(sorted((sealed_name(uid), SHARED)))
    assert history.engine.container(history.container_name("web")).id != sandbox.id


def test_nothing_is_joined_without_the_guard(history: History) -> None:
    uid = running(history, peers=False)
    history.engine.unguarded = "the table is gone"
    history.engine.observe_now()
    apply(history)
    history.settle()
    assert networks(history) == (sealed_name(uid),)
    assert history.condition("web", "NetworkReady") == "False NetworkUnguarded"
    history.engine.unguarded = ""
    history.engine.observe_now()
    history.settle()
    assert SHARED in networks(history)


def test_a_subnet_that_somebody_else_has_is_not_tried_again(history: History) -> None:
    running(history)
    subnet = history.engine.networks[SHARED].subnet
    history.delete("web")
    history.settle()
    history.clock.advance(200)
    history.settle()
    history.settle()
    history.engine.take_subnet(subnet)
    apply(history)
    for _ in range(4):
        history.settle()
        history.clock.advance(60)
    assert history.condition("web", "Ready") == "True Running"
    assert history.engine.networks[SHARED].subnet != subnet


def test_where_policy_forbids_it_a_stored_one_is_refused(history: History) -> None:
    apply(history)
    history.policy = replace(Policy(), peers=False)
    history.daemon()
    history.settle()
    assert history.condition("web", "Accepted") == "False Refused"
    assert "setting peers" in said(history, "Accepted")
    assert SHARED not in history.engine.networks


def test_networks_that_come_or_go_are_decided_as_by_a_new_planner(history: History) -> None:
    for name, peers in (("web", True), ("db", True), ("alone", False)):
        running(history, name, peers=peers)
    history.apply("plain")
    history.settle()
    snapshot = history.snapshot()
    assert len(snapshot.observed.networks) == 5
    removed: list[Iterable[str]] = [
        (),
        *((network,) for network in snapshot.observed.networks),
        snapshot.observed.networks,
    ]
    hosts = [_without(snapshot, *names) for names in removed]
    mattered = 0
    for before, after in permutations(hosts, 2):
        memo = Memo()
        for _ in range(2):
            decide(before, memo)
        # Settled on what was seen before, they must see what is there now.
        settled = len(memo.settled)
        ours, anew = decide(after, memo), decide(after)
        assert [str(group) for group in ours.groups] == [str(group) for group in anew.groups]
        assert replace(ours.writes, ceilings=()) == replace(anew.writes, ceilings=())
        mattered += settled == len(snapshot.desired.sandboxes) and bool(ours.groups)
    assert mattered > 3


def _without(host: Snapshot, *names: str) -> Snapshot:
    remaining = {key: network for key, network in host.observed.networks.items() if key not in names}
    return replace(host, observed=replace(host.observed, networks=remaining))


def named(history: History, name: str, peer_names: dict[str, str]) -> None:
    apply_small(history, name, "development", network={"peers": "Allowed", "peerNames": peer_names})
    history.settle()


def test_new_names_of_peers_attach_it_anew(history: History) -> None:
    named(history, "web", {"db": "shop-db"})
    sandbox = history.container_name("web")
    assert history.engine.container(sandbox).seen(readable=True).peer_names == (("db", "shop-db"),)
    count = len(history.engine.calls)
    history.settle()
    assert len(history.engine.calls) == count
    named(history, "web", {"db": "shop-db", "cache": "shop-cache"})
    assert [str(call) for call in history.engine.calls[count:]] == [
        f"disconnect {sandbox} from {SHARED}",
        f"connect {sandbox} to {SHARED}",
    ]
    assert history.engine.container(sandbox).seen(readable=True).peer_names == (
        ("cache", "shop-cache"),
        ("db", "shop-db"),
    )
    assert history.condition("web", "Ready") == "True Running"
