"""A size of the writable layer on the fake and on a real Docker Engine: held, or refused; never ignored."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from controller.engine.docker.client import Client
from controller.engine.engine import DockerEngine
from controller.engine.images.image_files import etc_files
from controller.kinds.planning.outcome import Ok
from controller.ports import NullMeter
from tests.contract.engine_worlds import SOCKET, World, docker_world, fake_world, ok, read_all
from tests.fakes.engine import TINY


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with (fake_world if request.param == "fake" else docker_world)() as created:
        created.until(lambda: created.engine.observe().facts.disk)
        yield created.settled()


def test_a_size_is_held_or_refused(world: World) -> None:
    uid, disk = world.new_uid(), world.engine.observe().facts.disk
    assert disk is not None
    outcome = world.engine.act(world.create(uid, read_only_root=False, storage_bytes=64 << 20))
    if disk.enforced:
        assert world.only(uid).storage_bytes >= 64 << 20
    elif "does not enforce" in disk.message:  # the containerd image store; no sandbox gets a size there
        ok(outcome)
    else:
        assert not isinstance(outcome, Ok)
        assert world.state(uid) == "absent"


@pytest.mark.docker
def test_the_engine_tells_what_a_sandbox_wrote() -> None:
    with docker_world() as world:
        sandbox = world.settled().running(world.new_uid(), read_only_root=False, user="0:0")
        assert isinstance(world.engine, DockerEngine)
        before = world.engine.layer_bytes(sandbox.id, 10.0)
        read_all(world.streams.exec(sandbox.id, ["dd", "if=/dev/zero", "of=/large", "bs=1M", "count=8"]))
        assert 8 << 20 <= world.engine.layer_bytes(sandbox.id, 10.0) - before < 9 << 20


@pytest.mark.docker
def test_files_of_an_image_come_through_the_engine() -> None:
    with closing(Client(SOCKET, meter=NullMeter(), timeout_seconds=30.0)) as client:
        image = client.call("images.inspect", lambda api: api.inspect_image(TINY))
        texts = etc_files(client, str(image["Id"]), ("passwd", "nothing"))
        assert texts is not None
        assert texts["nothing"] == ""
        assert "sandbox:x:20000:20000::/workspace:/bin/sh\n" in texts["passwd"]
        assert etc_files(client, "sha256:" + "0" * 64, ("passwd",)) is None


def test_without_a_size_there_is_none(world: World) -> None:
    uid = world.new_uid()
    ok(world.engine.act(world.create(uid)))
    assert world.only(uid).storage_bytes == 0
