"""Guarded bridges: there before the sandbox, never without the guard, gone with it."""

from dataclasses import replace

import pytest

from controller.engine.docker.errors import of_status, outcome_of
from controller.kinds.common.labels import egress_name, local_name, public_name, sealed_name
from controller.kinds.observed.observed import State
from controller.kinds.runtime.network import EnsureNetwork
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import IMAGE, UPLINK
from tests.plan.history import History
from tests.small_sandboxes import apply_small

# As Engine 20.10 says it.
FLUSHED = (
    "Failed to Setup IP tables: Unable to enable SKIP DNAT rule:  (iptables failed: iptables --wait -t nat -I DOCKER"
    " -i pdp-b -j RETURN: iptables: No chain/target/match by that name.\n (exit status 1))"
)


@pytest.fixture
def history() -> History:
    history = History(replace(Policy(), local_network=True))
    history.engine.add_image(IMAGE)
    return history


def apply(history: History, name: str = "web", level: str = "production", local: bool = False, **spec: object) -> str:
    network = {"network": {"localNetwork": "Allowed"}} if local else {}
    apply_small(history, name, level, **network, **spec)
    return history.object("Sandbox", name).uid


def running(history: History, name: str = "web", **spec: object) -> str:
    uid = apply(history, name, **spec)  # type: ignore[arg-type]  # as apply takes it
    history.settle()
    assert history.condition(name, "Ready") == "True Running"
    return uid


def networks(history: History, name: str = "web") -> tuple[str, ...]:
    return history.engine.container(history.container_name(name)).networks


def test_the_bridge_stands_before_the_sandbox_is_made(history: History) -> None:
    uid = running(history)
    sandbox, net = history.container_name("web"), public_name(uid)
    subnet = history.engine.networks[net].subnet
    assert [str(entry) for entry in history.engine.calls] == [
        f"make-network {net} guarded {subnet}",
        f"create {sandbox} from paddock/test-tiny:1",
        f"start {sandbox}",
    ]
    assert networks(history) == (net,)
    assert history.condition("web", "NetworkReady") == "True Public"
    history.settle()
    assert len(history.engine.calls) == 3


@pytest.mark.parametrize(
    ("leads_out", "shown"),
    [(False, "False EngineRulesLost"), (None, "Unknown EngineRulesUnread"), (True, "True Public")],
)
def test_bridge_without_the_engines_rules_reaches_nothing(history: History, leads_out: bool | None, shown: str) -> None:
    uid = running(history)
    second = running(history, "other")
    history.engine.cut_network(public_name(uid), leads_out=leads_out)
    history.settle()
    assert history.condition("web", "NetworkReady") == shown
    assert history.condition("other", "NetworkReady") == "True Public"
    assert history.condition("web", "Ready") == "True Running"
    history.engine.cut_network(public_name(uid), leads_out=True)
    history.settle()
    assert history.condition("web", "NetworkReady") == "True Public"
    assert second != uid


@pytest.mark.parametrize("level", ["production", "development"])
def test_sandbox_whose_network_is_gone_is_not_ready(history: History, level: str) -> None:
    uid = running(history, level=level)
    net = public_name(uid) if level == "production" else sealed_name(uid)
    before = history.engine.container(history.container_name("web")).id
    history.engine.cut_network(net, is_linked=False)
    history.settle()
    assert history.condition("web", "Ready") == "False NetworkGone"
    assert history.condition("web", "NetworkReady") == "False NetworkGone"
    assert history.engine.container(history.container_name("web")).id == before
    for state in ("Suspended", "Running"):  # as its message says
        apply(history, level=level, runState=state)
        history.settle()
    assert history.condition("web", "Ready") == "True Running"
    assert history.engine.networks[net].is_linked


def test_start_without_the_engines_rules_says_what_to_do(history: History) -> None:
    history.engine.fail_next(EnsureNetwork, outcome_of(of_status(500, FLUSHED)))
    apply(history)
    history.settle(seconds=0)
    assert history.condition("web", "Ready") == "False EngineRulesLost"
    assert "systemctl restart docker" in str(history.status("web")["conditions"])
    history.settle()
    assert history.condition("web", "Ready") == "True Running"


def test_the_local_network_is_joined_and_left_while_it_runs(history: History) -> None:
    uid = running(history)
    before = history.engine.container(history.container_name("web")).id
    apply(history, local=True)
    history.settle()
    assert networks(history) == (local_name(uid),)
    assert history.condition("web", "NetworkReady") == "True Local"
    assert history.engine.container(history.container_name("web")).id == before
    assert set(history.engine.networks) == {local_name(uid)}
    apply(history)
    history.settle()
    assert networks(history) == (public_name(uid),)
    assert set(history.engine.networks) == {public_name(uid)}


def test_another_level_is_another_network_both_ways(history: History) -> None:
    uid = running(history)
    running(history, level="development")
    assert set(history.engine.networks) == {sealed_name(uid), UPLINK}
    assert {instance.role for instance in history.instances()} == {"sandbox", "egress"}
    running(history)
    assert set(history.engine.networks) == {public_name(uid), UPLINK}
    assert not history.engine.exists(egress_name(uid))
    assert [instance.role for instance in history.instances()] == ["sandbox"]
    running(history, level="full-isolation")
    assert set(history.engine.networks) == {UPLINK}
    assert history.condition("web", "NetworkReady") == "True NoNetwork"
    (record,) = history.instances()
    assert record.state.network.subnet == ""


def test_all_of_it_goes_with_the_sandbox(history: History) -> None:
    running(history)
    second = running(history, "other")
    history.delete("web")
    history.settle()
    assert history.names() == ["other"]
    assert set(history.engine.networks) == {public_name(second)}


def test_nothing_is_started_without_the_guard_and_what_runs_is_frozen(history: History) -> None:
    running(history)
    history.engine.unguarded = "the table is gone"
    history.engine.observe_now()
    apply(history, "late")
    history.settle()
    assert history.condition("late", "Ready") == "False NetworkUnguarded"
    assert history.condition("web", "NetworkReady") == "False NetworkUnguarded"
    assert history.condition("web", "Ready") == "False NetworkUnguarded"
    history.clock.advance(60)
    history.engine.kill(history.container_name("web"))
    history.settle()
    assert history.engine.container(history.container_name("web")).state is State.EXITED
    history.engine.unguarded = ""
    history.engine.observe_now()
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
    assert history.condition("late", "NetworkReady") == "True Public"


def test_a_network_joined_by_hand_is_left_and_its_own_joined_again(history: History) -> None:
    uid = running(history)
    history.engine.connect(history.container_name("web"), "bridge", public_name(uid))
    history.settle()
    assert networks(history) == (public_name(uid),)
    history.engine.connect(history.container_name("web"), "bridge")
    history.settle()
    assert networks(history) == (public_name(uid),)


def test_a_bridge_removed_while_it_was_stopped_is_made_again(history: History) -> None:
    uid = running(history)
    running_again = {"runState": "Running"}
    apply(history, runState="Suspended")
    history.settle()
    history.engine.remove_network(public_name(uid))
    running(history, **running_again)
    assert networks(history) == (public_name(uid),)


def test_no_two_sandboxes_share_a_subnet_and_a_full_range_is_told(history: History) -> None:
    history.policy = replace(history.policy, network_range="10.213.0.0/22")
    apply(history)
    history.settle()
    assert history.condition("web", "Ready") == "False NoSubnetLeft"
    history.policy = replace(history.policy, network_range="10.213.0.0/21")
    for number in range(4):
        apply(history, f"more-{number}", level="development" if number % 2 else "production")
    history.settle()
    subnets = [network.subnet for network in history.engine.networks.values()]
    assert len(set(subnets)) == len(subnets) == 6


def test_a_subnet_that_somebody_else_has_is_left_for_another(history: History) -> None:
    history.engine.take_subnet("10.213.4.16/28")
    uid = running(history)
    assert uid == "00000001-0000-4000-8000-000000000000"
    assert history.engine.networks[public_name(uid)].subnet == "10.213.4.32/28"
