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
from controller.policy.mcp_tools import offered
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
    made: Any = {}
    for _ in range(depth):
        made = {"a": made}
    return made


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
    found = results.call_result(raw, "one.tool", ALONE)
    assert found.is_error
    assert says in found.content[0].text


def test_blocks_of_no_known_form_are_left_out() -> None:
    found = results.call_result({"content": [text("a"), {"type": "other"}, 5, text("b")]}, "one.tool", ALONE)
    assert [each.text for each in found.content] == ["a", "b", "[2 blocks left out: not valid]"]
    assert not found.is_error
    [one] = results.call_result({"content": [5]}, "one.tool", ALONE).content
    assert one.text == "[1 block left out: not valid]"


def test_structured_content_needs_no_blocks() -> None:
    found = results.call_result({"structuredContent": {"a": 1}}, "one.tool", ALONE)
    assert (found.content, found.structured_content, found.is_error) == ([], {"a": 1}, False)


def test_no_text_of_a_result_controls_a_terminal() -> None:
    evil = "\x1b[2Jred\x07"
    blocks = [
        {"type": "text", "text": evil, "_meta": {evil: [evil]}},
        {"type": "resource", "resource": {"uri": "file:///a", "text": evil, "mimeType": evil}},
        {"type": "resource_link", "uri": "file:///b", "name": evil, "description": evil},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ]
    found = results.call_result({"content": blocks, "structuredContent": {evil: [{"a": evil}]}}, "one.tool", ALONE)
    sent = found.model_dump(mode="json", by_alias=True)
    assert len(sent["content"]) == 4
    assert sent["structuredContent"] == {"red": [{"a": "red"}]}
    assert "\\u001b" not in json.dumps(sent)
    assert sent["content"][3]["data"] == "aGk="


def test_text_that_is_not_seen_is_shown_as_escapes() -> None:
    evil = "a\u202eb\u200b\U000e0041\u00ad"
    shown = "a\\u202eb\\u200b\\U000e0041\\u00ad"
    blocks = [text(evil), {"type": "resource", "resource": {"uri": "file:///a", "text": evil}}]
    found = results.call_result({"content": blocks, "structuredContent": {evil: evil}}, "t", ALONE)
    assert (found.content[0].text, found.content[1].resource.text) == (shown, shown)
    assert found.structured_content == {shown: shown}
    assert results.read_result({"contents": [{"uri": "a:b", "text": evil}]}, "a:b", ALONE).contents[0].text == shown
    plain = "é 中文 \u2764\ufe0f 😀"
    assert results.call_result({"content": [text(plain)]}, "t", ALONE).content[0].text == plain


def test_carriage_returns_of_a_result_are_kept() -> None:
    lines = "a\r\nb\r\n\r"
    found = results.call_result({"content": [text(lines)], "structuredContent": {"a": lines}}, "t", ALONE)
    assert (found.content[0].text, found.structured_content) == (lines, {"a": lines})


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
        found = results.call_result({"content": [link, inside]}, "t", place)
        assert [each.text for each in found.content] == ["[2 blocks left out: not valid]"]
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
    assert [each.name for each in (*first, *last)] == [f"t{number:02}" for number in range(20)]
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
    listed = [types.Tool(name=name, input_schema=each) for name, each in schemas.items()]
    assert [each.name for each in results.page_of("tools/list", "tools", listed)[0]] == ["good"]


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
    listed = [types.Tool.model_validate(each) for each in counted.values()]
    assert results.page_of("tools/list", "tools", listed) == (listed, None)


def test_uris_of_a_namespace_name_their_server() -> None:
    link = {"type": "resource_link", "uri": "file:///b", "name": "b"}
    inside = {"type": "resource", "resource": {"uri": "file:///a", "text": "x"}}
    found = results.call_result({"content": [link, inside]}, "tool", AMONG)
    assert [found.content[0].uri, found.content[1].resource.uri] == ["one+file:///b", "one+file:///a"]
    read = results.read_result({"contents": [{"uri": "file:///a", "blob": "aGk="}]}, "file:///a", AMONG)
    assert [(each.uri, each.blob) for each in read.contents] == [("one+file:///a", "aGk=")]
    [listed] = results.listed_resources([{"uri": "file:///a", "name": "A\u200b", "_meta": {"x": 1}}], AMONG)
    assert (listed.uri, listed.name, listed.meta) == ("one+file:///a", "A", None)


def test_resources_and_prompts_are_filtered_and_cleaned() -> None:
    among = naming(resources={"allow": ["file:///*"], "deny": ["*/secret*"]}, prompts={"deny": ["hidden*"]})
    uris = ["file:///a", "file:///secret", "http://x/", "file:///\u202ea", "file:///" + "x" * 3000, 5, ""]
    listed = results.listed_resources([{"uri": each, "name": "n"} for each in uris] + [{"name": "none"}], among)
    assert [each.uri for each in listed] == ["file:///a"]
    [template] = results.listed_templates([{"uriTemplate": "file:///{+path}", "name": "t"}], among)
    assert template.uri_template == "file:///{+path}"
    evil = {"name": "ask", "description": "a\u200b\x1b" + "!" * 5000, "arguments": [{"name": "x\u202e"}]}
    found = results.listed_prompts([evil, {"name": "hidden-1"}, {"name": "a b"}, {"name": 5}], among)
    assert [each.name for each in found] == ["ask"]
    assert len(str(found[0].description)) == 2048
    assert "\u200b" not in str(found[0].description)


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
    found = results.prompt_result({"messages": messages, "description": "d\u200b"}, "ask", ALONE)
    assert [each.content.text for each in found.messages] == ["hi"]
    assert found.description == "d\\u200b"
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
