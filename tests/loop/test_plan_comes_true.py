"""The plan that `diff --plan` prints is carried out: the printed calls against those that the engine was asked for."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import ReadTail
from controller.service import errors
from controller.service.explain.diff import Diff, Difference
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, LoopHarness


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def document(name: str = "web", kind: str = "Sandbox", **spec: Any) -> str:
    metadata = {"name": name}
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})


def sandbox(**spec: Any) -> dict[str, Any]:
    template = {"image": TINY, "command": ["sleep", "1000000"], **spec.pop("template", {})}
    return {"template": template, **spec}


def differ(harness: LoopHarness) -> Diff:
    return Diff(
        apply=harness.services.apply,
        store=harness.store,
        clock=harness.clock,
        snapshot=lambda: harness.reconcile_pass.last,
    )


def planned(harness: LoopHarness, text: str, *, delete: bool = False) -> list[Difference]:
    """Return the plan after a pass, as the loop of a daemon makes them all the time."""
    harness.run_pass()
    return differ(harness).diff([Source("test", text)], plan=True, delete=delete)


def compare(harness: LoopHarness, found: list[Difference], change: Any, *, new: str = "") -> list[str]:
    """Carry the change out; the calls that were printed must be those that were made, in that order."""
    printed = [str(action) for difference in found for plan in difference.forecasts for action in plan.actions]
    done = len(harness.engine.calls)
    change()
    harness.settle()
    texts = [str(entry) for entry in harness.engine.calls[done:] if not isinstance(entry, ReadTail)]  # changes nothing
    if new:
        uid = harness.container_name(new).rsplit("-", 1)[1]
        printed = [name.replace("xxxxxxxx", uid) for name in printed]
    assert texts == printed
    return [name.split()[0] for name in printed]


def apply(harness: LoopHarness, text: str) -> None:
    harness.services.apply.apply([Source("test", text)])


def running(harness: LoopHarness, **spec: Any) -> None:
    apply(harness, document(**sandbox(**spec)))
    harness.settle()


def test_create(harness: LoopHarness) -> None:
    text = document(**sandbox())
    differences = planned(harness, text)
    assert differences[0].result == "created"
    assert harness.names() == []
    assert compare(harness, differences, lambda: apply(harness, text), new="web") == ["create", "start"]


def test_unchanged(harness: LoopHarness) -> None:
    running(harness)
    differences = planned(harness, document(**sandbox()))
    assert (differences[0].result, differences[0].changes) == ("unchanged", ())
    assert compare(harness, differences, lambda: apply(harness, document(**sandbox()))) == []


def test_memory_is_changed_in_place(harness: LoopHarness) -> None:
    running(harness)
    text = document(**sandbox(resources={"limits": {"memory": "128Mi"}}))
    differences = planned(harness, text)
    (change,) = differences[0].changes
    assert (change.field, change.before, change.after) == ("spec.resources.limits.memory", None, "128Mi")
    assert change.effect == "live"
    assert compare(harness, differences, lambda: apply(harness, text)) == ["update"]


@pytest.mark.parametrize("grace", [0, 10])
def test_another_image_is_a_new_container(harness: LoopHarness, grace: int) -> None:
    spec = {"lifecycle": {"shutdownGracePeriodSeconds": grace}}
    running(harness, **spec)
    text = document(**sandbox(template={"image": "other:1"}, **spec))
    differences = planned(harness, text)
    (change,) = differences[0].changes
    why = f"spec.template.image changed from {TINY} to other:1"
    lost = "; volumes stay, files in memory are lost, and its root file system begins from the image"
    assert (change.effect, change.why) == ("recreate", f"{why}{lost}")
    ladder = ["signal"] if grace else []
    assert compare(harness, differences, lambda: apply(harness, text)) == [*ladder, "remove", "create", "start"]


@pytest.mark.parametrize(("state", "calls"), [("Suspended", ["signal"]), ("Paused", ["pause"])])
def test_run_states_and_back(harness: LoopHarness, state: str, calls: list[str]) -> None:
    running(harness)
    text = document(**sandbox(runState=state))
    assert compare(harness, planned(harness, text), lambda: apply(harness, text)) == calls
    back = planned(harness, document(**sandbox()))
    assert back[0].changes[0].effect == "live"
    undone = {"Suspended": ["start"], "Paused": ["unpause"]}[state]
    assert compare(harness, back, lambda: apply(harness, document(**sandbox()))) == undone


def test_an_image_for_a_suspended_one_waits_for_its_next_start(harness: LoopHarness) -> None:
    running(harness, runState="Suspended")
    text = document(**sandbox(template={"image": "other:1"}, runState="Suspended"))
    differences = planned(harness, text)
    assert differences[0].changes[0].effect == "at next start"
    assert compare(harness, differences, lambda: apply(harness, text)) == []
    both = document(**sandbox(template={"image": "other:1"}))
    calls = compare(harness, planned(harness, both), lambda: apply(harness, both))
    assert calls[-2:] == ["create", "start"]


def test_several_changes_at_once(harness: LoopHarness) -> None:
    running(harness)
    text = document(**sandbox(template={"image": "other:1"}, resources={"limits": {"pids": 9}}, restartPolicy="Never"))
    differences = planned(harness, text)
    assert sorted(change.effect for change in differences[0].changes) == ["live", "live", "recreate"]
    assert compare(harness, differences, lambda: apply(harness, text)) == ["signal", "remove", "create", "start"]


def test_deletion_of_one_that_runs(harness: LoopHarness) -> None:
    running(harness)
    differences = planned(harness, document(**sandbox()), delete=True)
    assert (differences[0].result, differences[0].forecasts[0].is_removed) == ("deleted", True)
    assert compare(harness, differences, lambda: harness.delete("web")) == ["signal", "remove"]
    assert harness.names() == []


def test_deletion_of_one_that_finished(harness: LoopHarness) -> None:
    running(harness, restartPolicy="Never")
    harness.engine.exit(harness.container_name("web"), 0)
    harness.settle()
    differences = planned(harness, document(**sandbox(restartPolicy="Never")), delete=True)
    assert compare(harness, differences, lambda: harness.delete("web")) == ["remove"]


def test_deletion_of_what_is_not_there(harness: LoopHarness) -> None:
    (difference,) = planned(harness, document(**sandbox()), delete=True)
    assert (difference.result, difference.forecasts) == ("absent", ())


def test_what_is_refused_is_refused_alike_and_nothing_is_done(harness: LoopHarness) -> None:
    running(harness)
    text = document(**sandbox(template={"user": "0:0"}))
    calls = len(harness.engine.calls)
    with pytest.raises(errors.Invalid) as by_diff:
        planned(harness, text)
    with pytest.raises(errors.Invalid) as by_apply:
        apply(harness, text)
    assert str(by_diff.value) == str(by_apply.value)
    harness.settle()
    assert len(harness.engine.calls) == calls


def test_a_template_that_is_not_there_refuses_the_change(harness: LoopHarness) -> None:
    running(harness)
    # `template: null` takes the sandbox's own away.
    text = document(template=None, templateRef={"name": "nope"})
    differences = planned(harness, text)
    assert {change.effect for change in differences[0].changes} == {"refused"}
    assert "there is no SandboxTemplate `nope`" in differences[0].changes[0].why
    assert compare(harness, differences, lambda: apply(harness, text)) == []
    assert harness.condition("web", "Accepted") == "False Refused"


def test_a_template_tells_of_all_its_sandboxes(harness: LoopHarness) -> None:
    apply(harness, document("py", "SandboxTemplate", image=TINY, command=["sleep", "1000000"]))
    apply(harness, document("one", templateRef={"name": "py"}))
    apply(harness, document("two", templateRef={"name": "py"}, resources={"limits": {"memory": "64Mi"}}))
    harness.settle()
    limits = {"limits": {"memory": "128Mi"}}
    text = document("py", "SandboxTemplate", image="other:1", command=["sleep", "1000000"], resources=limits)
    (difference,) = planned(harness, text)
    assert {change.field: change.effect for change in difference.changes} == {
        "spec.image": "at next start",
        "spec.resources.limits.memory": "live",
    }
    assert [str(forecast.ref) for forecast in difference.forecasts] == ["sandbox/default/one", "sandbox/default/two"]
    assert compare(harness, [difference], lambda: apply(harness, text)) == ["update"]


def test_a_template_and_its_sandbox_in_one_file(harness: LoopHarness) -> None:
    template = document("py", "SandboxTemplate", image=TINY, command=["sleep", "1000000"])
    text = f"{template}\n---\n{document(templateRef={'name': 'py'})}"
    differences = planned(harness, text)
    # The sandbox is told twice: as a document, and as one that the template has a say in.
    assert [len(difference.forecasts) for difference in differences] == [1, 1]
    assert compare(harness, differences[1:], lambda: apply(harness, text), new="web") == ["create", "start"]


def test_a_daemon_that_has_not_looked_yet_promises_nothing(harness: LoopHarness) -> None:
    with pytest.raises(errors.ServiceUnavailable, match="has not observed"):
        differ(harness).diff([Source("test", document(**sandbox()))], plan=True)


def test_a_crash_loop_is_not_called_settled(harness: LoopHarness) -> None:
    running(harness)
    for _ in range(2):
        harness.engine.exit(harness.container_name("web"), 1)
        harness.settle(seconds=0)
    (difference,) = planned(harness, document(**sandbox()))
    assert difference.forecasts[0].reason == "CrashLoopBackOff"
    assert difference.forecasts[0].wait_seconds == pytest.approx(10, abs=1)


def test_a_new_image_while_the_engine_is_away_waits_for_it(harness: LoopHarness) -> None:
    running(harness)
    harness.engine.go_down("connection refused")
    text = document(**sandbox(template={"image": "other:1"}))
    (difference,) = planned(harness, text)
    (change,) = difference.changes
    assert (change.effect, change.why) == ("recreate", "once this is over: EngineUnreachable: connection refused")
    assert compare(harness, [difference], lambda: apply(harness, text)) == []


def pool_document(**spec: Any) -> str:
    return document("warm", "SandboxPool", **{"templateRef": {"name": "base"}, **spec})


def pool_and_template(harness: LoopHarness, **spec: Any) -> None:
    apply(harness, document("base", "SandboxTemplate", image=TINY, command=["sleep", "1000000"]))
    apply(harness, pool_document(**spec))
    harness.settle()


def verbs(found: list[Difference]) -> list[str]:
    return [str(action).split()[0] for difference in found for plan in difference.forecasts for action in plan.actions]


def test_a_new_pool_is_filled(harness: LoopHarness) -> None:
    apply(harness, document("base", "SandboxTemplate", image=TINY, command=["sleep", "1000000"]))
    text = pool_document(warmReplicas=3)
    differences = planned(harness, text)
    assert verbs(differences) == ["create", "start"] * 3
    done = len(harness.engine.calls)
    apply(harness, text)
    harness.settle()
    assert [str(entry).split()[0] for entry in harness.engine.calls[done:]] == verbs(differences)


def test_a_pool_and_its_template_in_one_file(harness: LoopHarness) -> None:
    template = document("base", "SandboxTemplate", image=TINY, command=["sleep", "1000000"])
    _, difference = planned(harness, f"{template}\n---\n{pool_document(warmReplicas=1)}")
    assert verbs([difference]) == ["create", "start"]


def test_a_pool_that_is_scaled_and_one_that_goes(harness: LoopHarness) -> None:
    pool_and_template(harness, warmReplicas=3)
    smaller = pool_document(warmReplicas=1)
    differences = planned(harness, smaller)
    assert sum(verb == "remove" for verb in verbs(differences)) == 2
    compare(harness, differences, lambda: apply(harness, smaller))
    removed = planned(harness, smaller, delete=True)
    assert removed[0].forecasts[0].is_removed
    compare(harness, removed, lambda: harness.delete("warm", "sandboxpool"))


def test_a_changed_template_replaces_a_pools_members_one_by_one(harness: LoopHarness) -> None:
    pool_and_template(harness, warmReplicas=2)
    text = document("base", "SandboxTemplate", image="other:1", command=["sleep", "1000000"])
    differences = planned(harness, text)
    assert sorted(verbs(differences)).count("create") == sorted(verbs(differences)).count("remove") == 2


def test_a_new_sandbox_takes_the_warm_sandbox_that_was_told(harness: LoopHarness) -> None:
    pool_and_template(harness, warmReplicas=1)
    text = document("web", templateRef={"name": "base"}, resources={"limits": {"memory": "256Mi"}})
    (difference,) = planned(harness, text)
    assert verbs([difference]) == ["update", "rename"]
    done = len(harness.engine.calls)
    apply(harness, text)
    harness.settle()
    texts = [str(entry) for entry in harness.engine.calls[done:] if "web" in str(entry)]
    assert texts == [str(action) for plan in difference.forecasts for action in plan.actions]


def test_of_two_new_sandboxes_and_one_warm_sandbox_one_is_cold(harness: LoopHarness) -> None:
    pool_and_template(harness, warmReplicas=1)
    text = "\n---\n".join(document(name, templateRef={"name": "base"}) for name in ("a", "b"))
    assert [verbs([difference]) for difference in planned(harness, text)] == [["rename"], ["create", "start"]]
