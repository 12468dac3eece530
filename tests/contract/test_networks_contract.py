"""Bridges of ours on the fake and on a real Docker Engine: made once, seen, removed, and never somebody else's."""

import random
from collections.abc import Iterator
from ipaddress import IPv4Network

import pytest

from controller.kinds.common.labels import container_labels, sealed_name
from controller.kinds.planning.action import ConnectNetwork, DisconnectNetwork, RemoveContainer, StartContainer
from controller.kinds.planning.outcome import Ok, Transient, Waiting
from controller.kinds.runtime.network import EnsureNetwork, Network, NetworkConfig, RemoveNetwork
from tests.contract.engine_worlds import World, docker_world, fake_world, ok

# An engine has each subnet once, and it is not ours alone: any of a thousand pairs.
SUBNET, OTHER = random.Random().choice([*IPv4Network("10.213.128.0/17").subnets(new_prefix=27)]).subnets(new_prefix=28)


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with (fake_world if request.param == "fake" else docker_world)() as created:
        yield created.settled()


@pytest.fixture
def uid(world: World) -> str:
    return world.new_uid()


def wanted(world: World, uid: str, subnet: IPv4Network = SUBNET, name: str = "") -> EnsureNetwork:
    _, handed_out = subnet.subnets(new_prefix=29)
    config = NetworkConfig(name or sealed_name(uid), str(subnet), handed_out=str(handed_out))
    labels = container_labels(
        instance=world.instance_id,
        uid=uid,
        namespace="default",
        name="box",
        role="sealed",
        generation=1,
        config_hash=config.hash(),
        template_hash="",
    )
    return EnsureNetwork(uid, config, labels, "a test")


def remove(world: World, uid: str, name: str = "") -> object:
    return world.engine.act(RemoveNetwork(uid, name or sealed_name(uid), "a test"))


def networks(world: World) -> dict[str, Network]:
    return dict(world.engine.observe().networks)


def test_a_network_is_made_once_and_seen_at_once(world: World, uid: str) -> None:
    action = wanted(world, uid)
    assert world.engine.act(action) == Ok()
    network = networks(world)[action.name]
    assert (network.uid, network.subnet, network.config_hash, network.role) == (
        uid,
        str(SUBNET),
        action.config.hash(),
        "sealed",
    )
    assert (network.namespace, network.object_name) == ("default", "box")
    assert world.engine.act(action) == Ok()
    assert networks(world) == {action.name: network}


def test_a_network_that_differs_is_made_anew_while_nothing_is_on_it(world: World, uid: str) -> None:
    ok(world.engine.act(wanted(world, uid)))
    ok(world.engine.act(wanted(world, uid, OTHER)))
    assert networks(world)[sealed_name(uid)].subnet == str(OTHER)


def test_a_network_in_use_is_neither_removed_nor_made_anew(world: World, uid: str) -> None:
    ok(world.engine.act(wanted(world, uid)))
    sandbox = world.running(uid, network_mode=sealed_name(uid))
    assert sandbox.networks == (sealed_name(uid),)
    for outcome in (remove(world, uid), world.engine.act(wanted(world, uid, OTHER))):
        assert isinstance(outcome, Waiting)
        assert outcome.reason == "NetworkInUse"
    ok(world.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test")))
    assert remove(world, uid) == Ok()
    assert networks(world) == {}
    assert remove(world, uid) == Ok()


def test_a_network_of_another_object_is_not_touched(world: World, uid: str) -> None:
    ok(world.engine.act(wanted(world, uid)))
    second, name = world.new_uid(), sealed_name(uid)
    for outcome in (remove(world, second, name), world.engine.act(wanted(world, second, OTHER, name))):
        assert isinstance(outcome, Transient)
        assert outcome.reason == "NameConflict"
    assert networks(world)[name].uid == uid


def test_a_subnet_that_is_in_use_is_told(world: World, uid: str) -> None:
    ok(world.engine.act(wanted(world, uid)))
    outcome = world.engine.act(wanted(world, world.new_uid(), SUBNET))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "SubnetTaken"


def test_a_container_is_put_on_a_second_network_and_taken_off(world: World, uid: str) -> None:
    first, second = wanted(world, uid), wanted(world, uid, OTHER, sealed_name(world.new_uid()))
    ok(world.engine.act(first))
    ok(world.engine.act(second))
    container = world.made(uid, network_mode=first.name)
    ok(world.engine.act(ConnectNetwork(uid, container.name, container.id, second.name, "a test", str(OTHER[2]))))
    ok(world.engine.act(StartContainer(uid, container.name, "a test", container.id)))
    assert world.only(uid).networks == tuple(sorted((first.name, second.name)))
    ok(world.engine.act(DisconnectNetwork(uid, container.name, container.id, second.name, "a test")))
    assert world.only(uid).networks == (first.name,)


def test_a_network_beside_none_is_tried_again(world: World, uid: str) -> None:
    """It was attached out-of-band between two observations: no change of the spec would help."""
    ok(world.engine.act(wanted(world, uid)))
    container = world.made(uid)
    outcome = world.engine.act(ConnectNetwork(uid, container.name, container.id, sealed_name(uid), "a test"))
    assert isinstance(outcome, Transient)
    assert (outcome.reason, world.only(uid).networks) == ("Conflict", ("none",))


def test_a_network_removed_by_hand_is_seen(world: World, uid: str) -> None:
    ok(world.engine.act(wanted(world, uid)))
    world.hand.remove_network(sealed_name(uid))
    world.until(lambda: not networks(world))
