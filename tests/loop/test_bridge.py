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
from tests.loop.harness import LoopHarness, killed_at_each_step

# As Engine 20.10 says it.
FLUSHED = (
    "Failed to Setup IP tables: Unable to enable SKIP DNAT rule:  (iptables failed: iptables --wait -t nat -I DOCKER"
    " -i pdp-b -j RETURN: iptables: No chain/target/match by that name.\n (exit status 1))"
)


@pytest.fixture
def harness(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store(), policy=replace(Policy(), local_network=True))
    harness.engine.add_image(IMAGE)
    yield harness
    harness.close()


def apply(
    harness: LoopHarness, name: str = "web", level: str = "production", local: bool = False, **spec: object
) -> str:
    network = {"network": {"localNetwork": "Allowed"}} if local else {}
    small = {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 16}}
    harness.apply(name, template={"securityLevel": level}, resources=small, **network, **spec)
    sandbox = harness.get(name)
    assert sandbox is not None
    return sandbox.uid


def running(harness: LoopHarness, name: str = "web", **said: object) -> str:
    uid = apply(harness, name, **said)  # type: ignore[arg-type]  # as apply takes it
    harness.settle()
    assert harness.condition(name, "Ready") == "True Running"
    return uid


def networks(harness: LoopHarness, name: str = "web") -> tuple[str, ...]:
    return harness.engine.box(harness.container_name(name)).networks


def test_the_bridge_stands_before_the_sandbox_is_made(harness: LoopHarness) -> None:
    uid = running(harness)
    sandbox, net = harness.container_name("web"), public_name(uid)
    subnet = harness.engine.networks[net].subnet
    assert [str(entry) for entry in harness.engine.calls] == [
        f"make-network {net} guarded {subnet}",
        f"create {sandbox} from paddock/test-tiny:1",
        f"start {sandbox}",
    ]
    assert networks(harness) == (net,)
    assert harness.condition("web", "NetworkReady") == "True Public"
    harness.settle()
    assert len(harness.engine.calls) == 3


@pytest.mark.parametrize(
    ("leads_out", "shown"),
    [(False, "False EngineRulesLost"), (None, "Unknown EngineRulesUnread"), (True, "True Public")],
)
def test_bridge_without_the_engines_rules_reaches_nothing(
    harness: LoopHarness, leads_out: bool | None, shown: str
) -> None:
    uid = running(harness)
    second = running(harness, "other")
    harness.engine.cut_network(public_name(uid), leads_out=leads_out)
    harness.settle()
    assert harness.condition("web", "NetworkReady") == shown
    assert harness.condition("other", "NetworkReady") == "True Public"
    assert harness.condition("web", "Ready") == "True Running"
    harness.engine.cut_network(public_name(uid), leads_out=True)
    harness.settle()
    assert harness.condition("web", "NetworkReady") == "True Public"
    assert second != uid


@pytest.mark.parametrize("level", ["production", "development"])
def test_sandbox_whose_network_is_gone_is_not_ready(harness: LoopHarness, level: str) -> None:
    uid = running(harness, level=level)
    net = public_name(uid) if level == "production" else sealed_name(uid)
    before = harness.engine.box(harness.container_name("web")).id
    harness.engine.cut_network(net, is_linked=False)
    harness.settle()
    assert harness.condition("web", "Ready") == "False NetworkGone"
    assert harness.condition("web", "NetworkReady") == "False NetworkGone"
    assert harness.engine.box(harness.container_name("web")).id == before
    for state in ("Suspended", "Running"):  # as its message says
        apply(harness, level=level, runState=state)
        harness.settle()
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.engine.networks[net].is_linked


def test_start_without_the_engines_rules_says_what_to_do(harness: LoopHarness) -> None:
    harness.engine.fail_next(EnsureNetwork, outcome_of(of_status(500, FLUSHED)))
    apply(harness)
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "False EngineRulesLost"
    web = harness.get("web")
    assert web is not None
    assert "systemctl restart docker" in str(web.status["conditions"])
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"


def test_the_local_network_is_joined_and_left_while_it_runs(harness: LoopHarness) -> None:
    uid = running(harness)
    before = harness.engine.box(harness.container_name("web")).id
    apply(harness, local=True)
    harness.settle()
    assert networks(harness) == (local_name(uid),)
    assert harness.condition("web", "NetworkReady") == "True Local"
    assert harness.engine.box(harness.container_name("web")).id == before
    assert set(harness.engine.networks) == {local_name(uid)}
    apply(harness)
    harness.settle()
    assert networks(harness) == (public_name(uid),)
    assert set(harness.engine.networks) == {public_name(uid)}


def test_another_level_is_another_network_both_ways(harness: LoopHarness) -> None:
    uid = running(harness)
    running(harness, level="development")
    assert set(harness.engine.networks) == {sealed_name(uid), UPLINK}
    assert {instance.role for instance in harness.store.instances()} == {"sandbox", "egress"}
    running(harness)
    assert set(harness.engine.networks) == {public_name(uid), UPLINK}
    assert not harness.engine.exists(egress_name(uid))
    assert [instance.role for instance in harness.store.instances()] == ["sandbox"]
    running(harness, level="full-isolation")
    assert set(harness.engine.networks) == {UPLINK}
    assert harness.condition("web", "NetworkReady") == "True NoNetwork"
    (record,) = harness.store.instances()
    assert record.state.subnet == ""


def test_all_of_it_goes_with_the_sandbox(harness: LoopHarness) -> None:
    running(harness)
    second = running(harness, "other")
    harness.delete("web")
    harness.settle()
    assert harness.get("web") is None
    assert set(harness.engine.networks) == {public_name(second)}


def test_nothing_is_started_without_the_guard_and_what_runs_is_frozen(harness: LoopHarness) -> None:
    running(harness)
    harness.engine.unguarded = "the table is gone"
    harness.engine.observe_now()
    apply(harness, "late")
    harness.settle()
    assert harness.condition("late", "Ready") == "False NetworkUnguarded"
    assert harness.condition("web", "NetworkReady") == "False NetworkUnguarded"
    assert harness.condition("web", "Ready") == "False NetworkUnguarded"
    harness.clock.advance(60)
    harness.engine.kill(harness.container_name("web"))
    harness.settle()
    assert harness.engine.box(harness.container_name("web")).state is State.EXITED
    harness.engine.unguarded = ""
    harness.engine.observe_now()
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.condition("late", "NetworkReady") == "True Public"


def test_a_network_joined_by_hand_is_left_and_its_own_joined_again(harness: LoopHarness) -> None:
    uid = running(harness)
    harness.engine.connect(harness.container_name("web"), "bridge", public_name(uid))
    harness.settle()
    assert networks(harness) == (public_name(uid),)
    harness.engine.connect(harness.container_name("web"), "bridge")
    harness.settle()
    assert networks(harness) == (public_name(uid),)


def test_a_bridge_removed_while_it_was_stopped_is_made_again(harness: LoopHarness) -> None:
    uid = running(harness)
    running_again = {"runState": "Running"}
    apply(harness, runState="Suspended")
    harness.settle()
    harness.engine.remove_network(public_name(uid))
    running(harness, **running_again)
    assert networks(harness) == (public_name(uid),)


def test_no_two_sandboxes_share_a_subnet_and_a_full_range_is_told(harness: LoopHarness) -> None:
    harness.reconcile_pass._policy = replace(harness.policy, network_range="10.213.0.0/22")
    apply(harness)
    harness.settle()
    assert harness.condition("web", "Ready") == "False NoSubnetLeft"
    harness.reconcile_pass._policy = replace(harness.policy, network_range="10.213.0.0/21")
    for number in range(4):
        apply(harness, f"more-{number}", level="development" if number % 2 else "production")
    harness.settle()
    subnets = [network.subnet for network in harness.engine.networks.values()]
    assert len(set(subnets)) == len(subnets) == 6


def test_a_subnet_that_somebody_else_has_is_left_for_another(harness: LoopHarness) -> None:
    harness.engine.take_subnet("10.213.4.16/28")
    uid = running(harness)
    assert uid == "00000001-0000-4000-8000-000000000000"
    assert harness.engine.networks[public_name(uid)].subnet == "10.213.4.32/28"


def test_each_start_is_in_the_audit_log_before_it_happens(harness: LoopHarness) -> None:
    running(harness)
    harness.clock.advance(60)
    harness.engine.kill(harness.container_name("web"))
    harness.settle()
    running(harness, "quiet", level="full-isolation")
    observed = [
        (entry.actor, entry.verb, entry.name, entry.detail["generation"]) for entry in harness.store.audit.entries()
    ]
    assert [entry for entry in observed if entry[1] == "start"] == [("paddock", "start", "web", 1)] * 2
    assert harness.store.audit.verify().problem == ""


def test_without_a_log_that_takes_the_entry_nothing_is_started(
    harness: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(harness)

    def full(*_: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr("controller.store.transaction.append", full)
    with pytest.raises(StoreError):
        harness.run_pass()
    assert harness.engine.calls == []


def test_a_crash_at_any_step_is_repaired_by_the_next_daemon(world: World, harness: LoopHarness) -> None:
    deeds = (
        *(lambda: apply(harness), harness.settle),
        *(lambda: apply(harness, local=True), harness.settle),
        *(lambda: harness.delete("web"), harness.settle),
    )
    moments = 0
    for number in killed_at_each_step(harness, world.path(), *deeds):
        moments += 1
        sandbox = harness.get("web")
        if sandbox is not None and sandbox.deleted_at is None:
            harness.settle()
            expected = "True Public" if number < 2 else "True Local"
            assert harness.condition("web", "NetworkReady") == expected, f"moment {moments}"
            harness.delete("web")
        harness.settle()
        assert harness.ours() == {}, f"moment {moments}"
        assert harness.engine.networks == {}
        assert harness.store.instances() == []
    assert moments > 15
