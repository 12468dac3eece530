"""Sandboxes as time goes by: made, kept, started again after failures, and left alone while the engine is away."""

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.planning.action import RemoveContainer, StartContainer, UpdateLimits
from controller.kinds.planning.outcome import Transient, Waiting
from tests.plan.history import History


@pytest.fixture
def history() -> History:
    return History()


def test_a_sandbox_is_made_and_kept(history: History) -> None:
    history.apply("web")
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
    name = history.container_name("web")
    history.engine.kill(name)
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
    history.engine.remove(name)
    history.settle()
    assert history.engine.container(name).state is State.RUNNING
    assert history.status("web")["restartCount"] == 2


def test_a_crash_loop_backs_off_and_a_restart_of_the_daemon_remembers(history: History) -> None:
    history.apply("web")
    history.settle()
    name = history.container_name("web")
    for _ in range(2):
        history.engine.exit(name, 1)
        history.settle(seconds=0)
    assert history.condition("web", "Ready") == "False CrashLoopBackOff"
    starts = len(history.engine.calls)
    history.daemon()
    history.settle(seconds=0)
    assert len(history.engine.calls) == starts
    history.clock.advance(20)
    history.settle(seconds=0)
    assert history.condition("web", "Ready") == "True Running"


def test_a_failed_start_keeps_its_first_cause(history: History) -> None:
    messages = ("no such device", "endpoint pdk-web exists already: 4a1", "endpoint pdk-web exists already: 7f2")
    history.engine.fail_next(StartContainer, *(Transient("StartFailed", name) for name in messages))
    history.apply("web")

    history.settle(seconds=0)
    assert history.message("web", "Degraded") == "no such device"
    for message in messages[1:]:
        history.clock.advance(2)
        history.settle(seconds=0)
        assert history.message("web", "Degraded") == f"{message}; the first try said: no such device"


def test_failed_calls_back_off_and_are_forgotten(history: History) -> None:
    history.engine.fail_next(StartContainer, *[Transient("StartFailed", "no")] * 3)
    history.apply("web")
    history.settle(seconds=0)
    assert history.condition("web", "Degraded") == "True StartFailed"
    before = history.clock.now()
    history.settle()
    assert history.clock.now() - before == pytest.approx(1 + 2 + 4, abs=0.1)
    assert history.condition("web", "Degraded") == "False AsExpected"
    assert history.instances()[0].state.backoff.failure is None


def test_readiness_names_a_missing_image_at_each_try(history: History) -> None:
    history.apply("web", template={"image": "gone:1"})
    history.settle(seconds=0)
    observed = set()
    for _ in range(40):
        history.run_pass()
        observed.add(history.condition("web", "Ready"))
        history.clock.advance(5)
    assert observed == {"False ImagePullFailed"}
    history.engine.add_image("gone:1")
    history.settle()
    assert history.condition("web", "Ready") == "True Running"


def test_a_pinned_image_that_is_gone_backs_off_and_a_change_of_the_spec_takes_the_new_one(history: History) -> None:
    history.apply("web")
    history.settle()
    history.engine.add_image(history.engine.container(history.container_name("web")).image)
    history.engine.remove(history.container_name("web"))
    before = len(history.engine.calls)
    history.settle(seconds=120)
    assert history.condition("web", "Degraded") == "True ImageMissing"
    assert len(history.engine.calls) - before < 20
    history.apply("web", template={"env": [{"name": "A", "value": "1"}]})
    history.settle()
    assert history.condition("web", "Ready") == "True Running"


def test_a_resize_that_has_to_wait_says_for_what(history: History) -> None:
    history.apply("web", resources={"limits": {"memory": "256Mi"}})
    history.settle()
    history.engine.fail_next(UpdateLimits, Waiting(5, "MemoryInUse", "200Mi are in use"))
    history.apply("web", resources={"limits": {"memory": "128Mi"}})
    history.settle(seconds=0)
    assert history.condition("web", "Resized") == "False Deferred"
    assert history.condition("web", "Ready") == "True Running"
    history.settle()
    assert history.condition("web", "Resized") == "True InForce"


def test_an_engine_that_goes_away_makes_nothing_twice(history: History) -> None:
    history.apply("web")
    history.settle()
    history.engine.go_down("connection refused")
    history.settle(seconds=0)
    assert history.condition("web", "Ready") == "Unknown EngineUnreachable"
    calls = len(history.engine.calls)
    history.engine.come_up()
    history.engine.observe_now(full=True)
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
    assert len(history.engine.calls) == calls


def test_an_engine_that_goes_away_in_the_middle_grows_no_back_off(history: History) -> None:
    history.engine.before_act = lambda action: history.engine.go_down() if isinstance(action, StartContainer) else None
    history.apply("web")
    history.settle(seconds=0)
    history.engine.before_act = None
    history.engine.come_up()
    history.engine.observe_now(full=True)
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
    assert history.instances()[0].state.backoff.failure is None


def test_a_foreign_container_on_our_name_is_left_alone(history: History) -> None:
    history.apply("web", runState="Suspended")
    history.settle()
    name = history.container_name("web")
    history.engine.add_foreign(name)
    history.apply("web")
    history.settle(seconds=0)
    assert history.condition("web", "Ready") == "False NameConflict"
    history.delete("web")
    history.settle()
    assert history.engine.exists(name)


@pytest.mark.parametrize("is_dead", [False, True], ids=["running", "dead"])
def test_containers_with_swapped_names_get_their_own(history: History, is_dead: bool) -> None:
    names = []
    for entry in ("a", "b", "c"):
        history.apply(entry)
        history.settle()
        names.append(history.container_name(entry))
    before = [history.engine.container(text).id for text in names]
    history.engine.rename(names[0], "aside")
    for name, free in ((names[1], names[0]), (names[2], names[1]), ("aside", names[2])):
        history.engine.rename(name, free)
    if is_dead:
        for name in names:
            history.engine.kill(name)
    history.settle()
    assert [history.engine.container(text).id for text in names] == before
    assert [history.condition(single, "Ready") for single in ("a", "b", "c")] == ["True Running"] * 3
    removed = [single for single in history.engine.calls if isinstance(single, RemoveContainer)]
    assert removed == []


@pytest.mark.parametrize("changes", [{"swap_bytes": -1}, {"restart_policy": "always"}, {"cpu_shares": 4096}])
@pytest.mark.parametrize("stopped", [False, True])
def test_what_docker_update_gave_is_taken_back(history: History, changes: dict[str, object], stopped: bool) -> None:
    history.apply("web", runState="Suspended" if stopped else "Running")
    history.settle()
    if stopped:
        history.apply("web")
        history.settle()
        history.apply("web", runState="Suspended")
        history.settle()
    name = history.container_name("web")
    history.engine.update(name, **changes)
    history.settle()
    box = history.engine.container(name)
    assert (box.out_of_band.swap_bytes, box.out_of_band.restart_policy, box.limits.cpu_shares) in (
        (0, "no", 0),
        (0, "no", 1024),
    )
    assert history.condition("web", "Resized") == "True InForce"


def test_another_level_makes_a_new_container_and_says_so(history: History) -> None:
    history.put("SandboxTemplate", "t", image="paddock/test-tiny:1", command=["sleep", "1000000"])
    history.refer("a", "t")
    history.settle()
    before = history.engine.container(history.container_name("a"))
    assert before.networks == ("none",)
    history.refer("a", "t", securityLevel="production")
    history.settle()
    after = history.engine.container(history.container_name("a"))
    assert after.id != before.id
    assert after.networks != ("none",)
    assert "spec.securityLevel changed" in next(
        event.message for event in history.events_of("a") if event.reason == "Recreating"
    )
