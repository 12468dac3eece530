"""Free resources of the host, with and without the kernel's files."""

import os
from pathlib import Path

from controller.engine.usage.host import HostGauge
from controller.kinds.observed.pressure import Supply
from tests.conftest import HandClock


def test_this_machine(clock: HandClock, tmp_path: Path) -> None:
    host_use = HostGauge(clock).read(str(tmp_path))
    assert host_use.at == clock.now()
    assert 0 < host_use.memory.free <= host_use.memory.total
    assert 0 < host_use.disk.free <= host_use.disk.total
    assert host_use.inodes.free <= host_use.inodes.total
    assert 0 < host_use.pids.free < host_use.pids.total


def test_what_is_written_there(clock: HandClock, tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "meminfo").write_text(
        "MemTotal:  2000 kB\nMemFree:  1 kB\nMemAvailable:   500 kB\nHugePages_Total:  0\n"
    )
    (tmp_path / "loadavg").write_text("0.1 0.2 0.3 2/700 12345\n")
    (tmp_path / "sys/kernel/pid_max").write_text("4194304\n")
    (tmp_path / "sys/kernel/threads-max").write_text("1000\n")
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/memory").write_text(
        "some avg10=12.50 avg60=0.00 total=1\nfull avg10=1.00 avg60=0.00 total=1\n"
    )
    host_use = HostGauge(clock, proc=tmp_path).read("")
    assert (host_use.memory, host_use.pids) == (Supply(500 << 10, 2000 << 10), Supply(300, 1000))
    assert (host_use.disk, host_use.inodes, host_use.memory_stall) == (Supply(), Supply(), 0.125)


def test_reads_from_swap_are_those_since_before(clock: HandClock, tmp_path: Path) -> None:
    gauge, page_bytes, rates = HostGauge(clock, proc=tmp_path), os.sysconf("SC_PAGE_SIZE"), []
    for pages in (1000, 1500, None, 2000, 2000):
        (tmp_path / "vmstat").write_text("pswpout 7\n" + (f"pswpin {pages}\n" if pages else ""))
        rates.append(gauge.read("").swap_in)
        clock.advance(10)
    assert rates == [None, 50 * page_bytes, None, None, 0]


def test_what_can_not_be_read_is_left_out(clock: HandClock, tmp_path: Path) -> None:
    host_use = HostGauge(clock, proc=tmp_path).read(str(tmp_path / "gone"))
    assert ({supply for _, supply in host_use.supplies()}, host_use.memory_stall) == ({Supply()}, 0.0)
