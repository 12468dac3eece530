"""Refused calls of other people's servers: what callers hear, the audit log, the metrics, and tokens with tools."""

from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.access.audit import AuditEntry
from controller.kinds.common.chunk import Chunk
from controller.mcp.servers.sessions import Sessions
from tests.api.listeners import client as http_client
from tests.api.listeners import token
from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import serving
from tests.mcpserver.programs import Program, Servers, out
from tests.mcpserver.test_servers import PLACE, document, post

ONE, ALL = f"{PLACE}/one/mcp", "/mcp/servers"
NAMES = ("echo", "other", "denied")


def talks(message: dict[str, Any]) -> list[Chunk]:
    """Answer as a server whose tools all return their own name."""
    pages: dict[str, Any] = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "prompts": {}, "resources": {}}},
        "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]},
        "prompts/list": {"prompts": [{"name": "greet"}]},
        "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]},
        "resources/list": {"resources": [{"uri": "demo://a", "name": "a"}]},
        "resources/read": {"contents": [{"uri": "demo://a", "text": "content"}]},
    }
    if "id" not in message:
        return []
    method, params = message["method"], message.get("params", {})
    content = [{"type": "text", "text": params.get("name")}]
    result = {"content": content} if method == "tools/call" else pages.get(method, {})
    return [out({"id": message["id"], "result": result})]


@pytest.fixture
def served(api: ApiStack) -> Iterator[ApiStack]:
    """An API whose server `one` runs as a program of the test."""
    servers: Any = Servers(api, lambda: Program(talks))
    sessions = Sessions(servers, api.meter)
    api.apply(document("one", tools={"deny": ["denied"]}))
    with serving(api, sessions=sessions):
        yield api
    sessions.close(0)


def call(api: ApiStack, path: str, name: str, text: str = "") -> Any:
    """Return the status and the answer of a call, with a token if one is given."""
    headers = {"Authorization": f"Bearer {text}"} if text else {}
    return post(api, path, "tools/call", {"name": name, "arguments": {}}, **headers)


def said(answer: Any) -> str:
    """Return the message of a failed call."""
    if "error" in answer:
        return str(answer["error"]["message"])
    assert answer["result"]["isError"], answer
    return str(answer["result"]["content"][0]["text"])


def entries(api: ApiStack, **fields: Any) -> list[AuditEntry]:
    """Return the entries of the audit log with these fields, oldest first."""
    api.services.recorder.flush()
    observed = [entry for entry in api.store.audit.entries() if all(getattr(entry, k) == v for k, v in fields.items())]
    return sorted(observed, key=lambda each: each.id)


def counted(api: ApiStack) -> list[str]:
    """Return the outcomes of calls, as the metrics count them."""
    return [labels["outcome"] for name, labels in api.meter.counted if name == "paddock_mcp_server_calls_total"]


@pytest.mark.parametrize("path", ["/mcp", ONE, ALL])
@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("null", -32600, "the body is no object; send one JSON-RPC 2.0 message"),
        ("true", -32600, "the body is no object"),
        ("[]", -32600, "the body is a batch, which MCP does not have"),
        ('[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600, "the body is a batch"),
        (f"[{' ' * 70_000}]", -32600, "the body is a batch"),
        (f"{' ' * 70_000}1", -32600, "the body is no object"),
        ("{", -32700, "the body is not valid JSON"),
        ("", -32700, "the body is not valid JSON"),
        ("{}", -32600, 'jsonrpc: must be "2.0"'),
        ('{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, "id: must be a text or a whole number"),
        ('{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, "id: must be a text or a whole number"),
        ('{"jsonrpc": "2.0", "id": 1, "method": null}', -32600, "method: must be the name of one"),
        ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', -32600, "params: must be an object"),
    ],
)
def test_what_is_no_message_is_named(
    served: ApiStack, path: str, version: str, body: str, code: int, words: str
) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with http_client(served) as client:
        answer = client.post(path, content=body, headers={**headers, "MCP-Protocol-Version": version})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert answer.json()["error"]["message"].startswith(words)
    assert "pydantic" not in answer.text


@pytest.mark.parametrize(("path", "prefix"), [(ONE, ""), (ALL, "one.")])
@pytest.mark.parametrize("name", ["denied", "nothing"])
def test_a_denied_or_unknown_tool_counts_as_refused(served: ApiStack, path: str, prefix: str, name: str) -> None:
    _, answer = call(served, path, f"{prefix}{name}")
    assert answer["error"]["message"] == f"Unknown tool: {prefix}{name}; see tools/list"
    [entry] = entries(served, kind="Tool")
    assert (entry.name, entry.outcome, entry.detail["result"]) == (f"one.{name}", "refused", "refused")
    assert counted(served) == ["refused"]


ASKED = [
    ("tools/call", {"name": "one.echo", "arguments": {}}, "Unknown tool: one.echo"),
    ("prompts/get", {"name": "one.greet"}, "Unknown prompt: one.greet"),
    ("resources/read", {"uri": "one+demo://a"}, "Unknown resource: one+demo://a"),
]


@pytest.mark.parametrize(("method", "params", "unknown"), ASKED)
def test_refusals_at_the_common_address_are_audited(
    served: ApiStack, method: str, params: dict[str, Any], unknown: str
) -> None:
    role = "viewer may not use MCPServer mcp; it needs the role user in namespace `default`"
    for name, sent, tools, heard in (
        ("viewer", ("viewer", "default"), None, role),
        ("stranger", ("admin", "team-a"), None, unknown),
        ("limited", ("user", "default"), ["docker.file.*"], unknown),
    ):
        text = token(served, *sent, name=name, **({"tools": tools} if tools else {}))
        answer = post(served, ALL, method, params, Authorization=f"Bearer {text}")[1]
        assert heard in said(answer)
        observed = wait_for("the entry", lambda who=f"token {name}": entries(served, actor=who))[0]
        assert (observed.kind, observed.name, observed.verb, observed.outcome) == ("MCPServer", "one", "mcp", "refused")


def test_what_names_no_server_is_not_audited(served: ApiStack) -> None:
    text = token(served, "viewer", "default", name="viewer")
    assert "Unknown tool: two.echo" in said(call(served, ALL, "two.echo", text)[1])
    assert post(served, ALL, "tools/list", Authorization=f"Bearer {text}")[1]["result"]["tools"] == []
    call(served, ALL, "one.echo", text)
    observed = wait_for("the entry", lambda: entries(served, actor="token viewer"))
    assert [entry.name for entry in observed] == ["one"]


@pytest.mark.parametrize(("path", "prefix"), [(ONE, ""), (ALL, "one.")])
def test_the_audit_names_a_tool_before_its_work(served: ApiStack, path: str, prefix: str) -> None:
    for name in ("echo", "\x1b[2J\u202e" + "x" * 200):
        call(served, path, f"{prefix}{name}")
    tools = [entry.detail["tool"] for entry in entries(served, kind="MCPServer", verb="mcp")]
    assert tools == ["echo", "[2J" + "x" * 124 + "…"]
    assert [entry.name for entry in entries(served, kind="Tool")] == [f"one.{tool}" for tool in tools]


def tools_of(api: ApiStack, path: str, text: str) -> list[str]:
    listed = post(api, path, "tools/list", Authorization=f"Bearer {text}")[1]["result"]["tools"]
    return [entry["name"] for entry in listed]


@pytest.mark.parametrize("pattern", ["one.echo", "one.e*", "one.*ho"])
@pytest.mark.parametrize(("path", "prefix"), [(ONE, ""), (ALL, "one.")])
def test_a_token_for_a_tool_of_a_server_calls_it_alone(served: ApiStack, path: str, prefix: str, pattern: str) -> None:
    text = token(served, "user", "default", name="limited", tools=[pattern, "two.*"])
    assert tools_of(served, path, text) == [f"{prefix}echo"]
    assert call(served, path, f"{prefix}echo", text)[1]["result"]["content"][0]["text"] == "echo"
    assert f"Unknown tool: {prefix}other" in said(call(served, path, f"{prefix}other", text)[1])
    observed = wait_for("the refusal", lambda: entries(served, actor="token limited", outcome="refused"))
    assert [(entry.kind, entry.name) for entry in observed] == [("MCPServer", "one")]


@pytest.mark.parametrize(("path", "name", "uri"), [(ONE, "greet", "demo://a"), (ALL, "one.greet", "one+demo://a")])
def test_a_token_for_tools_has_neither_prompts_nor_resources(served: ApiStack, path: str, name: str, uri: str) -> None:
    text = token(served, "admin", "default", tools=["one.*"])
    reference = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": "b"}}
    for method, params in (
        ("prompts/get", {"name": name}),
        ("resources/read", {"uri": uri}),
        ("resources/unsubscribe", {"uri": uri}),
        ("completion/complete", reference),
    ):
        answer = post(served, path, method, params, Authorization=f"Bearer {text}")[1]
        assert said(answer).startswith("Unknown "), (method, answer)
    for method, key in (("prompts/list", "prompts"), ("resources/list", "resources")):
        assert post(served, path, method, Authorization=f"Bearer {text}")[1]["result"][key] == []
    assert post(served, path, "prompts/get", {"name": name})[1]["result"]["messages"]


@pytest.mark.parametrize("pattern", ["*", "*.echo", "o*", "on*.echo", "two.echo", "one", "docker.file.*"])
def test_other_patterns_open_no_server(served: ApiStack, pattern: str) -> None:
    text = token(served, "admin", "default", tools=[pattern])
    assert call(served, ONE, "echo", text)[0] == 403
    assert "Unknown tool: one.echo" in said(call(served, ALL, "one.echo", text)[1])
    assert tools_of(served, ALL, text) == []


def test_a_token_for_a_tool_needs_role_and_namespace(served: ApiStack) -> None:
    viewer = token(served, "viewer", "default", tools=["one.*"])
    stranger = token(served, "user", "team-a", tools=["one.*"])
    assert call(served, ONE, "echo", viewer)[0] == 403
    assert call(served, ONE, "echo", stranger)[0] == 404
    for text in (viewer, stranger):
        assert tools_of(served, ALL, text) == []
        assert "Unknown tool: one.echo" in said(call(served, ALL, "one.echo", text)[1])


def test_a_token_for_a_tool_opens_no_other_request(served: ApiStack) -> None:
    with http_client(served, token(served, "admin", "default", tools=["one.*"])) as http:
        assert http.get(f"{PLACE}/one").status_code == 403
        assert http.delete(f"{PLACE}/one").status_code == 403
        assert http.patch(f"{PLACE}/one", json={"spec": {"enabled": False}}).status_code == 403
        response = http.get(ONE, headers={"Paddock-Connection": "a", "Paddock-Unsandboxed": "1"})
        assert response.status_code == 403
