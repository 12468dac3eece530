"""Usage and limits from artificial cgroup trees: v1, v2 and hybrid hosts."""

import itertools
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from controller.engine.docker.client import Client
from controller.engine.docker.networks import Networks
from controller.engine.docker.view import View
from controller.engine.kernel.cgroups import Cgroups, OutsideCgroup, Unreadable, own_path, parse_mounts, read_open
from controller.engine.observe.observer import Observer
from controller.engine.usage.cgroup import CgroupUsage
from controller.engine.usage.limits import Reading, in_force, read_limits, shares_of_weight, weights_of_shares
from controller.engine.usage.memory import working_set_bytes
from controller.engine.usage.network import parse_net_dev
from controller.kinds.common import labels as own
from controller.kinds.observed.observed import Container, HostFacts, State
from controller.kinds.observed.usage import NetworkUsage, Usage
from controller.kinds.runtime.container import Limits
from controller.ports import NullMeter
from tests.conftest import HandClock

ID = "c0ffee" + "0" * 58
PID = (1 << 22) + 42  # which no kernel gives to a process of its own

NET_DEV = """Inter-|   Receive                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:     999      99    9    9    0     0          0         0     999      99    9    9    0     0       0        0
  eth0:    1000      10    1    2    0     0          0         0    2000      20    3    4    0     0       0        0
  eth1:       1       1    1    1    0     0          0         0       1       1    1    1    0     0       0        0
"""
V1 = {
    "cpu": {
        "cpu.cfs_quota_us": "50000",
        "cpu.cfs_period_us": "100000",
        "cpu.shares": "512",
        "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 1500000000",
    },
    "cpuacct": {"cpuacct.usage": "2500000000", "cpuacct.stat": "user 150\nsystem 50"},
    "memory": {
        "memory.usage_in_bytes": "9000000",
        "memory.max_usage_in_bytes": "9500000",
        "memory.limit_in_bytes": "33554432",
        "memory.memsw.limit_in_bytes": "33554432",
        "memory.failcnt": "3",
        "memory.memsw.failcnt": "2",
        "memory.kmem.usage_in_bytes": "700000",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1",
        "memory.stat": "cache 1\ntotal_cache 4000000\ntotal_rss 5000000\ntotal_swap 10\n"
        "total_pgmajfault 6\ntotal_inactive_file 3000000",
    },
    "blkio": {
        "blkio.throttle.io_service_bytes_recursive": "8:0 Read 100\n8:0 Write 200\n8:0 Total 300\n"
        "9:0 Read 1\n9:0 Write 2\nTotal 303",
        "blkio.throttle.io_serviced_recursive": "8:0 Read 10\n8:0 Write 20\nTotal 30",
    },
    "pids": {"pids.current": "5", "pids.max": "64", "pids.events": "max 2"},
}
V2 = {
    "cpu.max": "50000 100000",
    "cpu.weight": "100",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1500000\nsystem_usec 500000\n"
    "nr_periods 10\nnr_throttled 4\nthrottled_usec 1500000",
    "memory.current": "9000000",
    "memory.peak": "9500000",
    "memory.max": "33554432",
    "memory.swap.current": "10",
    "memory.swap.max": "0",
    "memory.events": "low 0\nhigh 0\nmax 5\noom 1\noom_kill 1",
    "memory.stat": "anon 5000000\nfile 4000000\nkernel 700000\npgmajfault 6\ninactive_file 3000000",
    "io.stat": "8:0 rbytes=100 wbytes=200 rios=10 wios=20 dbytes=0 dios=0\n9:0 rbytes=1 wbytes=2 rios=0 wios=0",
    "pids.current": "5",
    "pids.peak": "9",
    "pids.max": "64",
    "pids.events": "max 2",
}
EXPECTED = {
    "cpu_usage_seconds": 2.5,
    "cpu_user_seconds": 1.5,
    "cpu_system_seconds": 0.5,
    "cpu_periods": 10,
    "cpu_throttled_periods": 4,
    "cpu_throttled_seconds": 1.5,
    "cpu_limit_cores": 0.5,
    "memory_usage_bytes": 9_000_000,
    "memory_working_set_bytes": 6_000_000,
    "memory_rss_bytes": 5_000_000,
    "memory_cache_bytes": 4_000_000,
    "memory_kernel_bytes": 700_000,
    "memory_swap_bytes": 10,
    "memory_peak_bytes": 9_500_000,
    "memory_major_faults": 6,
    "memory_limit_hits": 5,
    "memory_limit_bytes": 33_554_432,
    "memory_swap_limit_bytes": 0,
    "oom_kills": 1,
    "pids": 5,
    "pids_limit": 64,
    "pids_limit_hits": 2,
    "fs_read_bytes": 101,
    "fs_write_bytes": 202,
    "fs_reads": 10,
    "fs_writes": 20,
}


class Host:
    """A made-up /proc and /sys/fs/cgroup with one container in it."""

    def __init__(self, folder: Path, *, v1: tuple[str, ...], v2: bool, group: str = f"/docker/{ID}") -> None:
        self.proc, self.sys, self._group = folder / "proc", folder / "sys fs", group
        self._v1 = v1
        self._v2 = v2
        self._numbers = itertools.count(30)
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "mountinfo").write_text("".join(self._mountinfo()))
        self.process(PID, group)
        for entry in v1:
            self.fill(entry, V1.get(entry, {}))
        if v2:
            self.fill("unified", {name: text for name, text in V2.items() if self._v2_has(name)})

    def _v2_has(self, name: str) -> bool:
        """A controller is in one version at a time."""
        controller = {"io": "blkio"}.get(name.split(".", maxsplit=1)[0], name.split(".", maxsplit=1)[0])
        return controller not in self._v1

    def _mountinfo(self) -> list[str]:
        lines = ["22 27 0:21 / /proc rw,relatime - proc proc rw\n"]
        for name in self._v1:
            point = str(self.sys / name).replace(" ", "\\040")
            lines.append(f"{next(self._numbers)} 31 0:29 / {point} rw shared:9 - cgroup cgroup rw,{name}\n")
        if self._v2:
            point = str(self.sys / "unified").replace(" ", "\\040")
            lines.append(f"{next(self._numbers)} 31 0:38 / {point} rw - cgroup2 cgroup2 rw,nsdelegate\n")
        return lines

    def folder(self, hierarchy: str) -> Path:
        return self.sys / hierarchy / self._group.lstrip("/")

    def fill(self, hierarchy: str, files: dict[str, str]) -> None:
        self.folder(hierarchy).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.folder(hierarchy) / name).write_text(text + "\n")

    def process(self, pid: int, group: str) -> None:
        """A process in that cgroup."""
        (self.proc / str(pid) / "net").mkdir(parents=True, exist_ok=True)
        (self.proc / str(pid) / "net" / "dev").write_text(NET_DEV)
        rows = [f"{number}:{name}:{group}\n" for number, name in enumerate(self._v1, 1)]
        (self.proc / str(pid) / "cgroup").write_text("".join(rows) + (f"0::{group}\n" if self._v2 else ""))

    def status(self, pid: int, state: str, inside: str, flags: int = 0x400000) -> None:
        """Its state, and its pid inside."""
        (self.proc / str(pid) / "stat").write_text(f"{pid} (a) b) {state[:1]} 1 {pid} {pid} 0 -1 {flags} 0 0\n")
        (self.proc / str(pid) / "status").write_text(f"Name:\tsh\nState:\t{state}\nNSpid:\t{pid}\t{inside}\n")

    @property
    def cgroups(self) -> Cgroups:
        return Cgroups(self.proc)


ALL_V1 = ("cpu", "cpuacct", "memory", "blkio", "pids", "freezer")


@pytest.fixture
def v1(tmp_path: Path) -> Host:
    return Host(tmp_path, v1=ALL_V1, v2=False)


@pytest.fixture
def v2(tmp_path: Path) -> Host:
    return Host(tmp_path, v1=(), v2=True, group=f"/system.slice/docker-{ID}.scope")


def new_container(**changes: object) -> Container:
    values = {"state": State.RUNNING, "pid": PID, "started_at": 1.0, "networks": ("bridge",), **changes}
    return Container(id=ID, name="pdk-a", uid="u1", **values)  # type: ignore[arg-type]


def read(host: Host, container: Container) -> Usage | None:
    reader = CgroupUsage(host.cgroups)
    try:
        return reader.read([container]).get(ID)
    finally:
        reader.close()


def shown(usage: Usage | None) -> dict[str, object]:
    assert usage is not None
    return {name: getattr(usage, name) for name in EXPECTED}


def open_handles() -> int:
    return len(os.listdir("/proc/self/fd"))


# Usage


def test_version_1(v1: Host) -> None:
    usage = read(v1, new_container())
    assert shown(usage) == EXPECTED
    assert usage is not None
    assert (usage.source, usage.pids_peak) == ("cgroup1", None)


def test_version_2(v2: Host) -> None:
    usage = read(v2, new_container())
    assert shown(usage) == EXPECTED
    assert usage is not None
    assert (usage.source, usage.pids_peak) == ("cgroup2", 9)


def test_hybrid_host_with_empty_unified_tree_is_v1(tmp_path: Path) -> None:
    host = Host(tmp_path, v1=ALL_V1, v2=True)
    assert shown(read(host, new_container())) == EXPECTED


def test_hybrid_host_with_controllers_in_both_versions(tmp_path: Path) -> None:
    host = Host(tmp_path, v1=("cpu", "cpuacct", "blkio"), v2=True)
    usage = read(host, new_container())
    assert shown(usage) == EXPECTED
    assert usage is not None
    assert usage.source == "cgroup2"


def test_no_limits_are_none(v1: Host, tmp_path: Path) -> None:
    v1.fill("cpu", {"cpu.cfs_quota_us": "-1"})
    v1.fill("memory", {"memory.limit_in_bytes": "9223372036854771712"})
    v1.fill("pids", {"pids.max": "max"})
    usage = read(v1, new_container())
    assert usage is not None
    assert (usage.cpu_limit_cores, usage.memory_limit_bytes, usage.pids_limit) == (None, None, None)
    assert (usage.cpu_periods, usage.memory_swap_limit_bytes) == (None, None)


def test_files_that_not_every_kernel_has_are_none(v2: Host) -> None:
    for name in ("memory.peak", "memory.swap.current", "memory.swap.max", "pids.peak", "pids.events", "io.stat"):
        (v2.folder("unified") / name).unlink()
    usage = read(v2, new_container())
    assert usage is not None
    assert (usage.memory_peak_bytes, usage.memory_swap_bytes, usage.pids_peak, usage.fs_reads) == (None,) * 4


def test_one_unreadable_file_drops_the_container_whole(v2: Host) -> None:
    (v2.folder("unified") / "memory.current").unlink()
    assert read(v2, new_container()) is None


def test_working_set_is_never_below_zero(v1: Host) -> None:
    v1.fill("memory", {"memory.usage_in_bytes": "1000"})
    usage = read(v1, new_container())
    assert usage is not None
    assert usage.memory_working_set_bytes == 0
    assert working_set_bytes(v1.cgroups, ID, PID) == 0


def test_the_network_is_summed_without_lo(v1: Host) -> None:
    usage = read(v1, new_container())
    assert usage is not None
    assert usage.network == NetworkUsage(1001, 2001, 11, 21, 2, 4, 3, 5)
    assert parse_net_dev("") == NetworkUsage(0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("networks", [("none",), ("host",), ()])
def test_no_network_usage_without_an_own_network(v1: Host, networks: tuple[str, ...]) -> None:
    usage = read(v1, new_container(networks=networks))
    assert usage is not None
    assert usage.network is None


@pytest.mark.parametrize("state", [State.EXITED, State.CREATED, State.UNKNOWN, State.DEAD])
def test_what_does_not_run_has_no_figures(v1: Host, state: State) -> None:
    assert read(v1, new_container(state=state)) is None


def test_a_reused_pid_is_detected(v1: Host) -> None:
    v1.process(PID, f"/docker/{'f' * 64}")
    assert read(v1, new_container()) is None
    v1.process(PID, "/")
    assert read(v1, new_container()) is None
    with pytest.raises(Unreadable):
        working_set_bytes(v1.cgroups, ID, PID)


def test_a_sandboxs_sub_cgroup_belongs_to_it(v2: Host) -> None:
    v2.process(PID, f"/system.slice/docker-{ID}.scope/init.scope")
    assert shown(read(v2, new_container())) == EXPECTED
    assert own_path(f"/a/docker-{ID}.scope/b/c", ID) == f"/a/docker-{ID}.scope"
    assert own_path("/a/b", ID) is None
    assert own_path("/a/b", "") is None


def test_a_hierarchy_mounted_from_below_its_root() -> None:
    (mount,) = parse_mounts("31 23 0:28 /lxc/box /sys/fs/cgroup rw - cgroup2 none rw\n")
    assert (mount.root, mount.point, mount.version) == ("/lxc/box", "/sys/fs/cgroup", 2)


def test_controllers_mounted_together() -> None:
    (mount,) = parse_mounts("31 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw master:3 - cgroup cgroup rw,cpu,cpuacct\n")
    assert mount.controllers >= {"cpu", "cpuacct"}


def test_folders_of_removed_containers_are_dropped(v2: Host) -> None:
    cgroups, text = v2.cgroups, (v2.proc / str(PID) / "cgroup").read_text()
    folders = cgroups.folders(text, ID)
    cgroups.keep_only({ID})
    assert cgroups.folders(text, ID) is folders
    cgroups.keep_only(())
    assert cgroups.folders(text, ID) is not folders


def test_a_large_cgroup_file_is_read_completely(tmp_path: Path) -> None:
    text = "".join(f"8:{number} rbytes=1 wbytes=2\n" for number in range(10_000))
    (tmp_path / "io.stat").write_text(text)
    with (tmp_path / "io.stat").open("rb") as file:
        assert [read_open(file.fileno()) for _ in range(2)] == [text.encode()] * 2


def test_mounts_that_come_later_are_found(v2: Host) -> None:
    mountinfo = v2.proc / "self" / "mountinfo"
    text = mountinfo.read_text()
    mountinfo.write_text(text.replace("unified", "elsewhere"))
    reader = CgroupUsage(v2.cgroups)
    assert reader.read([new_container()]) == {}
    mountinfo.write_text(text)
    assert set(reader.read([new_container()])) == {ID}
    reader.close()


def test_folders_are_held_and_let_go(v1: Host) -> None:
    before = open_handles()
    reader = CgroupUsage(v1.cgroups)
    reader.read([new_container()])
    handles = open_handles()
    assert handles > before
    reader.read([new_container()])
    assert open_handles() == handles
    reader.read([new_container(started_at=2.0)])
    assert open_handles() == handles, "those of the run before are let go"
    reader.read([])
    assert open_handles() == before
    reader.read([new_container()])
    reader.close()
    assert open_handles() == before


def test_at_most_half_of_few_descriptors_are_held(v1: Host) -> None:
    """The first containers' are, those of the others are opened for each reading; all are read alike."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sandboxes = [new_container(started_at=float(number)) for number in range(20)]  # as many runs of it
    before = open_handles()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(256, before + 128), hard))
    try:
        reader = CgroupUsage(v1.cgroups)
        for _ in range(2):
            observed = [reader.read(sandboxes)[ID]]
            handles = open_handles() - before
            assert 52 <= handles <= max(256, before + 128) / 2
        assert [shown(entry) for entry in observed] == [EXPECTED]
        reader.close()
        assert open_handles() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_reader_that_holds_nothing_reads_the_same(v1: Host) -> None:
    before, reader = open_handles(), CgroupUsage(v1.cgroups, hold=False)
    assert shown(reader.read([new_container()])[ID]) == EXPECTED
    assert open_handles() == before
    v1.fill("pids", {"pids.current": "6"})
    assert reader.read([new_container()])[ID].pids == 6


def test_held_files_show_what_changes_in_them(v1: Host) -> None:
    """New figures of all lengths, and a limit that is set after the first reading."""
    v1.fill("cpu", {"cpu.cfs_quota_us": "-1"})
    reader = CgroupUsage(v1.cgroups)
    assert reader.read([new_container()])[ID].cpu_limit_cores is None
    v1.fill("cpu", {"cpu.cfs_quota_us": "150000"})
    v1.fill("memory", {"memory.usage_in_bytes": "12000000", "memory.failcnt": "0"})
    observed = reader.read([new_container()])[ID]
    assert (observed.cpu_limit_cores, observed.cpu_periods, observed.memory_usage_bytes) == (1.5, 10, 12_000_000)
    assert observed.memory_limit_hits == 2
    reader.close()


def test_a_held_file_that_fails_is_opened_anew(v2: Host) -> None:
    """As where the system has made the cgroup anew for the same run; one reading that fails after that is left out."""
    before, reader = open_handles(), CgroupUsage(v2.cgroups)
    reader.read([new_container()])
    handles = open_handles()
    v2.fill("unified", {"memory.current": "gone"})
    assert reader.read([new_container()]) == {}
    assert open_handles() == before
    (v2.folder("unified") / "memory.current").unlink()
    v2.fill("unified", {"memory.current": "9000000"})
    assert shown(reader.read([new_container()])[ID]) == EXPECTED
    assert open_handles() == handles
    reader.close()


def test_nothing_is_left_open_when_reading_fails(v1: Host) -> None:
    before = open_handles()
    (v1.folder("pids") / "pids.current").unlink()
    assert read(v1, new_container()) is None
    shutil.rmtree(v1.folder("memory"))
    assert read(v1, new_container()) is None
    assert open_handles() == before


# Limits


def test_limits_in_force_in_version_1(v1: Host) -> None:
    assert read_limits(v1.cgroups, ID, PID) == Reading(33_554_432, 64, 50_000, 100_000, 512, 1, 0)


def test_limits_in_force_in_version_2(v2: Host) -> None:
    assert read_limits(v2.cgroups, ID, PID) == Reading(33_554_432, 64, 50_000, 100_000, 100, 2, 0)


def test_limits_of_another_process_are_not_read(v2: Host) -> None:
    v2.process(PID, "/user.slice")
    with pytest.raises(Unreadable):
        read_limits(v2.cgroups, ID, PID)
    with pytest.raises(Unreadable):
        read_limits(v2.cgroups, ID, 1)


HYBRID = ("cpu", "cpuacct", "blkio")


@pytest.mark.parametrize(("v1", "v2"), [(ALL_V1, False), ((), True), (HYBRID, True)], ids=["v1", "v2", "hybrid"])
@pytest.mark.parametrize("group", ["/", "/user.slice/shell.scope"])
def test_a_process_moved_out_of_its_cgroup_has_no_limits(
    tmp_path: Path, v1: tuple[str, ...], v2: bool, group: str
) -> None:
    host = Host(tmp_path, v1=v1, v2=v2)
    read_limits(host.cgroups, ID, PID)
    host.process(PID, group)
    host.status(PID, "S (sleeping)", "1")
    with pytest.raises(OutsideCgroup):
        read_limits(host.cgroups, ID, PID)


def test_out_of_one_cgroup_alone_is_out_of_its_limits(v1: Host) -> None:
    paths = v1.proc / str(PID) / "cgroup"
    paths.write_text(paths.read_text().replace(f":memory:/docker/{ID}", ":memory:/"))
    v1.status(PID, "S (sleeping)", "1")
    with pytest.raises(OutsideCgroup):
        read_limits(v1.cgroups, ID, PID)


def test_a_controller_that_the_kernel_lacks_is_not_left(tmp_path: Path) -> None:
    host = Host(tmp_path, v1=("cpu", "pids"), v2=True)
    paths = host.proc / str(PID) / "cgroup"
    paths.write_text(paths.read_text().replace(f"0::/docker/{ID}", "0::/system.slice/containerd.service"))
    host.status(PID, "S (sleeping)", "1")
    with pytest.raises(Unreadable) as raised:
        read_limits(host.cgroups, ID, PID)
    assert type(raised.value) is Unreadable


class OneContainer(Client):
    """An engine with one container, whose PID 1 it says to be PID."""

    def inspect(self, _reference: str, *, timeout_seconds: float) -> dict[str, Any]:
        assert timeout_seconds
        labels = {own.INSTANCE: "i", own.UID: "u"}
        return {"Id": ID, "State": {"Status": "running", "Pid": PID}, "Config": {"Labels": labels}}


@pytest.mark.parametrize(
    ("base_url", "driver", "is_lost"),
    [
        ("unix:///run/docker.sock", "systemd", True),
        ("tcp://192.0.2.1:2376", "systemd", False),
        ("unix:///run/user/1000/docker.sock", "none", False),
    ],
    ids=["here", "of another host", "rootless"],
)
def test_only_cgroups_of_this_hosts_engine_are_lost(v2: Host, base_url: str, driver: str, is_lost: bool) -> None:
    v2.process(PID, "/docker/another")
    v2.status(PID, "S (sleeping)", "1")
    view = View(HandClock())
    view.facts(HostFacts(cgroup_driver=driver))
    client = OneContainer(base_url, meter=NullMeter(), timeout_seconds=1.0)
    networks = Networks("i", client, view)
    observer = Observer("i", client, view, v2.cgroups, networks, lambda: None)
    try:
        assert observer.read(ID).container.cgroups_lost is is_lost
    finally:
        observer.close()


@pytest.mark.parametrize(("state", "inside"), [("Z (zombie)", "1"), ("S (sleeping)", "17"), ("S (sleeping)", "")])
def test_an_ended_or_a_strange_process_proves_no_loss(v2: Host, state: str, inside: str) -> None:
    v2.process(PID, "/")
    v2.status(PID, state, inside)
    with pytest.raises(Unreadable) as raised:
        read_limits(v2.cgroups, ID, PID)
    assert type(raised.value) is Unreadable


def test_a_process_that_begins_to_end_proves_no_loss(v1: Host) -> None:
    v1.process(PID, "/")  # where the kernel shows an ending one, in whatever state
    v1.status(PID, "S (sleeping)", "1", flags=0x400004)
    with pytest.raises(Unreadable) as raised:
        read_limits(v1.cgroups, ID, PID)
    assert type(raised.value) is Unreadable


def test_limits_that_are_only_unreadable_are_not_lost(v2: Host) -> None:
    (v2.folder("unified") / "memory.max").unlink()
    v2.status(PID, "S (sleeping)", "1")
    with pytest.raises(Unreadable) as raised:
        read_limits(v2.cgroups, ID, PID)
    assert type(raised.value) is Unreadable


def test_rounding_is_no_drift_and_anything_else_is() -> None:
    configured = Limits(500, 33_554_437, 64)
    reading = Reading(33_554_432, 64, 50_000, 100_000, 1024, 1)
    assert in_force(configured, reading) == configured
    assert in_force(Limits(500, 64 << 20, 64), reading).memory_bytes == 33_554_432
    assert in_force(Limits(500, 33_554_432, 64, cpu_shares=2048), reading).cpu_shares == 1024
    unlimited = Reading(None, None, None, 100_000, 1024, 1)
    assert in_force(configured, unlimited) == Limits(0, 0, 0)


@pytest.mark.parametrize("shares", [2, 100, 256, 512, 1024, 2048, 262_144])
def test_v2_weights_convert_back_to_shares(shares: int) -> None:
    for weight in weights_of_shares(shares):
        reading = Reading(1 << 25, 64, 50_000, 100_000, weight, 2)
        assert in_force(Limits(500, 1 << 25, 64, cpu_shares=shares), reading).cpu_shares == shares


def test_weights_at_the_ends() -> None:
    assert {1} <= weights_of_shares(2)
    assert {10_000} <= weights_of_shares(262_144)
    assert 100 in weights_of_shares(1024)
    assert (shares_of_weight(1), shares_of_weight(10_000)) == (2, 262_144)


def test_a_default_weight_is_no_shares_at_all() -> None:
    reading = Reading(1 << 25, 64, 50_000, 100_000, 100, 2)
    assert in_force(Limits(500, 1 << 25, 64), reading).cpu_shares == 0
