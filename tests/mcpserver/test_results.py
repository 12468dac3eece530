"""Results of other people's servers, as clients get them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import types
from mcp.shared.exceptions import MCPError

from controller.kinds.mcpserver import KIND, MCPServerSpec, ServerTools
from controller.kinds.meta import StoredObject
from controller.mcp.servers import results
from controller.mcp.servers.notices import MESSAGE, UPDATED, Notice
from controller.mcp.servers.results import Naming
from controller.mcp.servers.target import Target
from controller.policy.foreign_tools import offered
from controller.service.mcp.server import Server
from tests.examples import examples


def naming(name: str = "one", **spec: Any) -> Naming:
    obj = StoredObject(kind=KIND.name, namespace="default", name="one", uid="u", spec={}, created_at=0.0)
    server = Server(obj, MCPServerSpec.model_validate({"command": "python3", **spec}))
    return Naming(server, Target("default", name))


ALONE, AMONG = naming(), naming("")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def nested(depth: int) -> Any:
    document: Any = {}
    for _ in range(depth):
        document = {"a": document}
    return document


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"content": [1] * 1001}, "more than 1000 blocks"),
        ({"content": [text("x" * (1 << 20))]}, "larger than 900 KiB"),
        ({"content": [], "other": "x" * (1 << 20)}, "larger than 900 KiB"),
        ({"content": [], "structuredContent": nested(900)}, "nested too deeply"),
        ({"content": "nope"}, "the result of one.tool is not valid"),
        ({"content": "nope", "structuredContent": {"a": 1}}, "the result of one.tool is not valid"),
        ({}, "the result of one.tool is not valid"),
    ],
)
def test_results_are_bounded_before_they_are_parsed(raw: Any, says: str) -> None:
    answer = results.call_result(raw, "one.tool", ALONE)
    assert answer.is_error
    assert says in answer.content[0].text


def test_blocks_of_no_known_form_are_left_out() -> None:
    answer = results.call_result({"content": [text("a"), {"type": "other"}, 5, text("b")]}, "one.tool", ALONE)
    assert [entry.text for entry in answer.content] == ["a", "b", "[2 blocks left out: not valid]"]
    assert not answer.is_error
    [first] = results.call_result({"content": [5]}, "one.tool", ALONE).content
    assert first.text == "[1 block left out: not valid]"


def test_structured_content_needs_no_blocks() -> None:
    answer = results.call_result({"structuredContent": {"a": 1}}, "one.tool", ALONE)
    assert (answer.content, answer.structured_content, answer.is_error) == ([], {"a": 1}, False)


def test_no_text_of_a_result_controls_a_terminal() -> None:
    evil = "\x1b[2Jred\x07"
    blocks = [
        {"type": "text", "text": evil, "_meta": {evil: [evil]}},
        {"type": "resource", "resource": {"uri": "file:///a", "text": evil, "mimeType": evil}},
        {"type": "resource_link", "uri": "file:///b", "name": evil, "description": evil},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ]
    answer = results.call_result({"content": blocks, "structuredContent": {evil: [{"a": evil}]}}, "one.tool", ALONE)
    sent = answer.model_dump(mode="json", by_alias=True)
    assert len(sent["content"]) == 4
    assert sent["structuredContent"] == {"red": [{"a": "red"}]}
    assert "\\u001b" not in json.dumps(sent)
    assert sent["content"][3]["data"] == "aGk="


def test_text_that_is_not_seen_is_shown_as_escapes() -> None:
    evil = "a\u202eb\u200b\U000e0041\u00ad"
    output = "a\\u202eb\\u200b\\U000e0041\\u00ad"
    blocks = [text(evil), {"type": "resource", "resource": {"uri": "file:///a", "text": evil}}]
    answer = results.call_result({"content": blocks, "structuredContent": {evil: evil}}, "t", ALONE)
    assert (answer.content[0].text, answer.content[1].resource.text) == (output, output)
    assert answer.structured_content == {output: output}
    assert results.read_result({"contents": [{"uri": "a:b", "text": evil}]}, "a:b", ALONE).contents[0].text == output
    plain = "é 中文 \u2764\ufe0f 😀"
    assert results.call_result({"content": [text(plain)]}, "t", ALONE).content[0].text == plain


def test_carriage_returns_of_a_result_are_kept() -> None:
    lines = "a\r\nb\r\n\r"
    answer = results.call_result({"content": [text(lines)], "structuredContent": {"a": lines}}, "t", ALONE)
    assert (answer.content[0].text, answer.structured_content) == (lines, {"a": lines})


def test_limits_count_text_as_it_is() -> None:
    """The escapes that a server writes are six letters for each of these."""
    fits, too_long = "中" * 290_000, "中" * 320_000
    assert results.call_result({"content": [text(fits)]}, "t", ALONE).content[0].text == fits
    assert results.call_result({"content": [text(too_long)]}, "t", ALONE).is_error
    assert results.read_result({"contents": [{"uri": "a:b", "text": fits}]}, "a:b", ALONE).contents[0].text == fits
    with pytest.raises(MCPError, match="larger than 900 KiB"):
        results.read_result({"contents": [{"uri": "a:b", "text": "\u00ad" * 300_000}]}, "a:b", ALONE)


@pytest.mark.parametrize("uri", ["sandbox://default/other", "SandBox://x/y/files/a", " sand\tbox://default/other/logs"])
def test_uris_of_a_server_name_no_sandbox(uri: str) -> None:
    link = {"type": "resource_link", "uri": uri, "name": "b"}
    inside = {"type": "resource", "resource": {"uri": uri, "text": "x"}}
    for place in (ALONE, AMONG):
        answer = results.call_result({"content": [link, inside]}, "t", place)
        assert [entry.text for entry in answer.content] == ["[2 blocks left out: not valid]"]
        assert results.read_result({"contents": [{"uri": uri, "text": "x"}]}, "a:b", place).contents == []
        assert results.listed_resources([{"uri": uri, "name": "a"}], place) == []
        assert results.listed_templates([{"uriTemplate": f"{uri}{{x}}", "name": "a"}], place) == []
        assert results.notification(Notice("default", place.server, UPDATED, {"uri": uri}), place) is None


def test_a_long_list_of_tools_has_pages() -> None:
    schema = {"type": "object", "description": "x" * 60_000}
    listed = [types.Tool(name=f"t{number:02}", input_schema=schema) for number in range(20)]
    first, cursor = results.page_of("tools/list", "tools", listed[::-1])
    last, end = results.page_of("tools/list", "tools", listed[::-1], cursor)
    assert (len(first), len(last), end) == (15, 5, None)
    assert [tool.name for tool in (*first, *last)] == [f"t{number:02}" for number in range(20)]
    with pytest.raises(MCPError, match="cursor: not one of this server's"):
        results.page_of("tools/list", "tools", listed, "-1")


def test_what_a_version_can_not_read_is_left_out() -> None:
    """One such tool would cost the client the whole list."""
    schemas = {
        "good": {"type": "object"},
        "no-type": {},
        "text": {"type": "string"},
        "odd": {"type": "object", "properties": 5},
    }
    listed = [types.Tool(name=name, input_schema=schema) for name, schema in schemas.items()]
    assert [tool.name for tool in results.page_of("tools/list", "tools", listed)[0]] == ["good"]


_VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["object", "array"])
_PARTS = st.lists(_VALUES, max_size=2) | st.dictionaries(st.text(max_size=3), _VALUES | st.just({}), max_size=2)
_SCHEMAS = st.dictionaries(
    st.sampled_from(["type", "ty\u200bpe", "properties", "required", "$schema"]), _VALUES | _PARTS
)
_HINTS = st.dictionaries(st.sampled_from(["title", "readOnlyHint", "openWorldHint", "other"]), _VALUES)
_KEYS: Any = {"inputSchema": _SCHEMAS, "outputSchema": _SCHEMAS | _VALUES, "annotations": _HINTS, "title": _VALUES}


@settings(max_examples=examples(200), deadline=None)
@given(st.fixed_dictionaries(_KEYS))
def test_clients_get_every_tool_that_is_counted(definition: dict[str, Any]) -> None:
    counted = offered([{"name": "a", **definition}], ServerTools(), verified=True).tools
    listed = [types.Tool.model_validate(document) for document in counted.values()]
    assert results.page_of("tools/list", "tools", listed) == (listed, None)


def test_uris_of_a_namespace_name_their_server() -> None:
    link = {"type": "resource_link", "uri": "file:///b", "name": "b"}
    inside = {"type": "resource", "resource": {"uri": "file:///a", "text": "x"}}
    answer = results.call_result({"content": [link, inside]}, "tool", AMONG)
    assert [answer.content[0].uri, answer.content[1].resource.uri] == ["one+file:///b", "one+file:///a"]
    read = results.read_result({"contents": [{"uri": "file:///a", "blob": "aGk="}]}, "file:///a", AMONG)
    assert [(entry.uri, entry.blob) for entry in read.contents] == [("one+file:///a", "aGk=")]
    [listed] = results.listed_resources([{"uri": "file:///a", "name": "A\u200b", "_meta": {"x": 1}}], AMONG)
    assert (listed.uri, listed.name, listed.meta) == ("one+file:///a", "A", None)


def test_resources_and_prompts_are_filtered_and_cleaned() -> None:
    among = naming(resources={"allow": ["file:///*"], "deny": ["*/secret*"]}, prompts={"deny": ["hidden*"]})
    uris = ["file:///a", "file:///secret", "http://x/", "file:///\u202ea", "file:///" + "x" * 3000, 5, ""]
    listed = results.listed_resources([{"uri": entry, "name": "n"} for entry in uris] + [{"name": "none"}], among)
    assert [resource.uri for resource in listed] == ["file:///a"]
    [template] = results.listed_templates([{"uriTemplate": "file:///{+path}", "name": "t"}], among)
    assert template.uri_template == "file:///{+path}"
    evil = {"name": "ask", "description": "a\u200b\x1b" + "!" * 5000, "arguments": [{"name": "x\u202e"}]}
    listed_prompts = results.listed_prompts([evil, {"name": "hidden-1"}, {"name": "a b"}, {"name": 5}], among)
    assert [listed_prompt.name for listed_prompt in listed_prompts] == ["ask"]
    assert len(str(listed_prompts[0].description)) == 2048
    assert "\u200b" not in str(listed_prompts[0].description)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"contents": [{"uri": "a", "text": "x" * (1 << 20)}]}, "larger than 900 KiB"),
        ({"contents": [{}] * 1001}, "more than 1000 blocks"),
        ({"contents": nested(900)}, "nested too deeply"),
        ({"resultType": "input_required"}, "asks for sampling, roots or input"),
    ],
)
def test_contents_are_bounded(raw: Any, says: str) -> None:
    with pytest.raises(MCPError, match=says):
        results.read_result(raw, "file:///a", ALONE)
    assert results.call_result({"resultType": "input_required"}, "t", ALONE).is_error


def test_prompts_come_without_control_and_metadata() -> None:
    messages = [{"role": "user", "content": text("\x1b[2Jhi")}, {"role": "system", "content": text("no")}, 5]
    prompt_result = results.prompt_result({"messages": messages, "description": "d\u200b"}, "ask", ALONE)
    assert [message.content.text for message in prompt_result.messages] == ["hi"]
    assert prompt_result.description == "d\\u200b"
    values = results.completion_result({"completion": {"values": ["a\x07", 5, *["b"] * 200]}}).completion
    assert (values.values[:2], len(values.values), values.has_more) == (["a", "b"], 100, True)
    assert results.completion_result({"completion": 5}).completion.values == []


@pytest.mark.parametrize(
    ("method", "params", "shown"),
    [
        (UPDATED, {"uri": "file:///a", "_meta": {}}, {"uri": "one+file:///a"}),
        (UPDATED, {"uri": "no:///a"}, None),
        (UPDATED, {}, None),
        (
            MESSAGE,
            {"level": "info", "data": "\x1b[2Jx", "logger": "l"},
            {"level": "info", "data": "x", "logger": "one.l"},
        ),
        (MESSAGE, {"level": "loud", "data": 1}, None),
        (MESSAGE, {"level": "info", "data": "x" * 20_000}, None),
        (MESSAGE, {"level": "info", "data": nested(900)}, None),
        ("notifications/tools/list_changed", {"a": 1}, {}),
    ],
)
def test_notifications_are_cleaned(method: str, params: dict[str, Any], shown: Any) -> None:
    among = naming("", resources={"deny": ["no:*"]})
    assert results.notification(Notice("default", among.server, method, params), among) == shown
