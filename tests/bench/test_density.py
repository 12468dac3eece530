"""Memory of one idle sandbox, plain and with an agent, and what many cost the daemon: list, scrape, pass.

PADDOCK_BENCH_SANDBOXES: how many of each (500). The table is for tests/README.md.
"""

import os
import re
import statistics
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench.engine_cpu import listener
from tests.bench.test_rest import resident_mib
from tests.daemon import RunningDaemon, docker, running
from tests.raw_client import Paddock

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(3600)]
COUNT = int(os.environ.get("PADDOCK_BENCH_SANDBOXES", "500"))
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s-%d}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]%s}
  resources: {limits: {memory: 32Mi, cpu: 60m, pids: 32}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
_MEMORY = Path("/sys/fs/cgroup/memory")


def pss_mib(processes: Iterator[int]) -> float:
    """Return the memory of processes; what they share is divided among them."""
    total = 0
    for pid in processes:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        share = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        total += int(share[1]) if share else 0
    return total / 1024


def shims(containers: set[str]) -> Iterator[int]:
    """Yield the shims of these containers."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "containerd-shim" in arguments[0] and containers & set(arguments):
            yield int(file.parent.name)


def engine_processes() -> Iterator[int]:
    """Yield dockerd and the containerds of this host."""
    yield listener()
    for file in Path("/proc").glob("[0-9]*/comm"):
        if file.read_text() == "containerd\n":
            yield int(file.parent.name)


def cgroup_mib(container: str) -> float:
    """Return what its cgroup holds, but for pages of files that the kernel may take back at once."""
    pid = docker("inspect", "--format", "{{.State.Pid}}", container)
    groups = dict(line.split(":", 2)[1:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    is_v1 = "memory" in groups
    folder = Path(f"{_MEMORY}{groups['memory']}" if is_v1 else f"/sys/fs/cgroup{groups['']}")
    usage = int((folder / ("memory.usage_in_bytes" if is_v1 else "memory.current")).read_text())
    figures = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return float(usage - int(figures["total_inactive_file" if is_v1 else "inactive_file"])) / (1 << 20)


def median_ms(call: Callable[[], object], rounds: int = 7) -> float:
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1000


def pass_ms(daemon: RunningDaemon, change: Callable[[], object]) -> float:
    """Return the mean time of the passes that follow a change."""

    def passes() -> tuple[float, float]:
        text = daemon.scrape()
        name = "paddock_reconcile_duration_seconds"
        numbers = [re.search(rf"^{name}_{part}\S* (\S+)$", text, re.MULTILINE) for part in ("sum", "count")]
        total, count = (float(number[1]) if number else 0.0 for number in numbers)
        return total, count

    before = passes()
    for _ in range(5):
        change()
    after = passes()
    return 1000 * (after[0] - before[0]) / max(1.0, after[1] - before[1])


@pytest.mark.parametrize(("kind", "more", "goal_mib"), [("plain", "", 3), ("agent", ", agent: {}", 6)])
def test_memory_of_idle_sandboxes(
    kind: str, more: str, goal_mib: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path) as daemon, Paddock(f"unix://{daemon.socket}") as paddock:
        engine, own = pss_mib(engine_processes()), resident_mib(daemon)
        start = time.perf_counter()
        daemon.apply("---".join(SANDBOX % (kind, index, more) for index in range(COUNT)))
        names = [f"sandbox/{kind}-{index}" for index in range(COUNT)]
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=1500s", *names, seconds=1600)
        ready_seconds = time.perf_counter() - start
        containers = docker("ps", "-q", "--no-trunc", "--filter", f"label=paddock.instance={daemon.instance_id()}")
        identities = containers.split()
        inside = statistics.mean(map(cgroup_mib, identities))
        shim = pss_mib(shims(set(identities))) / COUNT
        engines_share = (pss_mib(engine_processes()) - engine) / COUNT
        daemons_share = (resident_mib(daemon) - own) / COUNT
        listed = median_ms(lambda: paddock.list("sandboxes"))
        scraped = median_ms(lambda: urllib.request.urlopen(daemon.metrics_url(), timeout=60).read())
        label = iter(range(100))
        passed = pass_ms(
            daemon, lambda: daemon.paddock("label", f"sandbox/{kind}-0", f"n={next(label)}", "--overwrite")
        )
    whole = inside + shim + engines_share + daemons_share
    with capsys.disabled():
        print(f"\n{COUNT} idle sandboxes, {kind}, Ready in {ready_seconds:.0f} s; load {os.getloadavg()[0]:.0f}")
        print("| MiB each | its cgroup | shim | engine | Paddock | together | goal |\n|---|---|---|---|---|---|---|")
        parts = " | ".join(f"{part:.2f}" for part in (inside, shim, engines_share, daemons_share, whole))
        print(f"| {kind} | {parts} | {goal_mib} |")
        print(f"list {listed:.0f} ms, scrape {scraped:.0f} ms, pass after one change {passed:.1f} ms")
