"""The front of the agents in sandboxes, over the real agent as a process, and over listeners that pose as one."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.api.common.byte_budget import ByteBudget
from controller.engine.exec import agent as connections
from controller.engine.exec import port_forward
from controller.engine.kernel.cgroups import Cgroups
from controller.engine.kernel.kill import Killer, Target
from controller.kinds.access.audit import AuditEntry
from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import State
from controller.ports import StoreError, StreamError
from controller.service.sandbox import agent
from tests.agent.conftest import Start, start
from tests.daemon import wait_for
from tests.helpers_api import ApiStack

__all__ = ["start"]
BASE = "http://paddock/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart"
PORT = 8500
OTHER = "the engine's exec\n"
JSON = {"content-type": "application/json"}


class Front:
    """A sandbox behind the API. `asked` are the commands that the engine's exec ran."""

    def __init__(self, api: ApiStack) -> None:
        self.api = api
        api.apply()
        api.set_ready()
        self.show(agent="paddock-agent-1")
        api.streams.run = lambda **_: iter((Chunk("stdout", OTHER.encode()), Chunk("exit", b"0")))
        self.http = httpx.Client(
            base_url=BASE, transport=httpx.HTTPTransport(uds=str(api.socket), verify=False), timeout=60
        )

    def show(self, state: State = State.RUNNING, **more: Any) -> None:
        self.api.view.show(self.api.sandbox(), state, **more)

    def tool(self, name: str, **parameters: Any) -> httpx.Response:
        body = json.dumps({"tool": name, "parameters": parameters})
        return self.http.post("/mcp/execute", content=body, headers=JSON)

    def exec(self, *command: str, **more: Any) -> dict[str, Any]:
        answer = self.http.post("/exec", json={"command": command, **more})
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def counted(self) -> list[tuple[str, str]]:
        return [
            (labels["tool"], labels["outcome"])
            for name, labels in self.api.meter.counted
            if name == "paddock_agent_calls_total"
        ]

    def audited(self) -> list[AuditEntry]:
        return [entry for entry in self.api.store.audit.entries() if entry.verb.startswith("mcp")]

    def events(self) -> list[str]:
        return [event.reason for event in self.api.store.events(uid=self.api.sandbox().uid)]


@pytest.fixture
def front(served: ApiStack) -> Iterator[Front]:
    created = Front(served)
    with created.http:
        yield created


@pytest.fixture
def real(front: Front, start: Start) -> Front:
    """The same with a real agent."""
    front.api.ports.listen(PORT, start().port)
    return front


@contextlib.contextmanager
def posing(front: Front, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Let something else listen on the agent's port: it answers each connection's first bytes."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=50)
    front.api.ports.listen(PORT, listener.getsockname()[1])

    def one(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.recv(65536)
            answer(sock)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def saying(data: bytes, *, hold: bool = False) -> Callable[[socket.socket], None]:
    def answer(sock: socket.socket) -> None:
        sock.sendall(data)
        if not hold:
            sock.shutdown(socket.SHUT_WR)  # closed with something unread, the answer would be lost
        while sock.recv(65536):
            pass

    return answer


def http(body: bytes, *, status: bytes = b"200 OK", kind: bytes = b"application/json", more: bytes = b"") -> bytes:
    head = b"HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n%s\r\n" % (status, kind, len(body), more)
    return head + body


def test_tools_answer_and_are_counted_and_audited(real: Front) -> None:
    done = real.tool("exec", command=["sh", "-c", "echo $A; exit 3"], env={"A": "s3cret"}).json()
    assert (done["success"], done["exitCode"], done["result"]["stdout"]) == (False, 3, "s3cret\n")
    assert real.tool("file.write", path="a", content="x\ud800").json()["success"] is False  # half a surrogate pair
    assert real.tool("file.write", path="a", content="hello").json()["success"]
    several = {"type": "tool_use", "tools": ["file.read", {"tool": "file.stat", "parameters": {"path": "a"}}]}
    done = real.http.post("/mcp/execute", json={**several, "context": {"file.read": {"path": "a"}}}).json()
    assert [entry["tool"] for entry in done["result"]] == ["file.read", "file.stat"]
    wait_for("all are counted", lambda: len(real.counted()) == 4)
    assert sorted(real.counted()) == [
        ("exec", "failed"),
        ("file.write", "failed"),
        ("file.write", "ok"),
        ("other", "ok"),
    ]
    wait_for("all are audited", lambda: len(real.audited()) == 8)
    details = [entry.detail for entry in real.audited()]
    assert "s3cret" not in str(details)
    assert {"tool": "exec", "arguments": {"command": "array(3)", "env": "object(1)"}}.items() <= details[0].items()
    assert any(detail.get("ended") == "ok" and detail["durationSeconds"] >= 0 for detail in details)


def test_a_use_that_can_not_be_recorded_does_not_start(real: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(real.api.services.recorder, "_append", fail)
    call = message("tools/call", {"name": "exec", "arguments": {"command": "true"}})
    write = {"tool": "exec", "parameters": {"command": "true"}}
    for path, body in (("/mcp/execute", write), ("/mcp", call), ("/exec", {"command": ["true"]})):
        answer = real.http.post(path, json=body)
        assert (answer.status_code, "disk full" in answer.json()["message"]) == (503, True), path
    assert real.http.get("/mcp", headers={"accept": "text/event-stream"}).status_code == 503
    assert real.counted() == []


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_mcp_passes_through(real: Front, era: str) -> None:
    headers = {"accept": "application/json, text/event-stream"}
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    call: dict[str, Any] = {"name": "exec", "arguments": {"command": "echo hi"}}
    if era == "modern":
        headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "exec"}
        call["_meta"] = meta
    else:
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        response = real.http.post("/mcp", json=message("initialize", params), headers=headers)
        headers["mcp-session-id"] = response.headers["mcp-session-id"]
        assert response.json()["result"]["protocolVersion"] == "2025-06-18"
    answer = real.http.post("/mcp", json=message("tools/call", call), headers=headers)
    assert answer.json()["result"]["structuredContent"]["stdout"] == "hi\n"
    if era == "modern":  # what contradicts its body is the agent's to refuse, and comes through as it is
        refusal = real.http.post("/mcp", json=message("tools/call", call), headers=headers | {"mcp-name": "git"})
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, -32020)
    else:
        assert real.http.delete("/mcp", headers=headers).status_code < 300
        broken = real.http.post("/mcp", content=b'{"jsonrpc"', headers={**headers, **JSON})
        assert broken.json()["error"]["code"] == -32700


def test_notices_stream_through_until_the_client_leaves(front: Front, start: Start) -> None:
    agent = start()
    front.api.ports.listen(PORT, agent.port)
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"_meta": meta, "notifications": {"resourceSubscriptions": [f"file://{agent.root}/a"]}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
    headers["mcp-method"] = "subscriptions/listen"
    with front.http.stream("POST", "/mcp", json=message("subscriptions/listen", params), headers=headers) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        events = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        assert next(events)["method"] == "notifications/subscriptions/acknowledged"
        with httpx.Client(
            base_url=BASE, transport=httpx.HTTPTransport(uds=str(front.api.socket), verify=False), timeout=60
        ) as client:
            document = {"tool": "file.write", "parameters": {"path": "a", "content": "x"}}
            assert client.post("/mcp/execute", json=document).json()["success"]
        assert next(events)["method"] == "notifications/resources/updated"
        assert ("mcp", "cancelled") not in front.counted()
    wait_for("its end is counted", lambda: ("mcp", "cancelled") in front.counted(), 60)


def message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.mark.parametrize("path", ["/mcp/execute", "/mcp", "/exec"])
def test_disconnecting_cancels_the_call(real: Front, tmp_path: Path, path: str) -> None:
    noted = tmp_path / "pid"
    arguments = ["sh", "-c", f"echo $$ > {noted}; exec sleep 300"]
    called = {"name": "exec", "arguments": {"command": arguments}}
    bodies = {"/mcp/execute": {"tool": "exec", "parameters": {"command": arguments}}, "/exec": {"command": arguments}}
    body = json.dumps(bodies.get(path, message("tools/call", called))).encode()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(real.api.socket))
        head = f"POST {BASE.removeprefix('http://paddock')}{path} HTTP/1.1\r\nhost: paddock\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        wait_for("the command runs", lambda: noted.exists() and noted.read_text().strip(), 60)
    pid = int(noted.read_text())
    wait_for("it is killed", lambda: not Path(f"/proc/{pid}").exists(), 60)
    wait_for("it is counted", lambda: real.counted() == [("exec", "ok" if path == "/exec" else "cancelled")], 60)


def test_commands_take_the_agents_way_and_answer_the_same(real: Front) -> None:
    done = real.exec("sh", "-c", "cat; head -c 3000000 /dev/zero; printf '\\377' >&2; exit 5", stdin="in")
    assert done["stdout"].startswith("in\0")
    assert (done["stderr"], done["exitCode"]) == ("\ufffd", 5)
    assert (done["truncated"], done["stdoutOmittedBytes"]) == (True, 3000002 - (1 << 20))
    done = real.exec("sh", "-c", "echo early; sleep 300", timeoutSeconds=0.5)
    assert (done["stdout"], done["exitCode"], done["timedOut"]) == ("early\n", 124, True)
    assert not real.api.streams.asked
    # What can't start is the engine's to explain; a record of a detached command needs it, too.
    assert real.exec("no-such-program")["stdout"] == OTHER
    assert real.http.post("/execs", json={"command": ["true"]}).status_code == 201
    assert [document["command"] for _, document in real.api.streams.asked] == [("no-such-program",), ("true",)]
    assert set(real.counted()) == {("exec", "ok"), ("exec", "refused")}


def test_without_an_agent_calls_are_refused_in_words(front: Front) -> None:
    front.show()
    answer = front.tool("exec", command="true")
    advice = "sandbox `quickstart` has no agent: add `agent: {}` to its template (this makes a new container)"
    assert (answer.status_code, answer.json()["message"]) == (409, advice)
    assert front.http.post("/mcp", json=message("ping", {})).status_code == 409
    assert front.exec("true")["stdout"] == OTHER


def test_bad_requests_are_refused_before_the_agent(front: Front) -> None:
    front.show(agent="paddock-agent-1")
    large = b'{"tool": "file.write", "parameters": {"content": "%s"}}' % (b"x" * (5 << 20))
    for path in ("/mcp", "/mcp/execute"):
        answer = front.http.post(path, content=large, headers=JSON)
        assert (answer.status_code, answer.json()["reason"]) == (413, "RequestEntityTooLarge")
        assert "4 MiB" in answer.json()["message"]
    for body in (b"[]", b"{}", b'{"tool": 1}', b'{"type": "tool_use", "tools": []}', b"[" * 20000, b'{"tools": "x"}'):
        assert front.http.post("/mcp/execute", content=body, headers=JSON).status_code == 400, body[:50]
    front.show(State.EXITED, agent="paddock-agent-1")
    assert front.tool("exec", command="true").status_code == 409


def test_what_the_daemon_can_not_read_is_not_passed_on(front: Front) -> None:
    requested: list[bytes] = []

    def note(sock: socket.socket) -> None:
        requested.append(b"")
        sock.sendall(http(b"{}"))

    deep = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": %s}}' % (b"[" * 990 + b"]" * 990)
    with posing(front, note):
        for body in (deep, b'{"jsonrpc"', b"\xff\xfe{", b"[" * 20000):
            answer = front.http.post("/mcp", content=body, headers=JSON)
            assert answer.status_code == 400, (body[:50], answer.text)
    assert not requested
    assert not front.counted()


FORGED = json.dumps({"success": True, "output": "", "error": None, "exitCode": 0, "result": None}).encode()
DEEP = b'{"success": true, "output": "", "error": null, "exitCode": 0, "result": ' + b"[" * 100000 + b"}"


NONSENSE = (
    b"SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100 + b"\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"x" * 100000,
    b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello",
    b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nshort",
    http(b"<script>", kind=b"text/html"),
    http(FORGED, status=b"302 Found", more=b"location: http://evil\r\n"),
    http(b"\xff\xfe"),
    http(b"[1]"),
    http(DEEP),
    http(FORGED.replace(b"true", b'"yes"')),
    http(FORGED.replace(b"0", b"NaN")),
    http(FORGED.replace(b"0", b"1" * 5000)),
    http(FORGED.replace(b"null}", b'"' + b"x" * (2 << 20) + b'"}')),
    http(b"x" * (6 << 20)),
)


def test_nonsense_of_a_false_listener_is_a_clean_error(front: Front) -> None:
    for content in NONSENSE:
        # It ends its connections, and says so: one that is kept could end just as a command is sent.
        with posing(front, saying(content.replace(b"content-type:", b"connection: close\r\ncontent-type:", 1))):
            answer = front.tool("exec", command="true")
            assert answer.status_code == 503, (content[:60], answer.text[:300])
            assert "quickstart" in answer.json()["message"]
            assert front.exec("true")["stdout"] == OTHER  # commands are not led astray
    assert not any(outcome == "ok" for _, outcome in front.counted())


def test_answers_in_memory_share_the_budget_of_bodies(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, most = [1 << 20], 1 << 20

    def take(_: ByteBudget, _name: str, count: int) -> bool:
        free = count <= numbers[0]
        numbers[0] -= count * free
        return free

    def give_back(_: ByteBudget, _name: str, count: int) -> None:
        numbers[0] += count

    monkeypatch.setattr(ByteBudget, "take", take)
    monkeypatch.setattr(ByteBudget, "give_back", give_back)
    with posing(front, saying(http(b"x" * (2 * most)))):
        answer = front.http.post("/mcp", json=message("tools/list", {}))
        assert (answer.status_code, "in flight" in answer.json()["message"]) == (503, True)
    with posing(front, saying(http(b"x" * (most // 4)))):  # it is held once as read, and once as sent
        for _ in range(2):
            assert front.http.post("/mcp", json=message("tools/list", {})).status_code == 200
            wait_for("all is given back", lambda: numbers == [most])


def test_events_say_when_an_agent_stops_and_answers_again(front: Front, start: Start) -> None:
    answer = front.tool("exec", command="true")  # nothing listens
    assert (answer.status_code, "does not answer" in answer.json()["message"]) == (503, True)
    assert front.tool("exec", command="true").status_code == 503
    assert front.events() == ["AgentNotAnswering"]
    assert front.exec("true")["stdout"] == OTHER
    front.api.ports.listen(PORT, start().port)
    assert front.tool("exec", command="true").status_code == 200
    wait_for("it is recorded", lambda: front.events() == ["AgentNotAnswering", "AgentAnswers"])


def test_a_silent_listener_costs_a_command_nothing_but_time(front: Front) -> None:
    with posing(front, saying(b"", hold=True)):
        assert front.exec("true")["stdout"] == OTHER
        assert len(front.api.streams.asked) == 1  # it ran once
        assert front.exec("true")["stdout"] == OTHER
    assert front.counted() == [("exec", "refused")]  # the second did not try


def test_a_listener_that_takes_a_command_and_stalls_blocks_no_other(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_START_SECONDS", 0.2)
    with posing(front, saying(b"HTTP/1.1 100 Continue\r\n\r\n", hold=True)):
        stalled = front.http.post("/exec", json={"command": ["true"]})
        assert (stalled.status_code, "quickstart" in stalled.json()["message"]) == (503, True)
        assert not front.api.streams.asked  # it may have begun: not again
        for _ in range(2):
            assert front.exec("true")["stdout"] == OTHER
    assert front.counted() == [("exec", "unavailable")]  # the others did not try
    assert front.events() == ["AgentNotAnswering"]


OUTPUT = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n\1\0\0\0\0\0\0\2hi\r\n"


@contextlib.contextmanager
def starting(front: Front, kill: Callable[[socket.socket], None]) -> Iterator[None]:
    """Let a listener start a command that does not end; `kill` answers each request after the first."""
    lock = threading.Lock()

    def answer(sock: socket.socket) -> None:
        first = lock.acquire(blocking=False)
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        sock.recv(65536)
        saying(OUTPUT, hold=True)(sock) if first else kill(sock)

    with posing(front, answer):
        yield


@pytest.mark.parametrize(
    ("said", "events"),
    [
        (http(b"{}"), []),
        (http(b"{}", status=b"404 Not Found"), []),  # the command has just ended
        (http(b"{}", status=b"503 Busy"), ["ExecEscaped"]),
        (b"", ["ExecEscaped"]),  # a stopped agent
    ],
)
def test_a_command_that_the_agent_does_not_kill_has_escaped(
    front: Front, monkeypatch: pytest.MonkeyPatch, said: bytes, events: list[str]
) -> None:
    if not said:
        monkeypatch.setattr(connections, "_KILL_SECONDS", 0.2)
    with starting(front, saying(said, hold=True)):
        done = front.exec("true", timeoutSeconds=0.2)
        assert (done["stdout"], done["exitCode"], done["timedOut"]) == ("hi", 124, True)
    assert front.events() == events
    assert len(front.api.view.acted) == len(events)  # the sandbox is killed


def test_the_hosts_kill_waits_for_no_agent(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = threading.Event()

    class Noted(Killer):
        def end(self, target: Target) -> bool:
            killed.set()
            return True

    def kill(sock: socket.socket) -> None:
        if killed.wait(60):
            saying(http(b"{}"), hold=True)(sock)

    monkeypatch.setattr(connections, "_KILL_SECONDS", 600.0)
    container, escaped = front.api.view.show(front.api.sandbox()), list[str]()
    agents = connections.AgentConnections(front.api.ports, Noted(Cgroups()))
    with starting(front, kill), contextlib.closing(agents):
        limits: dict[str, Any] = {"timeout_seconds": 0.1, "escaped": escaped.append}
        stream = agents.exec(container, PORT, ["true"], env={}, **limits)
        assert [chunk.stream for chunk in stream] == ["stdout", "timeout", "exit"]
    assert not escaped


def test_an_agent_is_looked_for_on_ipv4_alone(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    families: list[socket.AddressFamily] = []

    def made(*_: Any, family: socket.AddressFamily) -> socket.socket:
        families.append(family)
        return socket.socket(family)

    monkeypatch.setattr(port_forward, "socket_in", made)
    container = front.api.view.show(front.api.sandbox())
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with pytest.raises(StreamError, match="nothing listens"):
            port_forward.DockerPorts(ipv4_only=True).connect(container, reserved.getsockname()[1])
    assert families == [socket.AF_INET]


def test_a_call_without_an_end_is_timed_out(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_CALL_SECONDS", 0.2)
    with posing(front, saying(b"HTTP/1.1 100 Continue\r\n\r\n", hold=True)):
        answers = [front.tool("file.read", path="a"), front.http.post("/mcp", json=message("tools/list", {}))]
    for answer in answers:
        assert (answer.status_code, "quickstart" in answer.json()["message"]) == (504, True)
    wait_for("both are counted", lambda: front.counted() == [("file.read", "timeout"), ("mcp", "timeout")])
    assert front.events() == []  # slow is not dead


def test_an_answer_lost_in_the_middle_names_the_sandbox(front: Front) -> None:
    frames = b"\1\0\0\0\0\0\0\2hi"
    chunk = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(frames), frames)

    def answer(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        sock.recv(65536)
        sock.sendall(chunk)

    with posing(front, answer):
        lost = front.http.post("/exec", json={"command": ["true"]})
    assert (lost.status_code, "quickstart" in lost.json()["message"]) == (503, True)
    assert not front.api.streams.asked  # it may have run: not again
