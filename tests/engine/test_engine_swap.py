"""Active swap and the move of memory to it, on made-up trees: devices of every kind, and cgroup v2."""

from pathlib import Path

import pytest

from controller.engine.kernel.cgroups import Cgroups
from controller.engine.kernel.page_out import allow_no_swap, page_out, read_frozen_memory
from controller.engine.usage.swap import SwapGauge
from controller.kinds.observed.observed import FrozenMemory

HEAD = "Filename\tType\tSize\tUsed\tPriority\n"
ID, PID = "c0ffee" + "0" * 58, 42


def host(root: Path, *devices: str) -> SwapGauge:
    (root / "proc").mkdir(parents=True)
    (root / "proc/swaps").write_text(HEAD + "".join(f"{device} partition 1048576 1024 -2\n" for device in devices))
    memory = root / "sys/fs/cgroup/memory"
    memory.mkdir(parents=True)
    (memory / "memory.memsw.limit_in_bytes").touch()
    return SwapGauge(root)


def block(root: Path, name: str, **files: str) -> Path:
    folder = root / "sys/class/block" / name
    folder.mkdir(parents=True)
    for path, text in files.items():
        (folder / path.replace("__", "/")).parent.mkdir(exist_ok=True)
        (folder / path.replace("__", "/")).write_text(text)
    return folder


def kinds(gauge: SwapGauge) -> list[str]:
    return [device.kind for device in gauge.read().devices]


def test_zram_is_memory_unless_a_disk_is_behind_it(tmp_path: Path) -> None:
    gauge = host(tmp_path, "/dev/zram0", "/dev/zram1", "/dev/zram2")
    block(tmp_path, "zram0")
    block(tmp_path, "zram1", backing_dev="none\n")
    block(tmp_path, "zram2", backing_dev="/dev/sda3\n")
    assert kinds(gauge) == ["Memory", "Memory", "Plain"]
    first = gauge.read().devices[0]
    assert (first.size_bytes, first.used_bytes) == (1 << 30, 1 << 20)


def test_encrypted_only_if_all_below_it_is(tmp_path: Path) -> None:
    gauge = host(tmp_path, "/dev/dm-0", "/dev/dm-1", "/dev/dm-2", "/dev/sda2")
    block(tmp_path, "dm-0", dm__uuid="CRYPT-LUKS2-1234-swap\n")
    (block(tmp_path, "dm-1", dm__uuid="LVM-1\n") / "slaves/dm-0").mkdir(parents=True)
    (block(tmp_path, "dm-2", dm__uuid="LVM-2\n") / "slaves/dm-0").mkdir(parents=True)
    (tmp_path / "sys/class/block/dm-2/slaves/sda3").mkdir()
    assert kinds(gauge) == ["Encrypted", "Encrypted", "Plain", "Plain"]


def test_no_swap_and_no_memory_controller(tmp_path: Path) -> None:
    assert host(tmp_path / "a").read().devices == ()
    (tmp_path / "b/proc").mkdir(parents=True)
    (tmp_path / "b/proc/swaps").write_text(HEAD)
    assert "no memory cgroup" in SwapGauge(tmp_path / "b").read().trouble
    assert "can't be read" in SwapGauge(tmp_path / "c").read().trouble


@pytest.mark.parametrize(
    ("files", "trouble"),
    [
        (("memory.max", "memory.swap.max", "memory.reclaim"), ""),
        (("memory.max", "memory.swap.max"), "Linux 5.19"),
        (("memory.max",), "swapaccount=1"),
        ((), "not in use"),
    ],
)
def test_what_cgroup_v2_lacks(tmp_path: Path, files: tuple[str, ...], trouble: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/swaps").write_text(HEAD)
    group = tmp_path / "sys/fs/cgroup/system.slice"
    group.mkdir(parents=True)
    (group.parent / "cgroup.controllers").write_text("memory\n")
    for file in files:
        (group / file).touch()
    text = SwapGauge(tmp_path).read().trouble
    assert trouble in text
    assert bool(text) == bool(trouble)


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """A container's cgroup on a host with v2 alone."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    folder = mount / f"docker/{ID}"
    folder.mkdir(parents=True)
    (proc / str(PID)).mkdir(parents=True)
    (proc / "self").mkdir()
    (proc / str(PID) / "cgroup").write_text(f"0::/docker/{ID}\n")
    (proc / "self/mountinfo").write_text(f"30 23 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")
    for name, text in (("current", "104857600"), ("swap.current", "52428800"), ("swap.max", "0"), ("reclaim", "")):
        (folder / f"memory.{name}").write_text(text)
    return folder


def test_v2_asks_for_all_and_allows_no_swap_again(group: Path, tmp_path: Path) -> None:
    cgroups = Cgroups(tmp_path / "proc")
    assert page_out(cgroups, ID, PID) == FrozenMemory(100 << 20, 50 << 20)
    assert (group / "memory.reclaim").read_text() == "104857600 swappiness=200"
    assert (group / "memory.swap.max").read_text() == "0"
    assert read_frozen_memory(cgroups, ID, PID) == FrozenMemory(100 << 20, 50 << 20)


def test_v2_closes_what_a_killed_daemon_left_open(group: Path, tmp_path: Path) -> None:
    (group / "memory.swap.max").write_text("max\n")
    allow_no_swap(Cgroups(tmp_path / "proc"), ID, PID)
    assert (group / "memory.swap.max").read_text() == "0"


def test_swap_is_allowed_no_more_if_reclaim_fails(group: Path, tmp_path: Path) -> None:
    (group / "memory.current").write_text("not a number")
    with pytest.raises(ValueError, match="invalid literal"):
        page_out(Cgroups(tmp_path / "proc"), ID, PID)
    assert (group / "memory.swap.max").read_text() == "0"


def test_unknown_memory_is_none(tmp_path: Path) -> None:
    assert read_frozen_memory(Cgroups(tmp_path), ID, PID) is None
    allow_no_swap(Cgroups(tmp_path), ID, PID)
