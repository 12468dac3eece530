"""A client that goes or cancels ends what its call does."""

import http.client
import json
import socket
import threading

import anyio
import pytest

from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import ERAS, Mcp

EXEC = {"id": "quickstart", "command": ["sleep", "1000"]}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def started(running: ApiStack) -> None:
    wait_for("the command's start", lambda: any("command" in options for _, options in running.streams.asked))


@pytest.mark.parametrize("era", ERAS)
def test_a_client_gone_in_mid_call_ends_its_command(mcp: Mcp, running: ApiStack, era: str) -> None:
    running.streams.run = running.streams.endless
    modern = era == ERAS[0]
    params = {"name": "docker.container.exec", "arguments": EXEC, **({"_meta": META} if modern else {})}
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    if modern:
        headers |= {"MCP-Protocol-Version": era, "Mcp-Method": "tools/call", "Mcp-Name": "docker.container.exec"}
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(running.socket))
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    connection.request("POST", "/mcp", body, headers)
    started(running)
    assert not running.streams.closed.is_set()
    connection.sock.close()
    assert running.streams.closed.wait(60)
    wait_for("the count", lambda: ("paddock_mcp_tool_calls_total", CANCELLED) in running.meter.counted)


CANCELLED = {"tool": "docker.container.exec", "outcome": "cancelled"}


def test_cancelling_a_request_ends_its_command(mcp: Mcp, running: ApiStack) -> None:
    running.streams.run = running.streams.endless
    client = mcp.client()
    cancelled = threading.Event()

    async def call_and_cancel() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "docker.container.exec", EXEC)
                await anyio.to_thread.run_sync(started, running)
                scope.cancel()
        cancelled.set()

    mcp.portal.call(call_and_cancel)
    assert cancelled.is_set()
    assert running.streams.closed.wait(60)
    running.streams.run = lambda **_: iter(())
    assert "ended before the command" in mcp.error("docker.container.exec", EXEC)  # the connection is still good


def test_waiting_ends_with_its_client(mcp: Mcp, running: ApiStack) -> None:
    client, config = mcp.client(), {"config": {"name": "made"}}

    def stored() -> None:
        wait_for("the sandbox", lambda: running.store.get("Sandbox", "default", "made"), 60)

    async def call_and_cancel() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "docker.container.create", config)
            await anyio.to_thread.run_sync(stored)
            tasks.cancel_scope.cancel()

    mcp.portal.call(call_and_cancel)
    outcome = ("paddock_mcp_tool_calls_total", {"tool": "docker.container.create", "outcome": "cancelled"})
    wait_for("the count", lambda: outcome in running.meter.counted)
    assert running.sandbox("made").deleted_at is None  # desired state stays
