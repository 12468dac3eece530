"""Resources, prompts, notifications, progress, logs and cancellation pass the gateway: each era to each era."""

import http.client
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError

from controller.kinds.common.chunk import Chunk
from controller.mcp.servers.sessions import Sessions
from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import ERAS, client, serving
from tests.mcpserver.programs import Program, Servers, out
from tests.mcpserver.test_servers import PLACE, document, post

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
ONE, ALL = f"{PLACE}/one/mcp", "/mcp/servers?namespace=default"
CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "logging": {}, "completions": {}}
MODERN_VERSION = "io.modelcontextprotocol/protocolVersion"


class Answers:
    """A server of one era, which is driven by its tool `make`: it sends the notification that its argument names."""

    sessions: Sessions

    def __init__(self, *, modern: bool) -> None:
        self.modern, self.asked = modern, list[dict[str, Any]]()
        self.programs: list[Program] = []

    def __call__(self, message: dict[str, Any]) -> list[Chunk]:
        self.asked.append(message)
        if "id" not in message or "method" not in message:
            return []
        params = message.get("params", {})
        is_modern = MODERN_VERSION in params.get("_meta", {})
        if self.modern and not is_modern:
            return [out({"id": message["id"], "error": {"code": -32022, "message": "unknown version"}})]
        if params.get("uri") == "demo://none":
            return [out({"id": message["id"], "error": {"code": -32002, "message": "not here"}})]
        before, result = self.answer(message["method"], params)
        return [*before, *([out({"id": message["id"], "result": result})] if result is not None else [])]

    def answer(self, method: str, params: dict[str, Any]) -> tuple[list[Chunk], dict[str, Any] | None]:
        pages = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": {}},
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES},
            "tools/list": {"tools": [{"name": entry, "inputSchema": {"type": "object"}} for entry in ("make", "wait")]},
            "resources/list": {
                "resources": [{"uri": f"demo://{entry}", "name": entry} for entry in ("a", "b", "hidden")]
            },
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "demo://{x}", "name": "any"}]},
            "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]},
            "completion/complete": {"completion": {"values": ["ann", "anton"]}},
        }
        if method == "resources/list" and "cursor" not in params:
            return [], {**pages[method], "nextCursor": "2", "resources": pages[method]["resources"][:1]}
        if method == "resources/list":
            return [], {"resources": pages[method]["resources"][1:]}
        if method == "resources/read":
            return [], {"contents": [{"uri": params["uri"], "text": "\x1b[2Jcontent"}]}
        if method == "prompts/get":
            message = f"hello {params['arguments']['who']}"
            return [], {"messages": [{"role": "user", "content": {"type": "text", "text": message}}]}
        if method == "tools/call" and params["name"] == "wait":
            token = params["_meta"]["progressToken"]
            log = {"level": "warning", "logger": "demo", "data": "patience"}
            progress = {"progressToken": token, "progress": 1, "total": 4, "message": "going"}
            messages = ({"method": "notifications/message", "params": log},)
            return [out(*messages, {"method": "notifications/progress", "params": progress})], None
        if method == "tools/call":
            arguments = params["arguments"]
            notice = {"method": arguments["method"], "params": arguments.get("params", {})}
            return [out(notice)], {"content": [{"type": "text", "text": "made"}]}
        if method == "subscriptions/listen":
            return [out({"method": "notifications/subscriptions/acknowledged", "params": {}})], None
        return [], pages.get(method, {})


@pytest.fixture(params=[False, True], ids=["legacy server", "modern server"])
def server(request: pytest.FixtureRequest, api: ApiStack) -> Iterator[Answers]:
    """A running server `one` of one era, and a second one without resources."""
    answers = Answers(modern=request.param)

    def start() -> Program:
        answers.programs.append(Program(answers))
        return answers.programs[-1]

    servers: Any = Servers(api, start)
    sessions = Sessions(servers, api.meter)
    hidden = {"deny": ["*hidden*"]}
    api.apply(document("one", resources=hidden, callSeconds=60))
    answers.sessions = sessions
    with serving(api, sessions=sessions):
        yield answers
    sessions.close(0)


@asynccontextmanager
async def connected(api: ApiStack, era: str, path: str = ONE, **more: Any) -> AsyncIterator[Client]:
    async with client(api.socket, era, path=path, **more) as created:
        yield created


def run(do: Callable[[], Any]) -> None:
    async def within() -> None:
        with anyio.fail_after(60):
            await do()

    anyio.run(within)


@pytest.mark.parametrize("era", ERAS)
def test_resources_and_prompts_pass(api: ApiStack, server: Answers, era: str) -> None:
    async def ask() -> None:
        for path, uri, prompt in ((ONE, "demo://", "greet"), (ALL, "one+demo://", "one.greet")):
            async with connected(api, era, path) as mcp:
                listed = await mcp.list_resources()
                assert [resource.uri for resource in listed.resources] == [f"{uri}a", f"{uri}b"]
                templates = await mcp.list_resource_templates()
                assert [resource_template.uri_template for resource_template in templates.resource_templates] == [
                    f"{uri}{{x}}"
                ]
                read = await mcp.read_resource(f"{uri}a")
                assert [(entry.uri, entry.text) for entry in read.contents] == [(f"{uri}a", "content")]
                with pytest.raises(MCPError, match="Unknown resource"):
                    await mcp.read_resource(f"{uri}hidden")
                with pytest.raises(MCPError, match="not here") as missing:
                    await mcp.read_resource(f"{uri}none")
                assert missing.value.code == (-32002 if era == "legacy" else -32602)
                assert missing.value.data == {"uri": f"{uri}none"}
                [greet] = (await mcp.list_prompts()).prompts
                assert (greet.name, greet.arguments[0].name) == (prompt, "who")
                got = await mcp.get_prompt(prompt, {"who": "ann"})
                assert got.messages[0].content.text == "hello ann"
                ref = {"type": "ref/prompt", "name": prompt}
                completed = await mcp.complete(ref, {"name": "who", "value": "an"})
                assert completed.completion.values == ["ann", "anton"]

    run(ask)


def test_subscriptions_of_modern_clients(api: ApiStack, server: Answers) -> None:
    async def ask(path: str, prefix: str) -> None:
        uri, tool = f"{prefix}demo://a", "one.make" if prefix else "make"
        async with connected(api, ERAS[0], path) as mcp:
            listening = mcp.listen(resources_list_changed=True, resource_subscriptions=[uri, f"{prefix}demo://hidden"])
            async with listening as changes:
                assert changes.honored.resource_subscriptions == [uri]
                subscription = aiter(changes)
                for second in ("demo://b", "demo://hidden", "demo://a"):
                    sent = {"method": "notifications/resources/updated", "params": {"uri": second}}
                    await mcp.call_tool(tool, sent)
                assert await anext(subscription) == ResourceUpdated(uri)
                await mcp.call_tool(tool, {"method": "notifications/tools/list_changed"})  # not asked for
                await mcp.call_tool(tool, {"method": "notifications/resources/list_changed"})
                assert await anext(subscription) == ResourcesListChanged()

    run(lambda: ask(ONE, ""))
    run(lambda: ask(ALL, "one+"))
    if server.modern:
        notifications = [
            entry["params"]["notifications"] for entry in server.asked if entry["method"] == "subscriptions/listen"
        ]
        assert {"resourceSubscriptions": ["demo://a"]}.items() <= notifications[1].items()
    else:
        methods = [entry["method"] for entry in server.asked if "subscribe" in entry["method"]]
        wait_for("both ended", lambda: [entry["method"] for entry in server.asked if "unsub" in entry["method"]][1:])
        assert methods[:2] == ["resources/subscribe", "resources/unsubscribe"]


def test_subscriptions_of_legacy_clients(api: ApiStack, server: Answers) -> None:
    heard: list[tuple[str, Any]] = []

    async def hear(message: Any) -> None:
        if not isinstance(message, Exception):
            heard.append((message.method, getattr(message.params, "uri", None)))

    async def ask() -> None:
        async with connected(api, "legacy", message_handler=hear) as mcp:
            with pytest.raises(MCPError, match="Unknown resource"):
                await mcp.subscribe_resource("demo://hidden")
            await mcp.subscribe_resource("demo://a")
            await mcp.subscribe_resource("demo://a")
            for count, method in enumerate(("resources/updated", "prompts/list_changed")):
                while len(set(heard)) <= count:  # its event stream opens sometime after the handshake
                    params = {"uri": "demo://a"}
                    await mcp.call_tool("make", {"method": f"notifications/{method}", "params": params})
            await mcp.unsubscribe_resource("demo://a")

    run(ask)
    assert set(heard) == {("notifications/resources/updated", "demo://a"), ("notifications/prompts/list_changed", None)}


def test_subscriptions_of_legacy_clients_outlive_the_server(api: ApiStack, server: Answers) -> None:
    heard: list[str] = []

    async def hear(message: Any) -> None:
        if not isinstance(message, Exception) and message.method == "notifications/resources/updated":
            heard.append(message.params.uri)

    async def ask() -> None:
        async with connected(api, "legacy", message_handler=hear) as mcp:
            await mcp.subscribe_resource("demo://a")
            await mcp.subscribe_resource("demo://b")
            await mcp.unsubscribe_resource("demo://b")
            sent = {"method": "notifications/resources/updated", "params": {"uri": "demo://a"}}
            while not heard:  # its event stream opens sometime after the handshake
                await mcp.call_tool("make", sent)
            heard.clear()
            server.programs[-1].end()
            while not heard:  # nobody calls: the next sweep begins the server again
                await anyio.to_thread.run_sync(server.sessions.sweep)
            assert set(heard) == {"demo://a"}, "it may have changed meanwhile: the client is to read it again"
            heard.clear()
            await mcp.call_tool("make", sent)
            while not heard:
                await anyio.sleep(0.01)

    run(ask)
    assert len(server.programs) == 2
    assert set(heard) == {"demo://a"}
    wait_for("no session is left", lambda: not server.sessions.count())
    server.sessions.sweep()
    assert not server.sessions.count(), "the connection is gone: nobody hears of it"


def test_a_legacy_session_is_a_connection_of_its_own(api: ApiStack, server: Answers) -> None:
    async def ask() -> None:
        call = "make", {"method": "notifications/tools/list_changed"}
        async with connected(api, "legacy") as first, connected(api, "legacy") as second:
            await first.call_tool(*call)
            await second.call_tool(*call)
            assert len([entry for entry in server.asked if entry["method"] == "tools/call"]) == 2
            assert len([entry for entry in server.asked if entry["method"] == "tools/list"]) >= 2  # each has a server

    run(ask)
    wait_for(
        "no sandbox is left", lambda: not [stored for stored in api.store.list("Sandbox")[0] if not stored.deleted_at]
    )
    assert post(api, ONE, "resources/subscribe", {"uri": "demo://a"})[1]["error"]["message"].startswith("there is no")


@pytest.mark.parametrize("era", ERAS)
def test_progress_logs_and_cancellation_pass(api: ApiStack, server: Answers, era: str) -> None:
    progress: list[Any] = []
    logs: list[Any] = []

    async def log(params: Any) -> None:
        logs.append((params.level, params.logger, params.data))

    async def ask() -> None:
        with anyio.CancelScope() as scope:

            async def report(*given: Any) -> None:
                progress.append(given)
                scope.cancel()

            level = {"log_level": "info"} if era != "legacy" else {}
            async with connected(api, era, logging_callback=log, **level) as mcp:
                if era == "legacy":
                    await mcp.set_logging_level("info")
                await mcp.call_tool("wait", {}, progress_callback=report)

    run(ask)
    assert progress == [(1, 4, "going")]
    assert logs == [("warning", "demo", "patience")]
    cancelled = "notifications/cancelled"  # unless the client's whole session ended before
    wait_for("it ended", lambda: server.asked[-1]["method"] == cancelled or not server.sessions.count())
    if server.modern:
        metas = [entry["params"]["_meta"] for entry in server.asked if entry["method"] == "tools/call"]
        assert metas[0]["io.modelcontextprotocol/logLevel"] == "info"
    else:
        assert {"level": "info"} in [entry["params"] for entry in server.asked if entry["method"] == "logging/setLevel"]


def test_an_ended_session_is_gone(api: ApiStack, server: Answers) -> None:
    session = {"Mcp-Session-Id": "gone"}
    assert "result" in post(api, ONE, "tools/list", **session)[1]
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(api.socket))
    connection.request("DELETE", ONE, headers=session)
    assert connection.getresponse().status == 204
    connection.close()
    status, answer = post(api, ONE, "tools/list", **session)
    assert (status, answer["message"]) == (404, "session `gone` was ended; begin another with `initialize`")
    wait_for("its session is gone", lambda: not server.sessions.count())


def test_a_cancelled_request_of_a_legacy_session_ends(api: ApiStack, server: Answers) -> None:
    session = {"Mcp-Session-Id": "abc"}
    observed: list[Any] = []

    async def ask() -> None:
        def call() -> None:
            observed.append(post(api, ONE, "tools/call", {"name": "wait", "arguments": {}}, **session))

        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, call)
            while not any(entry["method"] == "tools/call" for entry in server.asked):
                await anyio.sleep(0.01)
            while not observed:
                message = {"requestId": 1}
                await anyio.to_thread.run_sync(notify, api, "notifications/cancelled", message, session)
                await anyio.sleep(0.05)

    run(ask)
    assert "was cancelled" in observed[0][1]["error"]["message"]
    wait_for("its cancellation", lambda: server.asked[-1]["method"] == "notifications/cancelled")


def notify(api: ApiStack, method: str, params: dict[str, Any], headers: dict[str, str]) -> None:
    """Send one notification."""
    connection = http.client.HTTPConnection("localhost")
    with socket.socket(socket.AF_UNIX) as connected_:
        connected_.connect(str(api.socket))
        connection.sock = connected_
        sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
        connection.request("POST", ONE, json.dumps({"jsonrpc": "2.0", "method": method, "params": params}), sent)
        connection.getresponse().read()


def test_a_changed_set_of_servers_is_told(api: ApiStack, server: Answers) -> None:
    async def ask() -> None:
        async with connected(api, ERAS[0], ALL) as mcp, mcp.listen(tools_list_changed=True) as changes:
            subscription = aiter(changes)
            await mcp.call_tool("one.make", {"method": "notifications/tools/list_changed"})
            assert await anext(subscription) == ToolsListChanged()

    run(ask)
