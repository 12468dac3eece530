"""POST exec: one answer with all that became of a command; and what a terminal's client sends beside its input."""

import asyncio
import base64
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import unix_connect as connect_apart
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import unix_connect

from controller.kinds.common.chunk import Chunk
from controller.service.exec.exec_limits import ExecRules
from tests.daemon import wait_for
from tests.examples import examples
from tests.helpers_api import ApiStack

BASE = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart"


@pytest.fixture
def http(running_api: ApiStack) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(running_api.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as client:
        yield client


def run(http: httpx.Client, **asked: Any) -> Any:
    answer = http.post(f"{BASE}/exec", json={"command": ["a"], **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["exec", "execs"])
def test_command_as_one_string_is_refused_with_the_list(http: httpx.Client, running_api: ApiStack, path: str) -> None:
    answer = http.post(f"{BASE}/{path}", json={"command": "echo hi"})
    assert answer.status_code == 400
    assert answer.json()["message"] == (
        'body.command: must be a list of strings, not one string; write ["sh", "-c", "echo hi"] for a shell command,'
        ' or ["PROGRAM", "ARGUMENT"]'
    )
    assert running_api.streams.asked == []


def test_exec_returns_the_whole_result(http: httpx.Client, running_api: ApiStack) -> None:
    running_api.streams.run = lambda **_: iter(
        (Chunk("stdout", b"out\xff"), Chunk("stderr", b"err"), Chunk("exit", b"3"))
    )
    done = run(http, command=["a", "b c"], env={"A": "1"}, workingDir="/tmp", timeoutSeconds=2.5)
    assert done.pop("durationSeconds") >= 0
    assert done == {
        "apiVersion": "paddock/v1alpha1",
        "kind": "ExecResult",
        "stdout": "out\ufffd",
        "stderr": "err",
        "encoding": "utf-8",
        "exitCode": 3,
        "truncated": False,
        "timedOut": False,
        "stdoutOmittedBytes": 0,
        "stderrOmittedBytes": 0,
    }
    _, requested = running_api.streams.asked[-1]
    assert (requested["command"], requested["env"], requested["working_dir"]) == (("a", "b c"), {"A": "1"}, "/tmp")
    assert (requested["timeout_seconds"], requested["stdin"], requested["tty"]) == (2.5, None, False)


def test_default_timeout_and_zero_for_none(http: httpx.Client, running_api: ApiStack) -> None:
    run(http)
    run(http, timeoutSeconds=0)
    assert [requested["timeout_seconds"] for _, requested in running_api.streams.asked] == [300, None]


def test_timed_out_command_is_reported(http: httpx.Client, running_api: ApiStack) -> None:
    running_api.streams.run = lambda **_: iter((Chunk("timeout", b""), Chunk("exit", b"124")))
    done = run(http)
    assert (done["timedOut"], done["exitCode"]) == (True, 124)


def test_long_output_keeps_head_and_tail(http: httpx.Client, running_api: ApiStack) -> None:
    running_api.services.sandbox_streams.rules = ExecRules(output_bytes=8)
    running_api.streams.run = lambda **_: iter((Chunk("stdout", b"0123456789abcdef"), Chunk("exit", b"0")))
    done = run(http)
    assert (done["truncated"], done["stdoutOmittedBytes"], done["stderrOmittedBytes"]) == (True, 8, 0)
    assert done["stdout"] == "0123\n[... 8 bytes left out ...]\ncdef"


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1)), max_size=20), st.binary())
def test_every_byte_comes_through(
    http: httpx.Client, running_api: ApiStack, pieces: list[tuple[str, bytes]], stdin: bytes
) -> None:
    occupied: list[bytes] = []

    def talk(stdin: Any, **_: Any) -> Iterator[Chunk]:
        occupied.extend(stdin or ())
        yield from (Chunk(stream, data) for stream, data in pieces)
        yield Chunk("exit", b"0")

    running_api.streams.run = talk
    done = run(http, encoding="base64", stdin=base64.b64encode(stdin).decode())
    assert b"".join(occupied) == stdin
    for stream in ("stdout", "stderr"):
        assert base64.b64decode(done[stream]) == b"".join(data for name, data in pieces if name == stream)


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        ({"command": []}, 400, "command"),
        ({"command": [""]}, 400, "no command to run"),
        ({"command": ["a"], "timeoutSeconds": -1}, 400, "timeoutSeconds"),
        ({"command": ["a"], "env": {"A=B": ""}}, 400, "env"),
        ({"command": ["a"], "stdin": "?", "encoding": "base64"}, 400, "stdin: not valid base64"),
        ({"command": ["a"], "nonsense": 1}, 400, "nonsense"),
        (
            {"command": ["a" * 4097]},
            400,
            "command[0]: the program's name has 4097 bytes, more than the maximum of 4096",
        ),
        ({"command": ["a"], "workingDir": "/" + "a" * 4096}, 400, "workingDir: the path has 4097 bytes"),
        ({"command": ["a"], "workingDir": "/proc/self/fd/8"}, 400, "workingDir: `/proc/self/fd/8` belongs to"),
        ({"command": ["a" * 4097], "workingDir": "//dev/fd/3"}, 400, "; workingDir: `//dev/fd/3` belongs to"),
    ],
)
def test_bad_command_is_refused(http: httpx.Client, asked: dict[str, Any], code: int, words: str) -> None:
    answer = http.post(f"{BASE}/exec", json=asked)
    assert answer.status_code == code
    assert words in answer.json()["message"]


def test_too_many_at_a_time_are_429(http: httpx.Client, running_api: ApiStack) -> None:
    running_api.services.sandbox_streams._exec_slots.most = 1
    running_api.streams.run = running_api.streams.endless
    with unix_connect(str(running_api.socket), uri=f"ws://paddock{BASE}/exec?command=a") as opened:
        opened.recv()
        answer = http.post(f"{BASE}/exec", json={"command": ["a"]})
        assert (answer.status_code, answer.json()["reason"]) == (429, "TooManyRequests")
    assert running_api.streams.closed.wait(30)


def test_disconnect_kills_the_command(running_api: ApiStack) -> None:
    running_api.streams.run = running_api.streams.endless
    requested = b'{"command": ["a"]}'
    head = f"POST {BASE}/exec HTTP/1.1\r\nHost: paddock\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(requested)}\r\n"
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(running_api.socket))
        link.sendall(f"{head}\r\n".encode() + requested)
        wait_for("it has begun", lambda: running_api.streams.asked)
    assert running_api.streams.closed.wait(30)


class Steered(Iterator[Chunk]):
    """A command that ends on INT and records its signals."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self._over = threading.Event()

    def __next__(self) -> Chunk:
        if self._over.is_set():
            raise StopIteration
        self._over.wait(60)
        return Chunk("exit", b"130")

    def resize(self, rows: int, columns: int) -> None:
        self.told.append((rows, columns))

    def signal(self, name: str) -> None:
        self.told.append(name)
        self._over.set()

    def close(self) -> None:
        self._over.set()


def test_sizes_and_signals_reach_the_command(running_api: ApiStack) -> None:
    command = Steered()
    running_api.streams.exec = lambda *_, **options: command if options["tty"] else None  # type: ignore[method-assign,assignment]
    with unix_connect(str(running_api.socket), uri=f"ws://paddock{BASE}/exec?command=a&tty=true") as opened:
        for frame in (b"\x04nonsense", b'\x04{"Width": 0, "Height": 1}', b'\x04{"Width": "a"}', b"\x05[]", b"\x05"):
            opened.send(frame)
        opened.send(b"\x04" + json.dumps({"Width": 80, "Height": 24}).encode())
        opened.send(b"\x05" + json.dumps({"signal": "INT"}).encode())
        received = [bytes(entry) for entry in opened]
    assert command.told == [(24, 80), "INT"]
    assert b"130" in received[-1]


def test_disconnect_is_noticed_while_stdin_is_blocked(running_api: ApiStack) -> None:
    """Nothing is read from it then: its end shows only when it is written to."""
    command = Steered()
    running_api.streams.exec = lambda *_, **__: command  # type: ignore[method-assign,assignment]
    asyncio.run(_leave_while_sending(running_api))
    assert command._over.wait(30)


async def _leave_while_sending(running_api: ApiStack) -> None:
    opened = await connect_apart(str(running_api.socket), uri=f"ws://paddock{BASE}/exec?command=a&stdin=true")
    assert await opened.recv() == b"\x01"
    sending = asyncio.create_task(_send_until_gone(opened))
    assert await opened.recv() == b"\x01", "it is looked for"
    opened.transport.abort()
    await sending


async def _send_until_gone(opened: ClientConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            await opened.send(b"\x00" + b"x" * 65536)
