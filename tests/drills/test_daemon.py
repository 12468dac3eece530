"""Drills in which the daemon loses its own ground: its process, its disk, its clock."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon import wait_for
from tests.drills.conftest import Report
from tests.drills.site import Site, site

pytestmark = [pytest.mark.drill, pytest.mark.docker, pytest.mark.timeout(300)]
_CLOCK = Path(__file__).parents[1] / "lab/clock"
_HOUR = 3600


def test_killed(tmp_path: Path, report: Report) -> None:
    """While it is away a sandbox is killed, another removed and a third renamed."""
    with site(tmp_path) as place:
        before = place.containers()
        place.daemon.kill()
        place.engine.docker("kill", before["box-0"].id)
        place.engine.docker("rm", "-f", before["box-1"].id)
        place.engine.docker("rename", before["box-2"].id, "somebody-elses")
        start = time.monotonic()
        place.start_daemon()
        seconds, lost = place.recovered(before, begun=start, crashes=1)
        assert lost == "2 of 8 processes, 1 containers"
        assert "somebody-elses" not in place.engine.docker("ps", "--format", "{{.Names}}")
        report("the daemon is killed (-9); sandboxes are killed, removed, renamed", "its next start", seconds, lost)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that leaves no byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast


def test_disk_full(tmp_path: Path, report: Report) -> None:
    with small_disk(tmp_path / "state") as folder, site(folder) as place:
        before = place.containers()
        ballast = fill(folder)
        message = _apply_until_refused(place)
        assert "disk" in message or "full" in message, message
        place.engine.docker("kill", before["box-0"].id)
        wait_for("it says so", lambda: place.get("/readyz")[0] == 503, 30)
        ballast.unlink()
        seconds, lost = place.recovered(before, crashes=1)
        assert lost == "1 of 8 processes; no container"
        report("the disk of the state folder is full; a sandbox is killed", "there is room", seconds, lost)


def _apply_until_refused(place: Site) -> str:
    """The words of the first refusal: what the database's log has room for is still taken."""
    for index in range(200):
        done = place.daemon.paddock("label", "sandbox/box-7", f"n=v{index}", "--overwrite", check=False)
        if done.returncode:
            return done.stderr
    raise AssertionError("the disk was never full")


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_jumps(tmp_path: Path, report: Report, hours: int) -> None:
    """Later crashes are started again at once, and changes without an event are still found by a resync."""
    wrong = tmp_path / "clock"
    wrong.write_text("0")
    settings = {"PYTHONPATH": os.pathsep.join([str(_CLOCK), os.environ.get("PYTHONPATH", "")]), "LAB_CLOCK": str(wrong)}
    with site(tmp_path / "state", **settings) as place:
        before = place.containers()
        wrong.write_text(str(hours * _HOUR))
        start = time.monotonic()
        place.engine.docker("kill", before["box-0"].id)
        wait_for("it was seen", lambda: place.containers()["box-0"].pid != before["box-0"].pid)
        seconds, lost = place.recovered(before, begun=start, crashes=1)
        assert lost == "1 of 8 processes; no container"
        assert _looks(place) > 0
        report(f"the clock is set {hours:+} h; a sandbox is killed", "the kill", seconds, lost)


def _looks(place: Site) -> int:
    """Lists that the engine was asked for within two resyncs."""
    before = _lists(place)
    wait_for("the next resync", lambda: _lists(place) > before, 30)
    return _lists(place) - before


def _lists(place: Site) -> int:
    import urllib.request

    with urllib.request.urlopen(place.daemon.metrics_url(), timeout=20) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith('paddock_docker_requests_total{operation="containers.list"}'):
                return int(float(line.split()[-1]))
    return 0
