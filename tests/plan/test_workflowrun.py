"""Cases of workflow runs: what is stored and observed, and the printed step."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.kinds.common.owner_reference import ENDING_FINALIZER
from controller.kinds.meta import StoredObject
from controller.kinds.workflow import WorkflowSpec
from controller.kinds.workflowrun import (
    Progress,
    Run,
    SandboxView,
    StageEnd,
    StageProgress,
    WorkflowRunSpec,
    first_progress,
    progress_of,
    progress_to_json,
)
from controller.plan.workflowrun import RunView, condition, sandbox_view, step

CASES = list(yaml.safe_load_all((Path(__file__).parent / "workflowruns.yaml").read_text()))
STAGE = {"exec": {"commands": ["true"]}}


def run_of(case: dict[str, Any]) -> Run:
    flow = case.get("workflow", {"stages": [{"name": "a"}, {"name": "b"}], "finally": [{"name": "f"}]})
    flow = {**flow, **{field: [{**STAGE, **each} for each in flow.get(field, ())] for field in ("stages", "finally")}}
    made = WorkflowSpec.model_validate({"sandbox": {"template": {"image": "x:1"}}, **flow})
    spec = WorkflowRunSpec.model_validate({"workflow": made.model_dump(by_alias=True), **case.get("spec", {})})
    stored = case.get("progress", {})
    stages = {each["name"]: StageProgress(**each) for each in stored.pop("stages", ())}
    progress = Progress(**stored, stages=tuple(stages.get(each.name, each) for each in first_progress(made).stages))
    obj = StoredObject("WorkflowRun", "default", "r", "u", {})
    if "deleted" in case:
        obj = replace(obj, deleted_at=float(case["deleted"]), finalizers=(ENDING_FINALIZER,))
    return Run(obj, spec, made, {}, progress)


@pytest.mark.parametrize("case", CASES, ids=lambda each: each["case"])
def test_printed_step_matches_the_case(case: dict[str, Any]) -> None:
    run = run_of(case)
    ends = {(name, end.pop("attempt", 1)): StageEnd(**end) for name, end in case.get("ends", {}).items()}
    view = RunView(SandboxView(**case.get("sandbox", {"state": "Missing"})), ends)
    found = step(run, view, float(case.get("now", 100)))
    assert str(found) == case["step"].strip()
    assert found.next_wake == case.get("wake", found.next_wake)
    shown = condition(found.progress)
    assert f"{shown.status} {shown.reason}" == case.get("condition", f"{shown.status} {shown.reason}")
    again = step(
        Run(run.obj, run.spec, run.workflow, {}, found.progress), RunView(view.sandbox), float(case.get("now", 100))
    )
    assert again.progress == found.progress or found.progress.finished, "the same view decides the same again"
    stored = progress_of(progress_to_json(found.progress), run.workflow)
    assert stored == found.progress, "the status holds all of it"


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], "Pending"),
        ([("Ready", "False", "Creating")], "Pending"),
        ([("Ready", "True", "Running")], "Ready"),
        ([("Ready", "False", "IdleReaped")], "Ready"),
        ([("Accepted", "False", "Refused")], "Failed"),
        ([("Finished", "True", "Completed")], "Failed"),
        ([("Ready", "False", "NotSecured")], "Failed"),
        ([("Ready", "False", "InvalidConfig")], "Failed"),
        ([("Ready", "True", "Running"), ("Secured", "False", "NotSecured")], "Ready"),  # the operator only reports
    ],
)
def test_sandbox_is_seen_by_its_conditions(conditions: list[tuple[str, str, str]], state: str) -> None:
    run = run_of({})
    status = {"conditions": [dict(zip(("type", "status", "reason"), each, strict=True)) for each in conditions]}
    owners = ({"kind": "WorkflowRun", "name": "r", "uid": "u"},)
    obj = StoredObject("Sandbox", "default", run.sandbox_name, "s", {}, status=status, owner_references=owners)
    assert sandbox_view(run, obj).state == state
    foreign = StoredObject("Sandbox", "default", run.sandbox_name, "s", {}, status=status)
    assert "is not of this run" in sandbox_view(run, foreign).message
    assert sandbox_view(run, None).state == "Missing"


def test_run_takes_its_sandbox_s_host_and_fails_if_that_changes() -> None:
    run = run_of({})
    owners = ({"kind": "WorkflowRun", "name": "r", "uid": "u"},)
    ready = [{"type": "Ready", "status": "True", "reason": "Running"}]
    obj = StoredObject("Sandbox", "default", run.sandbox_name, "s", {}, owner_references=owners)
    unbound, bound = (replace(obj, status={"conditions": ready, **each}) for each in ({}, {"host": "two"}))
    assert step(run, RunView(sandbox_view(run, unbound, "")), 100).progress.host == ""
    progress = step(run, RunView(sandbox_view(run, bound, "")), 100).progress
    assert (progress.host, progress.stage("a").state) == ("two", "Running")
    begun = replace(run, progress=progress)
    assert sandbox_view(begun, bound, "").state == "Ready"
    for left in (unbound, replace(bound, status={"conditions": ready, "host": "one"})):
        view = sandbox_view(begun, left, "")
        assert (view.state, "left host two, which was lost" in view.message) == ("Failed", True)
    alone = step(run, RunView(sandbox_view(run, unbound)), 100).progress
    assert alone.host == "host", "the only one there is"
