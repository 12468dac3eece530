"""Previews: the planner's own steps, whole sequences, and every kind of action."""

from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.planning.action import ReadTail
from controller.kinds.planning.instance_state import InstanceState
from controller.plan.explain.preview import Forecast, preview
from controller.policy.profiles import as_seen
from tests.plan.case_file import NOW, POLICY, container, instance, memory, sandbox, snapshot, uid_of
from tests.plan.history import TINY, History

SPEC = {"template": {"image": "a:1"}}


def forecast(
    *, spec: dict, found: list | None = None, remembered: InstanceState | None = None, **said: object
) -> Forecast:
    stored = sandbox("a", spec, **said)
    document = {uid_of("a"): instance(stored, remembered)} if remembered else {}
    return preview(snapshot([stored], found or [], instances=document), {uid_of("a")}, POLICY)[uid_of("a")]


def calls(found: Forecast) -> list[str]:
    return [str(action) for action in found.actions]


def test_new_sandbox_is_created_and_started() -> None:
    observed = forecast(spec=SPEC)
    assert calls(observed) == ["create pdk-a-auid from a:1", "start pdk-a-auid"]
    assert (observed.reason, observed.is_removed) == ("", False)


def test_new_image_shows_all_steps_with_the_reason() -> None:
    old = sandbox("a", SPEC)
    observed = forecast(
        spec={"template": {"image": "b:1"}},
        generation=2,
        found=[container(old, generation=1)],
        remembered=memory(old, run=["a-c1", -100]),
    )
    assert calls(observed) == [
        "signal TERM pdk-a-auid",
        "remove pdk-a-auid",
        "create pdk-a-auid from b:1",
        "start pdk-a-auid",
    ]
    assert {action.why for action in observed.actions} == {"spec.template.image changed from a:1 to b:1"}
    assert observed.reason == ""


def test_wait_shows_reason_and_time() -> None:
    stored = sandbox("a", SPEC)
    end = container(stored, state="exited", started=-3, finished=-2, exit_code=1)
    observed = forecast(spec=SPEC, found=[end], remembered=memory(stored, run=["a-c1", -3], crashes=2))
    assert (observed.actions, observed.reason) == ((), "CrashLoopBackOff")
    assert observed.wait_seconds is not None
    assert 0 < observed.wait_seconds <= 20


def test_paused_and_then_suspended_is_unpaused_first() -> None:
    stored = sandbox("a", {**SPEC, "runState": "Suspended"}, generation=2)
    observed = forecast(spec={**SPEC, "runState": "Suspended"}, found=[container(stored, state="paused")], generation=2)
    assert calls(observed) == ["unpause pdk-a-auid", "signal TERM pdk-a-auid"]
    assert observed.reason == "Suspended"


def test_blind_pass_forecasts_nothing() -> None:
    stored = sandbox("a", SPEC)
    observed = preview(snapshot([stored], [], blind="no engine"), {uid_of("a")}, POLICY)[uid_of("a")]
    assert (observed.actions, observed.reason, observed.message) == ((), "EngineUnreachable", "no engine")


def test_actions_in_flight_do_not_hide_the_object() -> None:
    stored = sandbox("a", SPEC)
    occupied = snapshot([stored], [], in_flight=frozenset((uid_of("a"),)))
    assert len(preview(occupied, {uid_of("a")}, POLICY)[uid_of("a")].actions) == 2


def test_preview_covers_requested_objects_only() -> None:
    first, second = sandbox("a", SPEC), sandbox("b", SPEC)
    created = snapshot([first, second], [])
    before = replace(created)
    assert set(preview(created, {uid_of("b")}, POLICY)) == {uid_of("b")}
    assert created == before
    assert created.now == NOW


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"name": "other"}, ["rename other to pdk-a-auid"]),
        ({"limits": {"pids": 7}}, ["update pdk-a-auid cpu=1 memory=512Mi pids=64"]),
        ({"state": "paused"}, ["unpause pdk-a-auid"]),
        ({"networks": ("none", "bridge")}, ["disconnect pdk-a-auid from bridge"]),
    ],
)
def test_repairs_happen_once(said: dict, wanted: list[str]) -> None:
    stored = sandbox("a", SPEC)
    observed = forecast(spec=SPEC, found=[container(stored, **said)], remembered=memory(stored, run=["a-c1", -100]))
    assert (calls(observed), observed.reason) == (wanted, "")


def test_deletion_ends_with_nothing_left() -> None:
    stored = sandbox("a", SPEC)
    observed = forecast(spec=SPEC, found=[container(stored)], deleted_at=NOW)
    assert (calls(observed), observed.is_removed) == (["signal TERM pdk-a-auid", "remove pdk-a-auid"], True)


def spec_of(way: tuple[str, str, str]) -> dict[str, Any]:
    """Return the spec of a way to run: its image, its memory, and its run state."""
    image, memory_limit, state = way
    return {"template": {"image": image}, "resources": {"limits": {"memory": memory_limit}}, "runState": state}


STATES = ("Running", "Suspended", "Paused")
WAYS = [(image, limit, state) for image in (TINY, "other:1") for limit in ("64Mi", "128Mi") for state in STATES]


@pytest.mark.parametrize("before", WAYS[: len(WAYS) // 2], ids="-".join)
def test_every_change_comes_true_as_previewed(before: tuple[str, str, str]) -> None:
    history = History()
    for number, after in enumerate(WAYS):
        name = f"web-{number}"
        history.apply(name, **spec_of(before))
        history.settle()
        history.apply(name, **spec_of(after))
        uid, host, done = history.object("Sandbox", name).uid, history.snapshot(), len(history.engine.calls)
        printed = calls(preview(host, {uid}, as_seen(history.policy, host))[uid])
        history.settle()
        texts = [str(action) for action in history.engine.calls[done:] if not isinstance(action, ReadTail)]
        # A call that the engine asked to make again counts once.
        assert [text for i, text in enumerate(texts) if texts[i - 1 : i] != [text]] == printed, (before, after)
