"""Compressed swap in memory (zram) of this machine, for tests: undone at the end, and one user at a time."""

import errno
import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.daemon import wait_for

_DEVICE, _FOLDER = Path("/dev/zram0"), Path("/sys/block/zram0")
_ANOTHER = Path("/sys/class/zram-control/hot_add")  # reading it makes a device
_LOCK = Path("/run/lock/paddock-test-zram")


@contextmanager
def zram_device() -> Iterator[None]:
    """An unused /dev/zram0, for one test at a time. Skips where there is none."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _provide()
        if not _DEVICE.exists():
            pytest.skip("no /dev/zram0 here: `modprobe zram`")
        if (_FOLDER / "disksize").read_text().strip() != "0":
            pytest.skip("/dev/zram0 is in use")
        try:
            yield
        finally:
            _provide()


def _provide() -> None:
    if not _DEVICE.exists():
        with suppress(OSError):
            subprocess.run(["modprobe", "zram"], check=False, capture_output=True)
    if not _DEVICE.exists():
        with suppress(OSError):
            _ANOTHER.read_text()


@contextmanager
def zram_swap(size: str = "1G") -> Iterator[None]:
    """Swap on /dev/zram0. Skips where there is none; waits for other tests that use it."""
    with zram_device():
        (_FOLDER / "disksize").write_text(size)
        try:
            subprocess.run(["mkswap", str(_DEVICE)], check=True, capture_output=True)
            subprocess.run(["swapon", "--priority", "100", str(_DEVICE)], check=True)
            yield
        finally:
            subprocess.run(["swapoff", str(_DEVICE)], check=False, capture_output=True)
            wait_for("/dev/zram0 is reset", _reset)


def _reset() -> bool:
    """Reset it; False while another has it open: udev looks at a device that has changed."""
    try:
        (_FOLDER / "reset").write_text("1")
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
