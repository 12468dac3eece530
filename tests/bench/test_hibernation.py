"""Hibernation: the cost of a sandbox that sleeps, how soon it answers, and a neighbour beside a crowd of wakes.

The baselines of the same run: the same sandboxes awake, an unpause, a cold start, and the neighbour at rest. Set
PADDOCK_BENCH_HIBERNATED for another number of sandboxes, PADDOCK_BENCH_MEBIBYTES for another size of their data, and
PADDOCK_BENCH_REST_SECONDS for another time of rest. The bars of the figures, on a machine with nothing else to do:

    200 wakes at once         PADDOCK_BENCH_HIBERNATED=200 PADDOCK_BENCH_MEBIBYTES=20 make bench ARGS="... -k cost"
    a daemon at rest          PADDOCK_BENCH_HIBERNATED=500 PADDOCK_BENCH_REST_SECONDS=600 make bench ARGS="... -k rest"
"""

import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from controller.engine.kernel.cgroups import Cgroups, folder_of
from paddock import Paddock
from tests.daemon import RunningDaemon, docker, running, wait_for
from tests.zram import zram_swap

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(3600)]
COUNT = int(os.environ.get("PADDOCK_BENCH_HIBERNATED", "40"))
MEBIBYTES, ROUNDS = int(os.environ.get("PADDOCK_BENCH_MEBIBYTES", "100")), 12
REST_SECONDS = float(os.environ.get("PADDOCK_BENCH_REST_SECONDS", "65"))  # two resyncs
# Real data of Python: dictionaries, strings and numbers. Asked by a FIFO, it reads all of them.
PROGRAM = """
import json, os, sqlite3, asyncio, http.server
rows, text = [], "the quick brown fox jumps over the lazy dog "
while True:
    resident, shared = open("/proc/self/statm").read().split()[1:3]
    if int(resident) - int(shared) > %d << 8: break  # pages; what it shares with others is not its own data
    for n in range(2000):
        rows.append({"id": n, "name": f"user-{n}", "tags": ["a", str(n)], "about": text[n %% 40:] + str(n * 7919)})
for name in ("ask", "answer"): os.mkfifo("/tmp/" + name)
while True:
    open("/tmp/ask").read()
    total = sum(len(row["name"]) + len(row["about"]) + len(row["tags"]) for row in rows)
    open("/tmp/answer", "w").write(str(total))
"""
TOUCH = ["sh", "-c", "echo > /tmp/ask; cat /tmp/answer"]
# As many as are asked for have to fit into the host's quota, of 2 cores and up.
LIMITS = max(32, MEBIBYTES * 5 // 2), min(500, 30_000 // COUNT)
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "paddock/python:1", command: [python3, -c, %s]}
  resources: {limits: {memory: %dMi, cpu: %dm, pids: 32}}
  lifecycle: {shutdownGracePeriodSeconds: 0, idleTimeoutSeconds: 86400}
"""
SLEEPS = "import time; time.sleep(1000000)"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    settings = {"PADDOCK_HIBERNATION_BYTES": str(64 << 30), "PADDOCK_PRESSURE_SCALE": "0"}
    with zram_swap("16G"), running(tmp_path_factory.mktemp("daemon"), **settings) as made:
        yield made


def apply(daemon: RunningDaemon, *names: str, program: str = PROGRAM % MEBIBYTES) -> None:
    daemon.apply("---".join(SANDBOX % (name, json.dumps(program), *LIMITS) for name in names))
    wanted = [f"sandbox/{name}" for name in names]
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=600s", *wanted, seconds=700)


def usage_bytes(daemon: RunningDaemon, name: str) -> int:
    id_ = daemon.get(name)["status"]["instanceRef"]["containerID"]
    pid = docker("inspect", id_, "--format", "{{.State.Pid}}")
    memory = folder_of(Cgroups().folders(Path(f"/proc/{pid}/cgroup").read_text(), id_), "memory")
    return int(Path(memory.path, "memory.usage_in_bytes" if memory.version == 1 else "memory.current").read_text())


def shim_mebibytes(daemon: RunningDaemon, names: list[str]) -> float:
    """The engine's own process beside each of these sandboxes: its share of memory, on average."""
    ids = {daemon.get(name)["status"]["instanceRef"]["containerID"] for name in names}
    sizes = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if ids.isdisjoint((process / "cmdline").read_text().split("\0")):
                continue
            lines = (process / "smaps_rollup").read_text().splitlines()
            sizes.append(next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")))
    return sum(sizes) / len(names)


def zram_mebibytes() -> float:
    return int(Path("/sys/block/zram0/mm_stat").read_text().split()[2]) / 2**20


def reason(daemon: RunningDaemon, name: str) -> str:
    return str(daemon.condition(name, "Ready").get("reason"))


def set_state(daemon: RunningDaemon, state: str, *names: str) -> None:
    daemon.paddock("set", "run-state", *(f"sandbox/{name}" for name in names), state, seconds=300 + 2 * COUNT)
    wait_for(f"all are {state}", lambda: all(reason(daemon, name) == state for name in names), 600 + 3 * COUNT)


def exec_seconds(daemon: RunningDaemon, name: str, command: Sequence[str] = ("true",)) -> float:
    with Paddock(f"unix://{daemon.socket}") as client:
        begun = time.perf_counter()
        assert client.sandboxes.get(name).exec(list(command)).exit_code == 0
        return time.perf_counter() - begun


def p(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def test_cost_and_wakes_of_hibernated_sandboxes(daemon: RunningDaemon) -> None:
    names = [f"sleeper-{index}" for index in range(COUNT)]
    apply(daemon, "neighbour", program=SLEEPS)
    for index in range(0, COUNT, 20):
        apply(daemon, *names[index : index + 20])
    wait_for("all have their data", lambda: all(usage_bytes(daemon, name) > MEBIBYTES * 7 << 17 for name in names), 900)
    awake = [usage_bytes(daemon, name) / 2**20 for name in names]
    cost_awake = statistics.mean(awake) + shim_mebibytes(daemon, names)
    begun = time.perf_counter()
    set_state(daemon, "Hibernated", *names)
    took = time.perf_counter() - begun
    resident = [usage_bytes(daemon, name) / 2**20 for name in names]
    swap = zram_mebibytes() / COUNT
    shim = shim_mebibytes(daemon, names)
    cost = statistics.mean(resident) + swap + shim
    print(
        f"\n{COUNT} sandboxes: awake {statistics.mean(awake):.0f} MiB each, hibernated {statistics.mean(resident):.2f}"
        f" (max {max(resident):.2f}), in {took / COUNT:.2f} s each"
    )
    print(
        f"cost to the host: awake {cost_awake:.1f} MiB, hibernated {cost:.1f} MiB each ({cost / cost_awake:.2f}): zram"
        f" {swap:.1f}, the engine's shim {shim:.1f} (load {os.getloadavg()[0]:.0f})"
    )
    at_rest = [exec_seconds(daemon, "neighbour") for _ in range(60)]
    beside: list[float] = []
    begun = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        words = ("set", "run-state", *(f"sandbox/{name}" for name in names), "Running")
        asked = pool.submit(daemon.paddock, *words, seconds=300)
        while not asked.done() or any(reason(daemon, name) != "Running" for name in names):
            beside.append(exec_seconds(daemon, "neighbour"))
    took = time.perf_counter() - begun
    ratio = p(beside, 0.95) / p(at_rest, 0.95)
    print(
        f"{COUNT} wakes in {took:.1f} s; exec p95 of a neighbour {p(at_rest, 0.95) * 1000:.0f} ms at rest,"
        f" {p(beside, 0.95) * 1000:.0f} ms beside ({ratio:.1f} x; wanted: at most 2; load {os.getloadavg()[0]:.0f})"
    )
    daemon.paddock("set", "run-state", *(f"sandbox/{name}" for name in names), "Hibernated", seconds=300)
    wait_for("all sleep again", lambda: all(reason(daemon, name) == "Hibernated" for name in names), 600)
    with ThreadPoolExecutor(COUNT) as pool:
        waited = list(pool.map(lambda name: exec_seconds(daemon, name), names))
    print(f"{COUNT} execs that wake at once: p50 {p(waited, 0.5):.2f} s, max {max(waited):.2f} s")
    daemon.paddock("delete", "sandboxes", "--all", "--timeout=300s", seconds=400)
    assert statistics.mean(resident) < 4
    assert cost < 0.5 * cost_awake


def test_wake_against_unpause_and_start(daemon: RunningDaemon) -> None:
    apply(daemon, "one")
    apply(daemon, "other", program=SLEEPS)  # of the same image; it has no data to make when it starts
    wait_for("it has its data", lambda: usage_bytes(daemon, "one") > MEBIBYTES * 7 << 17, 300)
    seconds: dict[str, list[float]] = {"unpause": [], "wake": [], "start": []}
    touched: dict[str, list[float]] = {"unpause": [], "wake": []}
    for _ in range(ROUNDS):
        for name, kind, state in (
            ("one", "wake", "Hibernated"),
            ("one", "unpause", "Paused"),
            ("other", "start", "Suspended"),
        ):
            set_state(daemon, state, name)
            begun = time.perf_counter()
            resume(daemon, name)
            exec_seconds(daemon, name)
            seconds[kind].append(time.perf_counter() - begun)
            if kind in touched:
                exec_seconds(daemon, name, TOUCH)
                touched[kind].append(time.perf_counter() - begun)
    p50 = {kind: p(values, 0.5) for kind, values in seconds.items()}
    shown = ", ".join(f"{kind} p50 {value * 1000:.0f} ms" for kind, value in p50.items())
    print(
        f"\nto the first result of an exec: {shown}; wake {p50['wake'] / p50['unpause']:.2f} of an unpause,"
        f" {p50['wake'] / p50['start']:.2f} of a start (load {os.getloadavg()[0]:.0f})"
    )
    ratio = p(touched["wake"], 0.5) / p(touched["unpause"], 0.5)
    print(f"until all {MEBIBYTES} MiB are read: p50 {p(touched['wake'], 0.5):.2f} s, {ratio:.2f} of an unpause's")
    assert p50["wake"] < 2 * p50["unpause"]
    assert p50["wake"] < 1.5 * p50["start"]


def resume(daemon: RunningDaemon, name: str) -> None:
    with Paddock(f"unix://{daemon.socket}") as client:
        sandbox = client.sandboxes.get(name).patch({"spec": {"runState": "Running"}})
        sandbox.wait_until("Ready")


def test_a_daemon_at_rest_beside_hibernated_sandboxes(daemon: RunningDaemon) -> None:
    names = [f"tiny-{index}" for index in range(COUNT)]
    text = "---".join(SANDBOX % (name, '"1000000"', 24, 50) for name in names)
    smaller = {"paddock/python:1": "paddock/test-tiny:1", "[python3, -c,": "[sleep,"}
    for old, new in smaller.items():
        text = text.replace(old, new)
    daemon.apply(text)
    wanted = [f"sandbox/{name}" for name in names]
    seconds = 600 + 3 * COUNT
    daemon.paddock("wait", "--for=condition=Ready", f"--timeout={seconds}s", *wanted, seconds=seconds + 100)
    set_state(daemon, "Hibernated", *names)
    resident = [usage_bytes(daemon, name) / 2**20 for name in names]
    before, begun = cpu_seconds(daemon), time.perf_counter()
    time.sleep(REST_SECONDS)
    share = (cpu_seconds(daemon) - before) / (time.perf_counter() - begun)
    print(
        f"\n{COUNT} tiny sandboxes hibernated: {statistics.mean(resident):.2f} MiB resident each; the daemon uses"
        f" {share * 100:.2f} % of a core (wanted: at most 1; load {os.getloadavg()[0]:.0f})"
    )
    assert share < 0.05


def cpu_seconds(daemon: RunningDaemon) -> float:
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
