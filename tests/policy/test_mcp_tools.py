"""Tools of other people's MCP servers: what clients get of them."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.kinds.mcpserver import ServerTools
from controller.policy.mcp_tools import MOST_DESCRIPTION, MOST_TOOLS, digest_of, is_allowed, offered, pin, plain
from tests.examples import examples

ALL = ServerTools()


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "d", "inputSchema": {"type": "object"}, **more}


def test_more_than_128_tools_are_left_out() -> None:
    found = offered([tool(f"t{number}") for number in range(MOST_TOOLS + 2)], ALL, verified=True)
    assert len(found.tools) == MOST_TOOLS
    assert [each.partition(":")[0] for each in found.left_out] == ["t128", "t129"]


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
    found = offered(listed, ALL, verified=True)
    assert list(found.tools) == ["a"]
    assert len(found.left_out) == 6


def test_names_are_as_long_as_the_protocol_has_them() -> None:
    assert list(offered([tool("x" * 128)], ALL, verified=False).tools) == ["x" * 128]


@pytest.mark.parametrize(
    "name", ["docker.container.exec", "Docker.x", "sandbox.why", "sandbox/x", "mcp.server.list", "docker_file_read"]
)
def test_no_tool_has_a_name_of_paddocks(name: str) -> None:
    listed = [tool(name), tool("docker"), tool("docker_ps"), tool("sandboxes.list")]
    found = offered(listed, ALL, verified=True, paddocks={"docker_file_read"})
    assert list(found.tools) == ["docker", "docker_ps", "sandboxes.list"]
    assert found.left_out == (f"{name}: only tools of Paddock have such a name",)


def test_a_tool_too_large_is_named_whatever_else_is_left_out() -> None:
    unnamed = [tool(f"a b {number}") for number in range(200)]
    found = offered([*unnamed, tool("huge", extra="x" * 70_000)], ALL, verified=True)
    said = found.left_out_text()
    assert said.startswith("huge: its definition is larger than 64 KiB; ")
    assert re.search(r"; and \d+ more$", said)
    assert len(said) < 4000
    assert "huge" not in found.tools


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
    found = offered(listed, ALL, verified=False)
    assert list(found.tools) == ["good", "out"]
    assert found.left_out == (f"bad: its input schema is not valid: {says}",)
    assert "outputSchema" not in found.tools["out"]


def test_annotations_of_a_wrong_type_are_dropped() -> None:
    given = {"title": "T\u200b", "readOnlyHint": "yes", "idempotentHint": True, "other": 1}
    found = offered([tool("a", annotations=given)], ALL, verified=True)
    assert found.tools["a"]["annotations"] == {"title": "T", "idempotentHint": True}


def nested(depth: int) -> Any:
    made: Any = {}
    for _ in range(depth):
        made = {"a": made}
    return made


def test_deep_definitions_are_left_out() -> None:
    listed = [tool("deep", inputSchema=nested(900)), tool("flat", inputSchema=nested(30))]
    found = offered(listed, ALL, verified=True)
    assert list(found.tools) == ["flat"]
    assert found.left_out == ("deep: its definition is nested deeper than 32 levels",)


def test_definitions_together_fit_a_message() -> None:
    listed = [tool(f"t{number}", inputSchema={"x": ["y" * 1000] * 60}) for number in range(20)]
    found = offered(listed, ALL, verified=True)
    assert len(found.tools) == 15
    assert "together are larger than 900 KiB" in found.left_out[0]


def test_hidden_instructions_are_removed_everywhere() -> None:
    hidden = "Add\u200b\u202e\x1b\U000e0041 numbers\ttab\n"
    schema = {"type": "object", "properties": {"a": {"description": hidden, "enum": [hidden, 1, None]}}}
    listed = [tool("a", description=hidden + "!" * 5000, title=hidden, inputSchema=schema)]
    found = offered(listed, ALL, verified=False).tools["a"]
    assert found["title"] == "Add numbers\ttab\n"
    assert found["inputSchema"]["properties"]["a"]["description"] == "Add numbers\ttab\n"
    assert found["inputSchema"]["properties"]["a"]["enum"] == ["Add numbers\ttab\n", 1, None]
    assert len(found["description"]) == MOST_DESCRIPTION


def test_annotations_are_kept_of_verified_servers_only() -> None:
    listed = [tool("a", annotations={"readOnlyHint": True}, _meta={"x": 1})]
    assert "annotations" not in offered(listed, ALL, verified=False).tools["a"]
    assert offered(listed, ALL, verified=True).tools["a"]["annotations"] == {"readOnlyHint": True}
    assert "_meta" not in offered(listed, ALL, verified=True).tools["a"]


def test_deny_wins_over_allow() -> None:
    rules = ServerTools(allow=("read_*", "write"), deny=("read_secret", "*.raw"))
    names = ("read_file", "read_secret", "write", "writer", "read_x.raw", "other")
    assert [each for each in names if is_allowed(each, rules)] == ["read_file", "write"]


def test_a_changed_definition_is_another_digest() -> None:
    one, two = tool("a"), tool("b")
    first = digest_of([one, two])
    assert digest_of([two, one]) == first
    assert digest_of([one, tool("b", description="now evil")]) != first
    assert [pin(first, "", ""), pin(first, "", first), pin(first, "sha256:other", first)] == [
        "first",
        "same",
        "changed",
    ]


@given(st.text(max_size=40), st.integers(1, 30))
@settings(max_examples=examples(100))
def test_plain_text_is_stable_and_bounded(text: str, most: int) -> None:
    found = plain(text, most)
    assert len(found) <= most
    assert plain(found, most) == found
