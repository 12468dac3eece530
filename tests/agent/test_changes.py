"""The file watcher: changes since a cursor, and notices of resources."""

import contextlib
import json
import os
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from images.agent.paddock_agent.files import Workspace
from images.agent.paddock_agent.watch import Changes
from tests.agent.conftest import MODERN, HandLoop, Running, finished


def changes(agent: Running, **parameters: Any) -> tuple[dict[str, str], str]:
    result = agent.tool("file.changes", **parameters)["result"]
    assert result["reset"] is False
    return {change["path"]: change["change"] for change in result["changes"]}, result["cursor"]


def test_changes_since_a_cursor(agent: Running) -> None:
    for name in ("kept", "changed", "removed"):
        (agent.root / name).write_text("1")
    change, cursor = changes(agent)
    assert change == {}
    (agent.root / "changed").write_text("22")
    (agent.root / "removed").unlink()
    (agent.root / "src").mkdir()
    (agent.root / "src" / "new").write_text("1")
    (agent.root / ".git").mkdir()
    expected = {"changed": "modified", "removed": "removed", "src": "created", "src/new": "created"}
    assert changes(agent, since=cursor)[0] == expected
    document, later = changes(agent, since=cursor, path="src")
    assert document == {"src": "created", "src/new": "created"}
    (agent.root / "src" / "new").unlink()
    assert changes(agent, since=later)[0] == {"src/new": "removed"}
    assert "src/new" not in changes(agent, since=cursor)[0]


def test_an_unknown_cursor_starts_anew(agent: Running) -> None:
    result = agent.tool("file.changes", since="00000000.5")["result"]
    assert result["reset"] is True
    assert changes(agent, since=result["cursor"])[0] == {}


def test_a_caller_may_wait(agent: Running) -> None:
    cursor = changes(agent)[1]
    connection = agent.connect()
    body = {"tool": "file.changes", "parameters": {"since": cursor, "wait_s": 60}}
    connection.request("POST", "/mcp/execute", json.dumps(body), {"content-type": "application/json"})
    assert agent.tool("exec", command="touch made")["success"]
    answer = json.loads(connection.getresponse().read())
    assert answer["result"]["changes"] == [{"path": "made", "change": "created"}]
    assert agent.tool("file.changes", since=answer["result"]["cursor"], wait_s=0.05)["output"] == "no changes"
    connection.close()


def waiting(root: Path) -> tuple[HandLoop, list[Any]]:
    """Wait for a change below the root; the list gets the changes once there are some."""
    loop, observed = HandLoop(), []
    changes = Changes(loop, Workspace(str(root)))  # type: ignore[arg-type]
    cursor = changes.since("", ".")[0].render(1000)[0]["cursor"]

    def check() -> bool:
        reply, some = changes.since(cursor, ".")
        observed.extend(reply.render(1000)[0]["changes"])
        return some

    changes.wait("me", check)
    loop.turn()
    return loop, observed


def test_who_waits_hears_without_polling(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    loop, observed = waiting(tmp_path)
    assert (loop.timers, observed) == ([], [])
    (tmp_path / "src" / "deep" / "x").write_text("1")
    loop.turn()
    assert observed == [{"path": "src/deep/x", "change": "created"}]
    assert (loop.timers, loop.watched) == ([], {})


def test_a_wait_in_a_large_tree_polls(tmp_path: Path) -> None:
    for at in range(501):
        (tmp_path / f"d{at}").mkdir()
    loop, observed = waiting(tmp_path)
    assert ([due for due, _ in loop.timers], loop.watched) == ([2.0], {})
    (tmp_path / "x").write_text("1")
    loop.timers.pop()[1]()
    assert observed == [{"path": "x", "change": "created"}]
    assert loop.timers == []


def many(agent: Running, count: int) -> None:
    for at in range(count):
        (agent.root / f"f{at:05}").write_text("1")


def test_many_changes_come_in_parts(agent: Running) -> None:
    cursor = changes(agent)[1]
    many(agent, 2500)
    observed: set[str] = set()
    while True:
        change, cursor = changes(agent, since=cursor)
        if not change:
            break
        assert len(change) <= 1000
        observed |= change.keys()
    assert len(observed) == 2500


def events(answer: HTTPResponse) -> Iterator[Any]:
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def listen(agent: Running, *paths: str) -> tuple[HTTPConnection, Iterator[Any]]:
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    document = {"resourceSubscriptions": [f"file://{agent.root}/{path}" for path in paths], "toolsListChanged": True}
    params = {"_meta": meta, "notifications": document}
    body = {"jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen", "params": params}
    connection = agent.connect()
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "subscriptions/listen",
    }
    connection.request("POST", "/mcp", json.dumps(body), headers)
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/event-stream"
    return connection, events(answer)


def inotify(agent: Running) -> int:
    count = 0
    for path in Path(f"/proc/{agent.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += "inotify" in os.readlink(path)
    return count


def test_a_subscription_hears_of_its_files(agent: Running) -> None:
    (agent.root / "src").mkdir()
    (agent.root / "src" / "a").write_text("1")
    assert inotify(agent) == 0
    connection, stream = listen(agent, "src/a", "later", "../outside")
    first = next(stream)
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "sub"}
    notifications = first["params"]["notifications"]
    assert notifications["resourceSubscriptions"] == [f"file://{agent.root}/src/a", f"file://{agent.root}/later"]
    assert "toolsListChanged" not in notifications
    assert inotify(agent) == 1
    for name in ("src/a", "later", "src/a"):
        agent.tool("file.write", path=name, content=name)
        notice = next(stream)
        assert notice["method"] == "notifications/resources/updated"
        assert notice["params"]["uri"] == f"file://{agent.root}/{name}"
    connection.close()


def test_a_subscription_ends_with_its_stream(agent: Running) -> None:
    connection, stream = listen(agent, "a")
    next(stream)
    assert inotify(agent) == 1
    connection.close()
    del stream  # the answer holds the socket, too
    finished(lambda: inotify(agent) == 0)


def test_a_legacy_client_subscribes(agent: Running) -> None:
    agent.legacy("initialize", {"protocolVersion": "2025-11-25"})
    session = agent.headers["mcp-session-id"]
    connection = agent.connect()
    connection.request("GET", "/mcp", headers={"accept": "text/event-stream", "mcp-session-id": session})
    stream = events(connection.getresponse())
    uri = f"file://{agent.root}/a"
    assert agent.legacy("resources/subscribe", {"uri": uri}, mcp_session_id=session)[1]["result"] == {}
    agent.tool("file.write", path="a", content="x")
    assert next(stream) == {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
    agent.legacy("resources/unsubscribe", {"uri": uri}, mcp_session_id=session)
    assert inotify(agent) == 0
    connection.close()
