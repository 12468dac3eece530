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
from controller.service.exec.agent_calls import AgentHealth
from controller.service.explain.why import Reasons, Why
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, LoopHarness

FACT = ("code contexts", "default")


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def ask(harness: LoopHarness, name: str = "web") -> Reasons:
    kind = discover().by_word("sandbox")
    assert kind is not None
    use_case = Why(
        objects=harness.services.objects,
        store=harness.store,
        clock=harness.clock,
        snapshot=lambda: harness.reconcile_pass.last,
    )
    return use_case.why(kind, "default", name)


def told(harness: LoopHarness) -> tuple[str, str]:
    explanation = ask(harness).explanation
    return explanation.verdict, explanation.reason


def test_nobody_has_looked_yet(harness: LoopHarness) -> None:
    harness.apply("web")
    with pytest.raises(ServiceUnavailable, match="in a moment"):
        ask(harness)


def test_there_is_no_such_sandbox(harness: LoopHarness) -> None:
    harness.settle()
    with pytest.raises(NotFound):
        ask(harness)


def test_one_that_was_just_applied_was_not_seen_yet(harness: LoopHarness) -> None:
    harness.settle()
    harness.apply("web")
    assert told(harness) == ("NotSeenYet", "NotSeenYet")


def test_one_at_rest_is_as_asked_and_asking_does_nothing(harness: LoopHarness) -> None:
    harness.apply("web", resources={"limits": {"memory": "64Mi"}})
    harness.settle()
    calls, revision = len(harness.engine.calls), harness.store.revision()
    answer = ask(harness)
    assert (answer.explanation.verdict, answer.explanation.actions) == ("AsAsked", ())
    assert dict(answer.explanation.desired)["limits"] == dict(answer.explanation.observed)["limits"]
    assert "memory=64Mi" in dict(answer.explanation.desired)["limits"]
    assert dict(answer.explanation.observed)["state"] == "running"
    assert [event.spec["reason"] for event in answer.events] == ["Created", "Started"]
    assert (len(harness.engine.calls), harness.store.revision()) == (calls, revision)


def test_why_names_a_full_memory_folder(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    use_case = Why(
        objects=harness.services.objects,
        store=harness.store,
        clock=harness.clock,
        snapshot=lambda: harness.reconcile_pass.last,
        folders=lambda _: (FolderUse("/tmp", 64 << 20, 64 << 20), FolderUse("/run", 0, 1 << 20)),
    )
    observed = [
        value for name, value in use_case.why(SANDBOX, "default", "web").explanation.observed if "folder" in name
    ]
    assert observed == ["`/tmp` is 100% full: 64Mi of 64Mi; delete files in it, or give it a larger `size`"]


@pytest.mark.parametrize(
    ("health", "contexts"), [(AgentHealth("answers"), [FACT]), (AgentHealth("hangs", silent=True), [])]
)
def test_a_silent_agent_is_asked_only_once(
    harness: LoopHarness, health: AgentHealth, contexts: list[tuple[str, str]]
) -> None:
    harness.apply("web")
    harness.settle()
    use_case = Why(
        objects=harness.services.objects,
        store=harness.store,
        clock=harness.clock,
        snapshot=lambda: harness.reconcile_pass.last,
        agent=lambda _: health,
        contexts=lambda _: (FACT,),
    )
    observed = use_case.why(SANDBOX, "default", "web").explanation.observed
    assert [fact for fact in observed if fact == FACT] == contexts
    assert ("agent", health.message) in observed


def test_why_names_the_failure_of_the_run_before(harness: LoopHarness) -> None:
    harness.apply("web", resources={"limits": {"memory": "64Mi"}})
    harness.settle(seconds=0)
    for _ in range(2):
        harness.clock.advance(30)
        harness.engine.exit(harness.container_name("web"), 137, oom=True)
        harness.settle(seconds=0)
        harness.clock.advance(11)  # its back-off
        harness.settle(seconds=0)
    explanation = ask(harness).explanation
    assert (explanation.verdict, explanation.reason) == ("Waiting", "OOMKilled")
    assert "exit code 137 at 64Mi, 2 ends in a row" in explanation.message
    harness.clock.advance(600)
    harness.settle(seconds=0)
    assert told(harness) == ("AsAsked", "AsAsked")


def test_what_is_to_be_done_is_told_with_its_reason(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.run_pass()
    harness.apply("web", runState="Suspended")
    harness.settle(seconds=0)
    harness.apply("web")
    harness.run_pass()
    explanation = ask(harness).explanation
    assert explanation.verdict == "Acting"
    assert [str(action) for action in explanation.actions] == [f"start {harness.container_name('web')}"]


def test_a_crash_loop_waits_and_says_until_when(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    for _ in range(2):
        harness.engine.exit(harness.container_name("web"), 3)
        harness.settle(seconds=0)
    explanation = ask(harness).explanation
    assert (explanation.verdict, explanation.reason) == ("Waiting", "CrashLoopBackOff")
    assert explanation.until is not None
    assert 9 < explanation.until - harness.clock.now() <= 10
    assert dict(explanation.remembered)["ends in a row"] == "2"
    assert dict(explanation.remembered)["last end"].startswith("Error: exit code 3")


def test_why_shows_the_log_line_behind_an_exit(harness: LoopHarness) -> None:
    harness.apply("web", restartPolicy="Never")
    harness.settle()
    harness.engine.say(harness.container_name("web"), "starting\nno such file: app.py\n")
    harness.engine.exit(harness.container_name("web"), 2)
    harness.settle()
    lines = [value for name, value in ask(harness).explanation.remembered if name == "its last line"]
    assert lines[-1] == "no such file: app.py"


def test_why_shows_the_probe_behind_a_kill(harness: LoopHarness) -> None:
    probe = {"exec": {"command": ["alive"]}, "periodSeconds": 5, "failureThreshold": 2}
    harness.engine.execs["alive"] = 0
    harness.apply("web", template={"liveness": probe}, lifecycle={"keepRunning": True})
    harness.settle(seconds=5)
    harness.engine.execs["alive"] = 1
    harness.settle(seconds=12)
    assert "liveness" in dict(ask(harness).explanation.remembered)["failed probe"]


def test_a_failed_call_is_counted_once_however_often_it_is_asked_about(harness: LoopHarness) -> None:
    harness.engine.fail_next(StartContainer, Transient("StartFailed", "no such runtime"))
    harness.apply("web")
    harness.settle(seconds=0)
    for _ in range(2):
        explanation = ask(harness).explanation
        assert (explanation.verdict, explanation.reason) == ("Waiting", "StartFailed")
        assert dict(explanation.remembered)["failed call"] == "StartFailed, 1 in a row: no such runtime"


def test_what_the_engine_refuses_for_good_is_refused(harness: LoopHarness) -> None:
    harness.engine.fail_next(StartContainer, Terminal("InvalidConfig", "the engine refuses this"))
    harness.apply("web")
    harness.settle(seconds=0)
    assert told(harness) == ("Refused", "InvalidConfig")


def test_a_missing_template_is_a_refusal_with_its_field(harness: LoopHarness) -> None:
    harness.refer("web", "nowhere")
    harness.settle(seconds=0)
    explanation = ask(harness).explanation
    assert (explanation.verdict, explanation.reason) == ("Refused", "Refused")
    assert "nowhere" in dict(explanation.desired)["refused spec.templateRef.name"]


def test_why_names_what_a_suspension_discards(harness: LoopHarness) -> None:
    harness.apply("web", lifecycle={"onSuspend": "Discard"})
    harness.settle()
    assert dict(ask(harness).explanation.desired)["onSuspend"] == "Discard"


def test_blind_is_not_known(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    harness.engine.go_down("connection refused")
    harness.settle(seconds=0)
    explanation = ask(harness).explanation
    assert (explanation.verdict, explanation.reason) == ("Unknown", "EngineUnreachable")
    assert "connection refused" in dict(explanation.observed)["engine"]


def test_a_finished_and_a_suspended_one_are_as_asked(harness: LoopHarness) -> None:
    harness.apply("web", restartPolicy="Never")
    harness.settle()
    harness.engine.exit(harness.container_name("web"), 0)
    harness.settle()
    assert told(harness) == ("AsAsked", "Completed")
    harness.apply("web", runState="Suspended")
    harness.settle()
    assert told(harness) == ("AsAsked", "Suspended")


def test_what_only_a_new_container_takes_back_is_told(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    harness.engine.update(harness.container_name("web"), cpus="0")
    harness.settle()
    assert "CPUs 0" in dict(ask(harness).explanation.observed)["differs"]
    assert harness.condition("web", "Degraded") == "True CpusetByHand"
    for state in ("Suspended", "Running"):
        harness.apply("web", runState=state)
        harness.settle()
    assert harness.condition("web", "Degraded") == "False AsExpected"
    assert harness.engine.container(harness.container_name("web")).out_of_band.cpus == ""


def put(harness: LoopHarness, kind: str, name: str, **spec: object) -> None:
    document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    harness.services.apply.apply([Source("test", json.dumps(document))])


def test_one_that_waits_for_room_says_whose_and_how_much(harness: LoopHarness) -> None:
    put(harness, "Quota", "main", hard={"memory": "100Mi"})
    harness.apply("first", resources={"limits": {"memory": "64Mi"}})
    harness.settle()
    harness.apply("web", resources={"limits": {"memory": "64Mi"}})
    harness.settle()
    assert told(harness) == ("Waiting", "QuotaExceeded")
    explanation = ask(harness).explanation
    assert explanation.message == "quota default/main: memory: 64Mi requested, 64Mi of 100Mi used"
    assert explanation.actions == ()
    assert "memory=64Mi" in dict(ask(harness, "first").explanation.remembered)["reserved"]


def test_growth_that_does_not_fit_is_told_while_the_old_limit_holds(harness: LoopHarness) -> None:
    put(harness, "Quota", "main", hard={"memory": "140Mi"})
    harness.apply("other", resources={"limits": {"memory": "64Mi"}})
    harness.apply("web", resources={"limits": {"memory": "64Mi"}})
    harness.settle()
    harness.apply("web", resources={"limits": {"memory": "128Mi"}})
    harness.settle()
    explanation = ask(harness).explanation
    assert (explanation.verdict, explanation.reason) == ("Waiting", "Deferred")
    assert "quota default/main: memory" in explanation.message
    assert "memory=64Mi" in dict(explanation.observed)["limits"]


def test_how_it_came_to_be_is_told(harness: LoopHarness) -> None:
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"])
    put(harness, "SandboxPool", "warm", templateRef={"name": "t"}, warmReplicas=1, maxReplicas=1)
    harness.settle()
    harness.refer("web", "t", poolPolicy="Require")
    harness.settle()
    assert dict(ask(harness).explanation.remembered)["launch"] == "Warm"
    assert told(harness) == ("AsAsked", "AsAsked")
    harness.refer("late", "t", poolPolicy="Require")
    harness.settle()
    explanation = ask(harness, "late").explanation
    assert (explanation.verdict, explanation.reason) == ("Waiting", "PoolExhausted")
    assert "warm" in explanation.message
    harness.apply("cold")
    harness.settle()
    assert dict(ask(harness, "cold").explanation.remembered)["launch"].startswith("Cold: ")
