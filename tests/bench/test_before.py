"""Figures of a single host before and after a change: the daemon of another checkout beside this one's, by turns.

`PADDOCK_BENCH_BEFORE=FOLDER make bench ARGS=tests/bench/test_before.py`; FOLDER is a checkout (`git worktree add`).
One process differs from the next by some 3 % in all it does, by chance: several starts of both are averaged.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench.test_claims import LIMITS, TEMPLATE, Eyes, at, eyes_on, make_pool
from tests.bench.test_rest import cpu_seconds, resident_mib
from tests.daemon import ROOT, RunningDaemon, running, start_daemon, wait_for
from tests.raw_client import Paddock

BEFORE = os.environ.get("PADDOCK_BENCH_BEFORE", "")
# Starts of each and turns of a start; fewer on a busy machine.
STARTS, ROUNDS = int(os.environ.get("PADDOCK_BENCH_STARTS", "6")), int(os.environ.get("PADDOCK_BENCH_ROUNDS", "20"))
IN_A_BURST = 4
pytestmark = [
    pytest.mark.bench,
    pytest.mark.docker,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not BEFORE, reason="compares with the checkout in PADDOCK_BENCH_BEFORE"),
]
SLEEP = "[sleep, '1000000']"
Times = dict[str, list[float]]


@dataclass
class Side:
    """One of the two daemons, its client, and its figures: seconds, and MiB of memory."""

    daemon: RunningDaemon
    eyes: Eyes
    client: Paddock
    times: Times
    made: int = 0

    def names(self, count: int) -> list[str]:
        self.made += count
        return [f"box-{self.made - index}" for index in range(count)]

    def round(self) -> None:
        """Take one turn: warm claims in a burst, a cold start, requests and commands; then all is removed."""
        self.eyes.fill("warm", IN_A_BURST + 1)
        names = self.names(IN_A_BURST)
        before = cpu_seconds(self.daemon)
        self.times["claim"] += [self.eyes.start(name, "warm") for name in names]
        self.times["processor a claim"].append((cpu_seconds(self.daemon) - before) / IN_A_BURST)
        (cold,) = self.names(1)
        self.times["cold"].append(self.eyes.start(cold, "cold", "Never"))
        self.eyes.fill("warm", IN_A_BURST + 1)  # else requests of the one with the faster cold start meet its refill
        sandbox = self.client.sandbox(cold)
        for _ in range(3):
            self.timed("get", lambda: self.client.get("sandboxes", cold))
            self.timed("list", lambda: self.client.list("sandboxes"))
            self.timed("exec", lambda: sandbox.exec(["true"]))
        for name in (*names, cold):
            self.client.delete("sandboxes", name)
        wait_for("all are gone", lambda: not self.client.list("sandboxes"))
        self.eyes.fill("warm", IN_A_BURST + 1)

    def timed(self, what: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        self.times[what].append(time.perf_counter() - start)


@contextmanager
def side(folder: Path, tree: Path, times: Times) -> Iterator[Side]:
    """The daemon of that checkout, on a store of its own, with a filled pool."""
    folder.mkdir()
    (folder / "empty").touch()  # else it is given a store of this checkout
    prefix, path = ("env", "-C", str(tree)), f"{tree}:{tree / 'controller/client/src'}"
    start_daemon(folder, prefix=prefix, PYTHONPATH=path).stop()  # makes its store
    start = time.perf_counter()
    with running(folder, prefix=prefix, PYTHONPATH=path) as daemon:
        times["start"].append(time.perf_counter() - start)
        with Paddock(f"unix://{daemon.socket}") as client, eyes_on(daemon) as eyes:
            make_pool(eyes, "warm", IN_A_BURST + 1)
            eyes.apply(TEMPLATE % {"name": "cold", "warm": 0, "command": SLEEP, "limits": LIMITS, "more": ""})
            yield Side(daemon, eyes, client, times)
            times["memory"].append(resident_mib(daemon))


def test_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document: dict[str, Times] = {"before": defaultdict(list), "after": defaultdict(list)}
    trees = {"before": Path(BEFORE).resolve(), "after": ROOT}
    for start in range(STARTS):
        order = list(trees) if start % 2 else list(reversed(trees))
        with ExitStack() as stack:
            sides = [
                stack.enter_context(side(tmp_path / f"{which}-{start}", trees[which], document[which]))
                for which in order
            ]
            for _ in range(ROUNDS):
                for entry in sides:
                    entry.round()
                sides.reverse()
        with capsys.disabled():
            print(f"\n{start + 1} of {STARTS} starts, {trees['before']} and this checkout:")
            for what, before in document["before"].items():
                print(f"  {what:18}{compared(what, before, document['after'][what])}")


def compared(what: str, before: list[float], after: list[float]) -> str:
    """Both as text, and after over before."""
    if what == "memory":
        old, new = statistics.mean(before), statistics.mean(after)
        return f"{old:.0f} and {new:.0f} MiB: {new / old:.3f}"
    means = [1000 * statistics.mean(before), 1000 * statistics.mean(after)]
    pairs = {"mean": means} | {f"p{share}": [at(share / 100, before), at(share / 100, after)] for share in (50, 99)}
    printed = list(pairs.items())[: None if len(before) > 50 else 1]
    return "; ".join(f"{name} {old:.1f} and {new:.1f} ms: {new / old:.3f}" for name, (old, new) in printed)
