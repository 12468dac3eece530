"""limits.disk: held by the engine where it can, insisted on where the spec says so, and otherwise said to be soft."""

from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.observed.observed import HostFacts
from controller.kinds.observed.usage import LayerUsage
from controller.kinds.runtime.disk import DiskAbility
from controller.policy.network.egress import IMAGE
from tests.fakes.engine import FACTS
from tests.plan.history import History

ENFORCES = replace(FACTS, disk=DiskAbility(True, "writing past the size was refused"))
UNTRIED = replace(FACTS, disk=None)
QUICK = {"shutdownGracePeriodSeconds": 0}
TYPE = "DiskQuotaEnforced"


@pytest.fixture
def history() -> History:
    created = History()
    created.engine.add_image(IMAGE)
    return created


def becomes(history: History, facts: HostFacts) -> None:
    history.engine.facts = facts
    history.engine.observe_now()
    history.settle()


def put_sandbox(history: History, name: str = "a", disk: str = "1Gi", level: str = "development", **more: Any) -> None:
    resources: dict[str, Any] = {"limits": {"disk": disk} if disk else {}}
    if more:
        resources["disk"] = more
    history.apply(name, template={"securityLevel": level}, resources=resources, lifecycle=QUICK)
    history.settle()


def storage(history: History, name: str = "a") -> int:
    config = history.engine.container(history.container_name(name)).config
    assert config is not None
    return config.storage_bytes


def writes(history: History, count: int, name: str = "a") -> None:
    """The sandbox is measured to have written so many bytes."""
    sandbox = history.engine.container(history.container_name(name))
    history.layers[sandbox.id] = LayerUsage(count, history.clock.now())
    history.settle()


def condition_message(history: History, name: str) -> str:
    return next(
        str(condition["message"]) for condition in history.status(name)["conditions"] if condition["type"] == TYPE
    )


def test_the_engine_gets_a_size_where_it_holds_it(history: History) -> None:
    becomes(history, ENFORCES)
    put_sandbox(history)
    assert storage(history) == 1 << 30
    assert history.condition("a", TYPE) == "True StorageOption"
    put_sandbox(history, "b", disk="")
    assert storage(history, "b") == 0
    assert history.condition("b", TYPE) == "Unknown NotAsked"


def test_another_limit_takes_effect_at_the_next_start(history: History) -> None:
    becomes(history, ENFORCES)
    put_sandbox(history)
    name = history.engine.container(history.container_name("a")).id
    put_sandbox(history, disk="2Gi")
    assert history.engine.container(history.container_name("a")).id == name
    assert history.condition("a", TYPE) == "False NextStart"
    assert history.condition("a", "Outdated").startswith("True")
    history.engine.kill(history.container_name("a"))
    history.settle()
    assert storage(history) == 2 << 30
    assert history.condition("a", TYPE) == "True StorageOption"


def test_one_that_is_required_is_another_container_at_once(history: History) -> None:
    becomes(history, ENFORCES)
    put_sandbox(history, enforcement="Required")
    put_sandbox(history, disk="2Gi", enforcement="Required")
    assert storage(history) == 2 << 30
    assert history.condition("a", TYPE) == "True StorageOption"


def test_what_writes_to_memory_alone_may_be_required_anywhere(history: History) -> None:
    put_sandbox(history, level="full-isolation", enforcement="Required")
    assert history.condition("a", TYPE) == "True InMemory"


def test_an_engine_that_was_not_tried_yet_starts_nothing_that_requires_it(history: History) -> None:
    becomes(history, ENFORCES)
    put_sandbox(history, enforcement="Required")
    becomes(history, UNTRIED)
    assert history.engine.container(history.container_name("a")).state == "running"
    assert history.condition("a", "Accepted") == "False Refused"
    becomes(history, ENFORCES)
    assert history.condition("a", "Accepted") == "True Admitted"
    assert history.condition("a", TYPE) == "True StorageOption"


def test_a_host_that_lost_it_makes_none_that_requires_it(history: History) -> None:
    becomes(history, ENFORCES)
    put_sandbox(history, enforcement="Required")
    becomes(history, FACTS)
    history.engine.remove(history.container_name("a"))
    history.settle()
    assert not history.engine.exists(history.container_name("a"))


def test_a_soft_limit_stops_what_wrote_more_until_its_spec_changes(history: History) -> None:
    put_sandbox(history)
    writes(history, 1 << 30)
    assert history.condition("a", "Ready") == "True Running"
    writes(history, (1 << 30) + 4096)
    assert history.condition("a", "Finished") == "True DiskLimitExceeded"
    assert history.status("a")["lastTermination"]["reason"] == "Evicted"
    warned = [event.message for event in history.events if event.reason == "DiskLimitExceeded"]
    assert [name for name in warned if "limits.disk is 1Gi" in name] == warned != []
    history.layers.clear()  # what does not run is not measured
    history.daemon()
    history.clock.advance(7200)
    history.settle()
    assert history.engine.container(history.container_name("a")).state == "exited"
    put_sandbox(history, disk="2Gi")
    assert history.condition("a", "Ready") == "True Running"
    writes(history, (1 << 30) + 4096)
    assert history.condition("a", "Ready") == "True Running"


def test_a_limit_that_is_not_measured_is_no_silence(history: History) -> None:
    put_sandbox(history)
    sandbox = history.engine.container(history.container_name("a"))
    history.layers[sandbox.id] = LayerUsage(None, history.clock.now(), "it has more than 500000 files")
    history.settle()
    assert history.condition("a", TYPE) == "False NotMeasured"
    assert "more than 500000 files" in condition_message(history, "a")
    assert history.condition("a", "Ready") == "True Running"
    writes(history, 1)
    assert history.condition("a", TYPE) == "False Soft"


def test_what_is_held_otherwise_is_not_stopped(history: History) -> None:
    put_sandbox(history, "memory", level="full-isolation")
    writes(history, 2 << 30, "memory")
    becomes(history, ENFORCES)
    put_sandbox(history, "engine")
    writes(history, 2 << 30, "engine")
    put_sandbox(history, "free", disk="")
    writes(history, 2 << 30, "free")
    for name in ("memory", "engine", "free"):
        assert history.condition(name, "Ready") == "True Running"


def test_nothing_is_decided_before_the_host_has_said_what_it_can(history: History) -> None:
    history.engine.facts = HostFacts()
    history.engine.observe_now()
    put_sandbox(history)
    assert not history.engine.calls
    becomes(history, ENFORCES)
    assert storage(history) == 1 << 30
