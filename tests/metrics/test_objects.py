"""Desired and actual state of sandboxes, as a scrape shows it."""

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from controller.kinds.meta import StoredObject
from controller.kinds.observed.activity import Activity, StoredUse
from controller.kinds.planning.instance_state import Termination
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.securityprofile import StoredProfile, stored_profile
from controller.metrics.catalogue.objects import CONDITIONS, STATES
from controller.metrics.objects import ObjectCollector
from controller.metrics.registry import Registry
from controller.metrics.render import plain_text
from tests.instance_states import instance_state
from tests.metrics.made_up import MIB, NOW, SPEC, Scraped, instance, many, sandbox, scrape, snapshot
from tests.snapshots import changed_snapshot

HERE = {"namespace": "default", "sandbox": "box"}
BOX = sandbox("box")


def scraped(seen: Snapshot | None, **options: tuple[str, ...]) -> Scraped:
    return scrape(ObjectCollector(lambda: seen, **options).collect)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("created_timestamp_seconds", NOW - 100),
        ("deletion_timestamp_seconds", None),
        ("metadata_generation", 3),
        ("status_observed_generation", 3),
        ("spec_running", 1),
        ("spec_cpu_limit_cores", 0.5),
        ("spec_memory_limit_bytes", 256 * MIB),
        ("spec_pids_limit", 128),
        ("status_ready", 1),
        ("status_restarts_total", 2),
        ("status_last_termination_exit_code", 137),
        ("status_waiting_reason", None),
    ],
)
def test_each_figure_is_where_it_belongs(name: str, value: float | None) -> None:
    assert scraped(snapshot(BOX)).value(f"paddock_sandbox_{name}", **HERE) == value


def test_what_differs_is_counted_where_detail_is_asked_for() -> None:
    name, observed = "paddock_sandbox_status_drifted_fields", snapshot(BOX)

    def shown(*, detail: bool = False) -> list[float | None]:
        both = (observed, changed_snapshot(observed, drifted={BOX.obj.uid: 2}))
        collectors = [ObjectCollector(lambda each=entry: each, detail=detail) for entry in both]
        return [scrape(collector.collect).value(name, **HERE) for collector in collectors]

    assert (shown(detail=True), shown()) == ([0, 2], [None, None])


def test_use_is_shown_from_the_store_from_memory_and_while_it_goes_on() -> None:
    stored = instance(BOX.obj, instance_state(use=StoredUse(NOW - 50, open=False, noted_at=NOW - 50, generation=3)))
    observed = replace(snapshot(BOX), instances={BOX.obj.uid: stored})

    def shown(*used: Activity) -> float | None:
        now = changed_snapshot(observed, activity=dict.fromkeys([BOX.obj.uid], *used) if used else {})
        return scraped(now).value("paddock_sandbox_last_activity_timestamp_seconds", **HERE)

    assert (shown(), shown(Activity(NOW - 5)), shown(Activity(NOW - 5, open=1))) == (NOW - 50, NOW - 5, NOW)
    assert scraped(snapshot(BOX)).value("paddock_sandbox_last_activity_timestamp_seconds", **HERE) is None


def test_info_has_the_specs_facts() -> None:
    count = scraped(snapshot(BOX)).value(
        "paddock_sandbox_info",
        **HERE,
        uid=BOX.obj.uid,
        image="paddock/python:1",
        security_level="full-isolation",
        network="none",
        pool="",
    )
    assert count == 1


def test_info_tells_the_network_of_the_level_as_the_spec_narrows_it() -> None:
    def networks(level: str, **more: Any) -> set[str]:
        spec = {"template": {"image": "paddock/python:1", "securityLevel": level, **more}}
        samples = scraped(snapshot(sandbox("box", spec))).samples
        return {sample.labels["network"] for sample in samples if sample.name == "paddock_sandbox_info"}

    assert networks("development") == {"sealed"}
    assert networks("production") == {"public"}
    assert networks("production", security={"network": {"mode": "none"}}) == {"none"}
    assert networks("nobody's") == {""}


def test_exactly_one_state_is_1() -> None:
    printed = scraped(snapshot(BOX))
    values = {state: printed.value("paddock_sandbox_status_state", **HERE, state=state) for state in STATES}
    absent = {"Hibernated": None}
    assert values == {state: float(state == "Running") for state in STATES} | absent


def test_conditions_are_1_0_or_absent() -> None:
    stored = [
        {"type": "Ready", "status": "False", "reason": "CrashLoopBackOff"},
        {"type": "Secured", "status": "Unknown"},
        {"type": "AgentCallersEnforced", "status": "False", "reason": "RunsAsRoot"},
    ]
    printed = scraped(snapshot(sandbox("box", status={"conditions": stored})))
    expected = {
        type_: printed.value("paddock_sandbox_status_condition", **HERE, condition=type_) for type_ in CONDITIONS
    }
    false = ("Ready", "AgentCallersEnforced")
    assert expected == {**dict.fromkeys(CONDITIONS), **dict.fromkeys(false, 0)}
    assert printed.value("paddock_sandbox_status_ready", **HERE) == 0
    assert printed.value("paddock_sandbox_status_waiting_reason", **HERE, reason="CrashLoopBackOff") == 1
    assert printed.value("paddock_sandbox_status_observed_generation", **HERE) is None


def test_a_sandbox_being_deleted_says_since_when() -> None:
    printed = scraped(snapshot(sandbox("box", deleted_at=NOW - 5)))
    assert printed.value("paddock_sandbox_deletion_timestamp_seconds", **HERE) == NOW - 5
    assert printed.value("paddock_sandbox_status_state", **HERE, state="Terminating") == 1


def test_a_sandbox_meant_to_stand_still_is_not_meant_to_run() -> None:
    spec = {"template": {"image": "paddock/python:1"}, "runState": "Suspended"}
    assert scraped(snapshot(sandbox("box", spec))).value("paddock_sandbox_spec_running", **HERE) == 0


def test_limits_left_to_the_level_are_those_reserved() -> None:
    spec = {"template": {"image": "paddock/python:1"}, "resources": {"limits": {"pids": 7}}}
    box = sandbox("box", spec)
    printed = scraped(snapshot(box))
    assert printed.value("paddock_sandbox_spec_pids_limit", **HERE) == 7
    assert printed.value("paddock_sandbox_spec_memory_limit_bytes", **HERE) == 256 * MIB
    alone = scraped(replace(snapshot(box), instances={}))
    assert alone.value("paddock_sandbox_spec_memory_limit_bytes", **HERE) is None
    assert alone.value("paddock_sandbox_spec_pids_limit", **HERE) == 7


def test_a_spec_that_cannot_be_read_still_shows_its_object() -> None:
    printed = scraped(snapshot(Sandbox(BOX.obj, None, broken="written by a newer version")))
    assert printed.value("paddock_sandbox_info", **HERE, image="", security_level="") == 1
    assert printed.value("paddock_sandbox_spec_running", **HERE) is None


@pytest.mark.parametrize(("reason", "shown_as"), [("OOMKilled", "OOMKilled"), ("Gremlins", "other")])
def test_the_last_end_keeps_to_the_list_of_reasons(reason: str, shown_as: str) -> None:
    end = Termination("id-before", 137, reason, NOW - 90, NOW - 70)
    observed = replace(snapshot(BOX), instances={BOX.obj.uid: instance(BOX.obj, instance_state(last_end=end))})
    assert scraped(observed).value("paddock_sandbox_status_last_termination_reason", **HERE, reason=shown_as) == 1


def test_a_sandbox_that_never_ended_has_no_last_end() -> None:
    printed = scraped(
        replace(snapshot(BOX), instances={BOX.obj.uid: instance(BOX.obj, instance_state(restarts=0, crashes=1))})
    )
    assert printed.value("paddock_sandbox_status_restarts_total", **HERE) == 0
    assert printed.value("paddock_sandbox_status_last_termination_exit_code", **HERE) is None


def test_user_labels_are_exported_by_allow_list_only() -> None:
    labels = {"app.example.org/name": "web", "secret": "x"}
    observed = snapshot(sandbox("box", labels=labels), sandbox("plain"))
    assert "paddock_sandbox_labels" not in scraped(observed).names()
    printed = scraped(observed, label_allowlist=("app.example.org/name",))
    samples = [sample for sample in printed.samples if sample.name == "paddock_sandbox_labels"]
    assert [sample.labels for sample in samples] == [{**HERE, "label_app_example_org_name": "web"}]


def test_series_vanish_with_their_object_at_the_next_scrape() -> None:
    now = [many(2)]
    collector = ObjectCollector(lambda: now[0])
    assert scrape(collector.collect).names(sandbox="box-0001")
    now[0] = many(1)
    assert scrape(collector.collect).names(sandbox="box-0001") == []


def test_lines_that_are_kept_are_those_of_a_new_collector() -> None:
    """A scrape of each snapshot after the one before: whatever has changed is written anew."""
    box = sandbox("box", {**SPEC, "template": {"image": "paddock/python:1", "securityLevel": "own"}})
    uid, first = box.obj.uid, snapshot(box, sandbox("plain"))
    current = [first]

    def text(collector: ObjectCollector) -> bytes:
        registry = Registry()
        registry.register(collector)
        observed = plain_text(registry)
        assert observed == generate_latest(registry), "the samples are those of the lines"
        return observed

    def own(**spec: Any) -> dict[str, StoredProfile]:
        stored = {"base": "development", **spec}
        return {"own": stored_profile(StoredObject("SecurityProfile", "", "own", "own", stored))}

    object_collector, texts = ObjectCollector(lambda: current[0], label_allowlist=("team",)), []
    for changed in (
        {},
        {"sandboxes": {uid: replace(box, obj=replace(box.obj, labels={"team": "a"}))}},
        {"observed": replace(first.observed, containers={})},
        {"instances": {uid: instance(box.obj, instance_state(restarts=9))}},
        {"activity": {uid: Activity(1.0, open=1)}},
        {"profiles": own()},
        {"profiles": own(network={"mode": "none"})},
    ):
        current[0] = changed_snapshot(first, **changed)
        texts.append(text(object_collector))
        assert (
            texts[-1] == text(object_collector) == text(ObjectCollector(lambda: current[0], label_allowlist=("team",)))
        )
    assert len(set(texts)) == len(texts)
