"""Time-outs of waits and watches hold, whatever the server sends meanwhile."""

import asyncio
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controller.cli.main import cli
from paddock import AsyncPaddock, BackgroundCommand, Paddock, Sandbox, Unreachable, WaitTimedOut
from paddock._sync import process, sandbox
from tests.sdk.hand_clock import HandClock

_SECONDS = 0.3
_PACE_SECONDS = 0.02
_MOST_PIECES = 1000
_OBJECT = {"metadata": {"name": "s", "namespace": "default", "generation": 1}, "status": {}}
_LIST = {"items": [_OBJECT], "metadata": {"resourceVersion": "7"}}
_SANDBOXES = {
    "name": "sandboxes",
    "singularName": "sandbox",
    "kind": "Sandbox",
    "namespaced": True,
    "shortNames": ["sb"],
    "verbs": ["get", "list", "watch"],
}


class Drip:
    """Server whose watches send a byte of a line that never ends, until their client hangs up."""

    def __init__(self, folder: Path) -> None:
        self.address = f"unix://{folder}/drip.sock"
        self.hung_up = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/drip.sock")
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[link], daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, link.makefile("rb") as makefile:
            while line := makefile.readline():
                while makefile.readline() not in (b"\r\n", b""):
                    pass
                if b"watch=true" in line:
                    self._drip(link)
                    return
                document = _LIST if b"/sandboxes?" in line else {"resources": [_SANDBOXES], **_OBJECT}
                body = json.dumps(document).encode()
                link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    def _drip(self, link: socket.socket) -> None:
        link.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(_MOST_PIECES):
            try:
                link.sendall(b"1\r\n \r\n")
                is_left = select.select([link], [], [], _PACE_SECONDS)[0]
            except ConnectionError:
                is_left = True
            if is_left:
                self.hung_up.set()
                return


@pytest.fixture
def drip(tmp_path: Path) -> Iterator[Drip]:
    created = Drip(tmp_path)
    yield created
    created.close()


def wait(address: str) -> None:
    with Paddock(address) as paddock, pytest.raises(WaitTimedOut, match=r"sandboxes/s: not reached within 0\.3 s"):
        paddock.sandbox("s").wait_until("Ready", timeout=_SECONDS)


def watch(address: str) -> None:
    with Paddock(address) as paddock:
        assert [watch_event.type for watch_event in paddock.sandbox("s").watch(timeout=_SECONDS)] == ["ADDED"]


def wait_in_asyncio(address: str) -> None:
    async def run() -> None:
        async with AsyncPaddock(address) as paddock:
            with pytest.raises(WaitTimedOut, match=r"sandboxes/s: not reached within 0\.3 s"):
                await paddock.sandbox("s").wait_until("Ready", timeout=_SECONDS)

    asyncio.run(run())


def watch_in_asyncio(address: str) -> None:
    async def run() -> list[str]:
        async with AsyncPaddock(address) as paddock:
            return [watch_event.type async for watch_event in paddock.sandbox("s").watch(timeout=_SECONDS)]

    assert asyncio.run(run()) == ["ADDED"]


def command_line(address: str) -> None:
    arguments = ["--server", address, "wait", "--for=condition=Ready", "sandbox/s", "--timeout=300ms"]
    done = CliRunner().invoke(cli, arguments)
    assert (done.exit_code, done.stderr.splitlines()[-2:]) == (
        1,
        ["error: timed out after 0.3 s", "sandbox.paddock/s: has no condition Ready yet"],
    )


@pytest.mark.parametrize("call", [wait, watch, wait_in_asyncio, watch_in_asyncio, command_line])
def test_a_drip_does_not_extend_a_deadline(call: Callable[[str], None], drip: Drip) -> None:
    call(drip.address)
    assert drip.hung_up.wait(10), "the client read to the end of the drip"


class SlowDaemon(HandClock):
    """Transport whose requests take four seconds of a hand clock; the command runs, and no port accepts."""

    def request(self, *_: object) -> dict[str, Any]:
        self.advance(4)
        return {"id": "1", "command": ["true"], "state": "Running"}

    def connect(self, *_: object) -> None:
        self.advance(4)
        raise Unreachable("nothing listens")


def test_polls_count_the_time_of_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: Any = SlowDaemon(monkeypatch, process, sandbox)
    with pytest.raises(WaitTimedOut, match="still runs after 8 s"):
        BackgroundCommand(slow, "sandboxes/s", slow.request()).wait(timeout=8)
    assert slow.now == pytest.approx(4 + 8.2, abs=0.3)  # the first 4 s read the command
    slow.now = 0.0
    with pytest.raises(Unreachable):
        Sandbox(slow, "default", "s").forward(80, timeout=8)
    assert slow.now == pytest.approx(8.2, abs=0.3)
