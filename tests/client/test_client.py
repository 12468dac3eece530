"""Python client against a served API: results and errors."""

import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.api.server.server import uvicorn_config
from controller.kinds.common.chunk import Chunk
from controller.service.exec.activity import WAIT_SECONDS
from paddock import Output
from paddock import Paddock as Client
from paddock._client import handshake, websocket
from paddock._client.connection import IDLE_SECONDS
from paddock._client.errors import ClientError, Refused, Unreachable
from tests.helpers_api import QUICKSTART, ApiStack
from tests.raw_client import Paddock

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def paddock(served: ApiStack) -> Iterator[Paddock]:
    with Paddock(f"unix://{served.socket}") as created:
        yield created


def test_objects_are_applied_got_listed_and_deleted(paddock: Paddock) -> None:
    assert [document["result"] for document in paddock.apply(QUICKSTART)] == ["created"]
    assert paddock.get("sandboxes", "quickstart")["metadata"]["labels"] == {"app": "demo"}
    assert [document["metadata"]["name"] for document in paddock.list("sandboxes", selector="app=demo")] == [
        "quickstart"
    ]
    assert paddock.list("sandboxes", selector="app=other") == []
    paddock.delete("sandboxes", "quickstart")
    assert "deletionTimestamp" in paddock.get("sandboxes", "quickstart")["metadata"]


def test_a_refusal_has_its_reason(paddock: Paddock) -> None:
    with pytest.raises(Refused, match="not found") as caught:
        paddock.get("sandboxes", "nope")
    assert (caught.value.reason, caught.value.code) == ("NotFound", 404)
    with pytest.raises(Refused, match="not found"):
        paddock.sandbox("nope").exec(["true"])


def test_a_websocket_waits_for_a_sandbox_that_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon answers once the sandbox runs. The library's own time limit is shorter than its wait."""
    assert handshake.HANDSHAKE_SECONDS >= WAIT_SECONDS
    monkeypatch.setattr(websocket, "HANDSHAKE_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX) as silent, Paddock(f"unix://{_listening(silent, tmp_path)}") as paddock:
        sandbox = paddock.sandbox("quickstart")
        with pytest.raises(Unreachable, match="timed out during opening handshake"):
            sandbox.start(["true"])


def _listening(sock: socket.socket, folder: Path) -> str:
    sock.bind(path := str(folder / "s"))
    sock.listen()
    return path


def test_an_unreachable_daemon_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="paddock serve"):
        Paddock(f"unix://{tmp_path}/none.sock")
    with pytest.raises(ClientError, match="not a valid server address"):
        Paddock("ftp://x")


def test_a_command_runs_to_its_end(paddock: Paddock, running_api: ApiStack) -> None:
    def cat(stdin: Any, **_: Any) -> Iterator[Chunk]:
        for data in stdin:
            yield Chunk("stdout", data)
        yield Chunk("stderr", b"err\xff")
        yield Chunk("exit", b"3")

    running_api.streams.run = cat
    data = bytes(range(256)) * 1000
    done = paddock.sandbox("quickstart").exec(["cat"], stdin=data, env={"A": "1"}, timeout_seconds=5)
    assert (done.exit_code, done.stdout, done.stderr) == (3, data, b"err\xff")
    assert running_api.streams.asked[-1][1]["env"] == {"A": "1"}


@pytest.mark.parametrize(
    ("method", "command", "message"),
    [
        ("exec", "echo hi", 'exec(["sh", "-c", "echo hi"])'),
        ("start", b"echo hi", "not bytes; decode it"),
        ("background", ["sleep", 5], "item 1 is int; convert with str(...)"),
    ],
)
def test_a_command_of_another_type_is_not_sent(running_api: ApiStack, method: str, command: Any, message: str) -> None:
    with Client(f"unix://{running_api.socket}") as client, pytest.raises(TypeError, match=re.escape(message)):
        getattr(client.sandbox("quickstart"), method)(command)
    assert running_api.streams.asked == []


def test_output_streams_and_leaving_kills_the_command(paddock: Paddock, running_api: ApiStack) -> None:
    running_api.streams.run = running_api.streams.endless
    with paddock.sandbox("quickstart").start(["a"]) as running:
        assert next(running) == Output("stdout", "first\n", b"first\n")
        assert running.exit_code is None
    assert running_api.streams.closed.wait(30)


def test_large_data_flows_both_ways(paddock: Paddock, running_api: ApiStack) -> None:
    def cat(stdin: Any, **_: Any) -> Iterator[Chunk]:
        for data in stdin:
            yield Chunk("stdout", data)
        yield Chunk("exit", b"0")

    running_api.streams.run = cat
    data = os.urandom(1 << 20) * 32
    with paddock.sandbox("quickstart").start(["cat"], stdin=True) as running:
        feeding = threading.Thread(target=running.feed, args=(data,))
        feeding.start()
        received = b"".join(output.data for output in running)
        feeding.join()
    assert (received == data, running.exit_code) == (True, 0)


def test_logs(paddock: Paddock, running_api: ApiStack) -> None:
    with paddock.sandbox("quickstart").logs(tail=5) as pieces:
        assert b"".join(pieces) == b"hello\n"
    assert running_api.streams.asked[-1][1]["tail"] == 5


def test_idle_connections_close_before_the_daemon_closes_them() -> None:
    assert uvicorn_config(lambda: None, grace_seconds=1).timeout_keep_alive >= 2 * IDLE_SECONDS
