"""Code contexts beside commands of the agent and bare forks of one run: calls, starts, forks, interrupts, memory."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock import Paddock, Refused, Sandbox
from tests.daemon import running

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(600)]
ROUNDS, FORKS, STARTS = 40, 9, 7
MOST_CALL, MOST_FORK_SECONDS, MOST_IDLE_BYTES = 1.5, 0.02, 20 << 20
MOST_START_SECONDS, MOST_LIBRARIES_SECONDS = 0.15, 0.6
DATA = "paddock/data:1"
# To a bare fork and a command of the agent: a copy is forked twice, so that no code can wait for it.
MOST_FORK_RATIO = 3.0
RESIDENT_BYTES = 200_000_000
BARE_FORK = """
import os, time
def bare_fork():
    begin = time.perf_counter()
    child = os.fork()
    if not child: os._exit(0)
    seconds = time.perf_counter() - begin
    os.waitpid(child, 0)
    return seconds
"""
# User and system time of this interpreter with what its start took, by the clock that counts in nanoseconds.
PROCESSOR = "import time; time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)"
WAITS = {"code": "while True: pass", "sleep": "import time; time.sleep(60)", "await": "await asyncio.sleep(60)"}


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def milliseconds(values: list[float]) -> float:
    return statistics.median(values) * 1000


def test_code_in_a_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        running(tmp_path, PADDOCK_REQUESTS_PER_SECOND="0") as daemon,
        Paddock(f"unix://{daemon.socket}") as paddock,
        paddock.sandboxes.create(memory="1Gi", cpu=2) as sandbox,
    ):
        lines = [calls(sandbox), starts(sandbox), libraries(paddock), forks(sandbox), interrupts(sandbox)]
    with capsys.disabled():
        print("", *(f"  {line}" for line, _ in lines), sep="\n")
    assert all(holds for _, holds in lines), lines


def calls(sandbox: Sandbox) -> tuple[str, bool]:
    """Compare the first call of each of many warm contexts, and further calls, with a command of the agent."""
    sandbox.run_code("1")
    sandbox.exec(["true"])
    firsts, further, commands = [], [], []
    for _ in range(ROUNDS):
        context = sandbox.contexts.create("python")
        firsts.append(seconds(lambda context=context: context.run("1 + 1")))  # type: ignore[misc]
        context.delete()
        commands.append(seconds(lambda: sandbox.exec(["true"])))
        further.append(seconds(lambda: sandbox.run_code("1 + 1")))
    ratio = statistics.median(firsts) / statistics.median(commands)
    line = (
        f"first call of a warm context {milliseconds(firsts):.1f} ms, further ones {milliseconds(further):.1f} ms,"
        f" a command of the agent {milliseconds(commands):.1f} ms: {ratio:.2f} times"
    )
    return line, ratio < MOST_CALL


def starts(sandbox: Sandbox) -> tuple[str, bool]:
    """Take the processor time of a start, and the memory of an idle context."""
    walls, processors, sizes = [], [], []
    for _ in range(STARTS):
        began = time.perf_counter()
        context = sandbox.contexts.create("python")
        walls.append(time.perf_counter() - began)
        sizes.append(context.refresh().facts["memoryBytes"])
        processors.append(float(context.run(PROCESSOR).text or "inf"))
        context.delete()
    idle, processor = statistics.median(sizes), statistics.median(processors)
    line = (
        f"start of a context {milliseconds(walls):.0f} ms, of the processor {processor * 1000:.0f} ms;"
        f" idle {idle / 2**20:.1f} MiB (proportional set size)"
    )
    return line, idle < MOST_IDLE_BYTES and processor < MOST_START_SECONDS


def libraries(paddock: Paddock) -> tuple[str, bool]:
    """Take the processor time of a start with numpy and pandas, where their image is."""
    try:
        created = paddock.sandboxes.create(image=DATA, memory="1Gi", cpu=2)
    except Refused as error:
        return f"no figure with numpy and pandas: {error}", True
    with created as sandbox:
        sandbox.run_code("import numpy, pandas")  # their files are in memory
        processors = []
        for _ in range(STARTS):
            context = sandbox.contexts.create("python")
            processors.append(float(context.run(f"import numpy, pandas\n{PROCESSOR}").text or "inf"))
            context.delete()
    line = f"start with numpy and pandas, of the processor {milliseconds(processors):.0f} ms"
    return line, statistics.median(processors) < MOST_LIBRARIES_SECONDS


def forks(sandbox: Sandbox) -> tuple[str, bool]:
    """Compare forks of a context with 200 MB with `os.fork` in the same interpreter, by turns."""
    context = sandbox.contexts.create("python")
    context.run(f"data = bytearray(b'x') * {RESIDENT_BYTES}{BARE_FORK}")
    bare, whole, commands = [], [], []
    for _ in range(FORKS):
        bare.append(float(context.run("bare_fork()").text or "inf"))
        began = time.perf_counter()
        copy = context.fork()
        whole.append(time.perf_counter() - began)
        copy.delete()
        commands.append(seconds(lambda: sandbox.exec(["true"])))
    context.delete()
    line = (
        f"fork of a context with 200 MB {milliseconds(whole):.1f} ms, of which a bare fork {milliseconds(bare):.1f} ms;"
        f" a command of the agent {milliseconds(commands):.1f} ms"
    )
    bound = MOST_FORK_RATIO * (statistics.median(bare) + statistics.median(commands))
    return line, statistics.median(whole) < max(MOST_FORK_SECONDS, bound)


def interrupts(sandbox: Sandbox) -> tuple[str, bool]:
    """Take the time from an interrupt of what runs, sleeps or awaits to the answer; the state stays."""
    context = sandbox.contexts.create("python")
    context.run("import asyncio; state = 1")
    shown, holds = [], True
    for name, code in WAITS.items():
        late = [seconds(lambda code=code: context.run(code, timeout=0.3)) - 0.3 for _ in range(5)]  # type: ignore[misc]
        shown.append(f"{name} {milliseconds(late):.0f} ms")
        holds = holds and statistics.median(late) < 0.5
    holds = holds and context.run("state").text == "1"
    context.delete()
    return f"interrupt of {', '.join(shown)}", holds
