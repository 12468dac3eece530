"""Code in a context that is warm, against a command of the agent in the same run; starts, forks and memory beside."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock import Paddock
from tests.daemon import running

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(600)]
ROUNDS, FORKS, STARTS = 60, 8, 5
MOST_RATIO = 3.0  # the aim is 1.5 on an idle machine
RESIDENT_BYTES = 200_000_000


def test_code_in_a_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        running(tmp_path) as daemon,
        Paddock(f"unix://{daemon.socket}") as paddock,
        paddock.sandboxes.create(memory="1Gi", cpu=2) as sandbox,
    ):
        first = timed(lambda: sandbox.run_code("1"))
        cell, command = [], []
        for _ in range(ROUNDS):
            cell.append(timed(lambda: sandbox.run_code("1 + 1")))
            command.append(timed(lambda: sandbox.exec(["true"])))
        starts = [timed(lambda: sandbox.contexts.create("python").delete()) for _ in range(STARTS)]
        context = sandbox.contexts.create("python")
        idle = context.refresh().facts["memoryBytes"]
        context.run(f"data = bytearray(b'x') * {RESIDENT_BYTES}")
        forks = [timed(lambda: context.fork().delete()) for _ in range(FORKS)]
        interrupted = timed(lambda: context.run("import time; time.sleep(60)", timeout=0.5)) - 0.5
    ratio = statistics.median(cell) / statistics.median(command)
    with capsys.disabled():
        print(
            f"\n  code in a warm context {statistics.median(cell) * 1000:.1f} ms, a command of the agent"
            f" {statistics.median(command) * 1000:.1f} ms: {ratio:.2f} times; the first {first * 1000:.0f} ms"
            f"\n  start and end of a context {statistics.median(starts) * 1000:.0f} ms, idle {idle / 2**20:.1f} MiB"
            f"\n  fork and end of a copy with 200 MB {statistics.median(forks) * 1000:.1f} ms,"
            f" interrupt {interrupted * 1000:.0f} ms"
        )
    assert ratio < MOST_RATIO


def timed(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began
