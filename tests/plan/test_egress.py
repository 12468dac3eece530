"""Sealed networks: up before the sandbox, kept while it runs, gone with it."""

from dataclasses import replace

import pytest

from controller.kinds.common.labels import egress_name, egress_uid, sealed_name
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import CreateContainer, StartContainer
from controller.kinds.planning.outcome import Transient
from controller.kinds.runtime.network import EnsureNetwork
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import IMAGE, LIMITS, UPLINK, proxy_address
from tests.plan.history import History
from tests.small_sandboxes import apply_small

POLICY = Policy()


@pytest.fixture
def history() -> History:
    created = History(POLICY)
    created.engine.add_image(IMAGE)
    return created


def apply(history: History, name: str = "web", hosts: list[str] | None = None, **spec: object) -> None:
    network = {} if hosts is None else {"network": {"allowedHosts": hosts}}
    apply_small(history, name, "development", **network, **spec)


def running(history: History, name: str = "web", hosts: list[str] | None = None) -> str:
    apply(history, name, hosts)
    history.settle()
    assert history.condition(name, "Ready") == "True Running"
    assert history.condition(name, "NetworkReady") == "True Sealed"
    return uid(history, name)


def uid(history: History, name: str = "web") -> str:
    return history.object("Sandbox", name).uid


def subnet(history: History, name: str = "web") -> str:
    return history.engine.networks[sealed_name(uid(history, name))].subnet


def calls(history: History, since: int = 0) -> list[str]:
    return [str(entry) for entry in history.engine.calls[since:]]


def test_the_way_out_stands_before_the_sandbox_is_made(history: History) -> None:
    name = running(history, hosts=["git.example.org"])
    net, proxy, sandbox = sealed_name(name), egress_name(name), history.container_name("web")
    address = proxy_address(subnet(history))
    assert calls(history) == [
        f"make-network {net} sealed {subnet(history)}",
        f"make-network {UPLINK} guarded 10.213.0.0/22",
        f"create {proxy} from {IMAGE}",
        f"connect {proxy} to {net} as {address}",
        f"start {proxy}",
        f"create {sandbox} from paddock/test-tiny:1",
        f"start {sandbox}",
    ]
    assert history.engine.container(proxy).networks == tuple(sorted((UPLINK, net)))
    assert history.engine.container(sandbox).networks == (net,)
    create = next(
        entry for entry in history.engine.calls if isinstance(entry, CreateContainer) and entry.config.name == sandbox
    )
    env = dict(create.config.env)
    assert env["HTTPS_PROXY"] == env["http_proxy"] == f"http://{address}:3128"
    assert (create.config.dns, create.config.dns_options) == ((address,), ("timeout:1", "attempts:1"))


def test_it_is_an_instance_that_counts_against_quotas(history: History) -> None:
    name = running(history)
    (record,) = [instance for instance in history.instances() if instance.role == "egress"]
    assert (record.uid, record.parent_uid, record.parent_name) == (egress_uid(name), name, "web")
    assert record.reserves == LIMITS
    apply(history, runState="Suspended")
    history.settle()
    (record,) = [instance for instance in history.instances() if instance.role == "egress"]
    assert record.reserves.memory_bytes == 0
    assert not history.engine.exists(record.name)


def test_other_hosts_replace_the_proxy_and_not_the_sandbox(history: History) -> None:
    name = running(history, hosts=["git.example.org"])
    before = history.engine.container(history.container_name("web")).id
    done = len(history.engine.calls)
    apply(history, hosts=["git.example.org", "*.example.net"])
    history.settle()
    proxy = egress_name(name)
    assert [entry.split(" from")[0] for entry in calls(history, done)] == [
        f"signal KILL {proxy}",
        f"remove {proxy}",
        f"create {proxy}",
        f"connect {proxy} to {sealed_name(name)} as {proxy_address(subnet(history))}",
        f"start {proxy}",
    ]
    assert history.engine.container(history.container_name("web")).id == before
    assert history.condition("web", "NetworkReady") == "True Sealed"


def test_all_of_it_goes_with_the_sandbox(history: History) -> None:
    running(history, "web")
    running(history, "other")
    history.delete("web")
    history.settle()
    assert "web" not in history.names()
    assert set(history.engine.networks) == {sealed_name(uid(history, "other")), UPLINK}
    assert sorted(instance.role for instance in history.instances()) == ["egress", "sandbox"]
    assert {name for container in history.containers().values() for name in container} == {
        history.container_name("other"),
        egress_name(uid(history, "other")),
    }


def test_another_level_takes_it_away(history: History) -> None:
    running(history)
    history.apply("web")
    history.settle()
    assert history.engine.container(history.container_name("web")).networks == ("none",)
    assert set(history.engine.networks) == {UPLINK}
    assert [instance.role for instance in history.instances()] == ["sandbox"]
    assert history.condition("web", "NetworkReady") == "True NoNetwork"


@pytest.mark.parametrize("how", ["kill", "remove", "connect", "limits", "cgroups", "record"])
def test_an_egress_container_changed_by_hand_is_replaced(history: History, how: str) -> None:
    name = running(history)
    proxy = egress_name(name)
    history.clock.advance(60)
    before = history.engine.container(proxy).id
    if how == "kill":
        history.engine.kill(proxy)
    elif how == "remove":
        history.engine.remove(proxy)
    elif how == "connect":
        history.engine.connect(proxy, "bridge", UPLINK, sealed_name(name))
    elif how == "cgroups":
        history.engine.lose_cgroups(proxy)
    elif how == "record":
        history.engine.lose_record(proxy)
    else:
        history.engine.update_limits(proxy, replace(LIMITS, pids=4096))
    history.engine.observe_now(full=True)
    history.settle()
    after = history.engine.container(proxy)
    assert after.id != before
    assert (after.state, after.limits) == (State.RUNNING, LIMITS)
    assert after.networks == tuple(sorted((UPLINK, sealed_name(name))))
    assert history.condition("web", "Ready") == "True Running"


def test_proxy_whose_uplink_leads_nowhere_is_shown(history: History) -> None:
    running(history)
    history.engine.cut_network(UPLINK, leads_out=False)
    history.settle()
    assert history.condition("web", "NetworkReady") == "False EngineRulesLost"
    assert history.condition("web", "Ready") == "True Running"
    history.engine.cut_network(UPLINK, leads_out=True)
    history.settle()
    assert history.condition("web", "NetworkReady") == "True Sealed"


def test_an_uplink_that_is_gone_is_made_again(history: History) -> None:
    for name in ("web", "other"):
        running(history, name)
    history.engine.cut_network(UPLINK, is_linked=False)
    history.settle()
    assert history.engine.networks[UPLINK].is_linked
    for name in ("web", "other"):
        assert history.condition(name, "NetworkReady") == "True Sealed"
        assert history.engine.container(egress_name(uid(history, name))).state is State.RUNNING


def test_a_renamed_egress_container_gets_its_name_back(history: History) -> None:
    proxy = egress_name(running(history))
    before = history.engine.container(proxy)
    history.engine.rename(proxy, "mine")
    history.settle()
    assert history.engine.container(proxy) is before
    assert before.state is State.RUNNING
    history.engine.rename(proxy, "mine")
    history.engine.kill("mine")
    history.settle()
    assert history.engine.container(proxy).state is State.RUNNING
    assert history.condition("web", "NetworkReady") == "True Sealed"


@pytest.mark.parametrize("is_dead", [False, True], ids=["running", "dead"])
def test_egress_containers_with_swapped_names_serve_on(history: History, is_dead: bool) -> None:
    proxies = [egress_name(running(history, name)) for name in ("web", "other")]
    history.clock.advance(60)
    before = [history.engine.container(proxy).id for proxy in proxies]
    history.engine.rename(proxies[0], "aside")
    history.engine.rename(proxies[1], proxies[0])
    history.engine.rename("aside", proxies[1])
    if is_dead:
        for entry in proxies:
            history.engine.kill(entry)
    history.settle()
    after = [history.engine.container(proxy) for proxy in proxies]
    assert [sandbox.state for sandbox in after] == [State.RUNNING] * 2
    assert ([sandbox.id for sandbox in after] == before) is not is_dead
    assert [history.condition(name, "NetworkReady") for name in ("web", "other")] == ["True Sealed"] * 2


def test_one_that_ends_at_once_is_not_started_without_a_pause(history: History) -> None:
    name = running(history)
    history.engine.start_exits[egress_name(name)] = 1
    history.clock.advance(60)
    history.engine.kill(egress_name(name))
    done = len(history.engine.calls)
    history.settle(seconds=95)
    starts = [entry for entry in history.engine.calls[done:] if isinstance(entry, StartContainer)]
    assert 9 <= len(starts) <= 11
    assert history.condition("web", "NetworkReady") == "False NotUp"
    assert history.condition("web", "Ready") == "True Running"


def test_nothing_is_started_without_the_guard_and_it_is_as_soon_as_it_stands(history: History) -> None:
    history.engine.unguarded = "nft is not installed"
    apply(history)
    history.engine.observe_now()
    history.settle()
    assert calls(history) == []
    assert history.condition("web", "NetworkReady") == "False NetworkUnguarded"
    assert history.condition("web", "Ready") == "False NetworkUnguarded"
    history.engine.unguarded = ""
    history.engine.observe_now()
    history.settle()
    assert history.condition("web", "Ready") == "True Running"


def test_what_runs_goes_on_without_the_guard_but_starts_no_more(history: History) -> None:
    running(history)
    history.engine.unguarded = "the table is gone"
    history.engine.observe_now()
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
    history.clock.advance(60)
    history.engine.kill(history.container_name("web"))
    history.settle()
    assert history.engine.container(history.container_name("web")).state is State.EXITED
    assert history.condition("web", "Ready") == "False NetworkUnguarded"


def test_a_missing_egress_image_is_told_and_nothing_is_pulled_for_it(history: History) -> None:
    del history.engine.images[IMAGE]
    apply(history)
    history.settle(seconds=20)
    assert history.condition("web", "Degraded") == "True EgressImageMissing"
    assert not [name for name in calls(history) if name.startswith(("pull", "start"))]
    history.engine.add_image(IMAGE)
    history.settle()
    assert history.condition("web", "Ready") == "True Running"


def test_a_subnet_that_somebody_else_has_is_left_for_another(history: History) -> None:
    name = "00000001-0000-4000-8000-000000000000"  # the first uid of a history
    history.engine.take_subnet("10.213.4.16/28")
    assert running(history) == name
    assert subnet(history) == "10.213.4.32/28"
    first = next(entry for entry in history.engine.calls if isinstance(entry, EnsureNetwork))
    assert first.config.subnet == "10.213.4.16/28"


def test_no_two_sandboxes_share_a_subnet(history: History) -> None:
    history.policy = replace(POLICY, network_range="10.213.0.0/21")
    names = [f"web-{number}" for number in range(6)]
    for name in names:
        apply(history, name)
    history.settle()
    assert len({subnet(history, name) for name in names}) == len(names)


def test_a_range_that_is_used_up_is_told(history: History) -> None:
    history.policy = replace(POLICY, network_range="10.213.0.0/22")
    apply(history)
    history.settle()
    assert history.condition("web", "Ready") == "False NoSubnetLeft"
    assert history.engine.calls == []


def test_a_network_removed_while_the_sandbox_was_stopped_is_made_again(history: History) -> None:
    name = running(history)
    apply(history, runState="Suspended")
    history.settle()
    history.engine.remove_network(sealed_name(name))
    apply(history, runState="Running")
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
    assert history.engine.container(history.container_name("web")).networks == (sealed_name(name),)


def test_a_sandbox_put_on_another_network_by_hand_is_taken_off(history: History) -> None:
    name = running(history)
    history.engine.connect(history.container_name("web"), "bridge", sealed_name(name))
    history.settle()
    assert history.engine.container(history.container_name("web")).networks == (sealed_name(name),)


def test_an_engine_that_restarts_ends_all_and_all_comes_back(history: History) -> None:
    name = running(history)
    history.clock.advance(60)
    history.engine.restart()
    history.engine.come_up()
    history.settle()
    assert history.engine.container(egress_name(name)).state is State.RUNNING
    assert history.condition("web", "Ready") == "True Running"


def test_a_failed_start_of_the_proxy_backs_off_and_leaves_the_sandbox_unmade(history: History) -> None:
    history.engine.fail_next(StartContainer, *[Transient("StartFailed", "no")] * 3)
    apply(history)
    history.settle(seconds=2)
    assert not history.engine.exists(history.container_name("web"))
    history.settle()
    assert history.condition("web", "Ready") == "True Running"


def test_a_network_that_nothing_stored_speaks_of_goes_after_its_grace(history: History) -> None:
    running(history)
    stray = "00000099-0000-4000-8000-000000000000"
    ensure_network = next(entry for entry in history.engine.calls if isinstance(entry, EnsureNetwork))
    config = replace(ensure_network.config, name=sealed_name(stray), subnet="10.213.200.0/28")
    history.engine.act(EnsureNetwork(stray, config, ensure_network.labels, "somebody's old database"))
    history.settle(seconds=50)
    assert sealed_name(stray) in history.engine.networks
    history.settle(seconds=100)
    assert set(history.engine.networks) == {sealed_name(uid(history)), UPLINK}
