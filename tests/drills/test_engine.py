"""The engine goes away under the daemon, in every way it can: nothing is made twice, and all comes back by itself."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests.contract.engine_proxy import Proxy
from tests.daemon import wait_for
from tests.drills.conftest import Report
from tests.drills.site import Site, site

pytestmark = [pytest.mark.drill, pytest.mark.docker, pytest.mark.timeout(300)]


def unknown(place: Site) -> None:
    """While the engine is away, that is what is told: of the sandboxes, and of the host."""
    wait_for("every sandbox says Unknown", lambda: place.all_are("Unknown EngineUnreachable"), 60)
    status, message = place.get("/readyz")
    assert (status, "engine" in message) == (503, True)
    host = json.loads(place.daemon.paddock("get", "host", "host", "-o", "json").stdout)
    reachable = next(condition for condition in host["status"]["conditions"] if condition["type"] == "EngineReachable")
    assert reachable["status"] == "False"


@pytest.mark.parametrize(
    ("number", "options", "fault"),
    [
        (signal.SIGTERM, (), "the engine is stopped, then started"),
        (signal.SIGKILL, (), "the engine is killed (-9), then started"),
        (signal.SIGTERM, ("--live-restore",), "the same with live-restore: stopped"),
        (signal.SIGKILL, ("--live-restore",), "... and killed"),
    ],
)
def test_ended_and_started(
    tmp_path: Path, report: Report, number: signal.Signals, options: tuple[str, ...], fault: str
) -> None:
    with site(tmp_path, *options) as place:
        before = place.containers()
        place.engine.end(number)
        unknown(place)
        place.engine.start()
        seconds, lost = place.recovered(before)
        assert lost == ("nothing" if options else "8 of 8 processes; no container")
        report(fault, "the engine answers", seconds, lost)


def test_ended_twice_in_a_row(tmp_path: Path) -> None:
    """The second time takes no longer than the first: no back-off has grown."""
    with site(tmp_path) as place:
        for _ in range(3):
            before = place.containers()
            place.engine.end(signal.SIGKILL)
            place.engine.start()
            _, lost = place.recovered(before)
            assert lost.endswith("no container")
        assert "CrashLoopBackOff" not in place.daemon.paddock("events").stdout


def test_frozen(tmp_path: Path, report: Report) -> None:
    with site(tmp_path) as place:
        before = place.containers()
        place.engine.freeze()
        unknown(place)
        place.engine.thaw()
        seconds, lost = place.recovered(before)
        assert lost == "nothing"
        report("the engine hangs (SIGSTOP)", "it goes on", seconds, lost)


@pytest.mark.parametrize("status", [500, 503])
def test_answers_with_errors(tmp_path: Path, report: Report, status: int) -> None:
    """Also what ends meanwhile is not taken for anything, and is started once the engine can be asked again."""
    (tmp_path / "proxy").mkdir()
    with site(tmp_path / "state") as place:
        proxy = Proxy(tmp_path / "proxy", str(place.engine.folder / "engine.sock")).up()
        try:
            place.daemon.stop()
            place.start_daemon(PADDOCK_DOCKER_HOST=proxy.base_url)
            wait_for("all is well", place.well, 60)
            before = place.containers()
            proxy.answer(".", status)
            proxy.break_connections()
            unknown(place)
            place.engine.docker("kill", before["box-0"].id)
            proxy.behave()
            seconds, lost = place.recovered(before)
            assert lost == "1 of 8 processes; no container"
            report(f"the engine's API answers {status}; a sandbox is killed meanwhile", "it works", seconds, lost)
        finally:
            place.close()
            proxy.end()


def test_without_its_bridge(tmp_path: Path, report: Report) -> None:
    """The engine stays up, its docker0 is gone: what has no network of that bridge is not concerned."""
    with site(tmp_path) as place:
        before = place.containers()
        place.engine.namespaces.run("ip", "link", "delete", "docker0")
        start = time.monotonic()
        place.engine.docker("kill", before["box-0"].id)
        wait_for("it was seen", lambda: place.containers()["box-0"].pid != before["box-0"].pid)
        seconds, lost = place.recovered(before, begun=start, crashes=1)
        report("the engine's bridge is removed; a sandbox is killed", "the kill", seconds, lost)


def test_the_host_crashes(tmp_path: Path, report: Report) -> None:
    """A power cut: daemon, engine and containers at once; then engine and daemon are started as at boot."""
    with site(tmp_path) as place:
        before = place.containers()
        place.daemon.kill()
        place.engine.crash_host()
        start = time.monotonic()
        place.engine.launch()
        place.start_daemon()
        seconds, lost = place.recovered(before, begun=start)
        assert lost == "8 of 8 processes; no container"
        report("the host reboots after a power cut (simulated)", "the engine is launched", seconds, lost)
