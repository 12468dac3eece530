"""Sandboxes that name a SandboxTemplate: found, missing, and changed."""

import pytest

from tests.plan.history import TINY, History


@pytest.fixture
def history() -> History:
    return History()


def limits(history: History, name: str) -> tuple[int, int]:
    reserved = history.engine.container(history.container_name(name)).limits
    return reserved.cpu_millicores, reserved.memory_bytes >> 20


def test_a_template_says_what_runs_and_its_resources_are_defaults(history: History) -> None:
    history.put("SandboxTemplate", "tiny", image=TINY, resources={"limits": {"cpu": "250m", "memory": "64Mi"}})
    history.refer("a", "tiny")
    history.refer("b", "tiny", resources={"limits": {"memory": "128Mi"}})
    history.settle()
    assert history.condition("a", "Ready") == history.condition("b", "Ready") == "True Running"
    assert (limits(history, "a"), limits(history, "b")) == ((250, 64), (250, 128))


def test_a_missing_template_is_waited_for(history: History) -> None:
    history.refer("a", "tiny")
    history.settle()
    assert history.condition("a", "Accepted") == "False Refused"
    assert history.containers() == {}
    history.put("SandboxTemplate", "tiny", image=TINY)
    history.settle()
    assert history.condition("a", "Ready") == "True Running"


def test_a_changed_template_recreates_nothing_until_the_next_start(history: History) -> None:
    history.put("SandboxTemplate", "tiny", image=TINY)
    history.refer("a", "tiny")
    history.settle()
    name = history.container_name("a")
    before = history.engine.container(name).id
    history.put("SandboxTemplate", "tiny", image="other:1", resources={"limits": {"memory": "64Mi"}})
    history.settle()
    assert history.condition("a", "Outdated") == "True RenderedDifferently"
    assert history.engine.container(name).id == before
    assert limits(history, "a")[1] == 64, "resources are changed in place"
    history.refer("a", "tiny", resources={"limits": {"memory": "96Mi"}})
    history.settle()
    assert history.engine.container(name).id == before, "a new generation for other reasons does not recreate it either"
    history.engine.kill(name)
    history.settle()
    assert history.engine.container(name).image_id == history.engine.images["other:1"]
    assert history.condition("a", "Outdated") == "False UpToDate"


def test_another_template_is_a_new_container(history: History) -> None:
    history.put("SandboxTemplate", "one", image=TINY)
    history.put("SandboxTemplate", "two", image="other:1")
    history.refer("a", "one")
    history.settle()
    history.refer("a", "two")
    history.settle()
    assert history.engine.container(history.container_name("a")).image_id == history.engine.images["other:1"]


def test_from_a_template_of_its_own_to_a_named_one_and_back(history: History) -> None:
    history.apply("a")
    history.settle()
    history.put("SandboxTemplate", "other", image="other:1")
    history.refer("a", "other")
    history.settle()
    assert history.engine.container(history.container_name("a")).image_id == history.engine.images["other:1"]
    history.apply("a")
    history.settle()
    assert history.engine.container(history.container_name("a")).image_id == history.engine.images[TINY]
