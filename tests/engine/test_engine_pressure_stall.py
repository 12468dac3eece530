"""Pressure stall information (PSI) from artificial trees, on every kind of host."""

import errno
from pathlib import Path

import pytest

from controller.engine.usage.cgroup import CgroupUsage
from controller.engine.usage.pressure_stall import parse_pressure, read_stalls
from controller.kinds.observed.usage import Usage
from tests.engine.test_engine_cgroups import ALL_V1, EXPECTED, ID, PID, Host, new_container, shown

PRESSURE = {
    f"{name}.pressure": f"some avg10=1.00 avg60=0.50 avg300=0.10 total={some}\n"
    f"full avg10=0.00 avg60=0.00 avg300=0.00 total={full}"
    for name, some, full in (("cpu", 1_500_000, 250_000), ("memory", 2_500_000, 2_000_000), ("io", 7, 0))
}
TOLD = (1.5, 0.25, 2.5, 2.0, 7e-6, 0.0)


def read(host: Host, *, stalls: bool = True) -> Usage:
    reader = CgroupUsage(host.cgroups, stalls=stalls)
    try:
        return reader.read([new_container()])[ID]
    finally:
        reader.close()


def told(usage: Usage) -> tuple[float | None, ...]:
    cpu, memory = (usage.cpu_waiting_seconds, usage.cpu_stalled_seconds), (usage.memory_waiting_seconds,)
    return (*cpu, *memory, usage.memory_stalled_seconds, usage.io_waiting_seconds, usage.io_stalled_seconds)


@pytest.mark.parametrize("v1", [(), ALL_V1, ("cpu", "cpuacct", "blkio")], ids=["v2", "hybrid", "split"])
def test_psi_is_read_from_the_v2_tree(tmp_path: Path, v1: tuple[str, ...]) -> None:
    host = Host(tmp_path, v1=v1, v2=True)
    host.fill("unified", PRESSURE)
    usage = read(host)
    assert told(usage) == TOLD
    assert shown(usage) == EXPECTED


def test_version_1_alone_tells_nothing(tmp_path: Path) -> None:
    assert told(read(Host(tmp_path, v1=ALL_V1, v2=False))) == (None,) * 6


def test_hybrid_host_without_unified_cgroups_has_no_psi(tmp_path: Path) -> None:
    host = Host(tmp_path, v1=ALL_V1, v2=True)
    host.fill("unified", PRESSURE)
    file = host.proc / str(PID) / "cgroup"
    file.write_text(file.read_text().replace(f"0::/docker/{ID}", "0::/"))
    assert told(read(host)) == (None,) * 6


def test_it_is_read_on_request(tmp_path: Path) -> None:
    host = Host(tmp_path, v1=(), v2=True)
    host.fill("unified", PRESSURE)
    assert told(read(host, stalls=False)) == (None,) * 6


def test_missing_psi_values_are_left_out() -> None:
    def older(name: str) -> str:
        """Before 5.13: no `full` of CPU; booted with psi=0, reading fails; and built without it there is no file."""
        if name == "cpu.pressure":
            return "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\n"
        raise OSError(errno.EOPNOTSUPP if name == "io.pressure" else errno.ENOENT, "not told")

    assert read_stalls(older) == {"cpu_waiting_seconds": 3.0, "cpu_stalled_seconds": None}


def test_a_removed_container_is_unreadable() -> None:
    def gone(_name: str) -> str:
        raise OSError(errno.ENODEV, "gone")

    with pytest.raises(OSError, match="gone"):
        read_stalls(gone)


def test_the_line_of_the_kernel() -> None:
    assert parse_pressure(PRESSURE["cpu.pressure"]) == {"some": 1.5, "full": 0.25}
    with pytest.raises(ValueError, match="invalid literal"):
        parse_pressure("some of it")
