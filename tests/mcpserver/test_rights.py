"""Rights of tool calls: roles, grants with tools, one policy with the API, audit, metrics, and pages' requests."""

import json
import threading
from typing import Any

import httpx
import pytest

from controller.kinds.access.audit import AuditEntry
from controller.mcp.arguments import shape
from controller.ports import StoreError
from tests.api.listeners import API, token
from tests.api.listeners import client as http_client
from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import ERAS, Mcp

EXEC = {"id": "quickstart", "command": ["secret-program", "secret-argument"]}
SANDBOX = f"{API}/namespaces/default/sandboxes/quickstart"
ASKED = {"name": "docker.container.exec", "arguments": EXEC}
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "docker.container.exec", "arguments": EXEC},
}


def listed(mcp: Mcp, text: str) -> set[str]:
    return {tool.name for tool in mcp.do("list_tools", token=text).tools}


def test_each_role_may_do_what_it_may_by_the_api(mcp: Mcp, running: ApiStack) -> None:
    viewer, user = token(running, "viewer", "default"), token(running, "user", "default")
    second = token(running, "admin", "team-a")
    assert "docker.container.exec" not in listed(mcp, viewer)
    assert "docker.volume.remove" not in listed(mcp, user)
    assert mcp.data("sandbox.get", {"name": "quickstart"}, token=viewer)["kind"] == "Sandbox"
    assert mcp.error("docker.container.exec", EXEC, token=viewer).endswith("it needs the role user in a namespace")
    assert mcp.data("docker.container.exec", EXEC, token=user)["exitCode"] == 0
    hidden = mcp.error("docker.container.exec", EXEC, token=second)
    assert hidden == "sandboxes `quickstart` not found in namespace `default`"
    assert "team-a" not in mcp.error("docker.container.list", {"namespace": "team-b"}, token=second)


def test_code_shows_nothing_of_other_namespaces(mcp: Mcp, running: ApiStack) -> None:
    second = token(running, "user", "team-a")
    for name in ("quickstart", "nothing"):
        error = mcp.error("code.run", {"code": "1", "id": f"default/{name}"}, token=second)
        assert error == f"sandboxes `{name}` not found in namespace `default`"
    assert "it needs the role user" in mcp.error("code.run", {"code": "1", "namespace": "default"}, token=second)


def test_bounds_of_a_grant_hold_for_create(mcp: Mcp, running: ApiStack) -> None:
    text = token(running, "user", "default", images=["paddock/*"], levels=["full-isolation"], limits={"memory": "1Gi"})
    config = {"name": "made", "image": "evil/image:1", "securityLevel": "production", "memory": "2Gi"}
    error = mcp.error("docker.container.create", {"config": config}, token=text)
    for entry in ("`evil/image:1` is not one of your images", "`production` is not one of your levels", "at most 1Gi"):
        assert entry in error
    assert running.store.get("Sandbox", "default", "made") is None


@pytest.mark.parametrize("era", ERAS)
def test_a_token_may_be_limited_to_tools(mcp: Mcp, running: ApiStack, era: str) -> None:
    text = token(running, "user", "default", tools=["docker.file.*", "sandbox.get"])
    tools = {tool.name for tool in mcp.do("list_tools", token=text, era=era).tools}
    assert tools == {"docker.file.read", "docker.file.write", "docker.file.list", "sandbox.get"}
    where = {"container": "quickstart", "path": "/workspace/a"}
    mcp.data("docker.file.write", {**where, "content": "a" * 20_000}, token=text, era=era)
    error = mcp.error("docker_container_exec", EXEC, token=text, era=era)
    assert "may not call docker.container.exec; its grants are for docker.file.*, sandbox.get" in error
    assert not [document for _, document in running.streams.asked if "command" in document]


def test_a_grant_with_tools_opens_nothing_else(mcp: Mcp, running: ApiStack) -> None:
    text = token(running, "admin", tools=["docker.container.*"], name="ci")
    with http_client(running, text) as http:
        for method, path in (("GET", SANDBOX), ("DELETE", SANDBOX), ("GET", f"{API}/tokens"), ("POST", f"{API}/apply")):
            answer = http.request(method, path, json={"documents": []} if method == "POST" else None)
            assert answer.status_code == 403, (path, answer.text)
        assert "token ci may only call MCP tools (docker.container.*)" in http.get(SANDBOX).json()["message"]
        assert http.get(f"{API}/auth/whoami").json()["grants"][0]["tools"] == ["docker.container.*"]
    assert mcp.data("docker.container.exec", EXEC, token=text)["success"]


def calls_of(api: ApiStack) -> list[AuditEntry]:
    return [entry for entry in api.store.audit.entries() if entry.kind == "Tool"]


def test_every_call_is_audited_without_values(mcp: Mcp, running: ApiStack) -> None:
    viewer = token(running, "viewer", "default", name="eyes")
    mcp.data("docker.container.exec", {**EXEC, "env": {"KEY": "secret-value"}})
    mcp.error("docker.container.exec", EXEC, token=viewer)
    mcp.error("docker.container.logs", {"id": "nothing"})
    entries = wait_for("three entries", lambda: calls_of(running)[2:] and calls_of(running))
    observed = [
        (entry.name, entry.outcome, entry.detail["result"]) for entry in sorted(entries, key=lambda each: each.id)
    ]
    assert observed == [
        ("docker.container.exec", "allowed", "ok"),
        ("docker.container.exec", "refused", "refused"),
        ("docker.container.logs", "allowed", "error"),
    ]
    first = min(entries, key=lambda each: each.id).detail
    assert first["arguments"] == {"id": "string", "command": "list[2]", "env": {"KEY": "string"}}
    assert first["seconds"] >= 0
    assert "secret-value" not in str(entries)
    assert "secret-argument" not in str(entries)
    outcomes = [labels for name, labels in running.meter.counted if name == "paddock_mcp_tool_calls_total"]
    assert outcomes == [{"tool": name, "outcome": result} for name, _, result in observed]


def test_a_use_that_cannot_be_recorded_does_not_start(mcp: Mcp, running: ApiStack, monkeypatch: Any) -> None:
    mcp.client()

    def fail(*_: Any) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(running.services.recorder._audit, "append", fail)
    assert "the store can't be used now" in mcp.error("docker.container.exec", EXEC)
    assert not running.streams.asked


@pytest.mark.parametrize("era", ERAS)
def test_a_token_revoked_in_mid_call_ends_it(mcp: Mcp, running: ApiStack, era: str) -> None:
    text = token(running, "user", "default", name="short")
    running.streams.run = running.streams.endless
    mcp.client(era, text)
    end: list[BaseException | Any] = []

    def call() -> None:
        try:
            end.append(mcp.call("docker.container.exec", EXEC, era=era, token=text))
        except BaseException as error:
            end.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    wait_for("the command's start", lambda: any("command" in options for _, options in running.streams.asked))
    running.services.tokens.revoke("short")
    assert running.streams.closed.wait(60)
    caller.join(60)
    assert isinstance(end[0], BaseException) or end[0].is_error


def test_pages_and_other_hosts_are_refused(mcp: Mcp, running: ApiStack) -> None:
    with http_client(running) as http:
        for headers, code in (
            ({"Origin": "http://localhost"}, 401),
            ({"Sec-Fetch-Site": "same-origin"}, 401),
            ({"Host": "evil.example"}, 401),
            ({"Host": "localhost.evil.example:80"}, 401),
            ({"Content-Type": "text/plain"}, 415),
            ({"Accept": "text/html"}, 406),
        ):
            sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **headers}
            answer = http.post("/mcp", json=CALL, headers=sent)
            assert answer.status_code == code, (headers, answer.text)
        assert not running.streams.asked
        own_document = {"Accept": "application/json, text/event-stream", "Host": "127.0.0.1:9465"}
        assert http.post("/mcp", json=CALL, headers=own_document).status_code == 200
    assert running.streams.asked


def test_an_origin_is_refused_with_a_token_too(mcp: Mcp, running: ApiStack) -> None:
    sent = {"Accept": "application/json, text/event-stream", "Host": "paddock.example"}
    with http_client(running, token(running, "user", "default")) as http:
        assert http.post("/mcp", json=CALL, headers=sent).status_code == 200
        assert http.post("/mcp", json=CALL, headers={**sent, "Origin": "http://paddock.example"}).status_code == 403
        assert http.get("/mcp").status_code == 405
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(running.socket), verify=False), base_url="http://paddock", timeout=60
    ) as unknown:
        bad = {**sent, "Authorization": "Bearer pdk_0"}
        assert unknown.post("/mcp", json=CALL, headers=bad).status_code == 401


def test_an_audit_entry_of_a_call_is_bounded(api: ApiStack) -> None:
    fromkeys = {f"{number:03}{'k' * 200}": dict.fromkeys(map(str, range(99)), "v") for number in range(99)}
    api.services.recorder.record_call(
        "server." + "x" * 100_000, "default", {"arguments": shape(fromkeys)}, allowed=True
    )
    api.services.recorder.flush()
    [entry] = calls_of(api)
    assert len(entry.name) == 253
    assert len(entry.detail["arguments"]) == 16
    assert len(json.dumps(dict(entry.detail))) < 10_000
