"""Workflow runs over the fake engine: stages, parameters, outputs, failures, copies, agents, ends."""

import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.ports import ModelError, ModelReply, ToolCall
from controller.service.workflow import agent
from tests.contract.store_backends import Backend
from tests.loop.runs import RunHarness, ScriptedModels, exec_stage, workflow


@pytest.fixture
def harness(backend: Backend, tmp_path: Path) -> Iterator[RunHarness]:
    harness = RunHarness(backend.store(), tmp_path / "runs")
    yield harness
    harness.close()


def test_stages_run_in_order_in_one_sandbox(harness: RunHarness) -> None:
    harness.put("Workflow", "w", **workflow(exec_stage("a", "echo one"), exec_stage("b", "echo two")))
    harness.put("WorkflowRun", "r", workflowRef={"name": "w"})
    finish = harness.finish()
    assert harness.states() == {"a": "Succeeded", "b": "Succeeded"}
    assert finish.status["phase"] == "Succeeded"
    assert harness.commands() == ["echo one", "echo two"]
    assert harness.names() == [], "its sandbox is deleted"
    assert harness.services.runs.log("default", "r", "a") == b"one\n"


def test_branches_run_at_once_and_wait_for_all(harness: RunHarness) -> None:
    stages = (
        exec_stage("a", "echo a"),
        exec_stage("b", "echo b", after=[]),
        exec_stage("c", "echo c", after=["a", "b"]),
    )
    harness.put("WorkflowRun", "r", workflow=workflow(*stages))
    harness.finish()
    assert (sorted(harness.commands()[:2]), harness.commands()[2]) == (["echo a", "echo b"], "echo c")


def test_failure_skips_the_rest_but_not_finally(harness: RunHarness) -> None:
    stages = (exec_stage("a", "exit 3"), exec_stage("b"))
    harness.put("WorkflowRun", "r", workflow=workflow(*stages, final=[exec_stage("f", "echo f"), exec_stage("g")]))
    finish = harness.finish()
    assert harness.states() == {"a": "Failed", "b": "Skipped", "f": "Succeeded", "g": "Succeeded"}
    (condition,) = finish.status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "StageFailed")
    assert condition["message"] == "stage `a` failed: exit code 3"


def test_failed_stage_is_retried_with_back_off(harness: RunHarness) -> None:
    stage = exec_stage("a", "false", retries={"limit": 2, "backoffSeconds": 5})
    harness.put("WorkflowRun", "r", workflow=workflow(stage))
    start = harness.clock.now()
    harness.finish(ticks=120)
    assert harness.commands() == ["false"] * 3
    assert harness.clock.now() - start >= 15, "five seconds, then ten"


def test_parameters_and_outputs_reach_stages_as_variables(harness: RunHarness) -> None:
    use = {
        "name": "use",
        "exec": {
            "commands": ["true"],
            "env": [
                {"name": "REF", "value": "$(parameters.ref)"},
                {"name": "FOUND", "value": "is $(stages.a.outputs.version)"},
            ],
        },
    }
    stages = (exec_stage("a", outputs=[{"name": "version", "path": "/workspace/version"}]), use)
    harness.put("Workflow", "w", **workflow(*stages, parameters=[{"name": "ref", "default": "main; rm -rf /"}]))
    harness.put("Sandbox", "s", template={"image": "paddock/test-tiny:1", "command": ["sleep", "1000"]})
    harness.settle(seconds=1)
    container = harness.engine.container(harness.container_name("s"))
    (harness.engine.files.root(container.id) / "workspace" / "version").write_text("1.2\n")
    requested: list[dict[str, str]] = []
    begin = harness.engine.exec
    harness.engine.exec = lambda *a, **k: (requested.append(dict(k.get("env") or {})), begin(*a, **k))[1]  # type: ignore
    harness.put("WorkflowRun", "r", workflowRef={"name": "w"}, sandboxRef={"name": "s"})
    finish = harness.finish()
    assert finish.status["phase"] == "Succeeded"
    assert requested[-1] == {"REF": "main; rm -rf /", "FOUND": "is 1.2"}
    assert harness.get("s") is not None, "a named sandbox stays"


def test_changed_workflow_changes_no_run(harness: RunHarness) -> None:
    harness.put("Workflow", "w", **workflow(exec_stage("a", "echo old"), exec_stage("b", "echo old")))
    harness.put("WorkflowRun", "r", workflowRef={"name": "w"})
    harness.tick()
    harness.put("Workflow", "w", **workflow(exec_stage("a", "echo new"), exec_stage("b", "echo new")))
    harness.finish()
    assert harness.commands() == ["echo old"] * 2


def test_cancelled_run_kills_its_stage_and_does_finally(harness: RunHarness) -> None:
    stages = (exec_stage("a", "sleep 100"), exec_stage("b"))
    harness.put("WorkflowRun", "r", workflow=workflow(*stages, final=[exec_stage("f", "echo f")]))
    harness.go_until_running("a")
    harness.cancel()
    finish = harness.finish()
    assert harness.states() == {"a": "Cancelled", "b": "Cancelled", "f": "Succeeded"}
    assert finish.status["phase"] == "Cancelled"


def test_deadline_ends_a_run(harness: RunHarness) -> None:
    harness.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "sleep 100")), activeDeadlineSeconds=5)
    harness.go_until_running("a")
    harness.clock.advance(6)
    finish = harness.finish()
    assert (harness.states(), finish.status["conditions"][0]["reason"]) == ({"a": "Cancelled"}, "DeadlineExceeded")


@pytest.mark.parametrize("is_running", [False, True], ids=["at its start", "during a stage"])
def test_run_in_an_insecure_sandbox_fails(harness: RunHarness, is_running: bool) -> None:
    harness.engine.hostile = {} if is_running else {"seccomp": 0}
    harness.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "sleep 100"), final=[exec_stage("f")]))
    if is_running:
        harness.go_until_running("a")
        sandbox = harness.names()[0]
        harness.engine.open_root(harness.container_name(sandbox))
        harness.engine.observe_now(full=True)
        while harness.condition(sandbox, "Ready") != "False NotSecured":
            harness.run_pass()
    finish = harness.finish()
    assert finish.status["phase"] == "Failed"
    assert finish.status["conditions"][0]["reason"] == "SandboxFailed"
    assert "NotSecured" in finish.status["conditions"][0]["message"]


def test_lost_sandbox_fails_its_run(harness: RunHarness) -> None:
    harness.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "sleep 100"), final=[exec_stage("f")]))
    harness.go_until_running("a")
    harness.delete(harness.names()[0])
    finish = harness.finish()
    assert (harness.states()["f"], finish.status["phase"]) == ("Skipped", "Failed")
    assert "was deleted" in finish.status["conditions"][0]["message"] or "is being deleted" in finish.status["message"]


@pytest.mark.parametrize("last", [False, True], ids=["stage", "finally"])
def test_run_in_a_deleted_sandbox_names_that(harness: RunHarness, last: bool) -> None:
    _in_sandbox(harness)
    stages, final = [exec_stage("a", "sleep 100")], [exec_stage("f")]
    if last:
        stages, final = [exec_stage("f")], [exec_stage("a", "sleep 100", retries={"limit": 3})]
    harness.put("WorkflowRun", "r", workflow={"stages": stages, "finally": final}, sandboxRef={"name": "s"})
    harness.go_until_running("a")
    harness.delete("s")
    finish = harness.finish()
    [stage] = [entry for entry in finish.status["stages"] if entry["name"] == "a"]
    assert (stage["state"], stage["reason"]) == ("Failed", "SandboxFailed")
    assert "its sandbox `s` " in stage["message"]
    assert finish.status["phase"] == "Failed"
    assert finish.status["conditions"][0]["reason"] == "SandboxFailed"


@pytest.mark.parametrize(("keep", "left"), [("Never", 0), ("OnFailure", 1), ("Always", 1)])
def test_sandbox_of_a_failed_run_stays_on_request(harness: RunHarness, keep: str, left: int) -> None:
    harness.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "false"), keepSandbox=keep))
    harness.finish()
    assert len(harness.names()) == left


def test_finished_run_is_deleted_after_its_time(harness: RunHarness) -> None:
    harness.put("WorkflowRun", "r", workflow=workflow(exec_stage("a")), ttlSecondsAfterFinished=50)
    harness.finish()
    harness.clock.advance(51)
    harness.tick()
    harness.tick()
    assert harness.run() is None
    harness.tick()
    assert list((harness.run_folder / "files").glob("*/*")) == [], "its files are gone, too"
    assert list((harness.run_folder / "commands").iterdir()) == []


def _in_sandbox(harness: RunHarness, **files: bytes) -> Path:
    """A sandbox `s` with these files in its workspace; the folder that is its root."""
    harness.put("Sandbox", "s", template={"image": "paddock/test-tiny:1", "command": ["sleep", "1000"]})
    harness.settle(seconds=1)
    root = harness.engine.files.root(harness.engine.container(harness.container_name("s")).id)
    for name, data in files.items():
        (root / "workspace" / name).write_bytes(data)
    return root / "workspace"


def _copy(harness: RunHarness, **copy: object) -> dict[str, str]:
    stage = {"name": "c", "copy": {"from": "/workspace", "artifact": "out", **copy}}
    harness.put("WorkflowRun", "r", workflow={"stages": [stage]}, sandboxRef={"name": "s"})
    finish = harness.finish()
    return finish.status["stages"][0]


def test_copied_folder_becomes_an_artifact(harness: RunHarness) -> None:
    _in_sandbox(harness, a=b"one", b=b"")
    copied = _copy(harness)
    assert (copied["state"], copied["message"]) == ("Succeeded", "2 files, 3 bytes")
    (artifact,) = harness.services.runs.artifacts("default", "r")
    assert {artifact_file.path: artifact_file.size for artifact_file in artifact.files} == {"a": 3, "b": 0}
    with harness.services.runs.open_artifact("default", "r", "out") as file, tarfile.open(fileobj=file) as tar:
        assert sorted(tar.getnames()) == ["a", "b"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: (folder / "l").symlink_to("/etc/passwd"), "is a link"),
        (lambda folder: (folder / "big").write_bytes(b"x" * 70_000), "artifacts_per_namespace_bytes"),
        (lambda folder: os.truncate(_empty(folder / "holes"), 1 << 40), "artifacts_per_namespace_bytes"),
        (lambda folder: os.mkfifo(folder / "pipe"), "a socket, a FIFO or a device"),
    ],
)
def test_bombs_and_links_are_no_artifacts(
    backend: Backend, tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    harness = RunHarness(backend.store(), tmp_path / "runs", artifact_bytes=65_536)
    make(_in_sandbox(harness))
    copy = _copy(harness)
    assert (copy["state"], copy["reason"]) == ("Failed", "ArtifactRefused")
    assert words in copy["message"]
    assert list((tmp_path / "runs").glob("files/*/*/artifacts/*")) == []
    harness.close()


def _empty(path: Path) -> Path:
    path.touch()
    return path


def test_missing_path_fails_unless_it_is_optional(harness: RunHarness) -> None:
    _in_sandbox(harness)
    assert _copy(harness, **{"from": "/workspace/none"})["state"] == "Failed"
    harness.put(
        "WorkflowRun",
        "r2",
        sandboxRef={"name": "s"},
        workflow={"stages": [{"name": "c", "copy": {"from": "/workspace/none", "artifact": "out", "optional": True}}]},
    )
    assert harness.finish("r2").status["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("content", "reason", "words"),
    [
        (b"x" * 4097, "OutputTooLarge", "/workspace/v is longer than 4096 bytes; copy it as an artifact"),
        (b"a\0b", "OutputNotText", "output `v`: /workspace/v has a NUL byte; copy it as an artifact instead"),
    ],
)
def test_output_that_is_no_short_text_fails_its_stage(
    harness: RunHarness, content: bytes, reason: str, words: str
) -> None:
    _in_sandbox(harness, v=content)
    stage = exec_stage("a", outputs=[{"name": "v", "path": "/workspace/v"}], retries={"limit": 3})
    harness.put("WorkflowRun", "r", workflow={"stages": [stage]}, sandboxRef={"name": "s"})
    (observed,) = harness.finish().status["stages"]
    assert (observed["reason"], observed["attempt"]) == (reason, 1)
    assert words in observed["message"]


def _agent(harness: RunHarness, *tools: str, **more: object) -> dict[str, Any]:
    agent = {"provider": "p", "model": "m", "instructions": "do it", "tools": list(tools), **more}
    harness.put("WorkflowRun", "r", workflow={"stages": [{"name": "a", "agent": agent}]}, sandboxRef={"name": "s"})
    return harness.finish().status["stages"][0]


def _calls(name: str, **arguments: object) -> ModelReply:
    return ModelReply("", (ToolCall("same", name, arguments),), 100, 10)


def _talking(backend: Backend, folder: Path, *answers: ModelReply | Exception) -> tuple[RunHarness, ScriptedModels]:
    models = ScriptedModels(*answers)
    return RunHarness(backend.store(), folder / "runs", models), models


def test_agent_works_with_its_tools_alone(backend: Backend, tmp_path: Path) -> None:
    harness, models = _talking(
        backend,
        tmp_path,
        _calls("file.write", path="/workspace/new/f", content="text"),
        _calls("file.read", path="/workspace/new/f"),
        _calls("exec", command="echo out; exit 3"),
        _calls("git", args=["status"]),
        _calls("file.read", path=7),
        ModelReply("it is done", (), 5, 5),
    )
    workspace = _in_sandbox(harness)
    document = _agent(harness, "file.write", "file.read", "exec")
    assert (workspace / "new" / "f").read_text() == "text"
    results = [message.text for message in models.asked[-1].messages if message.role == "tool"]
    assert results[:3] == ["written", "text", "exit code 3\nout\n"]
    assert results[3].startswith("error: `git` is not one of your tools")
    assert results[4] == "error: `path` must be a text"
    assert (document["state"], document["message"]) == ("Succeeded", "6 turns, 560 tokens")
    assert document["outputs"] == [{"name": "answer", "value": "it is done"}]
    lines = harness.services.runs.transcript("default", "r", "a")
    assert [line["role"] for line in lines] == ["user", *["assistant", "tool"] * 5, "assistant"]
    assert b"[call] exec" in harness.services.runs.log("default", "r", "a")
    harness.close()


@pytest.mark.parametrize(("bound", "reason"), [({"maxTurns": 3}, "MaxTurns"), ({"maxTokens": 300}, "MaxTokens")])
def test_agent_that_loops_is_ended(backend: Backend, tmp_path: Path, bound: dict[str, int], reason: str) -> None:
    harness, models = _talking(backend, tmp_path, *[_calls("exec", command="true")] * 100)
    _in_sandbox(harness)
    document = _agent(harness, "exec", **bound)
    assert (document["state"], document["reason"], len(models.asked)) == ("Failed", reason, 3)
    harness.close()


def test_failing_model_fails_its_stage(backend: Backend, tmp_path: Path) -> None:
    harness, _ = _talking(backend, tmp_path, ModelError("the key is refused; change it"))
    _in_sandbox(harness)
    document = _agent(harness)
    assert (document["reason"], document["message"]) == ("ModelFailed", "the key is refused; change it")
    harness.close()


@pytest.mark.parametrize(
    ("errors", "asked", "state"),
    [
        ([ModelError("busy", again=True, limited=True)] * 9, 10, "Succeeded"),  # a limit is waited for
        ([ModelError("broken", again=True)] * 3, 4, "Succeeded"),
        ([ModelError("broken", again=True)] * 9, 4, "Failed"),
        ([ModelError("later", again=True, limited=True, retry_after=7200)], 1, "Failed"),  # the stage has an hour
    ],
)
def test_model_is_asked_again_while_that_helps(
    backend: Backend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    errors: list[ModelError],
    asked: int,
    state: str,
) -> None:
    monkeypatch.setattr(agent, "_PAUSE_SECONDS", 0.0)
    harness, models = _talking(backend, tmp_path, *errors)
    _in_sandbox(harness)
    document = _agent(harness)
    assert (document["state"], len(models.asked)) == (state, asked)
    harness.close()


def test_answer_that_is_cut_off_is_gone_on_with(backend: Backend, tmp_path: Path) -> None:
    harness, models = _talking(
        backend, tmp_path, ModelReply("half of", (), 5, 5, cut=True), ModelReply("whole", (), 5, 5)
    )
    _in_sandbox(harness)
    document = _agent(harness)
    assert (document["state"], document["outputs"][0]["value"]) == ("Succeeded", "whole")
    assert [message.role for message in models.asked[-1].messages] == ["user", "assistant", "user"]
    harness.close()
