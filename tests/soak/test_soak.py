"""Minutes of random operations on a real engine; after each round all is as asked, and in the end nothing has grown.

`make soak`. Settings: SOAK_MINUTES (30), SOAK_SEED (printed; the same seed draws the same deeds, in another order of
the workers).
"""

import json
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from controller.kinds.meta import Event, ObjectRef
from controller.service.sources.event import MOST
from controller.store.sql_store import SqlStore
from tests.daemon import RunningDaemon, running, wait_for
from tests.former_client import Paddock
from tests.lab.engine import PrivateEngine, private_engine
from tests.soak import gauges
from tests.soak.deeds import POOL, Deeds

pytestmark = [pytest.mark.soak, pytest.mark.docker, pytest.mark.timeout(0)]
MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
SEED = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
WORKERS = 4
ROUND_SECONDS = 40.0
SETTLES_SECONDS = 240.0  # a sandbox that was killed some times waits before it is started again
COLUMNS = ("minute", "deeds", "refused")
# The workers share one process, which a busy machine may keep from reading a long answer for some seconds.
SETTINGS = {"PADDOCK_STALL_SECONDS": "20"}
_READY = {"Running": "True", "Suspended": "False", "Paused": "False"}


def test_soak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rounds: list[gauges.Gauges] = []
    done: Counter[str] = Counter()
    begun = time.monotonic()
    _fill(tmp_path)
    with private_engine() as engine, running(tmp_path, PADDOCK_DOCKER_HOST=engine.base_url, **SETTINGS) as daemon:
        with capsys.disabled():
            print(f"\nseed {SEED}\n{gauges.head(COLUMNS)}", flush=True)
        with Paddock(f"unix://{daemon.socket}") as paddock:
            paddock.apply(POOL % 2)  # a claim without a template would wait for it, as it should
        while len(rounds) < 4 or time.monotonic() - begun < 60 * MINUTES:
            made, refused = _round(daemon, engine, len(rounds))
            done += made
            _settle(daemon)
            _clear(daemon, engine)
            rounds.append(_at_rest(daemon, engine, rounds))
            minute = f"{(time.monotonic() - begun) / 60:.1f}"
            with capsys.disabled():
                print(gauges.row((minute, made.total(), refused.total()), rounds[-1]), flush=True)
        with capsys.disabled():
            print(", ".join(f"{name} {count}" for name, count in done.most_common()), flush=True)
            left = gauges.opened(daemon.process.pid, engine, daemon.folder)
            print(
                f"open at the end: {', '.join(f'{name} {count}' for name, count in sorted(left.items()))}", flush=True
            )
        assert _troubles(daemon) == []
    assert gauges.grown(rounds) == {}
    assert max(each.connections for each in rounds) <= gauges.MOST_CONNECTIONS


def _fill(folder: Path) -> None:
    """As many events as one answer may hold: so a list takes as much memory in the first round as in the last."""
    store, now = SqlStore(f"sqlite:///{folder / 'paddock.db'}"), time.time()
    store.open()
    with store.transaction() as transaction:
        for number in range(MOST):
            ref = ObjectRef("Sandbox", "default", f"box-{number % 12}", f"{number:032x}")
            words = f"Killed: exit code 137, by signal 9, and started again as run {number} of it"
            transaction.add_event(Event(ref, "Normal", "Restarted", words, now))
    store.close()


def _round(daemon: RunningDaemon, engine: PrivateEngine, number: int) -> tuple[Counter[str], Counter[str]]:
    """Let all workers do what they like for a while; what was done, and what was refused."""
    workers = [Deeds(daemon, engine, SEED + 1000 * number + each) for each in range(WORKERS)]
    until = time.monotonic() + ROUND_SECONDS
    broken: list[BaseException] = []

    def work(deeds: Deeds) -> None:
        try:
            while time.monotonic() < until:
                deeds.one()
        except BaseException as error:
            broken.append(error)
        finally:
            deeds.close()

    threads = [threading.Thread(target=work, args=(each,)) for each in workers]
    for each in threads:
        each.start()
    for each in threads:
        each.join(ROUND_SECONDS + 120)
        assert not each.is_alive(), "a worker is stuck"
    if broken:
        raise broken[0]
    wrong = [each for deeds in workers for each in deeds.wrong]
    assert not wrong, "\n".join(wrong)
    return sum((each.done for each in workers), Counter()), sum((each.refused for each in workers), Counter())


def _settle(daemon: RunningDaemon) -> None:
    """Left alone, every sandbox comes to what was asked of it."""
    with Paddock(f"unix://{daemon.socket}") as paddock:
        try:
            wait_for("all is as asked", lambda: not _unlike(paddock), SETTLES_SECONDS)
        except AssertionError:
            left = [paddock.get("sandboxes", each) for each in _unlike(paddock)]
            raise AssertionError(f"not as asked: {json.dumps(left, indent=1)}") from None


def _unlike(paddock: Paddock) -> list[str]:
    found = []
    for each in paddock.list("sandboxes"):
        asked = _READY[each["spec"].get("runState", "Running")]
        conditions = {it["type"]: it for it in each.get("status", {}).get("conditions", ())}
        settled = each["metadata"]["generation"] == each.get("status", {}).get("observedGeneration")
        ready = conditions.get("Ready", {}).get("status")
        if "deletionTimestamp" in each["metadata"] or not settled or ready != asked:
            found.append(each["metadata"]["name"])
    return found


def _clear(daemon: RunningDaemon, engine: PrivateEngine) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        paddock.apply(POOL % 0)
        for each in paddock.list("sandboxes"):
            paddock.delete("sandboxes", each["metadata"]["name"])
        wait_for("no sandbox is left", lambda: not paddock.list("sandboxes"), SETTLES_SECONDS)
    wait_for("no container is left", lambda: not engine.docker("ps", "-aq"), SETTLES_SECONDS)


def _at_rest(daemon: RunningDaemon, engine: PrivateEngine, before: list[gauges.Gauges]) -> gauges.Gauges:
    """The gauges, once idle threads and connections have gone, and what was freed was given back to the host: as low as
    they were after the first rounds."""

    def settled(found: gauges.Gauges) -> bool:
        wanted = [(each.threads, each.fds, each.memory_mib) for each in before[1:3]] or [(0, 0, 0)]
        now = found.threads, found.fds, found.memory_mib
        return all(mine <= max(theirs) for mine, theirs in zip(now, zip(*wanted, strict=True), strict=True))

    until, pause = time.monotonic() + 30, threading.Event()
    while True:
        pause.wait(3.0)
        found = gauges.read(daemon.process.pid, engine, daemon.folder)
        if settled(found) or time.monotonic() > until:
            return found


def _troubles(daemon: RunningDaemon) -> list[str]:
    """Return errors of the daemon's log that do not pass by themselves (a store that was busy: try again)."""
    lines = [json.loads(line) for line in daemon.log if line.startswith("{")]
    stray = [line for line in daemon.log if not line.startswith("{")]
    errors = [json.dumps(each) for each in lines if each.get("level") in ("error", "critical")]
    return stray + [each for each in errors if "try again" not in each]
