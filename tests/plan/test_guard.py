"""The guard lost while sandboxes run: what only it confines is frozen, stopped or told until it is back."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.planning.action import PauseContainer, SignalContainer, UnpauseContainer
from controller.kinds.planning.outcome import Transient
from controller.policy.levels.levels import GuardLost, Policy
from controller.policy.network.egress import IMAGE
from tests.plan.history import History
from tests.small_sandboxes import apply_small

GONE = "the table is gone"
Make = Callable[[GuardLost], History]


@pytest.fixture
def make() -> Make:
    def history(guard_lost: GuardLost) -> History:
        created = History(replace(Policy(), guard_lost=guard_lost))
        created.engine.add_image(IMAGE)
        return created

    return history


def running(history: History, name: str, level: str = "production", **spec: object) -> None:
    apply_small(history, name, level, **spec)
    history.settle()
    assert history.condition(name, "Ready") == "True Running"


def guard(history: History, words: str) -> None:
    history.engine.unguarded = words
    history.engine.observe_now()
    history.settle()


def state(history: History, name: str) -> State:
    return history.engine.container(history.container_name(name)).state


def told(history: History, name: str) -> list[str]:
    return [event.reason for event in history.events_of(name) if event.reason in ("GuardLost", "GuardBack")]


def secured(history: History, name: str) -> str:
    return next(
        condition["message"] for condition in history.status(name)["conditions"] if condition["type"] == "Secured"
    )


def test_what_only_the_guard_confines_is_frozen_until_it_is_back(make: Make) -> None:
    history = make("pause")
    running(history, "open")
    for level in ("full-isolation", "development", "build"):
        running(history, level, level)
    before = history.engine.container(history.container_name("open")).id
    guard(history, GONE)
    assert state(history, "open") is State.PAUSED
    assert history.condition("open", "Ready") == "False NetworkUnguarded"
    assert history.condition("open", "NetworkReady") == "False NetworkUnguarded"
    assert history.condition("open", "Secured") == "False NetworkUnguarded"
    assert GONE in secured(history, "open")
    for level in ("full-isolation", "development", "build"):
        assert state(history, level) is State.RUNNING
        assert history.condition(level, "Ready") == "True Running"
        assert told(history, level) == []
    guard(history, "")
    assert state(history, "open") is State.RUNNING
    assert history.engine.container(history.container_name("open")).id == before
    assert history.condition("open", "Ready") == "True Running"
    assert history.condition("open", "Secured") == "True Attested"
    assert told(history, "open") == ["GuardLost", "GuardBack"]
    assert history.status("open")["restartCount"] == 0


def test_it_may_be_stopped_instead_at_once_and_starts_again(make: Make) -> None:
    history = make("stop")
    running(history, "open", restartPolicy="Never")
    guard(history, GONE)
    assert [entry.signal for entry in history.engine.calls if isinstance(entry, SignalContainer)] == ["KILL"]
    assert state(history, "open") is State.EXITED
    assert history.condition("open", "Ready") == "False NetworkUnguarded"
    assert history.condition("open", "Finished") == "False NotFinished"
    guard(history, "")
    assert history.condition("open", "Ready") == "True Running"
    assert told(history, "open") == ["GuardLost"]


def test_it_may_be_told_alone(make: Make) -> None:
    history = make("report")
    running(history, "open")
    calls = len(history.engine.calls)
    guard(history, GONE)
    guard(history, GONE)
    assert len(history.engine.calls) == calls
    assert history.condition("open", "Ready") == "False NetworkUnguarded"
    assert history.condition("open", "Secured") == "False NetworkUnguarded"
    guard(history, "")
    assert history.condition("open", "Ready") == "True Running"
    assert told(history, "open") == ["GuardLost", "GuardBack"]


def test_what_can_not_be_frozen_is_stopped(make: Make) -> None:
    history = make("pause")
    running(history, "open")
    history.engine.fail_next(PauseContainer, Transient("EngineError", "no freezer"))
    guard(history, GONE)
    assert state(history, "open") is State.EXITED
    guard(history, "")
    assert history.condition("open", "Ready") == "True Running"


def test_a_guard_that_can_not_be_read_is_not_lost(make: Make) -> None:
    history = make("pause")
    running(history, "open")
    history.engine.guard_unread = True
    guard(history, "nft failed: timed out")
    assert state(history, "open") is State.RUNNING
    assert history.condition("open", "Ready") == "True Running"
    assert history.condition("open", "NetworkReady") == "Unknown NetworkUnguarded"
    history.engine.guard_unread = False
    guard(history, GONE)
    assert state(history, "open") is State.PAUSED
    history.engine.guard_unread = True
    guard(history, "nft failed: timed out")
    assert state(history, "open") is State.PAUSED


def test_what_is_frozen_can_be_suspended_and_deleted_without_time_to_run(make: Make) -> None:
    history = make("pause")
    running(history, "one")
    running(history, "other")
    guard(history, GONE)
    history.apply("one", template={"securityLevel": "production"}, runState="Suspended")
    history.delete("other")
    history.settle()
    assert "other" not in history.names()
    assert state(history, "one") is State.EXITED
    assert history.condition("one", "Suspended") == "True Suspended"
    assert {entry.signal for entry in history.engine.calls if isinstance(entry, SignalContainer)} == {"KILL"}


def test_what_was_to_be_paused_stays_so_when_the_guard_is_back(make: Make) -> None:
    history = make("pause")
    running(history, "open")
    guard(history, GONE)
    history.apply("open", template={"securityLevel": "production"}, runState="Paused")
    guard(history, "")
    assert state(history, "open") is State.PAUSED
    assert history.condition("open", "Ready") == "False Paused"
    assert not [entry for entry in history.engine.calls if isinstance(entry, UnpauseContainer)]


def test_another_spec_is_not_run_before_the_guard_is_back(make: Make) -> None:
    history = make("pause")
    running(history, "open")
    guard(history, GONE)
    history.apply("open", template={"securityLevel": "production", "env": [{"name": "A", "value": "1"}]})
    history.settle()
    assert state(history, "open") is State.PAUSED
    guard(history, "")
    assert history.condition("open", "Ready") == "True Running"
    assert ("A", "1") in history.engine.container(history.container_name("open")).config.env


def test_the_next_daemon_knows_what_was_frozen_and_why(make: Make) -> None:
    history = make("pause")
    running(history, "open")
    guard(history, GONE)
    history.daemon()
    guard(history, "")
    assert state(history, "open") is State.RUNNING
    assert told(history, "open") == ["GuardLost", "GuardBack"]
