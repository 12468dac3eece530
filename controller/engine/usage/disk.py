"""Disk transfers of a container, from its cgroup files."""

from collections.abc import Mapping

from controller.engine.usage.handles import Figures, Handles


def disk_figures(handles: Handles) -> Figures:
    """Return bytes and calls read and written. Raises OSError or ValueError."""
    return _disk1(handles) if handles.versions["blkio"] == 1 else _disk2(handles)


def _disk1(handles: Handles) -> Figures:
    """Return the disk values; cgroup v1 does not count buffered writes."""
    transfers = _by_word(handles.optional("blkio", "blkio.throttle.io_service_bytes_recursive"))
    calls = _by_word(handles.optional("blkio", "blkio.throttle.io_serviced_recursive"))
    return {
        "fs_read_bytes": transfers.get("read"),
        "fs_write_bytes": transfers.get("write"),
        "fs_reads": calls.get("read"),
        "fs_writes": calls.get("write"),
    }


def _disk2(handles: Handles) -> Figures:
    stat = _by_key(handles.optional("blkio", "io.stat"))
    return {
        "fs_read_bytes": stat.get("rbytes"),
        "fs_write_bytes": stat.get("wbytes"),
        "fs_reads": stat.get("rios"),
        "fs_writes": stat.get("wios"),
    }


def _by_word(data: bytes | None) -> Mapping[str, int]:
    """Sum v1's `8:0 Read 4096` lines over devices; empty without the file or any device.

    Kernels from 6.10 on count nothing until a device has a limit; `Total 0` is no value then.
    """
    if data is None or b":" not in data:
        return {}
    sums = {"read": 0, "write": 0}
    for fields in map(str.split, data.decode().splitlines()):
        if len(fields) == 3 and fields[1].lower() in sums:
            sums[fields[1].lower()] += int(fields[2])
    return sums


def _by_key(data: bytes | None) -> Mapping[str, int]:
    """Sum v2's `8:0 rbytes=4096 wbytes=0 ...` lines over devices; empty without the file."""
    if data is None:
        return {}
    sums = {"rbytes": 0, "wbytes": 0, "rios": 0, "wios": 0}
    for token in data.decode().split():
        name, equals, value = token.partition("=")
        if equals and name in sums:
            sums[name] += int(value)
    return sums
