"""Contents of requests to agents: their tools, the shapes that the audit keeps, and time limits."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policy.inside.agent_call import (
    ToolUse,
    asked_seconds,
    audit_details,
    bound_seconds,
    label_of,
    listens,
    split_arguments,
    tools_of_execute,
    tools_of_mcp,
    waited_seconds,
)

WORDS = ["tool", "tools", "type", "parameters", "context", "name", "params", "method", "arguments", "timeout_s"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner),
    max_leaves=8,
)


def called(name: str, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("body", "uses", "label"),
    [
        ({"tool": "exec", "parameters": {"command": "true"}}, [("exec", {"command": "true"})], "exec"),
        ({"name": "git", "input": {"operation": "log"}}, [("git", {"operation": "log"})], "git"),
        ({"tool": "no.such"}, [("no.such", {})], "other"),
        (
            {"type": "tool_use", "tools": ["test", {"tool": "build"}], "context": {"test": {"args": []}}},
            [("test", {"args": []}), ("build", {})],
            "other",
        ),
        ({"type": "tool_use", "tools": "exec"}, [], "mcp"),
        ({"tool": 5}, [], "mcp"),
        ([], [], "mcp"),
    ],
)
def test_execute_names_its_tools(body: Any, uses: list[tuple[str, Any]], label: str) -> None:
    tools = tools_of_execute(body)
    assert [(tool.tool, tool.arguments) for tool in tools] == uses
    assert label_of(tools) == label


@pytest.mark.parametrize(
    ("args", "arguments"),
    [("test --name 'a b'", ["test", "--name", "a b"]), ("", []), ("it's", "it's"), (["a b"], ["a b"])],
)
def test_arguments_in_one_string_are_split(args: Any, arguments: Any) -> None:
    context = {"exec": {"command": "npm", "args": args}}
    bodies = (
        {"tool": "exec", "parameters": context["exec"]},
        {"type": "tool_use", "tools": ["exec"], "context": context},
    )
    for body in bodies:
        uses = tools_of_execute(copy.deepcopy(body))
        split_arguments(uses)
        assert uses[0].arguments["args"] == arguments


def test_only_calls_of_mcp_name_a_tool() -> None:
    assert tools_of_mcp(called("exec", command="x")) == (ToolUse("exec", {"command": "x"}),)
    assert tools_of_mcp({"method": "tools/list"}) == tools_of_mcp([]) == tools_of_mcp({"method": "tools/call"}) == ()


def test_audit_keeps_shapes_and_no_value() -> None:
    secret = {"command": ["s3cret"], "env": {"S3CRET": "s3cret"}, "s3cret key": 1, "background": True, "timeout_s": 5}
    printed = audit_details(tools_of_mcp(called("exec", **secret)))
    shapes = {"command": "array(1)", "env": "object(1)", "other": "number", "background": "boolean"}
    assert printed == {"tool": "exec", "arguments": {**shapes, "timeout_s": "number"}}
    assert "s3cret" not in json.dumps(audit_details(tools_of_execute({"tool": "s3cret", "parameters": "s3cret"})))
    assert audit_details((), "tools/list") == {"method": "tools/list"}
    assert audit_details((), "s3cret\n") == {}


def test_commands_without_a_limit_get_one() -> None:
    body = {"type": "tool_use", "tools": [{"tool": "exec"}, {"tool": "file.read"}, {"tool": "git", "input": {}}]}
    uses = tools_of_execute(body)
    assert bound_seconds(uses, 60)
    assert body["tools"] == [
        {"tool": "exec", "parameters": {"timeout_s": 60}},
        {"tool": "file.read", "parameters": {}},
        {"tool": "git", "input": {"timeout_s": 60}},
    ]
    assert asked_seconds(uses) == 60
    document: dict[str, Any] = {"type": "tool_use", "tools": ["test"]}
    assert bound_seconds(tools_of_execute(document), 60)
    assert document["context"] == {"test": {"timeout_s": 60}}
    own_document = called("exec", timeout_s=10)
    assert not bound_seconds(tools_of_mcp(own_document), 60)
    assert not bound_seconds(tools_of_mcp(called("exec")), 300)  # the agent's own: the message passes as it came
    assert not bound_seconds(tools_of_mcp(called("exec")), None)
    assert asked_seconds(tools_of_mcp(called("exec", timeout_s="x"))) is None


def test_what_waits_or_listens_gets_its_time() -> None:
    waiting = {"tool": "file.changes", "parameters": {"wait_s": 5}}
    assert waited_seconds(tools_of_execute({"type": "tool_use", "tools": [waiting, waiting]})) == 10
    assert waited_seconds(tools_of_execute({**waiting, "parameters": {"wait_s": 1e6}})) == 600
    assert listens({"method": "subscriptions/listen"})
    assert not listens({"method": "tools/list"})


@given(JSON)
def test_no_body_breaks_the_reading(body: Any) -> None:
    for uses in (tools_of_execute(body), tools_of_mcp(body)):
        label_of(uses)
        json.dumps(audit_details(uses))
        asked_seconds(uses)
        bound_seconds(uses, 5.0)
        waited_seconds(uses)
    listens(body)
