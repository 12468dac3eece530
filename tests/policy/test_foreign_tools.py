"""Tools of other people's MCP servers: what clients get of them."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.kinds.mcpserver import ServerTools
from controller.policy.foreign_tools import MOST_DESCRIPTION, MOST_TOOLS, digest_of, is_allowed, offered, pin, plain
from tests.examples import examples

ALL = ServerTools()


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": "d", "inputSchema": {"type": "object"}, **fields}


def test_more_than_128_tools_are_left_out() -> None:
    observed = offered([tool(f"t{number}") for number in range(MOST_TOOLS + 2)], ALL, verified=True)
    assert len(observed.tools) == MOST_TOOLS
    assert [name.partition(":")[0] for name in observed.left_out] == ["t128", "t129"]


def test_bad_definitions_are_left_out() -> None:
    listed = [
        tool("a"),
        tool("a"),
        tool("b c"),
        tool("x" * 129),
        {"name": 5},
        {"name": "c"},
        tool("d", extra="x" * 70_000),
    ]
    observed = offered(listed, ALL, verified=True)
    assert list(observed.tools) == ["a"]
    assert len(observed.left_out) == 6


def test_names_are_as_long_as_the_protocol_has_them() -> None:
    assert list(offered([tool("x" * 128)], ALL, verified=False).tools) == ["x" * 128]


@pytest.mark.parametrize(
    "name", ["docker.container.exec", "Docker.x", "sandbox.why", "sandbox/x", "mcp.server.list", "docker_file_read"]
)
def test_no_tool_has_a_name_of_paddocks(name: str) -> None:
    listed = [tool(name), tool("docker"), tool("docker_ps"), tool("sandboxes.list")]
    observed = offered(listed, ALL, verified=True, paddocks={"docker_file_read"})
    assert list(observed.tools) == ["docker", "docker_ps", "sandboxes.list"]
    assert observed.left_out == (f"{name}: only tools of Paddock have such a name",)


def test_a_tool_too_large_is_named_whatever_else_is_left_out() -> None:
    unnamed = [tool(f"a b {number}") for number in range(200)]
    observed = offered([*unnamed, tool("huge", extra="x" * 70_000)], ALL, verified=True)
    output = observed.left_out_text()
    assert output.startswith("huge: its definition is larger than 64 KiB; ")
    assert re.search(r"; and \d+ more$", output)
    assert len(output) < 4000
    assert "huge" not in observed.tools


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "array"}, "its `type` must be `object`"),
        ({"type": None}, "its `type` must be `object`"),
        ({"properties": 5}, "its `properties` must be schemas by name"),
        ({"properties": {"a": 5}}, "its `properties` must be schemas by name"),
        ({"required": "a"}, "its `required` must be a list of names"),
        ({"required": [1]}, "its `required` must be a list of names"),
        ({"$schema": 5}, "its `$schema` must be text"),
    ],
)
def test_a_schema_no_client_can_read_is_left_out(schema: dict[str, Any], says: str) -> None:
    listed = [tool("bad", inputSchema=schema), tool("good", inputSchema={}), tool("out", outputSchema=schema)]
    observed = offered(listed, ALL, verified=False)
    assert list(observed.tools) == ["good", "out"]
    assert observed.left_out == (f"bad: its input schema is not valid: {says}",)
    assert "outputSchema" not in observed.tools["out"]


def test_annotations_of_a_wrong_type_are_dropped() -> None:
    document = {"title": "T\u200b", "readOnlyHint": "yes", "idempotentHint": True, "other": 1}
    observed = offered([tool("a", annotations=document)], ALL, verified=True)
    assert observed.tools["a"]["annotations"] == {"title": "T", "idempotentHint": True}


def nested(depth: int) -> Any:
    document: Any = {}
    for _ in range(depth):
        document = {"a": document}
    return document


def test_deep_definitions_are_left_out() -> None:
    listed = [tool("deep", inputSchema=nested(900)), tool("flat", inputSchema=nested(30))]
    observed = offered(listed, ALL, verified=True)
    assert list(observed.tools) == ["flat"]
    assert observed.left_out == ("deep: its definition is nested deeper than 32 levels",)


def test_definitions_together_fit_a_message() -> None:
    listed = [tool(f"t{number}", inputSchema={"x": ["y" * 1000] * 60}) for number in range(20)]
    observed = offered(listed, ALL, verified=True)
    assert len(observed.tools) == 15
    assert "together are larger than 900 KiB" in observed.left_out[0]


def test_hidden_instructions_are_removed_everywhere() -> None:
    hidden = "Add\u200b\u202e\x1b\U000e0041 numbers\ttab\n"
    schema = {"type": "object", "properties": {"a": {"description": hidden, "enum": [hidden, 1, None]}}}
    listed = [tool("a", description=hidden + "!" * 5000, title=hidden, inputSchema=schema)]
    document = offered(listed, ALL, verified=False).tools["a"]
    assert document["title"] == "Add numbers\ttab\n"
    assert document["inputSchema"]["properties"]["a"]["description"] == "Add numbers\ttab\n"
    assert document["inputSchema"]["properties"]["a"]["enum"] == ["Add numbers\ttab\n", 1, None]
    assert len(document["description"]) == MOST_DESCRIPTION


def test_annotations_are_kept_of_verified_servers_only() -> None:
    listed = [tool("a", annotations={"readOnlyHint": True}, _meta={"x": 1})]
    assert "annotations" not in offered(listed, ALL, verified=False).tools["a"]
    assert offered(listed, ALL, verified=True).tools["a"]["annotations"] == {"readOnlyHint": True}
    assert "_meta" not in offered(listed, ALL, verified=True).tools["a"]


def test_deny_wins_over_allow() -> None:
    rules = ServerTools(allow=("read_*", "write"), deny=("read_secret", "*.raw"))
    names = ("read_file", "read_secret", "write", "writer", "read_x.raw", "other")
    assert [name for name in names if is_allowed(name, rules)] == ["read_file", "write"]


def test_a_changed_definition_is_another_digest() -> None:
    document, two = tool("a"), tool("b")
    first = digest_of([document, two])
    assert digest_of([two, document]) == first
    assert digest_of([document, tool("b", description="now evil")]) != first
    assert [pin(first, "", ""), pin(first, "", first), pin(first, "sha256:other", first)] == [
        "first",
        "same",
        "changed",
    ]


@given(st.text(max_size=40), st.integers(1, 30))
@settings(max_examples=examples(100))
def test_plain_text_is_stable_and_bounded(text: str, most: int) -> None:
    observed = plain(text, most)
    assert len(observed) <= most
    assert plain(observed, most) == observed
