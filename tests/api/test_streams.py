"""Logs and exec over HTTP: output, ends, and clean-up after a disconnect."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, unix_connect

from controller.api.streams.exec_websocket import StdinFeed
from controller.kinds.common.chunk import Chunk
from controller.ports import StreamError
from paddock._client.errors import Refused
from tests.daemon import wait_for
from tests.helpers_api import ApiStack, Endless
from tests.raw_client import Paddock

BASE = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart"


def connect(api: ApiStack, query: str) -> ClientConnection:
    return unix_connect(str(api.socket), uri=f"ws://paddock{BASE}/exec?{query}", subprotocols=["v5.channel.k8s.io"])


def frames(api: ApiStack, query: str, *sent: bytes) -> list[bytes]:
    with connect(api, query) as opened:
        assert opened.subprotocol == "v5.channel.k8s.io"
        for entry in sent:
            opened.send(entry)
        received = [bytes(single) for single in opened]
    assert received[0] == b"\x01" or received[0][0] == 3, "it says first that it has begun, unless it could not"
    return [content for content in received if len(content) > 1]


def ending(received: list[bytes]) -> Any:
    assert received[-1][0] == 3
    return json.loads(received[-1][1:])


def logs(api: ApiStack, **params: str) -> httpx.Response:
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(api.socket), verify=False), base_url="http://paddock", timeout=60
    ) as client:
        return client.get(f"{BASE}/logs", params=params)


def test_output_comes_by_channel_and_the_end_is_a_status(running_api: ApiStack) -> None:
    running_api.streams.run = lambda **_: iter(
        (Chunk("stdout", b"out\xff"), Chunk("stderr", b"err"), Chunk("exit", b"0"))
    )
    received = frames(running_api, "command=a&command=b%20c&env=A=1&workingDir=/tmp&timeoutSeconds=2.5")
    assert received[:2] == [b"\x01out\xff", b"\x02err"]
    assert ending(received)["status"] == "Success"
    container, requested = running_api.streams.asked[-1]
    assert (container, requested["command"], requested["env"]) == ("c-quickstart", ("a", "b c"), {"A": "1"})
    assert (requested["working_dir"], requested["timeout_seconds"], requested["stdin"]) == ("/tmp", 2.5, None)


def test_frames_are_taken_as_they_are_sent_and_not_unpacked(running_api: ApiStack) -> None:
    with connect(running_api, "command=cat&stdin=true") as opened:  # this client would compress
        assert opened.protocol.extensions == []


def test_size_and_bytes_of_a_command_are_as_sent(running_api: ApiStack) -> None:
    query = "command=%FFa&command=%C3%A9&tty=true&rows=33&columns=44&workingDir=/%FE"
    frames(running_api, query)
    requested = running_api.streams.asked[-1][1]
    assert requested["command"] == ("\udcffa", "é")
    assert (requested["size"], requested["working_dir"]) == ((33, 44), "/\udcfe")


def test_the_exit_code_is_in_the_status(running_api: ApiStack) -> None:
    running_api.streams.run = lambda **_: iter((Chunk("exit", b"3"),))
    status = ending(frames(running_api, "command=false"))
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


def test_stdin_goes_in_until_it_is_closed(running_api: ApiStack) -> None:
    def cat(stdin: Any, **_: Any) -> Iterator[Chunk]:
        for data in stdin:
            yield Chunk("stdout", data)
        yield Chunk("exit", b"0")

    running_api.streams.run = cat
    received = frames(running_api, "command=cat&stdin=true", b"\x00one", b"\x00two\x00", b"\x04ignored", b"\xff\x00")
    assert received[:-1] == [b"\x01one", b"\x01two\x00"]


def test_failed_stream_ends_with_its_message(running_api: ApiStack) -> None:
    def broken(**_: Any) -> Iterator[Chunk]:
        yield Chunk("stdout", b"a")
        raise StreamError("the engine went away; try again")

    running_api.streams.run = broken
    received = frames(running_api, "command=a")
    assert received[0] == b"\x01a"
    reported = ending(received)
    assert (reported["message"], reported["code"]) == ("the engine went away; try again", 503)
    running_api.streams.run = lambda **_: iter(())
    assert "ended before the command" in ending(frames(running_api, "command=a"))["message"]


def test_sandbox_death_is_reported_by_exec_and_websocket(running_api: ApiStack) -> None:
    def dying(**_: Any) -> Iterator[Chunk]:
        raise StreamError("the sandbox is not running any more")

    running_api.streams.run = dying
    streamed = ending(frames(running_api, "command=a"))
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(running_api.socket), verify=False),
        base_url="http://paddock",
        timeout=60,
    ) as client:
        assert client.post(f"{BASE}/exec", json={"command": ["a"]}).json() == streamed
    with Paddock(f"unix://{running_api.socket}") as paddock, pytest.raises(Refused) as caught:
        list(paddock.sandbox("quickstart").start(["a"]))
    assert (caught.value.code, caught.value.reason) == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("", 400, "no command to run"),
        ("command=a&env=A", 400, "NAME=VALUE"),
        ("command=a&timeoutSeconds=-1", 400, "timeoutSeconds"),
        ("command=a&workingDir=/proc/self/fd/8", 400, "workingDir: `/proc/self/fd/8` belongs to"),
        (f"command={'a' * 4097}", 400, "command[0]: the program's name has 4097 bytes"),
    ],
)
def test_a_request_that_can_not_be_served_is_refused_before_the_stream(
    running_api: ApiStack, query: str, code: int, words: str
) -> None:
    with pytest.raises(InvalidStatus) as caught:
        frames(running_api, query)
    assert caught.value.response.status_code == code
    assert words in json.loads(caught.value.response.body or b"")["message"]


def test_exec_in_missing_or_stopped_sandbox_is_refused(served: ApiStack) -> None:
    for code in (404, 409):
        with pytest.raises(InvalidStatus) as caught:
            frames(served, "command=a")
        assert caught.value.response.status_code == code
        served.apply()
        served.set_ready("False", "Suspended")


def test_disconnect_frees_silent_command_and_stdin(running_api: ApiStack) -> None:
    freed = threading.Event()

    def waits(stdin: Any, **_: Any) -> Iterator[Chunk]:
        try:
            yield Chunk("stdout", b"ready")
            for _ in stdin:
                pass
        finally:  # also where it is let go of before it has gone on
            freed.set()

    running_api.streams.run = waits
    with connect(running_api, "command=a&stdin=true") as opened:
        assert [opened.recv(), opened.recv()] == [b"\x01", b"\x01ready"]
    assert freed.wait(30)


def test_disconnect_closes_blocked_stream(running_api: ApiStack) -> None:
    running_api.streams.run = running_api.streams.endless
    with connect(running_api, "command=a") as opened:
        assert [opened.recv(), opened.recv()] == [b"\x01", b"\x01first\n"]
    assert running_api.streams.closed.wait(30)


def test_early_disconnects_leak_nothing(running_api: ApiStack) -> None:
    """Each asks for an upgrade, and closes right behind it."""
    running_api.streams.run = lambda **_: Endless(threading.Event())
    head = "GET {} HTTP/1.1\r\nHost: paddock\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{}\r\n"
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    requested = head.format(f"{BASE}/exec?command=a&stdin=true", key).encode()
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(running_api.socket))
            link.sendall(requested)
    wait_for("all have asked", lambda: len(running_api.streams.asked) == 20)
    wait_for("all has ended", lambda: not running_api.services.sandbox_streams._exec_slots._taken)
    wait_for("every thread", lambda: "stream" not in {thread.name for thread in threading.enumerate()})


def test_large_output_arrives_whole_at_slow_reader(running_api: ApiStack) -> None:
    pieces = [bytes([number % 251]) * 65536 for number in range(160)]
    running_api.streams.run = lambda **_: iter((*(Chunk("stdout", piece) for piece in pieces), Chunk("exit", b"0")))
    received = frames(running_api, "command=a")
    assert [entry[1:] for entry in received[:-1]] == pieces


def test_followed_logs_do_not_block_other_requests(running_api: ApiStack) -> None:
    running_api.streams.log = running_api.streams.endless
    transport = httpx.HTTPTransport(
        uds=str(running_api.socket), verify=False, limits=httpx.Limits(max_connections=None)
    )
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as client:
        opened = [client.send(client.build_request("GET", f"{BASE}/logs?follow=true"), stream=True) for _ in range(60)]
        assert client.get(BASE, timeout=30).status_code == 200
        for response in opened:
            response.close()


def test_logs_are_both_streams_as_text(running_api: ApiStack) -> None:
    running_api.streams.log = lambda **_: iter((Chunk("stdout", b"a\n"), Chunk("stderr", b"b\n")))
    answer = logs(running_api, tailLines="5", sinceSeconds="60", timestamps="true")
    assert (answer.text, answer.headers["content-type"]) == ("a\nb\n", "text/plain; charset=utf-8")
    _, requested = running_api.streams.asked[-1]
    assert requested == {"follow": False, "tail": 5, "since": running_api.clock.now() - 60, "timestamps": True}


def test_a_log_that_is_refused_is_a_status(running_api: ApiStack) -> None:
    def refused(**_: Any) -> Iterator[Chunk]:
        raise StreamError("the container is gone; ask again once Ready")

    running_api.streams.log = refused
    answer = logs(running_api)
    assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")
    assert "ask again once Ready" in answer.json()["message"]


def test_an_empty_log_is_an_empty_answer(running_api: ApiStack) -> None:
    running_api.streams.log = lambda **_: iter(())
    assert logs(running_api).text == ""


def test_failed_log_is_cut_off_without_internal_error(running_api: ApiStack, caplog: pytest.LogCaptureFixture) -> None:
    def breaking(**_: Any) -> Iterator[Chunk]:
        yield Chunk("stdout", b"first\n")
        raise StreamError("container which is dead or marked for removal")

    running_api.streams.log = breaking
    with pytest.raises(httpx.RemoteProtocolError):
        logs(running_api)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


@pytest.mark.parametrize("later", range(4))
def test_cancelling_a_write_that_has_just_been_taken_is_not_lost(later: int) -> None:
    """However late after that: what was cancelled ends, or had ended before."""

    async def write() -> tuple[bool, bool]:
        feed = StdinFeed()
        while await feed.put(b"more", 0.01):
            pass
        writing = asyncio.create_task(feed.put(b"one too many", 60))
        for _ in range(3):
            await asyncio.sleep(0)
        feed.abandon()
        for _ in range(later):
            await asyncio.sleep(0)
        cancelled = writing.cancel()
        await asyncio.wait({writing})
        return cancelled, writing.cancelled()

    cancelled, has_ended = asyncio.run(write())
    assert has_ended == cancelled
