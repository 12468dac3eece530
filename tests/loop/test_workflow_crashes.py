"""A daemon killed at every step of a run: each command runs once, and the run ends as one without a crash."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.ports import ModelReply, ToolCall
from tests.contract.store_backends import BACKENDS, Backend, make_backend
from tests.daemon import wait_for
from tests.loop.runs import Crash, RunHarness, ScriptedModels, exec_stage, workflow

# `make test` tries every step; plain pytest, which is for seconds at a desk, a few.
_STRIDE = 1 if os.environ.get("PADDOCK_TEST_DOCKER") else 7
RUN = workflow(
    exec_stage("build", "echo build"),
    exec_stage("flaky", "echo flaky", "false", retries={"limit": 1, "backoffSeconds": 0}),
    final=[{"name": "logs", "copy": {"from": "/workspace", "artifact": "log"}}, exec_stage("last", "echo last")],
)
ONCE = ["echo build", "echo flaky\nfalse", "echo flaky\nfalse", "echo last"]


def live(harness: RunHarness) -> tuple[StoredObject, int]:
    """A whole run; after a crash by the next daemon. How often one crashed."""
    crashes = 0
    harness.put("WorkflowRun", "r", workflow=RUN)
    while True:
        try:
            return harness.finish(ticks=200), crashes
        except Crash:
            crashes += 1
            assert crashes < 50, "no daemon gets on"
            harness.daemon()


def picture(harness: RunHarness, found: StoredObject) -> dict[str, Any]:
    stages = [(stage["name"], stage["state"], stage["attempt"]) for stage in found.status["stages"]]
    artifacts = [artifact.name for artifact in harness.services.runs.artifacts("default", "r")]
    ours = harness.ours()
    return {"stages": stages, "commands": harness.commands(), "artifacts": artifacts, "containers": list(ours.values())}


def crashing(backend: Backend, folder: Path, at: int | None, *, after: bool) -> tuple[dict[str, Any], int, int]:
    harness = RunHarness(backend.store(), folder / "runs")
    harness.fuse.blow_at, harness.fuse.after = at, after
    try:
        stored, crashes = live(harness)
        return picture(harness, stored), crashes, harness.fuse.steps
    finally:
        harness.close()
        for kind in ("WorkflowRun", "Sandbox"):
            with harness.store.transaction() as transaction:
                for entry in transaction.list(kind):
                    transaction.remove(entry)
        shutil.rmtree(folder / "runs", ignore_errors=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dialect", BACKENDS)
def test_crash_at_any_step_repeats_and_loses_nothing(dialect: str, after: bool, tmp_path: Path) -> None:
    with make_backend(dialect, tmp_path) as backend:
        desired, _, total = crashing(backend, tmp_path, None, after=after)
        assert desired["commands"] == ONCE
        assert desired["artifacts"] == ["log"]
        crashes = 0
        for at in range(1, total + 1, _STRIDE if dialect == "sqlite" else 7):
            document, crashed, _ = crashing(backend, tmp_path, at, after=after)
            assert document == desired, f"crash at step {at} of {total}"
            crashes += crashed
        assert crashes > 2


def deleting(dialect: str, folder: Path, at: int | None, *, after: bool) -> tuple[list[str], int]:
    """Delete a run while its second stage runs, and crash at a step from then on; what it ran, and the steps."""
    folder.mkdir()
    with make_backend(dialect, folder) as backend:
        harness = RunHarness(backend.store(), folder / "runs")
        stages = exec_stage("a", "echo a"), exec_stage("b", "sleep 1000")
        final = [{"name": "c", "copy": {"from": "/workspace", "artifact": "c"}}, exec_stage("f", "echo f")]
        harness.put("WorkflowRun", "r", workflow=workflow(*stages, final=final))
        harness.go_until_running("b")
        harness.hanging = 1
        harness.delete("r", "workflowrun")
        output = harness.run()
        assert output is not None
        assert output.deleted_at is not None
        assert harness.names() != [], "its sandbox stays for the finally stages"
        before = harness.fuse.steps
        harness.fuse.blow_at, harness.fuse.after = at and before + at, after

        def gone() -> bool:
            try:
                harness.tick()
            except Crash:
                if harness.run() is not None:  # once the second stage has ended, all of the killed daemon's threads do
                    harness.hanging = int(harness.states()["b"] == "Running")
                harness.daemon()
            return harness.run() is None

        wait_for("the end of the run", gone, 60)
        steps, harness.fuse.blow_at = (
            harness.fuse.steps - before,
            None,
        )  # a life may have fewer steps than the first one
        wait_for("the end of its sandbox", lambda: harness.tick() or not (harness.names() or harness.ours()), 60)
        assert [path for path in (folder / "runs" / "files").glob("*/*") if path.is_dir()] == []
        harness.close()
        return harness.commands(), steps


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dialect", BACKENDS)
def test_deleted_run_ends_its_stages_once_through_any_crash(dialect: str, after: bool, tmp_path: Path) -> None:
    desired, total = deleting(dialect, tmp_path / "0", None, after=after)
    assert desired == ["echo a", "sleep 1000", "echo f"]
    for at in range(1, total + 1, 2 * _STRIDE if dialect == "sqlite" else 7):
        assert deleting(dialect, tmp_path / str(at), at, after=after)[0] == desired, f"crash at step {at} of {total}"


_ENDS = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # threads that die at once


@_ENDS
@pytest.mark.parametrize("when", ["prepared", "started"])
def test_command_runs_once_when_its_start_was_cut_off(backend: Backend, tmp_path: Path, when: str) -> None:
    """The daemon ends between saving the reference and the start, and just after the start."""
    harness = RunHarness(backend.store(), tmp_path / "runs")
    begin, dying = harness.engine.exec, list[bool]()

    def dies(*arguments: Any, prepared: Any, **more: Any) -> Any:
        def last_words(ref: Any) -> None:
            prepared(ref)
            if when == "prepared":
                dying.append(True)
                raise SystemExit

        begin(*arguments, prepared=last_words, **more)
        dying.append(True)
        raise SystemExit

    harness.engine.exec = dies  # type: ignore[method-assign]
    harness.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "echo a")))
    harness.hanging = 1
    wait_for("the crash", lambda: harness.tick() or dying)
    harness.engine.exec = begin  # type: ignore[method-assign]
    harness.daemon()
    harness.hanging = 0
    finish = harness.finish()
    assert (finish.status["phase"], harness.commands()) == ("Succeeded", ["echo a"])
    harness.close()


@_ENDS
def test_agent_goes_on_where_the_last_daemon_ended(backend: Backend, tmp_path: Path) -> None:
    first = ModelReply("", (ToolCall("1", "exec", {"command": "echo once"}),), 10, 5)
    models = ScriptedModels(first, *[SystemExit()] * 10_000)  # the thread dies, and so do those after it
    harness = RunHarness(backend.store(), tmp_path / "runs", models)
    stage = {"name": "a", "agent": {"provider": "p", "model": "m", "instructions": "work", "tools": ["exec"]}}
    harness.put("WorkflowRun", "r", workflow=workflow(stage))
    harness.hanging = 1
    wait_for("the second turn", lambda: harness.tick() or len(models.asked) >= 2)
    harness.models = models = ScriptedModels(ModelReply("all done", (), 20, 5))
    harness.daemon()
    harness.hanging = 0
    finish = harness.finish()
    assert finish.status["stages"][0]["outputs"] == [{"name": "answer", "value": "all done"}]
    assert harness.commands() == ["echo once"]
    (model_request,) = models.asked
    assert [message.role for message in model_request.messages] == ["user", "assistant", "tool"]
    assert model_request.messages[-1].text == "exit code 0\nonce\n"
    harness.close()
