"""Workflow runs over the fake engine: stages, parameters, outputs, failures, copies, agents, ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.store_worlds import World
from tests.loop.runs import RunHarness, exec_stage, workflow


@pytest.fixture
def house(world: World, tmp_path: Path) -> Iterator[RunHarness]:
    made = RunHarness(world.store(), tmp_path / "runs")
    yield made
    made.close()


def test_stages_run_in_order_in_one_sandbox(house: RunHarness) -> None:
    house.put("Workflow", "w", **workflow(exec_stage("a", "echo one"), exec_stage("b", "echo two")))
    house.put("WorkflowRun", "r", workflowRef={"name": "w"})
    found = house.finish()
    assert house.states() == {"a": "Succeeded", "b": "Succeeded"}
    assert found.status["phase"] == "Succeeded"
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
    found = house.finish()
    assert house.states() == {"a": "Failed", "b": "Skipped", "f": "Succeeded", "g": "Succeeded"}
    (condition,) = found.status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "StageFailed")
    assert condition["message"] == "stage `a` failed: exit code 3"


def test_failed_stage_is_retried_with_back_off(house: RunHarness) -> None:
    stage = exec_stage("a", "false", retries={"limit": 2, "backoffSeconds": 5})
    house.put("WorkflowRun", "r", workflow=workflow(stage))
    began = house.clock.now()
    house.finish(ticks=120)
    assert house.commands() == ["false"] * 3
    assert house.clock.now() - began >= 15, "five seconds, then ten"


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
    asked: list[dict[str, str]] = []
    begin = house.engine.exec
    house.engine.exec = lambda *a, **k: (asked.append(dict(k.get("env") or {})), begin(*a, **k))[1]  # type: ignore
    house.put("WorkflowRun", "r", workflowRef={"name": "w"}, sandboxRef={"name": "s"})
    found = house.finish()
    assert found.status["phase"] == "Succeeded"
    assert asked[-1] == {"REF": "main; rm -rf /", "FOUND": "is 1.2"}
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
    found = house.finish()
    assert house.states() == {"a": "Cancelled", "b": "Cancelled", "f": "Succeeded"}
    assert found.status["phase"] == "Cancelled"


def test_deadline_ends_a_run(house: RunHarness) -> None:
    house.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "sleep 100")), activeDeadlineSeconds=5)
    house.go_until_running("a")
    house.clock.advance(6)
    found = house.finish()
    assert (house.states(), found.status["conditions"][0]["reason"]) == ({"a": "Cancelled"}, "DeadlineExceeded")


def test_lost_sandbox_fails_its_run(house: RunHarness) -> None:
    house.put("WorkflowRun", "r", workflow=workflow(exec_stage("a", "sleep 100"), final=[exec_stage("f")]))
    house.go_until_running("a")
    house.delete(house.names()[0])
    found = house.finish()
    assert (house.states()["f"], found.status["phase"]) == ("Skipped", "Failed")
    assert "was deleted" in found.status["conditions"][0]["message"] or "is being deleted" in found.status["message"]


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
