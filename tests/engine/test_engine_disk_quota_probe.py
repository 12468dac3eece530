"""Disk quota probe, on this host's engine and on one with quotas."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.engine.docker.client import Client
from controller.engine.docker.disk_quota_probe import DiskQuotaProbe
from controller.kinds.runtime.disk import DiskAbility
from controller.ports import NullMeter, Streams
from tests.contract.engine_hosts import DockerHand, docker_host, read_all
from tests.daemon import wait_for
from tests.lab.engine import PrivateEngine, private_engine
from tests.lab.hanging import frozen

pytestmark = pytest.mark.docker
MIB = 1 << 20


@contextmanager
def engine_with_quotas() -> Iterator[PrivateEngine]:
    """An engine whose data is on btrfs, and which uses its quotas."""
    folder = Path(tempfile.mkdtemp(prefix="pdk-"))
    disk = folder.with_suffix(".btrfs")
    with disk.open("wb") as file:
        file.truncate(512 * MIB)
    try:
        subprocess.run(["mkfs.btrfs", "-q", str(disk)], check=True)
        subprocess.run(["mount", "-o", "loop", str(disk), str(folder)], check=True)
        engine = PrivateEngine(folder, "--storage-driver", "btrfs")
        try:
            engine.start()
            engine.load("paddock/test-tiny:1")
            yield engine
        finally:
            engine.close()
            subprocess.run(["umount", str(folder)], check=True)
    finally:
        disk.unlink()
        shutil.rmtree(folder)


def tried(base_url: str, timeout_seconds: float = 60) -> DiskAbility:
    client = Client(base_url, meter=NullMeter(), timeout_seconds=timeout_seconds)
    try:
        disk = DiskQuotaProbe(client).with_disk(client.probe()).disk
    finally:
        client.close()
    assert disk is not None
    return disk


def test_the_probe_reports_and_leaves_nothing() -> None:
    with private_engine(images=()) as private:  # on the host's, others try it at the same time
        assert tried(private.base_url).message
        assert private.docker("images", "-aq") == private.docker("ps", "-aq") == ""


def test_a_hanging_foreign_container_does_not_block_the_probe() -> None:
    """The engine asks every container before it removes an image, and hangs with that one."""
    with private_engine() as private:
        output = private.docker("images", "-aq")
        command = ["sleep", "1000000"]
        private.docker("run", "-d", "--name", "other", "--network", "none", "paddock/test-tiny:1", *command)
        with frozen(private, "other"):
            assert "the probe failed" not in tried(private.base_url, timeout_seconds=10).message
        wait_for("the engine has removed the image", lambda: private.docker("images", "-aq") == output)


@pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="needs btrfs-progs")
def test_btrfs_enforces_the_disk_limit() -> None:
    with engine_with_quotas() as private:
        disk_ability = tried(private.base_url)
        assert disk_ability.enforced, disk_ability.message
        hand = DockerHand(private.base_url)
        with docker_host(private.base_url, hand=hand) as host:
            host.until(lambda: host.engine.observe().facts.disk == disk_ability)
            sandbox = host.running(host.new_uid(), read_only_root=False, user="0:0", storage_bytes=32 * MIB)
            assert sandbox.storage_bytes > 32 * MIB  # its image counts, too
            assert write(host.streams, sandbox.id, 16) == b"0"
            assert write(host.streams, sandbox.id, 64) != b"0"


def write(streams: Streams, sandbox: str, mib: int) -> bytes:
    """Write so much to the sandbox's root file system; return the exit code."""
    command = ["sh", "-c", f"dd if=/dev/zero of=/file bs=1048576 count={mib} && sync"]
    return read_all(streams.exec(sandbox, command))[2]
