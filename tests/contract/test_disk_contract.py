"""A size of the writable layer on the fake and on a real Docker Engine: held, or refused; never ignored."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from controller.engine.docker.client import Client
from controller.engine.engine import DockerEngine
from controller.engine.images.image_files import etc_files
from controller.kinds.planning.outcome import Ok
from controller.ports import NullMeter
from tests.contract.engine_hosts import SOCKET, EngineHost, docker_host, fake_host, ok, read_all
from tests.fakes.engine import TINY


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    with (fake_host if request.param == "fake" else docker_host)() as created:
        created.until(lambda: created.engine.observe().facts.disk)
        yield created.settled()


def test_a_size_is_held_or_refused(host: EngineHost) -> None:
    uid, disk = host.new_uid(), host.engine.observe().facts.disk
    assert disk is not None
    outcome = host.engine.act(host.create(uid, read_only_root=False, storage_bytes=64 << 20))
    if disk.enforced:
        assert host.only(uid).storage_bytes >= 64 << 20
    elif "does not enforce" in disk.message:  # the containerd image store; no sandbox gets a size there
        ok(outcome)
    else:
        assert not isinstance(outcome, Ok)
        assert host.state(uid) == "absent"


@pytest.mark.docker
def test_the_engine_tells_what_a_sandbox_wrote() -> None:
    with docker_host() as host:
        sandbox = host.settled().running(host.new_uid(), read_only_root=False, user="0:0")
        assert isinstance(host.engine, DockerEngine)
        before = host.engine.layer_bytes(sandbox.id, 10.0)
        read_all(host.streams.exec(sandbox.id, ["dd", "if=/dev/zero", "of=/large", "bs=1M", "count=8"]))
        assert 8 << 20 <= host.engine.layer_bytes(sandbox.id, 10.0) - before < 9 << 20


@pytest.mark.docker
def test_files_of_an_image_come_through_the_engine() -> None:
    with closing(Client(SOCKET, meter=NullMeter(), timeout_seconds=30.0)) as client:
        image = client.call("images.inspect", lambda api: api.inspect_image(TINY))
        texts = etc_files(client, str(image["Id"]), ("passwd", "nothing"))
        assert texts is not None
        assert texts["nothing"] == ""
        assert "sandbox:x:20000:20000::/workspace:/bin/sh\n" in texts["passwd"]
        assert etc_files(client, "sha256:" + "0" * 64, ("passwd",)) is None


def test_without_a_size_there_is_none(host: EngineHost) -> None:
    uid = host.new_uid()
    ok(host.engine.act(host.create(uid)))
    assert host.only(uid).storage_bytes == 0
