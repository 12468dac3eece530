"""Free resources of the host, with and without the kernel's files."""

from pathlib import Path

from controller.engine.usage.host import HostGauge
from controller.kinds.observed.pressure import Supply
from tests.conftest import HandClock


def test_this_machine(clock: HandClock, tmp_path: Path) -> None:
    found = HostGauge(clock).read(str(tmp_path))
    assert found.at == clock.now()
    assert 0 < found.memory.free <= found.memory.total
    assert 0 < found.disk.free <= found.disk.total
    assert found.inodes.free <= found.inodes.total
    assert 0 < found.pids.free < found.pids.total


def test_what_is_written_there(clock: HandClock, tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "meminfo").write_text(
        "MemTotal:  2000 kB\nMemFree:  1 kB\nMemAvailable:   500 kB\nHugePages_Total:  0\n"
    )
    (tmp_path / "loadavg").write_text("0.1 0.2 0.3 2/700 12345\n")
    (tmp_path / "sys/kernel/pid_max").write_text("4194304\n")
    (tmp_path / "sys/kernel/threads-max").write_text("1000\n")
    found = HostGauge(clock, proc=tmp_path).read("")
    assert (found.memory, found.pids) == (Supply(500 << 10, 2000 << 10), Supply(300, 1000))
    assert (found.disk, found.inodes) == (Supply(), Supply())


def test_what_can_not_be_read_is_left_out(clock: HandClock, tmp_path: Path) -> None:
    found = HostGauge(clock, proc=tmp_path).read(str(tmp_path / "gone"))
    assert {supply for _, supply in found.supplies()} == {Supply()}
