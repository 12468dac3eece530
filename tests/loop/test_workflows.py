"""Workflow runs over the fake engine: stages, parameters, outputs, failures, copies, agents, ends."""

import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.ports import ModelError, ModelReply, ToolCall
from controller.service.workflow import agent
from tests.contract.store_worlds import World
from tests.loop.runs import RunHarness, ScriptedModels, exec_stage, workflow


@pytest.fixture
def house(world: World, tmp_path: Path) -> Iterator[RunHarness]:
    harness = RunHarness(world.store(), tmp_path / "runs")
    yield harness
    harness.close()


def test_stages_run_in_order_in_one_sandbox(house: RunHarness) -> None:
    house.put("Workflow", "w", **workflow(exec_stage("a", "echo one"), exec_stage("b", "echo two")))
    house.put("WorkflowRun", "r", workflowRef={"name": "w"})
    finish = house.finish()
    assert house.states() == {"a": "Succeeded", "b": "Succeeded"}
    assert finish.status["phase"] == "Succeeded"
    assert house.commands() == ["echo one", "echo two"]
    assert house.names() == [], "its sandbox is deleted"
    assert house.services.runs.log("default", "r", "a") == b"one\n"


def test_branches_run_at_once_and_wait_for_all(house: RunHarness) -> None:
    stages = (
        exec_stage("a", "echo a"),
        exec_stage("b", "echo b", after=[]),
        exec_stage("c", "echo c", after=["a", "b"]),
    )
    house.put("WorkflowRun", "r", workflow=workflow(*stages))
    house.finish()
    assert (sorted(house.commands()[:2]), house.commands()[2]) == (["echo a", "echo b"], "echo c")


def test_failure_skips_the_rest_but_not_finally(house: RunHarness) -> None:
    stages = (exec_stage("a", "exit 3"), exec_stage("b"))
    house.put("WorkflowRun", "r", workflow=workflow(*stages, final=[exec_stage("f", "echo f"), exec_stage("g")]))
    finish = house.finish()
    assert house.states() == {"a": "Failed", "b": "Skipped", "f": "Succeeded", "g": "Succeeded"}
    (condition,) = finish.status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "StageFailed")
    assert condition["message"] == "stage `a` failed: exit code 3"


def test_failed_stage_is_retried_with_back_off(house: RunHarness) -> None:
    stage = exec_stage("a", "false", retries={"limit": 2, "backoffSeconds": 5})
    house.put("WorkflowRun", "r", workflow=workflow(stage))
    start = house.clock.now()
    house.finish(ticks=120)
    assert house.commands() == ["false"] * 3
    assert house.clock.now() - start >= 15, "five seconds, then ten"


def test_parameters_and_outputs_reach_stages_as_variables(house: RunHarness) -> None:
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
    house.put("Workflow", "w", **workflow(*stages, parameters=[{"name": "ref", "default": "main; rm -rf /"}]))
    house.put("Sandbox", "s", template={"image": "paddock/test-tiny:1", "command": ["sleep", "1000"]})
    house.settle(seconds=1)
    container = house.engine.box(house.container_name("s"))
    (house.engine.files.root(container.id) / "workspace" / "version").write_text("1.2\n")
    requested: list[dict[str, str]] = []
    begin = house.engine.exec
    house.engine.exec = lambda *a, **k: (requested.append(dict(k.get("env") or {})), begin(*a, **k))[1]  # type: ignore
    house.put("WorkflowRun", "r", workflowRef={"name": "w"}, sandboxRef={"name": "s"})
    finish = house.finish()
    assert finish.status["phase"] == "Succeeded"
    assert requested[-1] == {"REF": "main; rm -rf /", "FOUND": "is 1.2"}
    assert house.get("s") is not None, "a named sandbox stays"


def test_changed_workflow_changes_no_run(house: RunHarness) -> None:
    house.put("Workflow", "w", **workflow(exec_stage("a", "echo old"), exec_stage("b", "echo old")))
    house.put("WorkflowRun", "r", workflowRef={"name": "w"})
    house.tick()
    house.put("Workflow", "w", **workflow(exec_stage("a", "echo new"), exec_stage("b", "echo new")))
    house.finish()
    assert house.commands() == ["echo old"] * 2


def test_cancelled_run_kills_its_stage_and_does_finally(house: RunHarness) -> None:
    stages = (exec_stage("a", "sleep 100"), exec_stage("b"))
    house.put("WorkflowRun", "r", workflow=workflow(*stages, final=[exec_stage("f", "echo f")]))
    house.go_until_running("a")
    house.cancel()
    finish = house.finish()
    assert house.states() == {"a": "Cancelled", "b": "Cancelled", "f": "Succeeded"}
    assert finish.status["phase"] == "Cancelled"


def test_deadline_ends_a_run(house: RunHarness) -> None:
    house.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "sleep 100")), activeDeadlineSeconds=5)
    house.go_until_running("a")
    house.clock.advance(6)
    finish = house.finish()
    assert (house.states(), finish.status["conditions"][0]["reason"]) == ({"a": "Cancelled"}, "DeadlineExceeded")


@pytest.mark.parametrize("is_running", [False, True], ids=["at its start", "during a stage"])
def test_run_in_an_insecure_sandbox_fails(house: RunHarness, is_running: bool) -> None:
    house.engine.hostile = {} if is_running else {"seccomp": 0}
    house.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "sleep 100"), final=[exec_stage("f")]))
    if is_running:
        house.go_until_running("a")
        sandbox = house.names()[0]
        house.engine.open_root(house.container_name(sandbox))
        house.engine.observe_now(full=True)
        while house.condition(sandbox, "Ready") != "False NotSecured":
            house.run_pass()
    finish = house.finish()
    assert finish.status["phase"] == "Failed"
    assert finish.status["conditions"][0]["reason"] == "SandboxFailed"
    assert "NotSecured" in finish.status["conditions"][0]["message"]


def test_lost_sandbox_fails_its_run(house: RunHarness) -> None:
    house.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "sleep 100"), final=[exec_stage("f")]))
    house.go_until_running("a")
    house.delete(house.names()[0])
    finish = house.finish()
    assert (house.states()["f"], finish.status["phase"]) == ("Skipped", "Failed")
    assert "was deleted" in finish.status["conditions"][0]["message"] or "is being deleted" in finish.status["message"]


@pytest.mark.parametrize("last", [False, True], ids=["stage", "finally"])
def test_run_in_a_deleted_sandbox_names_that(house: RunHarness, last: bool) -> None:
    _in_sandbox(house)
    stages, final = [exec_stage("a", "sleep 100")], [exec_stage("f")]
    if last:
        stages, final = [exec_stage("f")], [exec_stage("a", "sleep 100", retries={"limit": 3})]
    house.put("WorkflowRun", "r", workflow={"stages": stages, "finally": final}, sandboxRef={"name": "s"})
    house.go_until_running("a")
    house.delete("s")
    finish = house.finish()
    [stage] = [entry for entry in finish.status["stages"] if entry["name"] == "a"]
    assert (stage["state"], stage["reason"]) == ("Failed", "SandboxFailed")
    assert "its sandbox `s` " in stage["message"]
    assert finish.status["phase"] == "Failed"
    assert finish.status["conditions"][0]["reason"] == "SandboxFailed"


@pytest.mark.parametrize(("keep", "left"), [("Never", 0), ("OnFailure", 1), ("Always", 1)])
def test_sandbox_of_a_failed_run_stays_on_request(house: RunHarness, keep: str, left: int) -> None:
    house.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "false"), keepSandbox=keep))
    house.finish()
    assert len(house.names()) == left


def test_finished_run_is_deleted_after_its_time(house: RunHarness) -> None:
    house.put("WorkflowRun", "r", workflow=workflow(exec_stage("a")), ttlSecondsAfterFinished=50)
    house.finish()
    house.clock.advance(51)
    house.tick()
    house.tick()
    assert house.run() is None
    house.tick()
    assert list((house.run_folder / "files").glob("*/*")) == [], "its files are gone, too"
    assert list((house.run_folder / "commands").iterdir()) == []


def _in_sandbox(house: RunHarness, **files: bytes) -> Path:
    """A sandbox `s` with these files in its workspace; the folder that is its root."""
    house.put("Sandbox", "s", template={"image": "paddock/test-tiny:1", "command": ["sleep", "1000"]})
    house.settle(seconds=1)
    root = house.engine.files.root(house.engine.box(house.container_name("s")).id)
    for name, data in files.items():
        (root / "workspace" / name).write_bytes(data)
    return root / "workspace"


def _copy(house: RunHarness, **copy: object) -> dict[str, str]:
    stage = {"name": "c", "copy": {"from": "/workspace", "artifact": "out", **copy}}
    house.put("WorkflowRun", "r", workflow={"stages": [stage]}, sandboxRef={"name": "s"})
    finish = house.finish()
    return finish.status["stages"][0]


def test_copied_folder_becomes_an_artifact(house: RunHarness) -> None:
    _in_sandbox(house, a=b"one", b=b"")
    copied = _copy(house)
    assert (copied["state"], copied["message"]) == ("Succeeded", "2 files, 3 bytes")
    (artifact,) = house.services.runs.artifacts("default", "r")
    assert {artifact_file.path: artifact_file.size for artifact_file in artifact.files} == {"a": 3, "b": 0}
    with house.services.runs.open_artifact("default", "r", "out") as file, tarfile.open(fileobj=file) as tar:
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
    world: World, tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    house = RunHarness(world.store(), tmp_path / "runs", artifact_bytes=65_536)
    make(_in_sandbox(house))
    copy = _copy(house)
    assert (copy["state"], copy["reason"]) == ("Failed", "ArtifactRefused")
    assert words in copy["message"]
    assert list((tmp_path / "runs").glob("files/*/*/artifacts/*")) == []
    house.close()


def _empty(path: Path) -> Path:
    path.touch()
    return path


def test_missing_path_fails_unless_it_is_optional(house: RunHarness) -> None:
    _in_sandbox(house)
    assert _copy(house, **{"from": "/workspace/none"})["state"] == "Failed"
    house.put(
        "WorkflowRun",
        "r2",
        sandboxRef={"name": "s"},
        workflow={"stages": [{"name": "c", "copy": {"from": "/workspace/none", "artifact": "out", "optional": True}}]},
    )
    assert house.finish("r2").status["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("content", "reason", "words"),
    [
        (b"x" * 4097, "OutputTooLarge", "/workspace/v is longer than 4096 bytes; copy it as an artifact"),
        (b"a\0b", "OutputNotText", "output `v`: /workspace/v has a NUL byte; copy it as an artifact instead"),
    ],
)
def test_output_that_is_no_short_text_fails_its_stage(
    house: RunHarness, content: bytes, reason: str, words: str
) -> None:
    _in_sandbox(house, v=content)
    stage = exec_stage("a", outputs=[{"name": "v", "path": "/workspace/v"}], retries={"limit": 3})
    house.put("WorkflowRun", "r", workflow={"stages": [stage]}, sandboxRef={"name": "s"})
    (observed,) = house.finish().status["stages"]
    assert (observed["reason"], observed["attempt"]) == (reason, 1)
    assert words in observed["message"]


def _agent(house: RunHarness, *tools: str, **more: object) -> dict[str, Any]:
    agent = {"provider": "p", "model": "m", "instructions": "do it", "tools": list(tools), **more}
    house.put("WorkflowRun", "r", workflow={"stages": [{"name": "a", "agent": agent}]}, sandboxRef={"name": "s"})
    return house.finish().status["stages"][0]


def _calls(name: str, **arguments: object) -> ModelReply:
    return ModelReply("", (ToolCall("same", name, arguments),), 100, 10)


def _talking(world: World, folder: Path, *answers: ModelReply | Exception) -> tuple[RunHarness, ScriptedModels]:
    models = ScriptedModels(*answers)
    return RunHarness(world.store(), folder / "runs", models), models


def test_agent_works_with_its_tools_alone(world: World, tmp_path: Path) -> None:
    house, models = _talking(
        world,
        tmp_path,
        _calls("file.write", path="/workspace/new/f", content="text"),
        _calls("file.read", path="/workspace/new/f"),
        _calls("exec", command="echo out; exit 3"),
        _calls("git", args=["status"]),
        _calls("file.read", path=7),
        ModelReply("it is done", (), 5, 5),
    )
    workspace = _in_sandbox(house)
    document = _agent(house, "file.write", "file.read", "exec")
    assert (workspace / "new" / "f").read_text() == "text"
    results = [message.text for message in models.asked[-1].messages if message.role == "tool"]
    assert results[:3] == ["written", "text", "exit code 3\nout\n"]
    assert results[3].startswith("error: `git` is not one of your tools")
    assert results[4] == "error: `path` must be a text"
    assert (document["state"], document["message"]) == ("Succeeded", "6 turns, 560 tokens")
    assert document["outputs"] == [{"name": "answer", "value": "it is done"}]
    lines = house.services.runs.transcript("default", "r", "a")
    assert [line["role"] for line in lines] == ["user", *["assistant", "tool"] * 5, "assistant"]
    assert b"[call] exec" in house.services.runs.log("default", "r", "a")
    house.close()


@pytest.mark.parametrize(("bound", "reason"), [({"maxTurns": 3}, "MaxTurns"), ({"maxTokens": 300}, "MaxTokens")])
def test_agent_that_loops_is_ended(world: World, tmp_path: Path, bound: dict[str, int], reason: str) -> None:
    house, models = _talking(world, tmp_path, *[_calls("exec", command="true")] * 100)
    _in_sandbox(house)
    document = _agent(house, "exec", **bound)
    assert (document["state"], document["reason"], len(models.asked)) == ("Failed", reason, 3)
    house.close()


def test_failing_model_fails_its_stage(world: World, tmp_path: Path) -> None:
    house, _ = _talking(world, tmp_path, ModelError("the key is refused; change it"))
    _in_sandbox(house)
    document = _agent(house)
    assert (document["reason"], document["message"]) == ("ModelFailed", "the key is refused; change it")
    house.close()


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
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    errors: list[ModelError],
    asked: int,
    state: str,
) -> None:
    monkeypatch.setattr(agent, "_PAUSE_SECONDS", 0.0)
    house, models = _talking(world, tmp_path, *errors)
    _in_sandbox(house)
    document = _agent(house)
    assert (document["state"], len(models.asked)) == (state, asked)
    house.close()


def test_answer_that_is_cut_off_is_gone_on_with(world: World, tmp_path: Path) -> None:
    house, models = _talking(world, tmp_path, ModelReply("half of", (), 5, 5, cut=True), ModelReply("whole", (), 5, 5))
    _in_sandbox(house)
    document = _agent(house)
    assert (document["state"], document["outputs"][0]["value"]) == ("Succeeded", "whole")
    assert [message.role for message in models.asked[-1].messages] == ["user", "assistant", "user"]
    house.close()
