"""Facts for `paddock doctor`, from artificial files, real folders and the engine."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.observe.doctor import (
    group_exists,
    mount_of,
    read_engine_facts,
    read_folder_facts,
    read_kernel_facts,
    read_socket_facts,
)
from controller.kinds.runtime.network import FirewallState
from tests.conftest import HandClock

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class Unguarded:
    def guard(self) -> FirewallState:
        return FirewallState("no table", lost=True)

    def generation(self) -> int | None:
        return None


class WallClock:
    def now(self) -> float:
        return time.time()


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 8:2 / /var/lib rw,relatime - xfs /dev/sdb1 rw,attr2,prjquota
31 22 8:3 / /var/lib/dock rw - btrfs /dev/sdc1 rw
a line that is none
"""


def test_the_file_system_below_a_path(tmp_path: Path) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS)
    assert mount_of("/var/lib/docker", mountinfo=file) == ("xfs", ("rw", "attr2", "prjquota"))
    assert mount_of("/srv", mountinfo=file)[0] == "ext4"
    assert mount_of("/srv", mountinfo=tmp_path / "none") == ("", ())


def test_both_forms_of_cgroups(tmp_path: Path, clock: HandClock) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cgroups").write_text("#subsys_name hierarchy num_cgroups enabled\ncpu 1 2 1\nmemory 0 1 0\n")
    (tmp_path / "sys/class/net/docker0/bridge").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0").mkdir()
    kernel_facts = read_kernel_facts(
        clock, root_dir="", state_dir=tmp_path / "no/folder", firewall=Unguarded(), root=tmp_path
    )
    assert (kernel_facts.controllers, kernel_facts.bridges) == ({"cpu"}, ("docker0",))
    assert (kernel_facts.forwarding, kernel_facts.unguarded) == (None, "no table")
    assert kernel_facts.state_disk.total > 0  # of the nearest folder that is there
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu io memory pids\n")
    (tmp_path / "proc/sys/net/ipv4").mkdir(parents=True)
    (tmp_path / "proc/sys/net/ipv4/ip_forward").write_text("0\n")
    observed = read_kernel_facts(clock, root_dir="", state_dir=tmp_path, firewall=Unguarded(), root=tmp_path)
    assert (observed.controllers, observed.forwarding) == ({"cpu", "io", "memory", "pids"}, False)


def test_whose_a_socket_is(tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert read_socket_facts(str(path)).mode is None
    with socket.socket(socket.AF_UNIX) as created:
        created.bind(str(path))
        path.chmod(0o666)
        assert read_socket_facts(str(path)).mode == 0o666
    path.unlink()
    path.touch()
    assert read_socket_facts(str(path)).trouble == "it is not a socket"
    assert not group_exists("no-such-group-here")


def test_an_engine_that_is_not_there(tmp_path: Path, clock: HandClock) -> None:
    engine_facts = read_engine_facts(f"unix://{tmp_path}/none.sock", clock, timeout_seconds=2.0, local=True)
    assert "no Docker Engine answers" in engine_facts.trouble
    assert (
        "can't be used as the engine's address"
        in read_engine_facts("x:y", clock, timeout_seconds=2, local=True).trouble
    )


@pytest.mark.docker
def test_the_real_engine() -> None:
    engine_facts = read_engine_facts("unix:///var/run/docker.sock", WallClock(), timeout_seconds=30.0, local=True)
    assert (engine_facts.trouble, engine_facts.facts.engine_version != "") == ("", True)
    assert engine_facts.file_system
    assert engine_facts.runc_version[0].isdigit()
    dpkg = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "runc"], capture_output=True, text=True, check=False)
    assert engine_facts.runc_package == dpkg.stdout.strip()
    assert engine_facts.skew_seconds is not None
    assert abs(engine_facts.skew_seconds) < 5
    assert (
        "memory"
        in read_kernel_facts(WallClock(), root_dir=engine_facts.facts.root_dir, state_dir=Path("/")).controllers
    )


def mounts(of: Path) -> list[str]:
    """Return the mounts of that file system; other tests have others."""
    number = of.stat().st_dev
    listed = Path("/proc/self/mountinfo").read_text().splitlines()
    return [name for name in listed if name.split()[2] == f"{os.major(number)}:{os.minor(number)}"]


def test_facts_of_existing_and_missing_folders(tmp_path: Path) -> None:
    assert read_folder_facts(str(tmp_path / "none")).mode is None
    assert not read_folder_facts(str(tmp_path / "none")).trouble
    (tmp_path / "file").touch()
    assert read_folder_facts(str(tmp_path / "file")).trouble == "it is not a folder"
    tmp_path.chmod(0o750)
    folder_facts = read_folder_facts(str(tmp_path))
    assert (folder_facts.mode, folder_facts.roots, folder_facts.maps_ids) == (0o750, os.geteuid() == 0, None)
    assert folder_facts.owner
    assert folder_facts.file_system


def test_a_system_folder_is_found_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to("/etc")
    assert read_folder_facts(str(tmp_path / "mine")).hosts_own.startswith("is /etc under another name")
    assert read_folder_facts(str(tmp_path)).hosts_own == ""


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "place"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@root
def test_the_id_map_trial_leaves_nothing(tmpfs: Path) -> None:
    before = mounts(tmpfs)
    assert read_folder_facts(str(tmpfs), maps=True).file_system == "tmpfs"
    assert read_folder_facts("/proc/tty", maps=True).maps_ids is False  # procfs maps no ids
    assert isinstance(read_folder_facts(str(tmpfs), maps=True).maps_ids, bool)
    assert mounts(tmpfs) == before != []
