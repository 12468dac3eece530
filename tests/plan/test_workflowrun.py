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
    flow = {**flow, **{field: [{**STAGE, **entry} for entry in flow.get(field, ())] for field in ("stages", "finally")}}
    workflow_spec = WorkflowSpec.model_validate({"sandbox": {"template": {"image": "x:1"}}, **flow})
    spec = WorkflowRunSpec.model_validate({"workflow": workflow_spec.model_dump(by_alias=True), **case.get("spec", {})})
    stored = case.get("progress", {})
    stages = {entry["name"]: StageProgress(**entry) for entry in stored.pop("stages", ())}
    progress = Progress(
        **stored, stages=tuple(stages.get(stage.name, stage) for stage in first_progress(workflow_spec).stages)
    )
    obj = StoredObject("WorkflowRun", "default", "r", "u", {})
    if "deleted" in case:
        obj = replace(obj, deleted_at=float(case["deleted"]), finalizers=(ENDING_FINALIZER,))
    return Run(obj, spec, workflow_spec, {}, progress)


@pytest.mark.parametrize("case", CASES, ids=lambda each: each["case"])
def test_printed_step_matches_the_case(case: dict[str, Any]) -> None:
    run = run_of(case)
    ends = {(name, end.pop("attempt", 1)): StageEnd(**end) for name, end in case.get("ends", {}).items()}
    view = RunView(SandboxView(**case.get("sandbox", {"state": "Missing"})), ends)
    outcome = step(run, view, float(case.get("now", 100)))
    assert str(outcome) == case["step"].strip()
    assert outcome.next_wake == case.get("wake", outcome.next_wake)
    printed = condition(outcome.progress)
    assert f"{printed.status} {printed.reason}" == case.get("condition", f"{printed.status} {printed.reason}")
    again = step(
        Run(run.obj, run.spec, run.workflow, {}, outcome.progress), RunView(view.sandbox), float(case.get("now", 100))
    )
    assert again.progress == outcome.progress or outcome.progress.finished, "the same view decides the same again"
    stored = progress_of(progress_to_json(outcome.progress), run.workflow)
    assert stored == outcome.progress, "the status holds all of it"


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
    status = {"conditions": [dict(zip(("type", "status", "reason"), group, strict=True)) for group in conditions]}
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
    unbound, bound = (replace(obj, status={"conditions": ready, **document}) for document in ({}, {"host": "two"}))
    assert step(run, RunView(sandbox_view(run, unbound, "")), 100).progress.host == ""
    progress = step(run, RunView(sandbox_view(run, bound, "")), 100).progress
    assert (progress.host, progress.stage("a").state) == ("two", "Running")
    started = replace(run, progress=progress)
    assert sandbox_view(started, bound, "").state == "Ready"
    for stored in (unbound, replace(bound, status={"conditions": ready, "host": "one"})):
        view = sandbox_view(started, stored, "")
        assert (view.state, "left host two, which was lost" in view.message) == ("Failed", True)
    alone = step(run, RunView(sandbox_view(run, unbound)), 100).progress
    assert alone.host == "host", "the only one there is"
