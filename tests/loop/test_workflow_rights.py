"""Rights of who creates a run hold for its sandbox, and what is fixed then stays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.access.access import Caller, Grant
from controller.service import errors
from controller.service.access import access
from tests.contract.store_backends import Backend
from tests.loop.runs import RunHarness, exec_stage, workflow


@pytest.fixture
def harness(backend: Backend, tmp_path: Path) -> Iterator[RunHarness]:
    harness = RunHarness(backend.store(), tmp_path / "runs")
    harness.put("Workflow", "w", **workflow(exec_stage("a")))
    yield harness
    harness.close()


def create(harness: RunHarness, grant: dict[str, Any], **spec: Any) -> None:
    with access.acting(Caller("token ci", grants=(Grant.model_validate(grant),))):
        harness.put("WorkflowRun", "r", **(spec or {"workflowRef": {"name": "w"}}))


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ({"images": ["other/*"]}, "`paddock/test-tiny:1` is not one of your images"),
        ({"limits": {"memory": "16Mi"}}, "is more than you may request"),
        ({"levels": ["development"]}, "`full-isolation` is not one of your levels"),
    ],
)
def test_bounds_hold_for_the_sandbox_of_a_run(harness: RunHarness, bound: dict[str, Any], words: str) -> None:
    grant = {"role": "user", "namespaces": ["default"], **bound}
    with pytest.raises(errors.Invalid, match=words):
        create(harness, grant)
    with pytest.raises(errors.Invalid, match=words):
        create(harness, grant, workflow=workflow(exec_stage("a")))
    assert harness.run() is None


def test_user_may_run_but_not_write_workflows(harness: RunHarness) -> None:
    grant = {"role": "user", "namespaces": ["default"]}
    create(harness, grant)
    assert harness.run() is not None
    with access.acting(Caller("token ci", grants=(Grant.model_validate(grant),))), pytest.raises(errors.Forbidden):
        harness.put("Workflow", "own", **workflow(exec_stage("a")))
    with pytest.raises(errors.Forbidden):
        create(harness, {"role": "viewer", "namespaces": ["default"]})


def test_run_names_what_it_misses_and_never_changes(harness: RunHarness) -> None:
    with pytest.raises(errors.Invalid, match="workflow `none` does not exist"):
        harness.put("WorkflowRun", "x", workflowRef={"name": "none"})
    with pytest.raises(errors.Invalid, match="sandbox `none` does not exist"):
        harness.put("WorkflowRun", "x", workflowRef={"name": "w"}, sandboxRef={"name": "none"})
    with pytest.raises(errors.Invalid, match="is not a parameter of the workflow"):
        harness.put("WorkflowRun", "x", workflowRef={"name": "w"}, parameters=[{"name": "p", "value": "1"}])
    harness.put("WorkflowRun", "r", workflowRef={"name": "w"})
    with pytest.raises(errors.Invalid, match="is fixed when a run is created"):
        harness.put("WorkflowRun", "r", workflow=workflow(exec_stage("other")), workflowRef=None)
