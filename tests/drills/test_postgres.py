"""The store is PostgreSQL, and goes away; or the daemon that acts for it does, and another one takes over."""

import signal
import time
from pathlib import Path

import pytest

from tests.daemon import wait_for
from tests.drills.conftest import Report
from tests.drills.site import site
from tests.lab.postgres import postgres

pytestmark = [pytest.mark.drill, pytest.mark.docker, pytest.mark.postgres, pytest.mark.timeout(300)]


@pytest.mark.parametrize("how", ["cut", "freeze"])
def test_postgres_goes_and_comes(tmp_path: Path, report: Report, how: str) -> None:
    """A sandbox that is killed meanwhile stays down: nothing is done that can't be recorded."""
    with postgres() as server, site(tmp_path, PADDOCK_DATABASE_URL=server.url) as place:
        before = place.containers()
        if how == "cut":
            server.cut()
        else:
            server.freeze()
        place.engine.docker("kill", before["box-0"].id)
        if how == "cut":
            wait_for("it says so", lambda: place.get("/readyz")[0] in (0, 503), 60)
        assert not place.containers()["box-0"].running
        if how == "cut":
            server.start()
        else:
            server.thaw()
        seconds, lost = place.recovered(before, crashes=1)
        assert lost == "1 of 8 processes; no container"
        message = {"cut": "PostgreSQL is cut, then started", "freeze": "PostgreSQL hangs (SIGSTOP)"}[how]
        report(f"{message}; a sandbox is killed", "it answers", seconds, lost)


def test_postgres_is_restarted(tmp_path: Path, report: Report) -> None:
    """Every connection breaks at once, and the server is there again before anyone has looked."""
    with postgres() as server, site(tmp_path, PADDOCK_DATABASE_URL=server.url) as place:
        before = place.containers()
        server.restart()
        place.engine.docker("kill", before["box-0"].id)
        seconds, lost = place.recovered(before, crashes=1)
        assert lost == "1 of 8 processes; no container"
        report("PostgreSQL is restarted; a sandbox is killed", "the kill", seconds, lost)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_another_daemon_takes_over(tmp_path: Path, report: Report, number: signal.Signals) -> None:
    with postgres() as server, site(tmp_path / "first", PADDOCK_DATABASE_URL=server.url) as place:
        first, before = place.daemon, place.containers()
        (tmp_path / "second").mkdir()
        second = place.start_daemon(
            ready=False, folder=tmp_path / "second", PADDOCK_SOCKET=str(tmp_path / "second/paddock.sock")
        )
        wait_for("the second waits", lambda: "standby: waiting for the leader lease" in "".join(second.log))
        first.process.send_signal(number)
        start = time.monotonic()
        place.engine.docker("kill", before["box-0"].id)
        seconds, lost = place.recovered(before, begun=start, crashes=1)
        assert lost == "1 of 8 processes; no container"
        message = {signal.SIGSTOP: "frozen (SIGSTOP)", signal.SIGKILL: "killed (-9)"}[number]
        report(f"the daemon that acts is {message}, another waits; a sandbox is killed", "the fault", seconds, lost)
        if number == signal.SIGSTOP:
            first.process.send_signal(signal.SIGCONT)
            assert first.process.wait(60) == 1
            assert place.well()
