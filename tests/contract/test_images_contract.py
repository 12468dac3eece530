"""Images of ours on the fake and on a real Docker Engine: seen, removed when unused, and never somebody else's.

The engine is the tests' own: it asks every container before it removes an image, and other daemons remove images, too.
"""

import uuid
from collections.abc import Iterator

import pytest

from controller.kinds.runtime.images import HostImage
from tests.contract.engine_worlds import DockerHand, World, docker_world, fake_world
from tests.lab.engine import private_engine


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with private_engine() as private:
        yield private.base_url


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        with fake_world() as made:
            yield made.settled()
        return
    url = request.getfixturevalue("engine")
    with docker_world(url, hand=DockerHand(url)) as made:
        yield made.settled()


@pytest.fixture
def name() -> str:
    return f"paddock/test-{uuid.uuid4().hex[:12]}:1"


def seen(world: World, *ids: str) -> list[HostImage]:
    found = world.images.ours()
    assert found is not None
    return [each for each in found if each.id in ids]


def test_only_what_bears_our_label_is_ours(world: World, name: str) -> None:
    made = world.hand.build_image(name, ours=True)
    other = world.hand.build_image(name + "-other", ours=False)
    assert [(each.id, each.names) for each in seen(world, made, other)] == [(made, (name,))]
    assert world.images.remove(HostImage(other, (name + "-other",))) != ""


def test_what_a_newer_build_took_the_name_of_has_none(world: World, name: str) -> None:
    old, new = (world.hand.build_image(name, ours=True) for _ in range(2))
    superseded, current = sorted(seen(world, old, new), key=lambda each: each.names)
    assert (superseded, current.id, current.names) == (HostImage(old), new, (name,))
    assert world.images.remove(superseded) == ""
    assert [each.id for each in seen(world, old, new)] == [new]
    assert world.images.remove(superseded) == ""


def test_a_named_one_goes_with_its_name(world: World, name: str) -> None:
    made = world.hand.build_image(name, ours=True)
    (image,) = seen(world, made)
    assert world.images.remove(image) == ""
    assert seen(world, made) == []


def test_one_that_got_a_name_meanwhile_stays(world: World, name: str) -> None:
    made = world.hand.build_image(name, ours=True)
    assert "meanwhile" in world.images.remove(HostImage(made))
    assert [each.id for each in seen(world, made)] == [made]


def test_one_that_a_container_is_made_of_stays(world: World, name: str) -> None:
    made = world.hand.build_image(name, ours=True)
    world.made(world.new_uid(), image=name)
    (image,) = seen(world, made)
    assert world.images.remove(image) != ""
    assert [each.id for each in seen(world, made)] == [made]
