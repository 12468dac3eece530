"""The client of a stdio server, over streams of the test's own: what a hostile server can not do."""

import threading
from contextlib import suppress
from typing import Any, cast

import anyio
import pytest

from controller.kinds.common.chunk import Chunk
from controller.kinds.mcpserver import KIND, ready_condition
from controller.mcp.servers.sessions import Sessions, StartRefused
from controller.mcp.servers.starts import Starts
from controller.mcp.servers.stdio import MOST_UNASKED, ServerGone, ServerRefused, StdioClient
from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import serving
from tests.mcpserver.programs import Program, Servers, out, server
from tests.mcpserver.test_servers import document, post

KEY = "-----BEGIN KEY-----\nabcdefghijklmnop\n-----END KEY-----"


def prints_its_secrets(_message: dict[str, Any]) -> list[Chunk]:
    text = f"TOKEN=hunter2\nKEY={KEY}\nteapot\n".encode()
    return [Chunk("stderr", text[:9]), Chunk("stderr", text[9:]), Chunk("exit", b"3")]


def test_what_a_server_prints_is_not_stored_and_its_secrets_are_not_shown(api: ApiStack) -> None:
    servers: Any = Servers(api, lambda: Program(prints_its_secrets), "hunter2", KEY)
    with pytest.raises(StartRefused) as caught:
        anyio.run(Starts(Sessions(servers, api.meter)).session, server(api), "ann", "")
    assert "it ended with exit code 3; its last lines: TOKEN=[secret]" in str(caught.value)
    assert "teapot" in str(caught.value)
    assert "abcdefghijklmnop" not in str(caught.value)
    stored = ready_condition(api.services.objects.get(KIND, "default", "one"))
    assert (stored["reason"], stored["message"]) == ("StartFailed", "it ended with exit code 3")
    events = api.store.events(kind="MCPServer", name="one")
    assert [event.message for event in events if event.reason == "StartFailed"] == [stored["message"]]


def test_half_a_secret_is_not_shown() -> None:
    secret = "s3cret" * 100
    parts = [
        Chunk("stderr", entry)
        for entry in (b"x" * 10, secret[:300].encode(), secret[300:].encode() + b"y" * 3700, b"\nlast\n")
    ]
    client = StdioClient(Program(lambda _: [*parts, Chunk("exit", b"1")]).start, "x", [secret])
    with pytest.raises(ServerGone) as caught:
        client.request("ping", {})[1].result(60)
    assert caught.value.last == "last"


def talks(message: dict[str, Any]) -> list[Chunk]:
    """Answer as a server with one tool."""
    result = {"tools": [{"name": "echo", "inputSchema": {}}]} if message["method"] == "tools/list" else {}
    return [out({"id": message["id"], "result": result})] if "id" in message else []


def lists_and_ends(message: dict[str, Any]) -> list[Chunk]:
    return [*talks(message), *([Chunk("exit", b"5")] if message["method"] == "tools/list" else [])]


def test_a_server_that_lists_its_tools_and_ends_is_not_started_for_ever(api: ApiStack) -> None:
    servers: Any = Servers(api, lambda: Program(lists_and_ends))
    sessions, observed = Sessions(servers, api.meter, lambda: 100.0), server(api)

    async def ask() -> str:
        with anyio.fail_after(60):
            try:
                session = await Starts(sessions).session(observed, "ann", "")
            except StartRefused as error:
                return str(error)
            while not session.client.is_gone:  # it ends after the answer
                await anyio.sleep(0.01)
        return ""

    outputs = [anyio.run(ask) for _ in range(8)]
    assert "CrashLoopBackOff: it failed 3 times" in outputs[-1]
    assert "it ended with exit code 5, within 5 s of its start" in outputs[-1]
    assert servers.starts == 3


def test_calls_that_end_a_server_keep_only_their_caller_waiting(api: ApiStack) -> None:
    def ends_when_called(message: dict[str, Any]) -> list[Chunk]:
        return [Chunk("exit", b"5")] if message["method"] == "tools/call" else talks(message)

    servers: Any = Servers(api, lambda: Program(ends_when_called))
    sessions, observed = Sessions(servers, api.meter, lambda: 100.0), server(api)

    async def ask(caller: str) -> str:
        with anyio.fail_after(60):
            try:
                session = await Starts(sessions).session(observed, caller, "")
            except StartRefused as error:
                return str(error)
            session.client.request("tools/call", {"name": "echo"})
            while not session.client.is_gone:
                await anyio.sleep(0.01)
        return ""

    assert "CrashLoopBackOff" in [anyio.run(ask, "ann") for _ in range(4)][-1]
    assert anyio.run(ask, "bob") == ""


def test_slow_starts_of_a_caller_leave_threads_to_others(api: ApiStack) -> None:
    slow = [Program(lambda _: ()) for _ in range(4)]
    programs = iter(slow)
    servers: Any = Servers(api, lambda: next(programs, None) or Program(talks))
    sessions, observed = Sessions(servers, api.meter), server(api)

    async def refused(starts: Starts, connection: str) -> None:
        with suppress(StartRefused):
            await starts.session(observed, "slow", connection)

    async def ask() -> int:
        starts = Starts(sessions)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(60):
                    group.start_soon(refused, starts, str(number))
                while servers.starts < len(slow):
                    await anyio.sleep(0.01)
                session = await starts.session(observed, "ann", "")
                at_once = servers.starts
                for program in slow:
                    program.end()
        assert list(session.offered.tools) == ["echo"]
        return at_once

    assert anyio.run(ask) == len(slow) + 1
    sessions.close(0)


@pytest.mark.parametrize("written", ["text", "number", "with a fraction"])
def test_ids_are_known_however_echoed(written: str) -> None:
    def echo(message: dict[str, Any]) -> list[Chunk]:
        id_ = {"text": str, "number": int, "with a fraction": float}[written](message["id"])
        progress = {"progressToken": id_, "progress": 1}
        return [out({"method": "notifications/progress", "params": progress}, {"id": id_, "result": {"ok": True}})]

    client, reports = StdioClient(Program(echo).start, "x"), list[float]()
    for _ in range(2):
        answer = client.request("ping", {}, lambda done, _total, _message: reports.append(done))[1]
        assert answer.result(60) == {"ok": True}
    assert reports == [1.0, 1.0]
    client.close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"id": "mine", "result": {}}, "it answered with an id that no request has"),
        ({"id": None, "error": {"code": -32700, "message": "Parse error"}}, "Parse error"),
        ({"id": [1], "error": {"code": 5, "message": "no"}}, "no"),
    ],
)
def test_an_answer_without_its_id_fails_the_request(answer: dict[str, Any], says: str) -> None:
    client = StdioClient(Program(lambda _: [out(answer)]).start, "x")
    with pytest.raises(ServerRefused, match=says):
        client.request("ping", {})[1].result(60)
    client.close()


def test_an_error_about_a_notification_fails_no_request() -> None:
    """Some servers answer notifications, too, with an error that has no id."""

    def answers(message: dict[str, Any]) -> list[Chunk]:
        unknown = {"id": None, "error": {"code": -32601, "message": "Method not found"}}
        return [out(unknown, {"id": message["id"], "result": {}})]

    client = StdioClient(Program(answers).start, "x")
    assert client.request("ping", {})[1].result(60) == {}
    client.close()


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("names_versions", [True, False])
def test_a_server_of_2024_that_refuses_newer_versions_starts(api: ApiStack, names_versions: bool, ends: bool) -> None:
    requested: list[str] = []

    def answers(message: dict[str, Any]) -> list[Chunk]:
        version = message.get("params", {}).get("protocolVersion")
        if message["method"] not in ("initialize", "server/discover"):
            return talks(message)
        requested.append(version or "discover")
        if version == "2024-11-05":
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {}}
            return [out({"id": message["id"], "result": result})]
        data = {"data": {"supported": ["2024-11-05"]}} if names_versions else {}
        refusal = out({"id": message["id"], "error": {"code": -32602, "message": "Unsupported version", **data}})
        return [refusal, *([Chunk("exit", b"1")] if ends else [])]

    sessions, observed = Sessions(cast("Any", Servers(api, lambda: Program(answers))), api.meter), server(api)
    for place in ("a", "b"):
        session = anyio.run(Starts(sessions).session, observed, "ann", place)
        assert list(session.offered.tools) == ["echo"]
    tried = [] if names_versions else ["discover", "2025-06-18", "2025-03-26"]
    if not ends:
        assert requested == ["2025-11-25", *tried, "2024-11-05", "2024-11-05"]  # the second session knows it
    assert api.services.objects.get(KIND, "default", "one").status["protocol"] == "2024-11-05"
    sessions.close(0)


def test_ready_names_a_tool_that_is_too_large_and_no_tool_is_paddocks(api: ApiStack) -> None:
    names = [*("a b " + str(number) for number in range(9)), "docker.container.exec", "sandbox_delete", "echo"]
    listed = [{"name": name, "inputSchema": {}} for name in names]
    listed += [{"name": "huge", "inputSchema": {"x": "x" * 70_000}}, {"name": "x" * 128, "inputSchema": {}}]

    def answers(message: dict[str, Any]) -> list[Chunk]:
        result = {"tools": listed} if message["method"] == "tools/list" else {}
        return [out({"id": message["id"], "result": result})] if "id" in message else []

    sessions = Sessions(cast("Any", Servers(api, lambda: Program(answers))), api.meter)
    session = anyio.run(Starts(sessions).session, server(api), "ann", "")
    assert list(session.offered.tools) == ["echo", "x" * 128]
    answer = ready_condition(api.services.objects.get(KIND, "default", "one"))["message"]
    assert answer.startswith("2 tools; left out: huge: its definition is larger than 64 KiB; ")
    assert "docker.container.exec: only tools of Paddock have such a name; sandbox_delete: only tools of" in answer
    sessions.close(0)


def test_tools_of_a_namespace_come_in_pages(api: ApiStack) -> None:
    """All of one server fit a message, and those of two do not."""
    listed = [{"name": f"t{number}", "inputSchema": {"x": "x" * 1000, "y": ["y" * 1000] * 50}} for number in range(10)]

    def answers(message: dict[str, Any]) -> list[Chunk]:
        result = {"tools": listed} if message["method"] == "tools/list" else {}
        return [out({"id": message["id"], "result": result})] if "id" in message else []

    sessions = Sessions(cast("Any", Servers(api, lambda: Program(answers))), api.meter)
    for name in ("one", "two"):
        api.apply(document(name))
    with serving(api, sessions=sessions):
        names, cursor, pages = list[str](), dict[str, str](), 0
        while pages == 0 or cursor:
            _, observed = post(api, "/mcp/servers?namespace=default", "tools/list", cursor)
            names += [tool["name"] for tool in observed["result"]["tools"]]
            cursor, pages = (
                {"cursor": next_cursor} if (next_cursor := observed["result"].get("nextCursor")) else {},
                pages + 1,
            )
    assert (pages, names) == (2, [f"{name}.t{number}" for name in ("one", "two") for number in range(10)])
    sessions.close(0)


def test_a_server_that_does_not_read_holds_few_bytes() -> None:
    never = threading.Event()
    program = Program(lambda _: (never.wait(), ())[1])
    client = StdioClient(program.start, "x")
    sent = {"text": "x" * (1 << 20)}
    for _ in range(7):
        client.request("tools/call", sent)
    with pytest.raises(ServerGone, match="does not read its input"):
        [client.request("tools/call", sent) for _ in range(3)]
    never.set()
    client.close()


def test_the_end_of_input_reaches_a_server_with_a_full_queue() -> None:
    event, never = threading.Event(), threading.Event()
    program = Program(lambda _: (event.set(), never.wait(), ())[2])
    client = StdioClient(program.start, "x")
    client.notify("a", {})
    assert event.wait(60)
    with pytest.raises(ServerGone, match="does not read its input"):
        [client.notify("a", {}) for _ in range(10_000)]
    client.close()
    never.set()
    wait_for("the end of its input", program.done.is_set)
    assert len(program.read) == 1


def test_a_server_gets_answers_to_short_ids_only() -> None:
    ids = [5, "mine", "x" * 129, {"a": 1}, [1], 1.5, None]

    def asks(message: dict[str, Any]) -> list[Chunk]:
        chunks = (
            [out(*({"id": entry, "method": "ping"} for entry in ids))] if message.get("method") == "tools/list" else []
        )
        return [*chunks, *talks(message)] if "method" in message else []

    program = Program(asks)
    client = StdioClient(program.start, "x")
    client.request("tools/list", {})[1].result(60)
    client.request("later", {})[1].result(60)  # it has read what was sent before this
    client.close()
    wait_for("the end of its input", program.done.is_set)
    assert [entry["id"] for entry in program.read if "result" in entry] == [5, "mine"]


def test_a_flood_of_notifications_ends_the_session() -> None:
    flood = out({"method": "notifications/message"}).data * 1000
    client = StdioClient(Program(lambda _: [Chunk("stdout", flood)] * (MOST_UNASKED // 1000 + 1)).start, "x")
    with pytest.raises(ServerGone, match="messages that answer nothing"):
        client.request("tools/list", {})[1].result(60)
