"""The agent and the official SDK's client, in each of its modes."""

import asyncio
from typing import Any

import pytest
from mcp import Client, MCPError

from tests.agent.conftest import MODERN, Running, finished

MODES = ("auto", "legacy", MODERN)


def client(agent: Running, mode: str) -> Client:
    return Client(f"http://127.0.0.1:{agent.port}/mcp", mode=mode, read_timeout_seconds=60)


@pytest.mark.parametrize("mode", MODES)
def test_the_sdk_works_in_the_sandbox(agent: Running, mode: str) -> None:
    async def session() -> None:
        async with client(agent, mode) as connected:
            assert connected.protocol_version == ("2025-11-25" if mode == "legacy" else MODERN)
            assert {"exec", "file.read", "git"} <= {tool.name for tool in (await connected.list_tools()).tools}
            # The SDK checks structured content against each tool's output schema.
            answer = await connected.call_tool("file.write", {"path": "a/hello.sh", "content": "echo hello $0"})
            assert not answer.is_error, answer
            done = await connected.call_tool("exec", {"command": ["sh", "a/hello.sh"]})
            assert (done.structured_content or {})["stdout"] == "hello a/hello.sh\n"
            refusal = await connected.call_tool("file.read", {"path": "../x"})
            assert refusal.is_error
            listed = (await connected.list_resources()).resources
            assert [resource.name for resource in listed] == ["a"]
            read: Any = (await connected.read_resource(f"file://{agent.root}/a/hello.sh")).contents[0]
            assert read.text == "echo hello $0"
            with pytest.raises(MCPError, match="no such tool"):
                await connected.call_tool("nothing", {})
            if mode != MODERN:
                assert connected.server_info is not None
                assert connected.server_info.name == "paddock-agent"

    asyncio.run(session())


@pytest.mark.parametrize("mode", MODES)
def test_a_cancelled_call_ends_its_command(agent: Running, mode: str) -> None:
    async def session() -> None:
        async with client(agent, mode) as connected:
            call = asyncio.create_task(connected.call_tool("exec", {"command": "touch started; exec sleep 600"}))
            await asyncio.to_thread(finished, (agent.root / "started").exists)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            listed = await connected.call_tool("exec.list", {})
            while (listed.structured_content or {})["execs"]:
                listed = await connected.call_tool("exec.list", {})

    asyncio.run(session())


def test_the_sdk_hears_of_a_changed_resource(agent: Running) -> None:
    (agent.root / "notes").write_text("one")
    uri = f"file://{agent.root}/notes"

    async def session() -> None:
        async with client(agent, "auto") as connected, connected.listen(resource_subscriptions=[uri]) as events:
            (agent.root / "notes").write_text("two")
            async for event in events:
                assert uri in str(event)
                break
            read: Any = (await connected.read_resource(uri)).contents[0]
            assert read.text == "two"

    asyncio.run(session())
