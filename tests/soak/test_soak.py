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
from tests.lab.engine import PrivateEngine, private_engine
from tests.raw_client import Paddock
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
    start = time.monotonic()
    _fill(tmp_path)
    with private_engine() as engine, running(tmp_path, PADDOCK_DOCKER_HOST=engine.base_url, **SETTINGS) as daemon:
        with capsys.disabled():
            print(f"\nseed {SEED}\n{gauges.head(COLUMNS)}", flush=True)
        with Paddock(f"unix://{daemon.socket}") as paddock:
            paddock.apply(POOL % 2)  # a claim without a template would wait for it, as it should
        while len(rounds) < 4 or time.monotonic() - start < 60 * MINUTES:
            counts, refusal = _round(daemon, engine, len(rounds))
            done += counts
            _settle(daemon)
            _clear(daemon, engine)
            rounds.append(_at_rest(daemon, engine, rounds))
            minute = f"{(time.monotonic() - start) / 60:.1f}"
            with capsys.disabled():
                print(gauges.row((minute, counts.total(), refusal.total()), rounds[-1]), flush=True)
        with capsys.disabled():
            print(", ".join(f"{name} {count}" for name, count in done.most_common()), flush=True)
            opened = gauges.opened(daemon.process.pid, engine, daemon.folder)
            print(
                f"open at the end: {', '.join(f'{name} {count}' for name, count in sorted(opened.items()))}", flush=True
            )
        assert _troubles(daemon) == []
    assert gauges.grown(rounds) == {}
    assert max(group.connections for group in rounds) <= gauges.MOST_CONNECTIONS


def _fill(folder: Path) -> None:
    """As many events as one answer may hold: so a list takes as much memory in the first round as in the last."""
    store, now = SqlStore(f"sqlite:///{folder / 'paddock.db'}"), time.time()
    store.open()
    with store.transaction() as transaction:
        for number in range(MOST):
            ref = ObjectRef("Sandbox", "default", f"box-{number % 12}", f"{number:032x}")
            message = f"Killed: exit code 137, by signal 9, and started again as run {number} of it"
            transaction.add_event(Event(ref, "Normal", "Restarted", message, now))
    store.close()


def _round(daemon: RunningDaemon, engine: PrivateEngine, number: int) -> tuple[Counter[str], Counter[str]]:
    """Let all workers do what they like for a while; what was done, and what was refused."""
    workers = [Deeds(daemon, engine, SEED + 1000 * number + index) for index in range(WORKERS)]
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

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for entry in threads:
        entry.join(ROUND_SECONDS + 120)
        assert not entry.is_alive(), "a worker is stuck"
    if broken:
        raise broken[0]
    wrong = [name for deeds in workers for name in deeds.wrong]
    assert not wrong, "\n".join(wrong)
    return sum((worker.done for worker in workers), Counter()), sum((worker.refused for worker in workers), Counter())


def _settle(daemon: RunningDaemon) -> None:
    """Left alone, every sandbox comes to what was asked of it."""
    with Paddock(f"unix://{daemon.socket}") as paddock:
        try:
            wait_for("all is as asked", lambda: not _unlike(paddock), SETTLES_SECONDS)
        except AssertionError:
            sandboxes = [paddock.get("sandboxes", name) for name in _unlike(paddock)]
            raise AssertionError(f"not as asked: {json.dumps(sandboxes, indent=1)}") from None


def _unlike(paddock: Paddock) -> list[str]:
    observed = []
    for document in paddock.list("sandboxes"):
        requested = _READY[document["spec"].get("runState", "Running")]
        conditions = {it["type"]: it for it in document.get("status", {}).get("conditions", ())}
        settled = document["metadata"]["generation"] == document.get("status", {}).get("observedGeneration")
        ready = conditions.get("Ready", {}).get("status")
        if "deletionTimestamp" in document["metadata"] or not settled or ready != requested:
            observed.append(document["metadata"]["name"])
    return observed


def _clear(daemon: RunningDaemon, engine: PrivateEngine) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        paddock.apply(POOL % 0)
        for document in paddock.list("sandboxes"):
            paddock.delete("sandboxes", document["metadata"]["name"])
        wait_for("no sandbox is left", lambda: not paddock.list("sandboxes"), SETTLES_SECONDS)
    wait_for("no container is left", lambda: not engine.docker("ps", "-aq"), SETTLES_SECONDS)


def _at_rest(daemon: RunningDaemon, engine: PrivateEngine, before: list[gauges.Gauges]) -> gauges.Gauges:
    """The gauges, once idle threads and connections have gone, and what was freed was given back to the host: as low as
    they were after the first rounds."""

    def settled(found: gauges.Gauges) -> bool:
        desired = [(group.threads, group.fds, group.memory_mib) for group in before[1:3]] or [(0, 0, 0)]
        now = found.threads, found.fds, found.memory_mib
        return all(mine <= max(second) for mine, second in zip(now, zip(*desired, strict=True), strict=True))

    until, pause = time.monotonic() + 30, threading.Event()
    while True:
        pause.wait(3.0)
        observed = gauges.read(daemon.process.pid, engine, daemon.folder)
        if settled(observed) or time.monotonic() > until:
            return observed


def _troubles(daemon: RunningDaemon) -> list[str]:
    """Return errors of the daemon's log that do not pass by themselves (a store that was busy: try again)."""
    lines = [json.loads(line) for line in daemon.log if line.startswith("{")]
    stray = [line for line in daemon.log if not line.startswith("{")]
    errors = [json.dumps(line) for line in lines if line.get("level") in ("error", "critical")]
    return stray + [error for error in errors if "try again" not in error]
