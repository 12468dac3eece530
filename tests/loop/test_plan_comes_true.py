"""The plan that `diff --plan` prints is carried out: the printed calls against those that the engine was asked for."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import ReadTail
from controller.service import errors
from controller.service.explain.diff import Diff, Difference
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def document(name: str = "web", kind: str = "Sandbox", **spec: Any) -> str:
    metadata = {"name": name}
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})


def box(**spec: Any) -> dict[str, Any]:
    template = {"image": TINY, "command": ["sleep", "1000000"], **spec.pop("template", {})}
    return {"template": template, **spec}


def differ(house: LoopHarness) -> Diff:
    return Diff(
        apply=house.services.apply, store=house.store, clock=house.clock, snapshot=lambda: house.reconcile_pass.last
    )


def planned(house: LoopHarness, text: str, *, delete: bool = False) -> list[Difference]:
    """Return the plan after a pass, as the loop of a daemon makes them all the time."""
    house.run_pass()
    return differ(house).diff([Source("test", text)], plan=True, delete=delete)


def compare(house: LoopHarness, found: list[Difference], change: Any, *, new: str = "") -> list[str]:
    """Carry the change out; the calls that were printed must be those that were made, in that order."""
    printed = [str(action) for difference in found for plan in difference.forecasts for action in plan.actions]
    done = len(house.engine.calls)
    change()
    house.settle()
    texts = [str(entry) for entry in house.engine.calls[done:] if not isinstance(entry, ReadTail)]  # changes nothing
    if new:
        uid = house.container_name(new).rsplit("-", 1)[1]
        printed = [name.replace("xxxxxxxx", uid) for name in printed]
    assert texts == printed
    return [name.split()[0] for name in printed]


def apply(house: LoopHarness, text: str) -> None:
    house.services.apply.apply([Source("test", text)])


def running(house: LoopHarness, **spec: Any) -> None:
    apply(house, document(**box(**spec)))
    house.settle()


def test_create(house: LoopHarness) -> None:
    text = document(**box())
    differences = planned(house, text)
    assert differences[0].result == "created"
    assert house.names() == []
    assert compare(house, differences, lambda: apply(house, text), new="web") == ["create", "start"]


def test_unchanged(house: LoopHarness) -> None:
    running(house)
    differences = planned(house, document(**box()))
    assert (differences[0].result, differences[0].changes) == ("unchanged", ())
    assert compare(house, differences, lambda: apply(house, document(**box()))) == []


def test_memory_is_changed_in_place(house: LoopHarness) -> None:
    running(house)
    text = document(**box(resources={"limits": {"memory": "128Mi"}}))
    differences = planned(house, text)
    (change,) = differences[0].changes
    assert (change.field, change.before, change.after) == ("spec.resources.limits.memory", None, "128Mi")
    assert change.effect == "live"
    assert compare(house, differences, lambda: apply(house, text)) == ["update"]


@pytest.mark.parametrize("grace", [0, 10])
def test_another_image_is_a_new_container(house: LoopHarness, grace: int) -> None:
    spec = {"lifecycle": {"shutdownGracePeriodSeconds": grace}}
    running(house, **spec)
    text = document(**box(template={"image": "other:1"}, **spec))
    differences = planned(house, text)
    (change,) = differences[0].changes
    why = f"spec.template.image changed from {TINY} to other:1"
    lost = "; volumes stay, files in memory are lost, and its root file system begins from the image"
    assert (change.effect, change.why) == ("recreate", f"{why}{lost}")
    ladder = ["signal"] if grace else []
    assert compare(house, differences, lambda: apply(house, text)) == [*ladder, "remove", "create", "start"]


@pytest.mark.parametrize(("state", "calls"), [("Suspended", ["signal"]), ("Paused", ["pause"])])
def test_run_states_and_back(house: LoopHarness, state: str, calls: list[str]) -> None:
    running(house)
    text = document(**box(runState=state))
    assert compare(house, planned(house, text), lambda: apply(house, text)) == calls
    back = planned(house, document(**box()))
    assert back[0].changes[0].effect == "live"
    undone = {"Suspended": ["start"], "Paused": ["unpause"]}[state]
    assert compare(house, back, lambda: apply(house, document(**box()))) == undone


def test_an_image_for_a_suspended_one_waits_for_its_next_start(house: LoopHarness) -> None:
    running(house, runState="Suspended")
    text = document(**box(template={"image": "other:1"}, runState="Suspended"))
    differences = planned(house, text)
    assert differences[0].changes[0].effect == "at next start"
    assert compare(house, differences, lambda: apply(house, text)) == []
    both = document(**box(template={"image": "other:1"}))
    calls = compare(house, planned(house, both), lambda: apply(house, both))
    assert calls[-2:] == ["create", "start"]


def test_several_changes_at_once(house: LoopHarness) -> None:
    running(house)
    text = document(**box(template={"image": "other:1"}, resources={"limits": {"pids": 9}}, restartPolicy="Never"))
    differences = planned(house, text)
    assert sorted(change.effect for change in differences[0].changes) == ["live", "live", "recreate"]
    assert compare(house, differences, lambda: apply(house, text)) == ["signal", "remove", "create", "start"]


def test_deletion_of_one_that_runs(house: LoopHarness) -> None:
    running(house)
    differences = planned(house, document(**box()), delete=True)
    assert (differences[0].result, differences[0].forecasts[0].is_removed) == ("deleted", True)
    assert compare(house, differences, lambda: house.delete("web")) == ["signal", "remove"]
    assert house.names() == []


def test_deletion_of_one_that_finished(house: LoopHarness) -> None:
    running(house, restartPolicy="Never")
    house.engine.exit(house.container_name("web"), 0)
    house.settle()
    differences = planned(house, document(**box(restartPolicy="Never")), delete=True)
    assert compare(house, differences, lambda: house.delete("web")) == ["remove"]


def test_deletion_of_what_is_not_there(house: LoopHarness) -> None:
    (difference,) = planned(house, document(**box()), delete=True)
    assert (difference.result, difference.forecasts) == ("absent", ())


def test_what_is_refused_is_refused_alike_and_nothing_is_done(house: LoopHarness) -> None:
    running(house)
    text = document(**box(template={"user": "0:0"}))
    calls = len(house.engine.calls)
    with pytest.raises(errors.Invalid) as by_diff:
        planned(house, text)
    with pytest.raises(errors.Invalid) as by_apply:
        apply(house, text)
    assert str(by_diff.value) == str(by_apply.value)
    house.settle()
    assert len(house.engine.calls) == calls


def test_a_template_that_is_not_there_refuses_the_change(house: LoopHarness) -> None:
    running(house)
    # `template: null` takes the sandbox's own away.
    text = document(template=None, templateRef={"name": "nope"})
    differences = planned(house, text)
    assert {change.effect for change in differences[0].changes} == {"refused"}
    assert "there is no SandboxTemplate `nope`" in differences[0].changes[0].why
    assert compare(house, differences, lambda: apply(house, text)) == []
    assert house.condition("web", "Accepted") == "False Refused"


def test_a_template_tells_of_all_its_sandboxes(house: LoopHarness) -> None:
    apply(house, document("py", "SandboxTemplate", image=TINY, command=["sleep", "1000000"]))
    apply(house, document("one", templateRef={"name": "py"}))
    apply(house, document("two", templateRef={"name": "py"}, resources={"limits": {"memory": "64Mi"}}))
    house.settle()
    limits = {"limits": {"memory": "128Mi"}}
    text = document("py", "SandboxTemplate", image="other:1", command=["sleep", "1000000"], resources=limits)
    (difference,) = planned(house, text)
    assert {change.field: change.effect for change in difference.changes} == {
        "spec.image": "at next start",
        "spec.resources.limits.memory": "live",
    }
    assert [str(forecast.ref) for forecast in difference.forecasts] == ["sandbox/default/one", "sandbox/default/two"]
    assert compare(house, [difference], lambda: apply(house, text)) == ["update"]


def test_a_template_and_its_sandbox_in_one_file(house: LoopHarness) -> None:
    template = document("py", "SandboxTemplate", image=TINY, command=["sleep", "1000000"])
    text = f"{template}\n---\n{document(templateRef={'name': 'py'})}"
    differences = planned(house, text)
    # The sandbox is told twice: as a document, and as one that the template has a say in.
    assert [len(difference.forecasts) for difference in differences] == [1, 1]
    assert compare(house, differences[1:], lambda: apply(house, text), new="web") == ["create", "start"]


def test_a_daemon_that_has_not_looked_yet_promises_nothing(house: LoopHarness) -> None:
    with pytest.raises(errors.ServiceUnavailable, match="has not observed"):
        differ(house).diff([Source("test", document(**box()))], plan=True)


def test_a_crash_loop_is_not_called_settled(house: LoopHarness) -> None:
    running(house)
    for _ in range(2):
        house.engine.exit(house.container_name("web"), 1)
        house.settle(seconds=0)
    (difference,) = planned(house, document(**box()))
    assert difference.forecasts[0].reason == "CrashLoopBackOff"
    assert difference.forecasts[0].wait_seconds == pytest.approx(10, abs=1)


def test_a_new_image_while_the_engine_is_away_waits_for_it(house: LoopHarness) -> None:
    running(house)
    house.engine.go_down("connection refused")
    text = document(**box(template={"image": "other:1"}))
    (difference,) = planned(house, text)
    (change,) = difference.changes
    assert (change.effect, change.why) == ("recreate", "once this is over: EngineUnreachable: connection refused")
    assert compare(house, [difference], lambda: apply(house, text)) == []


STATES = ("Running", "Suspended", "Paused")
WAYS = [(image, memory, state) for image in (TINY, "other:1") for memory in ("64Mi", "128Mi") for state in STATES]


def asked(name: str, way: tuple[str, str, str]) -> str:
    image, memory, state = way
    return document(name, **box(template={"image": image}, resources={"limits": {"memory": memory}}, runState=state))


@pytest.mark.parametrize("before", WAYS[: len(WAYS) // 2], ids="-".join)
def test_from_every_way_to_every_other(house: LoopHarness, before: tuple[str, str, str]) -> None:
    for at, after in enumerate(WAYS):
        name = f"web-{at}"
        apply(house, asked(name, before))
        house.settle()
        printed = [str(action) for action in planned(house, asked(name, after))[0].forecasts[0].actions]
        done = len(house.engine.calls)
        apply(house, asked(name, after))
        house.settle()
        texts = [str(entry) for entry in house.engine.calls[done:] if not isinstance(entry, ReadTail)]
        # A call that the engine asked to make again counts once.
        assert [text for i, text in enumerate(texts) if texts[i - 1 : i] != [text]] == printed, (before, after)


def pool_document(**spec: Any) -> str:
    return document("warm", "SandboxPool", **{"templateRef": {"name": "base"}, **spec})


def pool_and_template(house: LoopHarness, **spec: Any) -> None:
    apply(house, document("base", "SandboxTemplate", image=TINY, command=["sleep", "1000000"]))
    apply(house, pool_document(**spec))
    house.settle()


def verbs(found: list[Difference]) -> list[str]:
    return [str(action).split()[0] for difference in found for plan in difference.forecasts for action in plan.actions]


def test_a_new_pool_is_filled(house: LoopHarness) -> None:
    apply(house, document("base", "SandboxTemplate", image=TINY, command=["sleep", "1000000"]))
    text = pool_document(warmReplicas=3)
    differences = planned(house, text)
    assert verbs(differences) == ["create", "start"] * 3
    done = len(house.engine.calls)
    apply(house, text)
    house.settle()
    assert [str(entry).split()[0] for entry in house.engine.calls[done:]] == verbs(differences)


def test_a_pool_and_its_template_in_one_file(house: LoopHarness) -> None:
    template = document("base", "SandboxTemplate", image=TINY, command=["sleep", "1000000"])
    _, difference = planned(house, f"{template}\n---\n{pool_document(warmReplicas=1)}")
    assert verbs([difference]) == ["create", "start"]


def test_a_pool_that_is_scaled_and_one_that_goes(house: LoopHarness) -> None:
    pool_and_template(house, warmReplicas=3)
    smaller = pool_document(warmReplicas=1)
    differences = planned(house, smaller)
    assert sum(verb == "remove" for verb in verbs(differences)) == 2
    compare(house, differences, lambda: apply(house, smaller))
    removed = planned(house, smaller, delete=True)
    assert removed[0].forecasts[0].is_removed
    compare(house, removed, lambda: house.delete("warm", "sandboxpool"))


def test_a_changed_template_replaces_a_pools_members_one_by_one(house: LoopHarness) -> None:
    pool_and_template(house, warmReplicas=2)
    text = document("base", "SandboxTemplate", image="other:1", command=["sleep", "1000000"])
    differences = planned(house, text)
    assert sorted(verbs(differences)).count("create") == sorted(verbs(differences)).count("remove") == 2


def test_a_new_sandbox_takes_the_warm_sandbox_that_was_told(house: LoopHarness) -> None:
    pool_and_template(house, warmReplicas=1)
    text = document("web", templateRef={"name": "base"}, resources={"limits": {"memory": "256Mi"}})
    (difference,) = planned(house, text)
    assert verbs([difference]) == ["update", "rename"]
    done = len(house.engine.calls)
    apply(house, text)
    house.settle()
    texts = [str(entry) for entry in house.engine.calls[done:] if "web" in str(entry)]
    assert texts == [str(action) for plan in difference.forecasts for action in plan.actions]


def test_of_two_new_sandboxes_and_one_warm_sandbox_one_is_cold(house: LoopHarness) -> None:
    pool_and_template(house, warmReplicas=1)
    text = "\n---\n".join(document(name, templateRef={"name": "base"}) for name in ("a", "b"))
    assert [verbs([difference]) for difference in planned(house, text)] == [["rename"], ["create", "start"]]
