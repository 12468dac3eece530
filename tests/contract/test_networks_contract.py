"""Bridges of ours on the fake and on a real Docker Engine: made once, seen, removed, and never somebody else's."""

import random
from collections.abc import Iterator
from ipaddress import IPv4Network

import pytest

from controller.kinds.common.labels import container_labels, sealed_name
from controller.kinds.planning.action import ConnectNetwork, DisconnectNetwork, RemoveContainer, StartContainer
from controller.kinds.planning.outcome import Ok, Transient, Waiting
from controller.kinds.runtime.network import EnsureNetwork, Network, NetworkConfig, RemoveNetwork
from tests.contract.engine_hosts import EngineHost, docker_host, fake_host, ok

# An engine has each subnet once, and it is not ours alone: any of a thousand pairs.
SUBNET, OTHER = random.Random().choice([*IPv4Network("10.213.128.0/17").subnets(new_prefix=27)]).subnets(new_prefix=28)


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    with (fake_host if request.param == "fake" else docker_host)() as created:
        yield created.settled()


@pytest.fixture
def uid(host: EngineHost) -> str:
    return host.new_uid()


def wanted(host: EngineHost, uid: str, subnet: IPv4Network = SUBNET, name: str = "") -> EnsureNetwork:
    _, handed_out = subnet.subnets(new_prefix=29)
    config = NetworkConfig(name or sealed_name(uid), str(subnet), handed_out=str(handed_out))
    labels = container_labels(
        instance=host.instance_id,
        uid=uid,
        namespace="default",
        name="box",
        role="sealed",
        generation=1,
        config_hash=config.hash(),
        template_hash="",
    )
    return EnsureNetwork(uid, config, labels, "a test")


def remove(host: EngineHost, uid: str, name: str = "") -> object:
    return host.engine.act(RemoveNetwork(uid, name or sealed_name(uid), "a test"))


def networks(host: EngineHost) -> dict[str, Network]:
    return dict(host.engine.observe().networks)


def test_a_network_is_made_once_and_seen_at_once(host: EngineHost, uid: str) -> None:
    action = wanted(host, uid)
    assert host.engine.act(action) == Ok()
    network = networks(host)[action.name]
    assert (network.uid, network.subnet, network.config_hash, network.role) == (
        uid,
        str(SUBNET),
        action.config.hash(),
        "sealed",
    )
    assert (network.namespace, network.object_name) == ("default", "box")
    assert host.engine.act(action) == Ok()
    assert networks(host) == {action.name: network}


def test_a_network_that_differs_is_made_anew_while_nothing_is_on_it(host: EngineHost, uid: str) -> None:
    ok(host.engine.act(wanted(host, uid)))
    ok(host.engine.act(wanted(host, uid, OTHER)))
    assert networks(host)[sealed_name(uid)].subnet == str(OTHER)


def test_a_network_in_use_is_neither_removed_nor_made_anew(host: EngineHost, uid: str) -> None:
    ok(host.engine.act(wanted(host, uid)))
    sandbox = host.running(uid, network_mode=sealed_name(uid))
    assert sandbox.networks == (sealed_name(uid),)
    for outcome in (remove(host, uid), host.engine.act(wanted(host, uid, OTHER))):
        assert isinstance(outcome, Waiting)
        assert outcome.reason == "NetworkInUse"
    ok(host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test")))
    assert remove(host, uid) == Ok()
    assert networks(host) == {}
    assert remove(host, uid) == Ok()


def test_a_network_of_another_object_is_not_touched(host: EngineHost, uid: str) -> None:
    ok(host.engine.act(wanted(host, uid)))
    second, name = host.new_uid(), sealed_name(uid)
    for outcome in (remove(host, second, name), host.engine.act(wanted(host, second, OTHER, name))):
        assert isinstance(outcome, Transient)
        assert outcome.reason == "NameConflict"
    assert networks(host)[name].uid == uid


def test_a_subnet_that_is_in_use_is_told(host: EngineHost, uid: str) -> None:
    ok(host.engine.act(wanted(host, uid)))
    outcome = host.engine.act(wanted(host, host.new_uid(), SUBNET))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "SubnetTaken"


def test_a_container_is_put_on_a_second_network_and_taken_off(host: EngineHost, uid: str) -> None:
    first, second = wanted(host, uid), wanted(host, uid, OTHER, sealed_name(host.new_uid()))
    ok(host.engine.act(first))
    ok(host.engine.act(second))
    container = host.made(uid, network_mode=first.name)
    ok(host.engine.act(ConnectNetwork(uid, container.name, container.id, second.name, "a test", str(OTHER[2]))))
    ok(host.engine.act(StartContainer(uid, container.name, "a test", container.id)))
    assert host.only(uid).networks == tuple(sorted((first.name, second.name)))
    ok(host.engine.act(DisconnectNetwork(uid, container.name, container.id, second.name, "a test")))
    assert host.only(uid).networks == (first.name,)


def test_a_network_beside_none_is_tried_again(host: EngineHost, uid: str) -> None:
    """It was attached out-of-band between two observations: no change of the spec would help."""
    ok(host.engine.act(wanted(host, uid)))
    container = host.made(uid)
    outcome = host.engine.act(ConnectNetwork(uid, container.name, container.id, sealed_name(uid), "a test"))
    assert isinstance(outcome, Transient)
    assert (outcome.reason, host.only(uid).networks) == ("Conflict", ("none",))


def test_a_network_removed_by_hand_is_seen(host: EngineHost, uid: str) -> None:
    ok(host.engine.act(wanted(host, uid)))
    host.hand.remove_network(sealed_name(uid))
    host.until(lambda: not networks(host))
