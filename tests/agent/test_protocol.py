"""MCP over `POST /mcp`, in both eras."""

import base64
import json

import pytest

from tests.agent.conftest import MODERN, Running, Start, finished


def test_discover_names_the_version(agent: Running) -> None:
    status, answer = agent.modern("server/discover")
    assert status == 200
    result = answer["result"]
    assert result["supportedVersions"] == [MODERN]
    assert result["resultType"] == "complete"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "paddock-agent"


def test_modern_lists_say_how_long_they_hold(agent: Running) -> None:
    for method, key in (
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ):
        status, answer = agent.modern(method)
        assert status == 200
        result = answer["result"]
        assert isinstance(result[key], list)
        assert {"ttlMs", "cacheScope", "resultType"} <= result.keys()


def test_tools_are_those_of_the_sandbox(agent: Running) -> None:
    tools = agent.modern("tools/list")[1]["result"]["tools"]
    project = {"build", "test", "git"}
    run = {"exec", "exec.get", "exec.kill", "exec.list"}
    files = {f"file.{entry}" for entry in ("read", "write", "list", "stat", "remove", "move", "changes")}
    assert {entry["name"] for entry in tools} == run | files | project
    for tool in tools:
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        assert tool["inputSchema"]["additionalProperties"] is False


def test_a_modern_call_answers_with_structure_and_text(agent: Running) -> None:
    status, answer = agent.modern("tools/call", {"name": "exec", "arguments": {"command": ["echo", "hello"]}})
    assert status == 200
    result = answer["result"]
    assert result["resultType"] == "complete"
    assert result["structuredContent"]["stdout"] == "hello\n"
    assert result["content"] == [{"type": "text", "text": "hello\n"}]
    assert "isError" not in result


def test_a_failing_command_is_a_tool_error(agent: Running) -> None:
    result = agent.modern("tools/call", {"name": "exec", "arguments": {"command": ["false"]}})[1]["result"]
    assert result["isError"] is True
    assert result["structuredContent"]["exitCode"] == 1


@pytest.mark.parametrize(
    "headers", [{"mcp_method": "tools/list"}, {"mcp_name": "file.read"}, {"mcp_protocol_version": "2025-11-25"}]
)
def test_headers_that_contradict_the_body_are_refused(agent: Running, headers: dict[str, str]) -> None:
    status, answer = agent.modern("tools/call", {"name": "exec", "arguments": {"command": ["true"]}}, **headers)
    assert (status, answer["error"]["code"], answer["id"]) == (400, -32020, 7)


def test_a_name_that_no_header_holds_comes_as_base64(agent: Running) -> None:
    (agent.root / "f").write_text("x")
    uri = f"file://{agent.root}/f"
    encoded = "=?base64?" + base64.b64encode(uri.encode()).decode() + "?="
    assert agent.modern("resources/read", {"uri": uri}, mcp_name=encoded)[0] == 200


def test_an_unknown_version_is_told_the_known_ones(agent: Running) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2031-01-01", "io.modelcontextprotocol/clientCapabilities": {}}
    status, answer = agent.modern("tools/list", {"_meta": meta}, mcp_protocol_version="2031-01-01")
    assert (status, answer["error"]["code"]) == (400, -32022)
    assert answer["error"]["data"]["supported"] == [MODERN]
    assert answer["error"]["data"]["requested"] == "2031-01-01"
    status, answer = agent.legacy("tools/list", mcp_protocol_version="1999-01-01")
    assert (status, answer["error"]["code"]) == (400, -32022)
    assert "2025-11-25" in answer["error"]["data"]["supported"]


def test_a_modern_request_without_its_envelope_is_refused(agent: Running) -> None:
    status, answer = agent.modern("tools/list", {"_meta": {}})
    assert (status, answer["error"]["code"]) == (400, -32602)


def test_unknown_methods_are_not_found(agent: Running) -> None:
    status, answer = agent.modern("tools/destroy")
    assert (status, answer["error"]["code"]) == (404, -32601)
    status, answer = agent.legacy("tools/destroy")
    assert (status, answer["error"]["code"]) == (200, -32601)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": [1]}', -32602),
    ],
)
def test_bodies_that_are_no_request_are_refused(agent: Running, body: bytes, code: int) -> None:
    assert agent.request("POST", "/mcp", body)[1]["error"]["code"] == code


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_a_legacy_client_shakes_hands(agent: Running, version: str) -> None:
    status, answer = agent.legacy("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {}})
    assert status == 200
    assert answer["result"]["protocolVersion"] == version
    session = agent.headers["mcp-session-id"]
    headers = {"mcp_session_id": session, "mcp_protocol_version": version}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert agent.request("POST", "/mcp", note, **headers) == (202, None)
    assert agent.legacy("ping", **headers)[1]["result"] == {}
    answer = agent.legacy("tools/call", {"name": "exec", "arguments": {"command": ["echo", "x"]}}, **headers)[1]
    assert answer["result"]["content"][0]["text"] == "x\n"
    assert "resultType" not in answer["result"]
    assert agent.request("DELETE", "/mcp", **headers)[0] == 204
    assert agent.legacy("ping", **headers)[0] == 404


def test_a_legacy_client_needs_no_session(agent: Running) -> None:
    assert len(agent.legacy("tools/list")[1]["result"]["tools"]) == 14


def test_a_legacy_call_is_cancelled_by_notification(agent: Running) -> None:
    agent.legacy("initialize", {"protocolVersion": "2025-11-25"})
    session = agent.headers["mcp-session-id"]
    connection = agent.connect()
    body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call"}
    body["params"] = {"name": "exec", "arguments": {"command": "touch started; sleep 1000"}}
    headers = {"content-type": "application/json", "mcp-session-id": session}
    connection.request("POST", "/mcp", json.dumps(body), headers)
    finished((agent.root / "started").exists)
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
    assert agent.request("POST", "/mcp", note, mcp_session_id=session)[0] == 202
    finished(lambda: not agent.tool("exec.list")["result"]["execs"])
    connection.close()


def test_resources_are_files(agent: Running) -> None:
    (agent.root / "a file").write_text("text\n")
    (agent.root / "binary").write_bytes(b"\xff\x00")
    (agent.root / "folder").mkdir()
    listed = agent.modern("resources/list")[1]["result"]["resources"]
    assert [entry["name"] for entry in listed] == ["a file", "binary", "folder"]
    read = [agent.modern("resources/read", {"uri": entry["uri"]})[1]["result"]["contents"][0] for entry in listed]
    assert read[0]["text"] == "text\n"
    assert read[1]["blob"] == "/wA="
    assert read[2]["mimeType"] == "inode/directory"


def test_resources_outside_are_refused(agent: Running) -> None:
    for uri in (
        "file:///etc/passwd",
        f"file://{agent.root}/../x",
        f"file://{agent.root}/%2e%2e/x",
        "http://x/",
        f"file://{agent.root}/%zz",
    ):
        status, answer = agent.modern("resources/read", {"uri": uri})
        assert (status, answer["error"]["code"]) == (400, -32602), uri
        assert agent.legacy("resources/read", {"uri": uri})[1]["error"]["code"] in (-32002, -32602)


def test_tools_do_not_vary_by_connection(start: Start) -> None:
    agent = start()
    first = agent.modern("tools/list")[1]
    agent.connection.close()
    assert agent.modern("tools/list")[1] == first
