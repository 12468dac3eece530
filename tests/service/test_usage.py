"""Usage of sandboxes: lists of an age are shared, so that many who ask cost one reading of the host."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import UsageSample
from controller.kinds.sandbox import KIND
from controller.service.sandbox.usage import Usages
from tests.helpers_api import QUICKSTART, World, make_world
from tests.metrics.made_up import USAGE


class Readings:
    """Samples of every stored sandbox; counts how often they were read."""

    def __init__(self, world: World) -> None:
        self._world, self.count = world, 0

    def __call__(self) -> Mapping[str, UsageSample]:
        self.count += 1
        objects, _ = self._world.store.list("Sandbox")
        now = self._world.clock.now()
        running = [
            Container(id=stored.name, name=stored.name, uid=stored.uid, state=State.RUNNING) for stored in objects
        ]
        return {container.uid: UsageSample(container, USAGE, now, 0.25, 5.0) for container in running}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    created = make_world(tmp_path)
    created.apply(QUICKSTART)
    yield created
    created.store.close()


@pytest.fixture
def readings(world: World) -> Readings:
    return Readings(world)


@pytest.fixture
def usages(world: World, readings: Readings) -> Usages:
    return Usages(world.services.objects, readings)


def test_lists_of_an_age_share_a_reading(world: World, readings: Readings, usages: Usages) -> None:
    first = usages.of_all(KIND, None, max_age_seconds=5.0)
    world.clock.advance(4.9)
    assert usages.of_all(KIND, None, max_age_seconds=5.0) is first
    assert readings.count == 1
    world.clock.advance(0.2)
    assert usages.of_all(KIND, None, max_age_seconds=5.0) is not first
    assert readings.count == 2


def test_lists_are_new_by_default(readings: Readings, usages: Usages) -> None:
    usages.of_all(KIND, None, max_age_seconds=5.0)
    usages.of_all(KIND, None)
    assert readings.count == 2


def test_namespaces_share_no_list(world: World, usages: Usages) -> None:
    world.apply(QUICKSTART.replace("name: quickstart", "name: other\n  namespace: elsewhere"))
    names = [
        [usage.obj.name for usage in usages.of_all(KIND, namespace, max_age_seconds=5.0).usages]
        for namespace in (None, "default", "elsewhere")
    ]
    assert names == [["quickstart", "other"], ["quickstart"], ["other"]]


def test_clock_set_back_ends_sharing(world: World, readings: Readings, usages: Usages) -> None:
    usages.of_all(KIND, None, max_age_seconds=5.0)
    world.clock.advance(-3600.0)
    usages.of_all(KIND, None, max_age_seconds=5.0)
    assert readings.count == 2


def test_list_is_what_the_api_shows(usages: Usages) -> None:
    document = json.loads(usages.of_all(KIND, "default").json)
    assert document["kind"] == "SandboxMetricsList"
    (item,) = document["items"]
    assert item["metadata"]["name"] == "quickstart"
    assert item["usage"]["cpuPercent"] == 25.0
