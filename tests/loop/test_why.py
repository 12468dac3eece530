"""`why`: the explanation says what the loop does, at rest and in every sort of trouble, and costs nothing at rest."""

import json
from collections.abc import Iterator

import pytest

from controller.kinds.observed.usage import FolderUse
from controller.kinds.planning.action import StartContainer
from controller.kinds.planning.outcome import Terminal, Transient
from controller.kinds.registry import discover
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import NotFound, ServiceUnavailable
from controller.service.explain.why import Reasons, Why
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def ask(house: LoopHarness, name: str = "web") -> Reasons:
    kind = discover().by_word("sandbox")
    assert kind is not None
    use_case = Why(
        objects=house.services.objects, store=house.store, clock=house.clock, snapshot=lambda: house.reconcile_pass.last
    )
    return use_case.why(kind, "default", name)


def told(house: LoopHarness) -> tuple[str, str]:
    explanation = ask(house).explanation
    return explanation.verdict, explanation.reason


def test_nobody_has_looked_yet(house: LoopHarness) -> None:
    house.apply("web")
    with pytest.raises(ServiceUnavailable, match="in a moment"):
        ask(house)


def test_there_is_no_such_sandbox(house: LoopHarness) -> None:
    house.settle()
    with pytest.raises(NotFound):
        ask(house)


def test_one_that_was_just_applied_was_not_seen_yet(house: LoopHarness) -> None:
    house.settle()
    house.apply("web")
    assert told(house) == ("NotSeenYet", "NotSeenYet")


def test_one_at_rest_is_as_asked_and_asking_does_nothing(house: LoopHarness) -> None:
    house.apply("web", resources={"limits": {"memory": "64Mi"}})
    house.settle()
    calls, revision = len(house.engine.calls), house.store.revision()
    answer = ask(house)
    assert (answer.explanation.verdict, answer.explanation.actions) == ("AsAsked", ())
    assert dict(answer.explanation.desired)["limits"] == dict(answer.explanation.observed)["limits"]
    assert "memory=64Mi" in dict(answer.explanation.desired)["limits"]
    assert dict(answer.explanation.observed)["state"] == "running"
    assert [event.spec["reason"] for event in answer.events] == ["Created", "Started"]
    assert (len(house.engine.calls), house.store.revision()) == (calls, revision)


def test_why_names_a_full_memory_folder(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    use_case = Why(
        objects=house.services.objects,
        store=house.store,
        clock=house.clock,
        snapshot=lambda: house.reconcile_pass.last,
        folders=lambda _: (FolderUse("/tmp", 64 << 20, 64 << 20), FolderUse("/run", 0, 1 << 20)),
    )
    observed = [
        value for name, value in use_case.why(SANDBOX, "default", "web").explanation.observed if "folder" in name
    ]
    assert observed == ["`/tmp` is 100% full: 64Mi of 64Mi; delete files in it, or give it a larger `size`"]


def test_why_names_the_failure_of_the_run_before(house: LoopHarness) -> None:
    house.apply("web", resources={"limits": {"memory": "64Mi"}})
    house.settle(seconds=0)
    for _ in range(2):
        house.clock.advance(30)
        house.engine.exit(house.container_name("web"), 137, oom=True)
        house.settle(seconds=0)
        house.clock.advance(11)  # its back-off
        house.settle(seconds=0)
    explanation = ask(house).explanation
    assert (explanation.verdict, explanation.reason) == ("Waiting", "OOMKilled")
    assert "exit code 137 at 64Mi, 2 ends in a row" in explanation.message
    house.clock.advance(600)
    house.settle(seconds=0)
    assert told(house) == ("AsAsked", "AsAsked")


def test_what_is_to_be_done_is_told_with_its_reason(house: LoopHarness) -> None:
    house.apply("web")
    house.run_pass()
    house.apply("web", runState="Suspended")
    house.settle(seconds=0)
    house.apply("web")
    house.run_pass()
    explanation = ask(house).explanation
    assert explanation.verdict == "Acting"
    assert [str(action) for action in explanation.actions] == [f"start {house.container_name('web')}"]


def test_a_crash_loop_waits_and_says_until_when(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    for _ in range(2):
        house.engine.exit(house.container_name("web"), 3)
        house.settle(seconds=0)
    explanation = ask(house).explanation
    assert (explanation.verdict, explanation.reason) == ("Waiting", "CrashLoopBackOff")
    assert explanation.until is not None
    assert 9 < explanation.until - house.clock.now() <= 10
    assert dict(explanation.remembered)["ends in a row"] == "2"
    assert dict(explanation.remembered)["last end"].startswith("Error: exit code 3")


def test_why_shows_the_log_line_behind_an_exit(house: LoopHarness) -> None:
    house.apply("web", restartPolicy="Never")
    house.settle()
    house.engine.say(house.container_name("web"), "starting\nno such file: app.py\n")
    house.engine.exit(house.container_name("web"), 2)
    house.settle()
    lines = [value for name, value in ask(house).explanation.remembered if name == "its last line"]
    assert lines[-1] == "no such file: app.py"


def test_why_shows_the_probe_behind_a_kill(house: LoopHarness) -> None:
    probe = {"exec": {"command": ["alive"]}, "periodSeconds": 5, "failureThreshold": 2}
    house.engine.execs["alive"] = 0
    house.apply("web", template={"liveness": probe}, lifecycle={"keepRunning": True})
    house.settle(seconds=5)
    house.engine.execs["alive"] = 1
    house.settle(seconds=12)
    assert "liveness" in dict(ask(house).explanation.remembered)["failed probe"]


def test_a_failed_call_is_counted_once_however_often_it_is_asked_about(house: LoopHarness) -> None:
    house.engine.fail_next(StartContainer, Transient("StartFailed", "no such runtime"))
    house.apply("web")
    house.settle(seconds=0)
    for _ in range(2):
        explanation = ask(house).explanation
        assert (explanation.verdict, explanation.reason) == ("Waiting", "StartFailed")
        assert dict(explanation.remembered)["failed call"] == "StartFailed, 1 in a row: no such runtime"


def test_what_the_engine_refuses_for_good_is_refused(house: LoopHarness) -> None:
    house.engine.fail_next(StartContainer, Terminal("InvalidConfig", "the engine refuses this"))
    house.apply("web")
    house.settle(seconds=0)
    assert told(house) == ("Refused", "InvalidConfig")


def test_a_missing_template_is_a_refusal_with_its_field(house: LoopHarness) -> None:
    house.refer("web", "nowhere")
    house.settle(seconds=0)
    explanation = ask(house).explanation
    assert (explanation.verdict, explanation.reason) == ("Refused", "Refused")
    assert "nowhere" in dict(explanation.desired)["refused spec.templateRef.name"]


def test_blind_is_not_known(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    house.engine.go_down("connection refused")
    house.settle(seconds=0)
    explanation = ask(house).explanation
    assert (explanation.verdict, explanation.reason) == ("Unknown", "EngineUnreachable")
    assert "connection refused" in dict(explanation.observed)["engine"]


def test_a_finished_and_a_suspended_one_are_as_asked(house: LoopHarness) -> None:
    house.apply("web", restartPolicy="Never")
    house.settle()
    house.engine.exit(house.container_name("web"), 0)
    house.settle()
    assert told(house) == ("AsAsked", "Completed")
    house.apply("web", runState="Suspended")
    house.settle()
    assert told(house) == ("AsAsked", "Suspended")


def test_what_only_a_new_container_takes_back_is_told(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    house.engine.update(house.container_name("web"), cpus="0")
    house.settle()
    assert "CPUs 0" in dict(ask(house).explanation.observed)["differs"]
    assert house.condition("web", "Degraded") == "True CpusetByHand"
    for state in ("Suspended", "Running"):
        house.apply("web", runState=state)
        house.settle()
    assert house.condition("web", "Degraded") == "False AsExpected"
    assert house.engine.box(house.container_name("web")).out_of_band.cpus == ""


@pytest.mark.parametrize("changes", [{"swap_bytes": -1}, {"restart_policy": "always"}, {"cpu_shares": 4096}])
@pytest.mark.parametrize("stopped", [False, True])
def test_what_docker_update_gave_is_taken_back(house: LoopHarness, changes: dict[str, object], stopped: bool) -> None:
    house.apply("web", runState="Suspended" if stopped else "Running")
    house.settle()
    if stopped:
        house.apply("web")
        house.settle()
        house.apply("web", runState="Suspended")
        house.settle()
    name = house.container_name("web")
    house.engine.update(name, **changes)
    house.settle()
    box = house.engine.box(name)
    assert (box.out_of_band.swap_bytes, box.out_of_band.restart_policy, box.limits.cpu_shares) in (
        (0, "no", 0),
        (0, "no", 1024),
    )
    assert house.condition("web", "Resized") == "True InForce"


def put(house: LoopHarness, kind: str, name: str, **spec: object) -> None:
    document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    house.services.apply.apply([Source("test", json.dumps(document))])


def test_one_that_waits_for_room_says_whose_and_how_much(house: LoopHarness) -> None:
    put(house, "Quota", "main", hard={"memory": "100Mi"})
    house.apply("first", resources={"limits": {"memory": "64Mi"}})
    house.settle()
    house.apply("web", resources={"limits": {"memory": "64Mi"}})
    house.settle()
    assert told(house) == ("Waiting", "QuotaExceeded")
    explanation = ask(house).explanation
    assert explanation.message == "quota default/main: memory: 64Mi requested, 64Mi of 100Mi used"
    assert explanation.actions == ()
    assert "memory=64Mi" in dict(ask(house, "first").explanation.remembered)["reserved"]


def test_growth_that_does_not_fit_is_told_while_the_old_limit_holds(house: LoopHarness) -> None:
    put(house, "Quota", "main", hard={"memory": "140Mi"})
    house.apply("other", resources={"limits": {"memory": "64Mi"}})
    house.apply("web", resources={"limits": {"memory": "64Mi"}})
    house.settle()
    house.apply("web", resources={"limits": {"memory": "128Mi"}})
    house.settle()
    explanation = ask(house).explanation
    assert (explanation.verdict, explanation.reason) == ("Waiting", "Deferred")
    assert "quota default/main: memory" in explanation.message
    assert "memory=64Mi" in dict(explanation.observed)["limits"]


def test_how_it_came_to_be_is_told(house: LoopHarness) -> None:
    house.apply_template("t", image=TINY, command=["sleep", "1000000"])
    put(house, "SandboxPool", "warm", templateRef={"name": "t"}, warmReplicas=1, maxReplicas=1)
    house.settle()
    house.refer("web", "t", poolPolicy="Require")
    house.settle()
    assert dict(ask(house).explanation.remembered)["launch"] == "Warm"
    assert told(house) == ("AsAsked", "AsAsked")
    house.refer("late", "t", poolPolicy="Require")
    house.settle()
    explanation = ask(house, "late").explanation
    assert (explanation.verdict, explanation.reason) == ("Waiting", "PoolExhausted")
    assert "warm" in explanation.message
    house.apply("cold")
    house.settle()
    assert dict(ask(house, "cold").explanation.remembered)["launch"].startswith("Cold: ")
