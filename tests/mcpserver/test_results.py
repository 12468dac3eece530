"""Results of other people's servers, as clients get them."""

import json
from typing import Any

import pytest

from controller.mcp.servers import gateway


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
    ],
)
def test_results_are_bounded_before_they_are_parsed(raw: Any, says: str) -> None:
    found = gateway._result(raw, "one.tool")
    assert found.is_error
    assert says in found.content[0].text


def test_blocks_of_no_known_form_are_left_out() -> None:
    found = gateway._result({"content": [text("a"), {"type": "other"}, 5, text("b")]}, "one.tool")
    assert [each.text for each in found.content] == ["a", "b"]
    assert not found.is_error


def test_no_text_of_a_result_controls_a_terminal() -> None:
    evil = "\x1b[2Jred\x07"
    blocks = [
        {"type": "text", "text": evil, "_meta": {evil: [evil]}},
        {"type": "resource", "resource": {"uri": "file:///a", "text": evil, "mimeType": evil}},
        {"type": "resource_link", "uri": "file:///b", "name": evil, "description": evil},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ]
    found = gateway._result({"content": blocks, "structuredContent": {evil: [{"a": evil}]}}, "one.tool")
    sent = found.model_dump(mode="json", by_alias=True)
    assert len(sent["content"]) == 4
    assert sent["structuredContent"] == {"red": [{"a": "red"}]}
    assert "\\u001b" not in json.dumps(sent)
    assert sent["content"][3]["data"] == "aGk="


def test_a_list_of_tools_fits_a_message() -> None:
    schema = {"type": "object", "description": "x" * 60_000}
    listed = [gateway.types.Tool(name=f"t{number:02}", input_schema=schema) for number in range(20)]
    assert [each.name for each in gateway._fitting(listed[::-1])] == [f"t{number:02}" for number in range(15)]
