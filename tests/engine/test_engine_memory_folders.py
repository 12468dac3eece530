"""In-memory folders are measured from the host, whatever the sandbox does to their paths."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.engine.usage.memory_folders import read_memory_folders
from controller.kinds.observed.observed import Container
from controller.kinds.runtime.container import Tmpfs
from tests.contract.engine_hosts import EngineHost, docker_host
from tests.daemon import docker

pytestmark = pytest.mark.docker
MIB = 1 << 20
TMP, DATA = "/tmp", "/tmp/inner/data"


@pytest.fixture(scope="module")
def host() -> Iterator[EngineHost]:
    with docker_host() as created:
        yield created.settled()


@pytest.fixture
def sandbox(host: EngineHost) -> Container:
    return host.running(host.new_uid(), tmpfs=(Tmpfs(TMP, 4 * MIB), Tmpfs(DATA, 8 * MIB)))


def shares(sandbox: Container) -> dict[str, int]:
    """Return the used MiB of the folders of this test."""
    document = {memory_folder.path: memory_folder for memory_folder in read_memory_folders(sandbox)}
    assert (document[TMP].size_bytes, document["/dev/shm"].size_bytes > 0) == (4 * MIB, True)
    return {path: folder_use.used_bytes // MIB for path, folder_use in document.items() if path.startswith(TMP)}


def test_used_bytes_are_those_of_each_folder(sandbox: Container) -> None:
    assert shares(sandbox) == {TMP: 0, DATA: 0}
    docker("exec", sandbox.id, "dd", "if=/dev/zero", f"of={DATA}/x", "bs=1048576", "count=3")
    docker("exec", sandbox.id, "sh", "-c", f"cat /dev/zero > {TMP}/y", check=False)
    assert shares(sandbox) == {TMP: 4, DATA: 3}
    full = {memory_folder.path for memory_folder in read_memory_folders(sandbox) if memory_folder.share >= 0.9}
    assert full == {TMP}


def test_link_in_the_way_of_a_folder_leads_nowhere_else(sandbox: Container) -> None:
    docker("exec", "-u", "0", sandbox.id, "sh", "-c", f"mv {TMP}/inner {TMP}/moved; ln -s / {TMP}/inner")
    assert shares(sandbox) == {TMP: 0, "/tmp/moved/data": 0}


def test_process_that_is_gone_has_no_folders(sandbox: Container) -> None:
    assert read_memory_folders(replace(sandbox, pid=1)) == ()
    assert read_memory_folders(replace(sandbox, id="f" * 64)) == ()
    docker("kill", sandbox.id)
    assert read_memory_folders(sandbox) == ()
