"""Mount points on this host, on the real kernel: when they are released. A plain listener replaces the engine."""

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from controller.engine.docker.client import Client
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.mounts.secrets import SecretFolder
from controller.kinds.planning.outcome import Ok
from controller.kinds.runtime.mount import BindMounts, Mount, Slot
from controller.ports import NullMeter
from tests.mounts import unmount_below

pytestmark = pytest.mark.docker  # it takes root, as the engine does
SLOTS = (Slot("/a"), Slot("/run/token", file=True))
MOUNTS = (Mount("/a", "memory", size_bytes=1 << 20), Mount("/run/token", "secret", "token", read_only=True))


class Ticks:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def mounts(tmp_path: Path, ticks: Ticks) -> Iterator[HostMounts]:
    (tmp_path / "secrets" / "default").mkdir(parents=True)
    (tmp_path / "secrets" / "default" / "token").write_text("s3cret")
    (tmp_path / "secrets" / "default" / "token").chmod(0o600)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "e.sock"))
        listening.listen(100)
        host_mounts = again(tmp_path, ticks)
        try:
            yield host_mounts
        finally:
            host_mounts.close()
            unmount_below(tmp_path)


def again(tmp_path: Path, ticks: Ticks) -> HostMounts:
    client = Client(f"unix://{tmp_path}/e.sock", meter=NullMeter(), timeout_seconds=5)
    secrets = SecretFolder(tmp_path / "secrets")
    return HostMounts("i", client, folder=tmp_path / "m", secrets=secrets, ticks=ticks)


def bind(uid: str = "u", *mounts: Mount) -> BindMounts:
    return BindMounts(uid, "box", "default", "img", "20000:20001", SLOTS, mounts, "a test")


def below(tmp_path: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(path for path in (line.split(" ")[4] for line in lines) if path.startswith(f"{tmp_path}/m/"))


def test_a_new_daemon_knows_existing_mounts(mounts: HostMounts, tmp_path: Path, ticks: Ticks) -> None:
    assert mounts.bind(bind("u", *MOUNTS)) == Ok()
    token, folder = tmp_path / "m" / "i" / "u" / "1", tmp_path / "m" / "i" / "u" / "0"
    assert (token.read_text(), token.stat().st_uid, token.stat().st_mode & 0o777) == ("s3cret", 20000, 0o400)
    assert (folder.stat().st_uid, folder.stat().st_gid) == (20000, 20001)
    with pytest.raises(OSError, match="Read-only"):
        token.write_text("other")
    next_one = again(tmp_path, ticks)
    assert next_one.bound("u") == mounts.bound("u")
    assert [bound_mount.origin != "" for bound_mount in mounts.bound("u")] == [True, True]
    next_one.close()


def test_old_records_get_their_identity(mounts: HostMounts, tmp_path: Path, ticks: Ticks) -> None:
    mounts.bind(bind("u", *MOUNTS))
    notes = tmp_path / "m" / "i" / "u" / "bound.json"
    older = [
        {name: value for name, value in entry.items() if name != "identity"} for entry in json.loads(notes.read_text())
    ]
    notes.write_text(json.dumps(older))
    next_one = again(tmp_path, ticks)
    assert next_one.bound("u") == mounts.bound("u")
    assert all(bound_mount.identity for bound_mount in next_one.bound("u"))
    next_one.close()


def test_in_memory_mounts_are_released_and_restored(mounts: HostMounts, tmp_path: Path, ticks: Ticks) -> None:
    mounts.bind(bind("u", *MOUNTS))
    token = tmp_path / "m" / "i" / "u" / "1"
    for alive in (["u"], [], []):  # it runs; it has ended; it may be started now
        mounts.sweep(["u"], alive)
        assert (token.read_text(), len(mounts.bound("u"))) == ("s3cret", 2)
        ticks.now += 50
    ticks.now += 20
    mounts.sweep(["u"], [])
    assert (token.read_text(), mounts.bound("u")) == ("", ())
    assert len(below(tmp_path)) == 2 + 1, "its places are there still"
    mounts.bind(bind("u", *MOUNTS))
    mounts.sweep(["u"], [])
    assert token.read_text() == "s3cret"


def test_stray_mounts_are_released_after_a_while(mounts: HostMounts, tmp_path: Path, ticks: Ticks) -> None:
    mounts.bind(bind("u", *MOUNTS))
    mounts.bind(bind("v"))
    mounts.sweep(["v"], ["v"])
    ticks.now += 301
    mounts.sweep(["v"], ["v"])
    assert (mounts.bound("u"), os.listdir(tmp_path / "m" / "i")) == ((), ["v"])
    mounts.release("v")
    mounts.release("v")
    assert (below(tmp_path), os.listdir(tmp_path / "m")) == ([], [])


def test_concurrent_sweeps_and_binds_do_not_deadlock(mounts: HostMounts, tmp_path: Path, ticks: Ticks) -> None:
    """As in a daemon's first second: what was bound before is read while the first binds come in."""
    mounts.bind(bind("before", *MOUNTS))
    for _ in range(5):
        young = again(tmp_path, ticks)
        with ThreadPoolExecutor(8) as threads:
            binds = [threads.submit(young.bind, bind(f"u{number}", *MOUNTS)) for number in range(4)]
            looks = [threads.submit(young.bound, "before") for _ in range(20)]
            sweeps = [threads.submit(young.sweep, [], []) for _ in range(4)]
            assert [entry.result(60) for entry in binds] == [Ok()] * 4
            assert all(len(future.result(60)) == 2 for future in looks)
            assert [sweep.result(60) for sweep in sweeps] == [None] * 4
        young.close()
    assert {len(again(tmp_path, ticks).bound(f"u{number}")) for number in range(4)} == {2}
