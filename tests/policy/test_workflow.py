"""Admission of workflows: every error at once, each at its place."""

from typing import Any

import pytest

from controller.kinds.workflow import WorkflowSpec
from controller.kinds.workflowrun import WorkflowRunSpec
from controller.policy import workflow, workflowrun
from controller.policy.levels.levels import Policy


def exec_stage(name: str, command: str = "true", **fields: Any) -> dict[str, Any]:
    env = fields.pop("env", {})
    return {
        "name": name,
        "exec": {"commands": [command], "env": [{"name": key, "value": value} for key, value in env.items()]},
        **fields,
    }


def refusals_of(*stages: dict[str, Any], **fields: Any) -> dict[str, str]:
    spec = WorkflowSpec.model_validate({"stages": stages, **fields})
    return {refusal.field: refusal.message for refusal in workflow.admit(spec, Policy())}


def test_all_errors_come_at_once_with_their_places() -> None:
    document = refusals_of(
        exec_stage("a", "echo $(parameters.x)", after=["b"]),
        exec_stage("b", after=["a", "c"]),
        exec_stage("b", env={"X": "$(parameters.no)", "Y": "$(stages.a.outputs.no)", "Z": "$(date)"}),
        sandbox={"template": {"image": "paddock/python:1", "securityLevel": "none"}},
        parameters=[{"name": "x"}, {"name": "x"}],
        **{"finally": [exec_stage("f", after=["a"])]},
    )
    assert {field: message.partition(";")[0] for field, message in document.items()} == {
        "spec.sandbox.template.securityLevel": document["spec.sandbox.template.securityLevel"].partition(";")[0],
        "spec.parameters[1].name": "parameter `x` is written twice",
        "spec.stages[2].name": "`b` is also the name of stages[1]",
        "spec.stages[1].after[1]": "`c` is not a stage of this workflow",
        "spec.stages[0].after": "these stages wait for each other: a after b after a",
        "spec.stages[0].exec.commands[0]": "`$(...)` is not replaced in commands, so that no value becomes a script",
        "spec.stages[2].exec.env[0].value": "`$(parameters.no)` names no parameter",
        "spec.stages[2].exec.env[1].value": "stage `a` has no output `no`",
        "spec.stages[2].exec.env[2].value": "`$(date)` stands for nothing",
        "spec.finally[0].after": "`finally` stages run one after the other",
    }


@pytest.mark.parametrize(
    ("waits", "message"),
    [
        ({"a": ["b"], "b": ["a"]}, "these stages wait for each other"),
        ({"a": ["a"], "b": None}, "a stage can't wait for itself"),
        ({"a": ["c"], "b": None, "c": None}, "these stages wait for each other: "),
    ],
)
def test_cycles_are_refused(waits: dict[str, list[str] | None], message: str) -> None:
    document = refusals_of(*(exec_stage(name, after=after) for name, after in waits.items()))
    assert any(name.startswith(message) for name in document.values()), document


def test_cycle_is_told_beside_other_errors_of_its_graph() -> None:
    document = refusals_of(
        exec_stage("a", after=["c", "a"]),
        exec_stage("b", after=["a", "none"]),
        exec_stage("c", after=["b"]),
        exec_stage("d", after=[]),
        exec_stage("d", after=[]),
    )
    assert set(document) == {
        "spec.stages[0].after",
        "spec.stages[0].after[1]",
        "spec.stages[1].after[1]",
        "spec.stages[4].name",
    }
    assert document["spec.stages[0].after"].startswith("these stages wait for each other")


def test_second_stage_of_a_name_makes_no_cycle() -> None:
    document = refusals_of(exec_stage("a", after=[]), exec_stage("b", after=["a"]), exec_stage("a", after=["b"]))
    assert set(document) == {"spec.stages[2].name"}


def test_outputs_are_read_only_after_their_stage() -> None:
    stages = (
        exec_stage("a", outputs=[{"name": "o", "path": "/o"}]),
        exec_stage("b", after=[], env={"X": "$(stages.a.outputs.o)"}),
    )
    assert "need not have ended by then" in refusals_of(*stages)["spec.stages[1].exec.env[0].value"]
    assert refusals_of(*(stages[0], {**stages[1], "after": None})) == {}


@pytest.mark.parametrize("command", ["echo $((1 + 1))", "echo `date`", 'echo "$REF"', "echo '$REF (x)'"])
def test_shells_own_words_are_commands(command: str) -> None:
    assert refusals_of(exec_stage("a", command)) == {}


def test_agents_get_known_tools_alone() -> None:
    agent = {"provider": "p", "model": "m", "instructions": "x $(run.name)", "tools": ["exec", "docker.exec"]}
    document = refusals_of({"name": "a", "agent": agent})
    assert list(document) == ["spec.stages[0].agent.tools[1]"]


def test_runs_sandbox_is_no_service() -> None:
    sandbox = {"template": {"image": "x:1"}, "restartPolicy": "Never", "runState": "Suspended"}
    assert set(refusals_of(exec_stage("a"), sandbox=sandbox)) == {"spec.sandbox.restartPolicy", "spec.sandbox.runState"}


def test_values_are_replaced_once() -> None:
    values = workflow.values_of({"a": "$(parameters.b)", "b": "2"}, {"s": {"o": "out"}}, {"name": "r"})
    text = "$(parameters.a) $(stages.s.outputs.o) $(run.name) $(stages.s.outputs.none)."
    assert workflow.expand(text, values) == "$(parameters.b) out r ."


def run_refused(spec: dict[str, Any], **flow: Any) -> dict[str, str]:
    workflow_spec = WorkflowSpec.model_validate({"stages": [exec_stage("a")], **flow})
    refusals = workflowrun.refusals(
        WorkflowRunSpec.model_validate({"workflowRef": {"name": "w"}, **spec}), workflow_spec
    )
    return {refusal.field: refusal.message for refusal in refusals}


def test_run_needs_a_value_for_each_parameter_and_a_sandbox() -> None:
    document = run_refused(
        {"parameters": [{"name": "y", "value": ""}]}, parameters=[{"name": "x"}, {"name": "z", "default": ""}]
    )
    assert document["spec.parameters[0].name"].startswith("`y` is not a parameter of the workflow; it has x, z")
    assert document["spec.parameters"].startswith("`x`: no value")
    assert "spec.sandboxRef" in document
    assert run_refused({"sandboxRef": {"name": "s"}}) == {}


def test_only_the_end_of_a_run_is_changed() -> None:
    before = WorkflowRunSpec.model_validate({"workflowRef": {"name": "w"}, "runState": "Cancelled"})
    now = WorkflowRunSpec.model_validate({"workflowRef": {"name": "v"}, "ttlSecondsAfterFinished": 5})
    assert [refusal.field for refusal in workflowrun.change_refusals(before, now)] == [
        "spec.workflowRef",
        "spec.runState",
    ]
