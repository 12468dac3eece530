"""`paddock mcp` as clients start it: the SDK's client over stdin and stdout, and raw lines."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from controller.api.middleware.load import LoadLimits
from controller.cli.mcp import bridge as bridging
from controller.cli.mcp.bridge import Bridge, endpoint, server_endpoint
from controller.kinds.common.chunk import Chunk
from controller.mcp.servers.sessions import Sessions
from controller.service.parsing import MAX_VALUES
from paddock._client.errors import ClientError
from paddock._client.server import Server
from tests.api.listeners import token
from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import ERAS, serving
from tests.mcpserver.programs import Program, Servers, out
from tests.mcpserver.test_servers import document

ROOT = Path(__file__).resolve().parents[2]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
EXEC = {"name": "docker.container.exec", "arguments": {"id": "quickstart", "command": ["sleep", "1000"]}}


class Lines:
    """A bridge in this process: lines in, messages out."""

    def __init__(self, api: ApiStack, path: str = "/mcp", *, holds: bool = False) -> None:
        self.messages: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self.bridge = Bridge(Server("http://paddock", str(api.socket)), path, self._write, holds=holds)

    def _write(self, line: bytes) -> None:
        assert b"\n" not in line
        with self._changed:
            self.messages.append(json.loads(line))
            self._changed.notify_all()

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.bridge._receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    def answer(self, id_: Any) -> dict[str, Any]:
        return self.wait(lambda each: each.get("id") == id_ and "method" not in each)

    def notification(self, method: str) -> dict[str, Any]:
        return self.wait(lambda each: each.get("method") == method)

    def wait(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first message that is."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(is_it, self.messages)), 60), self.messages
            return next(filter(is_it, self.messages))


def modern(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": {**params, "_meta": META}}


@pytest.fixture
def lines(running: ApiStack) -> Iterator[Lines]:
    with serving(running):
        created = Lines(running)
        yield created
        created.bridge.close()


@pytest.mark.parametrize("era", ERAS)
def test_the_sdks_client_works_over_stdio(running: ApiStack, era: str) -> None:
    arguments = ["-m", "controller", "mcp", "--names", "underscore"]
    environment = {**os.environ, "PADDOCK_SERVER": f"unix://{running.socket}"}
    started = StdioServerParameters(command=sys.executable, args=arguments, env=environment, cwd=str(ROOT))
    with serving(running), start_blocking_portal() as portal, ExitStack() as undo:
        opened = portal.wrap_async_context_manager(Client(stdio_client(started), mode=era))
        enter_context = undo.enter_context(opened)
        names = {tool.name for tool in portal.call(enter_context.list_tools).tools}
        assert "docker_container_exec" in names
        sent = {"id": "quickstart", "command": ["true"]}
        answer = portal.call(partial(enter_context.call_tool, "docker_container_exec", sent))
        assert answer.structured_content["exitCode"] == 0


def test_both_eras_pass_on_one_bridge(lines: Lines) -> None:
    legacy = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    lines.send({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": legacy})
    assert lines.answer("a")["result"]["protocolVersion"] == "2025-06-18"
    lines.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    lines.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, modern(2, "server/discover"))
    assert lines.answer(1)["result"]["tools"]
    assert "2026-07-28" in lines.answer(2)["result"]["supportedVersions"]
    lines.send(modern(3, "resources/read", uri="sandbox://default/é"), modern(4, "tools/none"))
    assert lines.answer(3)["error"]["code"] == -32602
    assert lines.answer(4)["error"]["code"] == -32601


def test_lines_that_are_no_requests_are_answered_or_ignored(lines: Lines) -> None:
    lines.send(b"{not json\n", b"[1]\n", {"jsonrpc": "2.0", "id": 9, "result": {}}, modern(1, "ping"))
    lines.answer(1)
    codes = [message["error"]["code"] for message in lines.messages if message.get("id") is None]
    assert codes == [-32700, -32600]
    assert not [message for message in lines.messages if message.get("id") == 9]


@pytest.mark.parametrize("era", ERAS)
def test_a_lone_surrogate_gets_one_answer(lines: Lines, era: str) -> None:
    sent = {"name": "sandbox.get", "arguments": {"name": "\ud800"}}
    requested = modern("a", "tools/call", **sent)
    lines.send(requested if era == ERAS[0] else {**requested, "params": sent}, modern("b", "server/discover"))
    answer = lines.answer("a")
    assert "error" in answer or answer["result"]["isError"]
    assert lines.answer("b")["result"]
    wait_for("the end of both", lambda: not lines.bridge._relays)
    assert sorted(message["id"] for message in lines.messages) == ["a", "b"]


def test_cancelling_ends_the_command(lines: Lines, running: ApiStack) -> None:
    running.streams.run = running.streams.endless
    lines.send(modern("x", "tools/call", **EXEC))
    wait_for("the command's start", lambda: running.streams.asked)
    lines.send(modern("x", "ping"))
    assert "in use" in lines.answer("x")["error"]["message"]
    cancelled = {"requestId": "x", "reason": "the user pressed Escape"}
    lines.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
    assert running.streams.closed.wait(60)


def test_an_id_is_free_once_its_answer_is_written(running: ApiStack) -> None:
    answers: list[dict[str, Any]] = []

    def again(line: bytes) -> None:
        answers.append(json.loads(line))
        if len(answers) == 1:
            quick = threading.Thread(target=bridge._receive, args=(json.dumps(modern(1, "tools/list")).encode(),))
            quick.start()
            quick.join(10)  # a refusal waits for this line to be written

    with serving(running):
        bridge = Bridge(Server("http://paddock", str(running.socket)), "/mcp", again)
        bridge._receive(json.dumps(modern(1, "tools/list")).encode())
        wait_for("both answers", lambda: len(answers) == 2)
        assert all(answer["result"]["tools"] for answer in answers), answers


def test_the_end_of_the_input_ends_what_runs(running: ApiStack) -> None:
    running.streams.run = running.streams.endless
    with serving(running):
        created = Lines(running)
        created.bridge.run([json.dumps(modern(1, "tools/call", **EXEC)).encode() + b"\n"])
        assert running.streams.closed.wait(60)


def test_a_killed_bridge_ends_what_runs(running: ApiStack) -> None:
    running.streams.run = running.streams.endless
    environment = {**os.environ, "PADDOCK_SERVER": f"unix://{running.socket}"}
    with serving(running):
        arguments = [sys.executable, "-m", "controller", "mcp"]
        with subprocess.Popen(
            arguments, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            process.stdin.write(json.dumps(modern(1, "tools/call", **EXEC)).encode() + b"\n")
            process.stdin.flush()
            wait_for("the command's start", lambda: running.streams.asked)
            process.kill()
            assert running.streams.closed.wait(60)


def test_what_a_client_follows_is_followed_again_after_a_restart(api: ApiStack) -> None:
    """The daemon that comes next knows nothing of it, and what was followed may have changed meanwhile."""
    requested: list[tuple[str, str]] = []

    def answer(message: dict[str, Any]) -> list[Chunk]:
        params = message.get("params", {})
        requested.append((message["method"], params.get("uri", params.get("level", ""))))
        resources = {"capabilities": {"resources": {"subscribe": True}, "logging": {}, "tools": {}}}
        result = {"tools": []} if message["method"] == "tools/list" else resources
        return [out({"id": message["id"], "result": result})] if "id" in message else []

    api.apply(document("one"))
    path = server_endpoint("one", "default")

    def daemon() -> Any:
        servers: Any = Servers(api, lambda: Program(answer))
        return serving(api, sessions=Sessions(servers, api.meter))

    with ExitStack() as undo:
        with daemon():
            created = Lines(api, path, holds=True)
            undo.callback(created.bridge.close)
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            created.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
            assert "result" in created.answer(1)
            for number, (method, uri) in enumerate((("subscribe", "a"), ("subscribe", "b"), ("unsubscribe", "b")), 2):
                params = {"uri": f"demo://{uri}"}
                created.send({"jsonrpc": "2.0", "id": number, "method": f"resources/{method}", "params": params})
                assert "result" in created.answer(number)
        requested.clear()
        with daemon():
            notification = created.notification("notifications/resources/updated")
            assert notification["params"] == {"uri": "demo://a"}
            assert [group for group in requested if group[0] == "resources/subscribe"] == [
                ("resources/subscribe", "demo://a")
            ]


def test_errors_of_the_connection_are_answers(running: ApiStack, monkeypatch: Any) -> None:
    absent = Lines(running)
    absent.send(modern(1, "ping"))
    assert "no Paddock daemon answers" in absent.answer(1)["error"]["message"]
    with serving(running):
        wrong = Lines(running, endpoint(names="emoji"))
        wrong.send(modern(1, "tools/list"))
        assert "names: `emoji` is not one of dots, underscore" in wrong.answer(1)["error"]["message"]
        nothing = Lines(running, endpoint("no-such", namespace="team-a"))
        nothing.send(modern(1, "tools/list"))
        assert nothing.answer(1)["error"]["message"]
        monkeypatch.setenv("PADDOCK_TOKEN", token(running, "viewer", "default")[:-1] + "_")
        denied = Lines(running)
        denied.send(modern(1, "tools/list"))
        assert "the token is unknown, expired or revoked" in denied.answer(1)["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "piece"),
    [("text/event-stream", b"data: x"), ("text/event-stream", b"data: x\n"), ("application/json", b" ")],
)
def test_an_answer_without_an_end_is_an_error(monkeypatch: Any, kind: str, piece: bytes) -> None:
    monkeypatch.setattr(bridging, "_MOST_ANSWER_BYTES", 10_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _ = listener.accept()
            with sock, suppress(OSError):
                sock.recv(65536)
                sock.sendall(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n".encode())
                while True:
                    sock.sendall(piece * 1000)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ClientError, match="has a message of over"):
            bridging.request(Server(f"http://127.0.0.1:{listener.getsockname()[1]}"), "/mcp", "ping", {})
        thread.join()


def test_messages_are_within_the_limits_of_json(running: ApiStack) -> None:
    with serving(running):
        for path in (endpoint(), "/mcp/servers", server_endpoint("one", "default")):
            created = Lines(running, path)
            created.send(modern(1, "ping", a=[0] * (MAX_VALUES + 1)))
            assert "more than 50,000 JSON values" in created.answer(1)["error"]["message"], path


def test_requests_over_the_rate_are_sent_again(running: ApiStack) -> None:
    with serving(running, LoadLimits(per_second=1)):  # a burst of five, then one a second
        created = Lines(running)
        created.send(*(modern(number, "prompts/list") for number in range(7)))
        assert all("result" in created.answer(number) for number in range(7))


def test_the_bridge_needs_no_heavy_package() -> None:
    code = "import sys, controller.cli.commands.agents.mcp; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"mcp", "mcp_types", "httpx", "httpx2", "pydantic", "anyio", "yaml", "controller.kinds"}
    assert not heavy & set(done.stdout.split())


def test_paths_of_endpoints() -> None:
    assert endpoint() == "/mcp"
    text = endpoint(namespace="team-a", names="underscore", read_only=True)
    assert text == "/mcp?names=underscore&namespace=team-a&readOnly=true"
    assert endpoint("a/b") == "/apis/paddock/v1alpha1/namespaces/default/sandboxes/a%2Fb/mcp"
    assert endpoint("x", namespace="team-a").startswith("/apis/paddock/v1alpha1/namespaces/team-a/")
