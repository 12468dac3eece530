"""What a scrape costs that reads files: those of 500 made-up containers, and of real ones beside one-shot stats."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import docker as docker_py
import pytest

from controller.engine.inspect import container_of
from controller.engine.stats import usage_from_stats
from controller.engine.usage import CgroupUsage
from controller.kinds.observed import Container
from controller.metrics.containers import ContainerCollector
from controller.metrics.objects import ObjectCollector
from controller.metrics.registry import Registry
from controller.metrics.render import open_metrics
from tests.daemon import docker
from tests.engine.test_engine_cgroups import V1, V2, Host
from tests.metrics.made_up import container, sandbox, snapshot

pytestmark = pytest.mark.bench
COUNT, LIMIT_MS = 500, 0.8
REAL, ROUNDS = 10, 3


@pytest.mark.parametrize("version", [1, 2])
def test_scrape_of_500_sandboxes_with_files_of_their_own(tmp_path: Path, version: int) -> None:
    host = Host(tmp_path, v1=tuple(V1) if version == 1 else (), v2=version == 2)
    boxes = [sandbox(f"box-{number:04d}") for number in range(COUNT)]
    ids = [f"{number:064x}" for number in range(COUNT)]
    for number, id_ in enumerate(ids):
        _fill(host, id_, 10_000 + number)
    made = [container(each.obj, id=ids[number], pid=10_000 + number) for number, each in enumerate(boxes)]
    usage = CgroupUsage(host.cgroups)
    registry = _registry(boxes, made, usage)
    try:
        text = open_metrics(registry)  # it opens the folders
        cpu = min(_took(time.process_time, lambda: open_metrics(registry)) for _ in range(9))
        wall = min(_took(time.perf_counter, lambda: open_metrics(registry)) for _ in range(9))
        only = min(_took(time.process_time, lambda: usage.read(made)) for _ in range(9))
    finally:
        usage.close()
    assert text.count(b"paddock_container_memory_working_set_bytes{") == COUNT
    each, reading, passed = (seconds * 1000 / COUNT for seconds in (cpu, only, wall))
    print(
        f"\nscrape of {COUNT} made-up cgroups v{version}: {each:.3f} ms of CPU a sandbox, {reading:.3f} of it for"
        f" reading files ({passed:.3f} ms passed)"
    )
    assert each <= LIMIT_MS


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Real containers that run."""
    names = [f"paddock-bench-scrape-{number}" for number in range(REAL)]
    try:
        for each in names:
            limits = ("--memory", "64m", "--cpus", "0.5")
            docker("run", "-d", "--name", each, *limits, "paddock/test-tiny:1", "sleep", "1000000")
        yield names
    finally:
        docker("rm", "-f", *names, check=False)


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_a_scrape_beside_one_shot_stats_of_the_same_containers(names: list[str]) -> None:
    """CPU of this process alone: what the engine spends on its stats can't be told from what it does for others."""
    api = docker_py.APIClient(version="1.41")
    usage = CgroupUsage()
    try:
        boxes = [sandbox(each) for each in names]
        seen = [container_of(api.inspect_container(each), swap_limit=True)[0] for each in names]
        made = [replace(one, uid=box.obj.uid) for one, box in zip(seen, boxes, strict=True)]
        registry = _registry(boxes, made, usage)
        assert open_metrics(registry).count(b"paddock_container_memory_working_set_bytes{") == REAL
        stats = [_both(lambda: _stats(api, made)) for _ in range(ROUNDS)]
        scrapes = [_both(lambda: open_metrics(registry)) for _ in range(10 * ROUNDS)]
    finally:
        usage.close()
        api.close()
    (ours, waited), (theirs, waited_long) = _medians(scrapes), _medians(stats)
    print(
        f"\nscrape of {REAL} real containers: {ours:.3f} ms of CPU each, one-shot stats of them {theirs:.3f} ms, the"
        f" engine's own left out: ratio {ours / theirs:.2f}; in time {waited:.3f} and {waited_long:.1f} ms"
    )
    assert ours < theirs


def _both(work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds for each container: CPU, and time that passed."""
    cpu, began = time.process_time(), time.perf_counter()
    work()
    return (time.process_time() - cpu) * 1000 / REAL, (time.perf_counter() - began) * 1000 / REAL


def _medians(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return median(cpu for cpu, _ in found), median(passed for _, passed in found)


def _stats(api: Any, made: Sequence[Container]) -> None:
    for each in made:
        assert usage_from_stats(api.stats(each.id, stream=False, one_shot=True), each) is not None


def _registry(boxes: Sequence[Any], made: Sequence[Container], usage: CgroupUsage) -> Registry:
    seen = snapshot(*boxes, containers=made)
    registry = Registry()
    registry.register(ContainerCollector(lambda: seen, usage))
    registry.register(ObjectCollector(lambda: seen))
    return registry


def _fill(host: Host, id_: str, pid: int) -> None:
    """One more container in its files."""
    group = f"/docker/{id_}"
    host.process(pid, group)
    for hierarchy, files in {"unified": V2}.items() if (host.sys / "unified").exists() else V1.items():
        folder = host.sys / hierarchy / group.lstrip("/")
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text + "\n")


def _took(clock: Callable[[], float], work: Callable[[], object]) -> float:
    began = clock()
    work()
    return clock() - began
