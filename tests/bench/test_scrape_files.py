"""Cost of a scrape that reads files: those of 500 made-up containers, and of real ones beside one-shot stats."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker as docker_py
import pytest

from controller.app.open_files import raise_limit
from controller.engine.docker.inspect import container_of
from controller.engine.usage.cgroup import CgroupUsage
from controller.kinds.observed.observed import Container
from controller.metrics.containers import ContainerCollector
from controller.metrics.objects import ObjectCollector
from controller.metrics.registry import Registry
from controller.metrics.render import open_metrics
from tests.bench.engine_cpu import engine_cpu_seconds
from tests.bench.test_scrape import whole_answer
from tests.daemon import docker
from tests.engine.test_engine_cgroups import V1, V2, Host
from tests.lab.engine_stats import usage_from_stats
from tests.metrics.made_up import container, sandbox, snapshot

pytestmark = pytest.mark.bench
FEW, COUNT = 50, 500
LIMIT_MS, FLAT = 0.15, 1.3
TIMES_CHEAPER = 10
# So many real ones, and rounds enough for the engine's 10 ms ticks.
REAL = int(os.environ.get("PADDOCK_BENCH_CONTAINERS", "20"))
SCRAPES, ROUNDS, THREADS = 50, 4, 8


@pytest.mark.parametrize("version", [1, 2])
def test_scrape_of_500_sandboxes_with_files_of_their_own(tmp_path: Path, version: int) -> None:
    """The whole answer, gzipped, for each of them, beside that of fifty."""
    raise_limit()  # as the daemon does
    host = Host(tmp_path, v1=tuple(V1) if version == 1 else (), v2=version == 2)
    sandboxes = [sandbox(f"box-{number:04d}") for number in range(COUNT)]
    ids = [f"{number:064x}" for number in range(COUNT)]
    for number, id_ in enumerate(ids):
        fill(host, id_, 10_000 + number)
    containers = [container(entry.obj, id=ids[number], pid=10_000 + number) for number, entry in enumerate(sandboxes)]
    few, (total, reading) = _costs(host, sandboxes[:FEW], containers[:FEW]), _costs(host, sandboxes, containers)
    print(
        f"\nscrape of {COUNT} made-up cgroups v{version}: {total:.3f} ms of CPU a sandbox (wanted {LIMIT_MS}),"
        f" {reading:.3f} of it for reading files; of {FEW}: {few[0]:.3f}; ratio {total / few[0]:.2f} (wanted {FLAT})"
    )
    assert total <= LIMIT_MS
    assert total <= few[0] * FLAT


def _costs(host: Host, sandboxes: Sequence[Any], made: Sequence[Container]) -> tuple[float, float]:
    """Return the milliseconds of CPU for each sandbox: of the whole answer, and of reading the files alone."""
    usage = CgroupUsage(host.cgroups)
    registry = _registry(sandboxes, made, usage)
    try:
        count = open_metrics(registry).count(b"paddock_container_memory_working_set_bytes{")  # it opens the files
        assert count == len(sandboxes)
        took = min(_took(lambda: whole_answer(registry)) for _ in range(15))
        only = min(_took(lambda: usage.read(made)) for _ in range(15))
    finally:
        usage.close()
    return took * 1000 / count, only * 1000 / count


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Real containers that run."""
    names = [f"paddock-bench-scrape-{number}" for number in range(REAL)]
    try:
        for name in names:
            limits = ("--memory", "64m", "--cpus", "0.5")
            docker("run", "-d", "--name", name, *limits, "paddock/test-tiny:1", "sleep", "1000000")
        yield names
    finally:
        docker("rm", "-f", *names, check=False)


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_a_scrape_beside_one_shot_stats_of_the_same_containers(names: list[str]) -> None:
    """All CPU of both ways: this process's and the engine's. What others ask of the engine meanwhile counts as well."""
    api = docker_py.APIClient(version="auto")
    usage = CgroupUsage()
    try:
        sandboxes = [sandbox(name) for name in names]
        containers = [container_of(api.inspect_container(name), swap_limit=True)[0] for name in names]
        created = [replace(first, uid=stored.obj.uid) for first, stored in zip(containers, sandboxes, strict=True)]
        registry = _registry(sandboxes, created, usage)
        assert open_metrics(registry).count(b"paddock_container_memory_working_set_bytes{") == REAL
        spent = _spent(lambda: _stats(api, created), ROUNDS)
        ours = _spent(lambda: open_metrics(registry), SCRAPES)
    finally:
        usage.close()
        api.close()
    print(
        f"\nscrape of {REAL} real containers, CPU each: {ours.own:.3f} ms and {ours.engine:.3f} of the engine; one-shot"
        f" stats {spent.own:.3f} and {spent.engine:.3f}; ratio {ours.cpu / spent.cpu:.3f}, that is"
        f" {spent.cpu / ours.cpu:.0f} times cheaper; in time {ours.passed:.3f} and {spent.passed:.1f} ms each"
    )
    assert ours.cpu * TIMES_CHEAPER <= spent.cpu


@dataclass(frozen=True, slots=True)
class Spent:
    """Milliseconds for each container and round: CPU of this process and of the engine, and time that passed."""

    own: float
    engine: float
    passed: float

    @property
    def cpu(self) -> float:
        return self.own + self.engine


def _spent(work: Callable[[], object], rounds: int) -> Spent:
    clocks = (time.process_time, engine_cpu_seconds, time.perf_counter)
    started = [clock() for clock in clocks]
    for _ in range(rounds):
        work()
    return Spent(*((clock() - at) * 1000 / REAL / rounds for clock, at in zip(clocks, started, strict=True)))


def _stats(api: Any, made: Sequence[Container]) -> None:
    """Of all of them, eight at a time: the engine takes a second for one."""

    def told(one: Container) -> bool:
        return usage_from_stats(api.stats(one.id, stream=False, one_shot=True), one) is not None

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(told, made))


def _registry(sandboxes: Sequence[Any], made: Sequence[Container], usage: CgroupUsage) -> Registry:
    observed = snapshot(*sandboxes, containers=made)
    registry = Registry()
    registry.register(ContainerCollector(lambda: observed, usage))
    registry.register(ObjectCollector(lambda: observed))
    return registry


def fill(host: Host, id_: str, pid: int) -> None:
    """One more container in its files."""
    group = f"/docker/{id_}"
    host.process(pid, group)
    for hierarchy, files in {"unified": V2}.items() if (host.sys / "unified").exists() else V1.items():
        folder = host.sys / hierarchy / group.lstrip("/")
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text + "\n")


def _took(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
