"""Sealed networks through the loop: up before the sandbox, kept while it runs, gone with it; safe from crashes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.kinds.common.labels import egress_name, egress_uid, sealed_name
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import CreateContainer, StartContainer
from controller.kinds.planning.outcome import Transient
from controller.kinds.runtime.network import EnsureNetwork
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import IMAGE, LIMITS, UPLINK, proxy_address
from controller.service import errors
from tests.contract.store_worlds import World
from tests.loop.harness import Crash, LoopHarness

POLICY = Policy()


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    made = LoopHarness(world.store(), policy=POLICY)
    made.engine.add_image(IMAGE)
    yield made
    made.close()


def apply(house: LoopHarness, name: str = "web", hosts: list[str] | None = None, **spec: object) -> None:
    network = {} if hosts is None else {"network": {"allowedHosts": hosts}}
    small = {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 16}}
    house.apply(name, template={"securityLevel": "development"}, resources=small, **network, **spec)


def running(house: LoopHarness, name: str = "web", hosts: list[str] | None = None) -> str:
    apply(house, name, hosts)
    house.settle()
    assert house.condition(name, "Ready") == "True Running"
    assert house.condition(name, "NetworkReady") == "True Sealed"
    return uid(house, name)


def uid(house: LoopHarness, name: str = "web") -> str:
    found = house.get(name)
    assert found is not None
    return found.uid


def subnet(house: LoopHarness, name: str = "web") -> str:
    return house.engine.networks[sealed_name(uid(house, name))].subnet


def calls(house: LoopHarness, since: int = 0) -> list[str]:
    return [str(each) for each in house.engine.calls[since:]]


def test_the_way_out_stands_before_the_sandbox_is_made(house: LoopHarness) -> None:
    made = running(house, hosts=["git.example.org"])
    net, proxy, box = sealed_name(made), egress_name(made), house.container_name("web")
    address = proxy_address(subnet(house))
    assert calls(house) == [
        f"make-network {net} sealed {subnet(house)}",
        f"make-network {UPLINK} guarded 10.213.0.0/22",
        f"create {proxy} from {IMAGE}",
        f"connect {proxy} to {net} as {address}",
        f"start {proxy}",
        f"create {box} from paddock/test-tiny:1",
        f"start {box}",
    ]
    assert house.engine.box(proxy).networks == tuple(sorted((UPLINK, net)))
    assert house.engine.box(box).networks == (net,)
    create = next(each for each in house.engine.calls if isinstance(each, CreateContainer) and each.config.name == box)
    env = dict(create.config.env)
    assert env["HTTPS_PROXY"] == env["http_proxy"] == f"http://{address}:3128"
    assert (create.config.dns, create.config.dns_options) == ((address,), ("timeout:1", "attempts:1"))


def test_it_is_an_instance_that_counts_against_quotas(house: LoopHarness) -> None:
    made = running(house)
    (record,) = [each for each in house.store.instances() if each.role == "egress"]
    assert (record.uid, record.parent_uid, record.parent_name) == (egress_uid(made), made, "web")
    assert record.reserves == LIMITS
    apply(house, runState="Suspended")
    house.settle()
    (record,) = [each for each in house.store.instances() if each.role == "egress"]
    assert record.reserves.memory_bytes == 0
    assert not house.engine.exists(record.name)


def test_other_hosts_replace_the_proxy_and_not_the_sandbox(house: LoopHarness) -> None:
    made = running(house, hosts=["git.example.org"])
    before = house.engine.box(house.container_name("web")).id
    done = len(house.engine.calls)
    apply(house, hosts=["git.example.org", "*.example.net"])
    house.settle()
    proxy = egress_name(made)
    assert [each.split(" from")[0] for each in calls(house, done)] == [
        f"signal KILL {proxy}",
        f"remove {proxy}",
        f"create {proxy}",
        f"connect {proxy} to {sealed_name(made)} as {proxy_address(subnet(house))}",
        f"start {proxy}",
    ]
    assert house.engine.box(house.container_name("web")).id == before
    assert house.condition("web", "NetworkReady") == "True Sealed"


def test_all_of_it_goes_with_the_sandbox(house: LoopHarness) -> None:
    running(house, "web")
    running(house, "other")
    house.delete("web")
    house.settle()
    assert house.get("web") is None
    assert set(house.engine.networks) == {sealed_name(uid(house, "other")), UPLINK}
    assert sorted(each.role for each in house.store.instances()) == ["egress", "sandbox"]
    assert {each for found in house.ours().values() for each in found} == {
        house.container_name("other"),
        egress_name(uid(house, "other")),
    }


def test_another_level_takes_it_away(house: LoopHarness) -> None:
    running(house)
    house.apply("web")
    house.settle()
    assert house.engine.box(house.container_name("web")).networks == ("none",)
    assert set(house.engine.networks) == {UPLINK}
    assert [each.role for each in house.store.instances()] == ["sandbox"]
    assert house.condition("web", "NetworkReady") == "True NoNetwork"


@pytest.mark.parametrize("how", ["kill", "remove", "connect", "limits", "cgroups", "record"])
def test_an_egress_container_changed_by_hand_is_replaced(house: LoopHarness, how: str) -> None:
    made = running(house)
    proxy = egress_name(made)
    house.clock.advance(60)
    before = house.engine.box(proxy).id
    if how == "kill":
        house.engine.kill(proxy)
    elif how == "remove":
        house.engine.remove(proxy)
    elif how == "connect":
        house.engine.connect(proxy, "bridge", UPLINK, sealed_name(made))
    elif how == "cgroups":
        house.engine.lose_cgroups(proxy)
    elif how == "record":
        house.engine.lose_record(proxy)
    else:
        house.engine.update_limits(proxy, replace(LIMITS, pids=4096))
    house.engine.observe_now(full=True)
    house.settle()
    after = house.engine.box(proxy)
    assert after.id != before
    assert (after.state, after.limits) == (State.RUNNING, LIMITS)
    assert after.networks == tuple(sorted((UPLINK, sealed_name(made))))
    assert house.condition("web", "Ready") == "True Running"


def test_proxy_whose_uplink_leads_nowhere_is_shown(house: LoopHarness) -> None:
    running(house)
    house.engine.cut_network(UPLINK, leads_out=False)
    house.settle()
    assert house.condition("web", "NetworkReady") == "False EngineRulesLost"
    assert house.condition("web", "Ready") == "True Running"
    house.engine.cut_network(UPLINK, leads_out=True)
    house.settle()
    assert house.condition("web", "NetworkReady") == "True Sealed"


def test_an_uplink_that_is_gone_is_made_again(house: LoopHarness) -> None:
    for name in ("web", "other"):
        running(house, name)
    house.engine.cut_network(UPLINK, is_linked=False)
    house.settle()
    assert house.engine.networks[UPLINK].is_linked
    for name in ("web", "other"):
        assert house.condition(name, "NetworkReady") == "True Sealed"
        assert house.engine.box(egress_name(uid(house, name))).state is State.RUNNING


def test_a_renamed_egress_container_gets_its_name_back(house: LoopHarness) -> None:
    proxy = egress_name(running(house))
    before = house.engine.box(proxy)
    house.engine.rename(proxy, "mine")
    house.settle()
    assert house.engine.box(proxy) is before
    assert before.state is State.RUNNING
    house.engine.rename(proxy, "mine")
    house.engine.kill("mine")
    house.settle()
    assert house.engine.box(proxy).state is State.RUNNING
    assert house.condition("web", "NetworkReady") == "True Sealed"


@pytest.mark.parametrize("is_dead", [False, True], ids=["running", "dead"])
def test_egress_containers_with_swapped_names_serve_on(house: LoopHarness, is_dead: bool) -> None:
    proxies = [egress_name(running(house, name)) for name in ("web", "other")]
    house.clock.advance(60)
    before = [house.engine.box(each).id for each in proxies]
    house.engine.rename(proxies[0], "aside")
    house.engine.rename(proxies[1], proxies[0])
    house.engine.rename("aside", proxies[1])
    if is_dead:
        for each in proxies:
            house.engine.kill(each)
    house.settle()
    after = [house.engine.box(each) for each in proxies]
    assert [each.state for each in after] == [State.RUNNING] * 2
    assert ([each.id for each in after] == before) is not is_dead
    assert [house.condition(name, "NetworkReady") for name in ("web", "other")] == ["True Sealed"] * 2


def test_one_that_ends_at_once_is_not_started_without_a_pause(house: LoopHarness) -> None:
    made = running(house)
    house.engine.start_exits[egress_name(made)] = 1
    house.clock.advance(60)
    house.engine.kill(egress_name(made))
    done = len(house.engine.calls)
    house.settle(seconds=95)
    starts = [each for each in house.engine.calls[done:] if isinstance(each, StartContainer)]
    assert 9 <= len(starts) <= 11
    assert house.condition("web", "NetworkReady") == "False NotUp"
    assert house.condition("web", "Ready") == "True Running"


def test_nothing_is_started_without_the_guard_and_it_is_as_soon_as_it_stands(house: LoopHarness) -> None:
    house.engine.unguarded = "nft is not installed"
    apply(house)
    house.engine.observe_now()
    house.settle()
    assert calls(house) == []
    assert house.condition("web", "NetworkReady") == "False NetworkUnguarded"
    assert house.condition("web", "Ready") == "False NetworkUnguarded"
    house.engine.unguarded = ""
    house.engine.observe_now()
    house.settle()
    assert house.condition("web", "Ready") == "True Running"


def test_what_runs_goes_on_without_the_guard_but_starts_no_more(house: LoopHarness) -> None:
    running(house)
    house.engine.unguarded = "the table is gone"
    house.engine.observe_now()
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    house.clock.advance(60)
    house.engine.kill(house.container_name("web"))
    house.settle()
    assert house.engine.box(house.container_name("web")).state is State.EXITED
    assert house.condition("web", "Ready") == "False NetworkUnguarded"


def test_the_listeners_refuse_a_network_that_is_not_guarded(house: LoopHarness) -> None:
    house.policy = replace(POLICY, unguarded="nft is not installed")
    with pytest.raises(errors.Invalid, match="can't be enforced here now: nft is not installed"):
        apply(house)


def test_a_level_without_a_network_takes_no_hosts(house: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match="has no network at all"):
        house.apply("web", network={"allowedHosts": ["git.example.org"]})


def test_a_missing_egress_image_is_told_and_nothing_is_pulled_for_it(house: LoopHarness) -> None:
    del house.engine.images[IMAGE]
    apply(house)
    house.settle(seconds=20)
    assert house.condition("web", "Degraded") == "True EgressImageMissing"
    assert not [each for each in calls(house) if each.startswith(("pull", "start"))]
    house.engine.add_image(IMAGE)
    house.settle()
    assert house.condition("web", "Ready") == "True Running"


def test_a_subnet_that_somebody_else_has_is_left_for_another(house: LoopHarness) -> None:
    made = "00000001-0000-4000-8000-000000000000"  # the first uid of a house
    house.engine.take_subnet("10.213.4.16/28")
    assert running(house) == made
    assert subnet(house) == "10.213.4.32/28"
    first = next(each for each in house.engine.calls if isinstance(each, EnsureNetwork))
    assert first.config.subnet == "10.213.4.16/28"


def test_no_two_sandboxes_share_a_subnet(house: LoopHarness) -> None:
    house.turn._policy = replace(POLICY, network_range="10.213.0.0/21")
    names = [f"web-{number}" for number in range(6)]
    for name in names:
        apply(house, name)
    house.settle()
    assert len({subnet(house, name) for name in names}) == len(names)


def test_a_range_that_is_used_up_is_told(house: LoopHarness) -> None:
    house.turn._policy = replace(POLICY, network_range="10.213.0.0/22")
    apply(house)
    house.settle()
    assert house.condition("web", "Ready") == "False NoSubnetLeft"
    assert house.engine.calls == []


def test_a_network_removed_while_the_sandbox_was_stopped_is_made_again(house: LoopHarness) -> None:
    made = running(house)
    apply(house, runState="Suspended")
    house.settle()
    house.engine.remove_network(sealed_name(made))
    apply(house, runState="Running")
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    assert house.engine.box(house.container_name("web")).networks == (sealed_name(made),)


def test_a_sandbox_put_on_another_network_by_hand_is_taken_off(house: LoopHarness) -> None:
    made = running(house)
    house.engine.connect(house.container_name("web"), "bridge", sealed_name(made))
    house.settle()
    assert house.engine.box(house.container_name("web")).networks == (sealed_name(made),)


def test_an_engine_that_restarts_ends_all_and_all_comes_back(house: LoopHarness) -> None:
    made = running(house)
    house.clock.advance(60)
    house.engine.restart()
    house.engine.come_up()
    house.settle()
    assert house.engine.box(egress_name(made)).state is State.RUNNING
    assert house.condition("web", "Ready") == "True Running"


def test_a_failed_start_of_the_proxy_backs_off_and_leaves_the_sandbox_unmade(house: LoopHarness) -> None:
    house.engine.fail_next(StartContainer, *[Transient("StartFailed", "no")] * 3)
    apply(house)
    house.settle(seconds=2)
    assert not house.engine.exists(house.container_name("web"))
    house.settle()
    assert house.condition("web", "Ready") == "True Running"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("crash_at", range(1, 16))
def test_a_crash_at_any_step_is_repaired_by_the_next_daemon(house: LoopHarness, crash_at: int, after: bool) -> None:
    house.fuse.blow_at, house.fuse.after = crash_at, after
    try:
        apply(house, hosts=["git.example.org"])
        house.settle()
        apply(house, hosts=[])
        house.settle()
        house.delete("web")
        house.settle()
    except Crash:
        house.daemon()
    if house.get("web") is not None:
        house.settle()
        assert house.condition("web", "NetworkReady") == "True Sealed"
        house.delete("web")
    house.settle()
    assert house.ours() == {}
    assert set(house.engine.networks) <= {UPLINK}
    assert house.store.instances() == []


def test_a_network_that_nothing_stored_speaks_of_goes_after_its_grace(house: LoopHarness) -> None:
    running(house)
    stray = "00000099-0000-4000-8000-000000000000"
    made = next(each for each in house.engine.calls if isinstance(each, EnsureNetwork))
    config = replace(made.config, name=sealed_name(stray), subnet="10.213.200.0/28")
    house.engine.act(EnsureNetwork(stray, config, made.labels, "somebody's old database"))
    house.settle(seconds=50)
    assert sealed_name(stray) in house.engine.networks
    house.settle(seconds=100)
    assert set(house.engine.networks) == {sealed_name(uid(house)), UPLINK}
