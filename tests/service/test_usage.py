"""Usage of sandboxes: lists of an age are shared, so that many who ask cost one reading of the host."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import UsageSample
from controller.kinds.sandbox import KIND
from controller.service.sandbox.usage import Usages
from tests.helpers_api import QUICKSTART, ApiStack, make_api
from tests.metrics.made_up import USAGE


class Readings:
    """Samples of every stored sandbox; counts how often they were read."""

    def __init__(self, api: ApiStack) -> None:
        self._api, self.count = api, 0

    def __call__(self) -> Mapping[str, UsageSample]:
        self.count += 1
        objects, _ = self._api.store.list("Sandbox")
        now = self._api.clock.now()
        running = [
            Container(id=stored.name, name=stored.name, uid=stored.uid, state=State.RUNNING) for stored in objects
        ]
        return {container.uid: UsageSample(container, USAGE, now, 0.25, 5.0) for container in running}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiStack]:
    created = make_api(tmp_path)
    created.apply(QUICKSTART)
    yield created
    created.store.close()


@pytest.fixture
def readings(api: ApiStack) -> Readings:
    return Readings(api)


@pytest.fixture
def usages(api: ApiStack, readings: Readings) -> Usages:
    return Usages(api.services.objects, readings)


def test_lists_of_an_age_share_a_reading(api: ApiStack, readings: Readings, usages: Usages) -> None:
    first = usages.of_all(KIND, None, max_age_seconds=5.0)
    api.clock.advance(4.9)
    assert usages.of_all(KIND, None, max_age_seconds=5.0) is first
    assert readings.count == 1
    api.clock.advance(0.2)
    assert usages.of_all(KIND, None, max_age_seconds=5.0) is not first
    assert readings.count == 2


def test_lists_are_new_by_default(readings: Readings, usages: Usages) -> None:
    usages.of_all(KIND, None, max_age_seconds=5.0)
    usages.of_all(KIND, None)
    assert readings.count == 2


def test_namespaces_share_no_list(api: ApiStack, usages: Usages) -> None:
    api.apply(QUICKSTART.replace("name: quickstart", "name: other\n  namespace: elsewhere"))
    names = [
        [usage.obj.name for usage in usages.of_all(KIND, namespace, max_age_seconds=5.0).usages]
        for namespace in (None, "default", "elsewhere")
    ]
    assert names == [["quickstart", "other"], ["quickstart"], ["other"]]


def test_clock_set_back_ends_sharing(api: ApiStack, readings: Readings, usages: Usages) -> None:
    usages.of_all(KIND, None, max_age_seconds=5.0)
    api.clock.advance(-3600.0)
    usages.of_all(KIND, None, max_age_seconds=5.0)
    assert readings.count == 2


def test_list_is_what_the_api_shows(usages: Usages) -> None:
    document = json.loads(usages.of_all(KIND, "default").json)
    assert document["kind"] == "SandboxMetricsList"
    (item,) = document["items"]
    assert item["metadata"]["name"] == "quickstart"
    assert item["usage"]["cpuPercent"] == 25.0
