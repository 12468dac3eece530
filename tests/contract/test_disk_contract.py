"""A size of the writable layer on the fake and on a real Docker Engine: held, or refused; never ignored."""

from collections.abc import Iterator

import pytest

from controller.kinds.planning.outcome import Ok
from tests.contract.engine_worlds import World, docker_world, fake_world, ok


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with (fake_world if request.param == "fake" else docker_world)() as made:
        made.until(lambda: made.engine.observe().facts.disk)
        yield made.settled()


def test_a_size_is_held_or_refused(world: World) -> None:
    uid, found = world.new_uid(), world.engine.observe().facts.disk
    assert found is not None
    outcome = world.engine.act(world.create(uid, read_only_root=False, storage_bytes=64 << 20))
    if found.enforced:
        assert world.only(uid).storage_bytes >= 64 << 20
    else:
        assert not isinstance(outcome, Ok)
        assert world.state(uid) == "absent"


def test_without_a_size_there_is_none(world: World) -> None:
    uid = world.new_uid()
    ok(world.engine.act(world.create(uid)))
    assert world.only(uid).storage_bytes == 0
