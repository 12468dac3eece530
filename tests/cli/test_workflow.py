"""`paddock workflow`: what it says of runs that have ended, of stages and of artifacts."""

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import Result

from controller.service.workflow.files import RunFiles, RunKey
from tests.helpers_api import ApiStack

Run = Callable[..., Result]
STAGES = [{"name": name, "exec": {"commands": ["true"]}} for name in ("make", "use", "last")]
SPEC = {"workflow": {"sandbox": {"template": {"image": "paddock/base:1"}}, "stages": STAGES}}


@pytest.fixture
def run(served: ApiStack) -> Callable[..., None]:
    """Store a run `r`; its status is changed as given."""

    def make(*states: str, **status: Any) -> None:
        document = {"apiVersion": "paddock/v1alpha1", "kind": "WorkflowRun", "metadata": {"name": "r"}, "spec": SPEC}
        served.apply(json.dumps(document))
        with served.store.transaction() as transaction:
            workflow_run = transaction.get("WorkflowRun", "default", "r")
            assert workflow_run is not None
            stages = [
                {**stage, "state": state, "attempt": 1}
                for stage, state in zip(workflow_run.status["stages"], states, strict=False)
            ]
            stages += workflow_run.status["stages"][len(states) :]
            transaction.put(replace(workflow_run, status={**workflow_run.status, **status, "stages": stages}))

    return make


def test_list_counts_stages_that_succeeded(run: Callable[..., None], paddock: Run) -> None:
    run("Succeeded", "Failed", "Skipped", phase="Failed")
    assert paddock("get", "workflowruns").stdout.splitlines()[1].split()[:3] == ["r", "Failed", "1/3"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_run_cannot_be_cancelled(run: Callable[..., None], served: ApiStack, paddock: Run, phase: str) -> None:
    run(phase=phase)
    done = paddock("workflow", "cancel", "r")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"has already ended ({phase}), and there is nothing to cancel" in done.stderr
    workflow_run = served.store.get("WorkflowRun", "default", "r")
    assert workflow_run is not None
    assert workflow_run.spec["runState"] == "Running"


def test_run_that_ended_before_its_cancellation_says_so(
    run: Callable[..., None], served: ApiStack, paddock: Run
) -> None:
    run(phase="Running")
    assert paddock("workflow", "cancel", "r").stdout == "workflowrun/r cancelled\n"
    assert paddock("workflow", "cancel", "r").stdout == "workflowrun/r cancelled\n"
    with served.store.transaction() as transaction:
        workflow_run = transaction.get("WorkflowRun", "default", "r")
        assert workflow_run is not None
        transaction.put(replace(workflow_run, status={**workflow_run.status, "phase": "Succeeded"}))
    done = paddock("workflow", "cancel", "r")
    assert (done.exit_code, "has already ended (Succeeded)" in done.stderr) == (1, True)


def test_logs_of_an_unknown_stage_list_the_stages(run: Callable[..., None], paddock: Run) -> None:
    run()
    done = paddock("workflow", "logs", "r", "none")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "workflowrun r has no stage none; it has make, use, last" in done.stderr
    assert paddock("workflow", "logs", "r", "make").exit_code == 0


def test_artifacts_are_as_large_as_their_files(run: Callable[..., None], served: ApiStack, paddock: Run) -> None:
    run(phase="Succeeded")
    workflow_run = served.store.get("WorkflowRun", "default", "r")
    assert workflow_run is not None
    files = RunFiles(served.folder / "runs" / "files", 1 << 20)
    for name, content in (("one", b"abc"), ("none", None)):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo("a")
            entry.size, entry.mode = len(content or b""), 0o777
            entry.type = tarfile.REGTYPE if content else tarfile.DIRTYPE
            tar.addfile(entry, io.BytesIO(content or b""))
        archive.seek(0)
        files.keep(RunKey("default", workflow_run.uid), "make", name, lambda archive=archive: archive.read(512))
    lines = [line.split() for line in paddock("workflow", "artifacts", "r").stdout.splitlines()]
    assert lines == [["NAME", "STAGE", "FILES", "BYTES"], ["none", "make", "0", "0"], ["one", "make", "1", "3"]]
    done = paddock("workflow", "artifacts", "r", "one", "--output", str(served.folder / "out"))
    assert done.stdout == f"{served.folder / 'out' / 'one'}: 1 file, 3 bytes\n"
    assert paddock("workflow", "artifacts", "r", "none", "--output", str(served.folder / "out")).exit_code == 0
    modes = [(served.folder / "out" / single / "a").stat().st_mode & 0o777 for single in ("one", "none")]
    assert modes == [0o755, 0o755], "nobody else may write what a sandbox wrote"
