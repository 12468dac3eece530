"""Guarded bridges through the loop: there before the sandbox, never without the guard, gone with it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.engine.docker.errors import of_status, outcome_of
from controller.kinds.common.labels import egress_name, local_name, public_name, sealed_name
from controller.kinds.observed.observed import State
from controller.kinds.runtime.network import EnsureNetwork
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import IMAGE, UPLINK
from controller.ports import StoreError
from tests.contract.store_worlds import World
from tests.loop.harness import Crash, LoopHarness

# As Engine 20.10 says it.
FLUSHED = (
    "Failed to Setup IP tables: Unable to enable SKIP DNAT rule:  (iptables failed: iptables --wait -t nat -I DOCKER"
    " -i pdp-b -j RETURN: iptables: No chain/target/match by that name.\n (exit status 1))"
)


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store(), policy=replace(Policy(), local_network=True))
    harness.engine.add_image(IMAGE)
    yield harness
    harness.close()


def apply(house: LoopHarness, name: str = "web", level: str = "production", local: bool = False, **spec: object) -> str:
    network = {"network": {"localNetwork": "Allowed"}} if local else {}
    small = {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 16}}
    house.apply(name, template={"securityLevel": level}, resources=small, **network, **spec)
    harness = house.get(name)
    assert harness is not None
    return harness.uid


def running(house: LoopHarness, name: str = "web", **said: object) -> str:
    uid = apply(house, name, **said)  # type: ignore[arg-type]  # as apply takes it
    house.settle()
    assert house.condition(name, "Ready") == "True Running"
    return uid


def networks(house: LoopHarness, name: str = "web") -> tuple[str, ...]:
    return house.engine.box(house.container_name(name)).networks


def test_the_bridge_stands_before_the_sandbox_is_made(house: LoopHarness) -> None:
    uid = running(house)
    box, net = house.container_name("web"), public_name(uid)
    subnet = house.engine.networks[net].subnet
    assert [str(entry) for entry in house.engine.calls] == [
        f"make-network {net} guarded {subnet}",
        f"create {box} from paddock/test-tiny:1",
        f"start {box}",
    ]
    assert networks(house) == (net,)
    assert house.condition("web", "NetworkReady") == "True Public"
    house.settle()
    assert len(house.engine.calls) == 3


@pytest.mark.parametrize(
    ("leads_out", "shown"),
    [(False, "False EngineRulesLost"), (None, "Unknown EngineRulesUnread"), (True, "True Public")],
)
def test_bridge_without_the_engines_rules_reaches_nothing(
    house: LoopHarness, leads_out: bool | None, shown: str
) -> None:
    uid = running(house)
    second = running(house, "other")
    house.engine.cut_network(public_name(uid), leads_out=leads_out)
    house.settle()
    assert house.condition("web", "NetworkReady") == shown
    assert house.condition("other", "NetworkReady") == "True Public"
    assert house.condition("web", "Ready") == "True Running"
    house.engine.cut_network(public_name(uid), leads_out=True)
    house.settle()
    assert house.condition("web", "NetworkReady") == "True Public"
    assert second != uid


@pytest.mark.parametrize("level", ["production", "development"])
def test_sandbox_whose_network_is_gone_is_not_ready(house: LoopHarness, level: str) -> None:
    uid = running(house, level=level)
    net = public_name(uid) if level == "production" else sealed_name(uid)
    before = house.engine.box(house.container_name("web")).id
    house.engine.cut_network(net, is_linked=False)
    house.settle()
    assert house.condition("web", "Ready") == "False NetworkGone"
    assert house.condition("web", "NetworkReady") == "False NetworkGone"
    assert house.engine.box(house.container_name("web")).id == before
    for state in ("Suspended", "Running"):  # as its message says
        apply(house, level=level, runState=state)
        house.settle()
    assert house.condition("web", "Ready") == "True Running"
    assert house.engine.networks[net].is_linked


def test_start_without_the_engines_rules_says_what_to_do(house: LoopHarness) -> None:
    house.engine.fail_next(EnsureNetwork, outcome_of(of_status(500, FLUSHED)))
    apply(house)
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "False EngineRulesLost"
    web = house.get("web")
    assert web is not None
    assert "systemctl restart docker" in str(web.status["conditions"])
    house.settle()
    assert house.condition("web", "Ready") == "True Running"


def test_the_local_network_is_joined_and_left_while_it_runs(house: LoopHarness) -> None:
    uid = running(house)
    before = house.engine.box(house.container_name("web")).id
    apply(house, local=True)
    house.settle()
    assert networks(house) == (local_name(uid),)
    assert house.condition("web", "NetworkReady") == "True Local"
    assert house.engine.box(house.container_name("web")).id == before
    assert set(house.engine.networks) == {local_name(uid)}
    apply(house)
    house.settle()
    assert networks(house) == (public_name(uid),)
    assert set(house.engine.networks) == {public_name(uid)}


def test_another_level_is_another_network_both_ways(house: LoopHarness) -> None:
    uid = running(house)
    running(house, level="development")
    assert set(house.engine.networks) == {sealed_name(uid), UPLINK}
    assert {instance.role for instance in house.store.instances()} == {"sandbox", "egress"}
    running(house)
    assert set(house.engine.networks) == {public_name(uid), UPLINK}
    assert not house.engine.exists(egress_name(uid))
    assert [instance.role for instance in house.store.instances()] == ["sandbox"]
    running(house, level="full-isolation")
    assert set(house.engine.networks) == {UPLINK}
    assert house.condition("web", "NetworkReady") == "True NoNetwork"
    (record,) = house.store.instances()
    assert record.state.subnet == ""


def test_all_of_it_goes_with_the_sandbox(house: LoopHarness) -> None:
    running(house)
    second = running(house, "other")
    house.delete("web")
    house.settle()
    assert house.get("web") is None
    assert set(house.engine.networks) == {public_name(second)}


def test_nothing_is_started_without_the_guard_and_what_runs_is_frozen(house: LoopHarness) -> None:
    running(house)
    house.engine.unguarded = "the table is gone"
    house.engine.observe_now()
    apply(house, "late")
    house.settle()
    assert house.condition("late", "Ready") == "False NetworkUnguarded"
    assert house.condition("web", "NetworkReady") == "False NetworkUnguarded"
    assert house.condition("web", "Ready") == "False NetworkUnguarded"
    house.clock.advance(60)
    house.engine.kill(house.container_name("web"))
    house.settle()
    assert house.engine.box(house.container_name("web")).state is State.EXITED
    house.engine.unguarded = ""
    house.engine.observe_now()
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    assert house.condition("late", "NetworkReady") == "True Public"


def test_a_network_joined_by_hand_is_left_and_its_own_joined_again(house: LoopHarness) -> None:
    uid = running(house)
    house.engine.connect(house.container_name("web"), "bridge", public_name(uid))
    house.settle()
    assert networks(house) == (public_name(uid),)
    house.engine.connect(house.container_name("web"), "bridge")
    house.settle()
    assert networks(house) == (public_name(uid),)


def test_a_bridge_removed_while_it_was_stopped_is_made_again(house: LoopHarness) -> None:
    uid = running(house)
    running_again = {"runState": "Running"}
    apply(house, runState="Suspended")
    house.settle()
    house.engine.remove_network(public_name(uid))
    running(house, **running_again)
    assert networks(house) == (public_name(uid),)


def test_no_two_sandboxes_share_a_subnet_and_a_full_range_is_told(house: LoopHarness) -> None:
    house.reconcile_pass._policy = replace(house.policy, network_range="10.213.0.0/22")
    apply(house)
    house.settle()
    assert house.condition("web", "Ready") == "False NoSubnetLeft"
    house.reconcile_pass._policy = replace(house.policy, network_range="10.213.0.0/21")
    for number in range(4):
        apply(house, f"more-{number}", level="development" if number % 2 else "production")
    house.settle()
    subnets = [network.subnet for network in house.engine.networks.values()]
    assert len(set(subnets)) == len(subnets) == 6


def test_a_subnet_that_somebody_else_has_is_left_for_another(house: LoopHarness) -> None:
    house.engine.take_subnet("10.213.4.16/28")
    uid = running(house)
    assert uid == "00000001-0000-4000-8000-000000000000"
    assert house.engine.networks[public_name(uid)].subnet == "10.213.4.32/28"


def test_each_start_is_in_the_audit_log_before_it_happens(house: LoopHarness) -> None:
    running(house)
    house.clock.advance(60)
    house.engine.kill(house.container_name("web"))
    house.settle()
    running(house, "quiet", level="full-isolation")
    observed = [
        (entry.actor, entry.verb, entry.name, entry.detail["generation"]) for entry in house.store.audit.entries()
    ]
    assert [entry for entry in observed if entry[1] == "start"] == [("paddock", "start", "web", 1)] * 2
    assert house.store.audit.verify().problem == ""


def test_without_a_log_that_takes_the_entry_nothing_is_started(
    house: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(house)

    def full(*_: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr("controller.store.transaction.append", full)
    with pytest.raises(StoreError):
        house.run_pass()
    assert house.engine.calls == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("crash_at", range(1, 14))
def test_a_crash_at_any_step_is_repaired_by_the_next_daemon(house: LoopHarness, crash_at: int, after: bool) -> None:
    house.fuse.blow_at, house.fuse.after = crash_at, after
    try:
        apply(house)
        house.settle()
        apply(house, local=True)
        house.settle()
        house.delete("web")
        house.settle()
    except Crash:
        house.daemon()
    stored = house.get("web")
    if stored is not None and stored.deleted_at is None:
        house.settle()
        assert house.condition("web", "NetworkReady") in ("True Public", "True Local")
        house.delete("web")
    house.settle()
    assert house.ours() == {}
    assert house.engine.networks == {}
    assert house.store.instances() == []
