"""deploy/zram.sh: compressed swap of this machine, set up once, and undone."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.zram import zram_device

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="swap needs root")


def zram(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "deploy/zram.sh", *arguments], capture_output=True, text=True, check=False)


def swaps() -> list[str]:
    return [line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()[1:]]


@pytest.mark.docker
def test_it_is_set_up_once_and_undone() -> None:
    if Path("/run/systemd/system").exists():
        pytest.skip("it would place a unit on this machine")
    with zram_device():
        before = swaps()
        try:
            done = zram("64M")
            assert (done.returncode, swaps()) == (0, [*before, "/dev/zram0"]), done.stderr
            assert "is on already" in zram("64M").stdout
        finally:
            done = zram("--remove")
        assert (done.returncode, swaps()) == (0, before), done.stderr


@pytest.mark.docker
def test_a_device_that_is_looked_at_is_reset_afterwards() -> None:
    """As udev does after each change; the kernel resets none that is open."""
    if Path("/run/systemd/system").exists():
        pytest.skip("it would place a unit on this machine")
    with zram_device():
        before = swaps()
        try:
            assert zram("64M").returncode == 0
            with Path("/dev/zram0").open("rb"):
                removal = subprocess.Popen([ROOT / "deploy/zram.sh", "--remove"], stdout=subprocess.DEVNULL)
                with suppress(subprocess.TimeoutExpired):
                    removal.wait(1)
            assert (removal.wait(60), swaps()) == (0, before)
        finally:
            zram("--remove")


def test_it_refuses_what_is_no_size() -> None:
    done = zram("4 gigabytes")
    assert (done.returncode, "is not a size" in done.stderr) == (1, True)
    assert "Use: deploy/zram.sh" in zram("--all").stderr
