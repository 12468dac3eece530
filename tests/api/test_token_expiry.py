"""Requests of a token end when it is revoked or expires."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, unix_connect

from controller.ports.fleet import ManyHosts
from paddock._client.errors import ClientError
from tests.api.listeners import API, client, opened, token
from tests.daemon import wait_for
from tests.helpers_api import ApiStack, make_api
from tests.raw_client import Paddock

SANDBOX = f"{API}/namespaces/default/sandboxes/quickstart"
WATCH = f"{API}/namespaces/default/sandboxes?watch=1"
LOG = f"{SANDBOX}/logs?follow=true"


@pytest.fixture
def sandbox(api: ApiStack) -> Iterator[ApiStack]:
    """Listeners, and a sandbox whose log and commands send one chunk and then nothing."""
    api.apply()
    api.view.show(api.sandbox())
    api.streams.log = api.streams.run = api.streams.endless
    with opened(api):
        yield api


def revoke(api: ApiStack) -> None:
    api.services.tokens.revoke("ci")


def expire(api: ApiStack) -> None:
    api.clock.advance(3600)


def exec_(api: ApiStack, text: str) -> ClientConnection:
    headers = {"Authorization": f"Bearer {text}"}
    return unix_connect(str(api.socket), uri=f"ws://paddock{SANDBOX}/exec?command=cat", additional_headers=headers)


def freed(api: ApiStack) -> None:
    assert api.streams.closed.wait(30), "what it had opened in the box is let go of"


@pytest.mark.parametrize("end", [revoke, expire])
def test_command_reports_reason_of_its_end(sandbox: ApiStack, end: Any) -> None:
    with exec_(sandbox, token(sandbox, "user", name="ci")) as open_:
        assert open_.recv(timeout=30) == b"\x01"
        assert open_.recv(timeout=30) == b"\x01first\n"
        end(sandbox)
        with pytest.raises(ConnectionClosed, match=r"1008.*token ci (was revoked|has expired)"):
            open_.recv(timeout=30)
    freed(sandbox)


@pytest.mark.parametrize("end", [revoke, expire])
@pytest.mark.parametrize("path", [WATCH, LOG])
def test_open_response_is_cut_off(sandbox: ApiStack, path: str, end: Any) -> None:
    with ExitStack() as stack:
        enter_context = stack.enter_context(client(sandbox, token(sandbox, "viewer", name="ci")))
        pieces = stack.enter_context(enter_context.stream("GET", path, timeout=30)).iter_raw()
        assert next(pieces)
        end(sandbox)
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)
    if path == LOG:
        freed(sandbox)
    assert sandbox.services.watches.count == 0


def test_a_revocation_by_another_daemon_ends_what_is_open(tmp_path: Path, quiet: None) -> None:
    present = make_api(tmp_path / "a", place=ManyHosts("a"))
    second = make_api(tmp_path / "b", place=ManyHosts("b"), store=present.store)
    present.apply()
    with ExitStack() as stack:
        stack.enter_context(opened(present))
        enter_context = stack.enter_context(client(present, token(present, "viewer", name="ci")))
        pieces = stack.enter_context(enter_context.stream("GET", WATCH, timeout=30)).iter_raw()
        assert next(pieces)
        revoke(second)
        present.clock.advance(5)
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)
    for entry in (present, second):
        entry.services.watches.close()
        entry.files.close()
    present.store.close()


def test_a_forwarded_port_is_closed(sandbox: ApiStack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sandbox.ports.listen(80, listener.getsockname()[1])
        headers = {"Authorization": f"Bearer {token(sandbox, 'user', name='ci')}"}
        uri = f"ws://paddock{SANDBOX}/portforward?port=80"
        with unix_connect(str(sandbox.socket), uri=uri, additional_headers=headers) as link:
            inside, _ = listener.accept()
            with inside:
                link.send(b"there")
                assert inside.recv(5) == b"there"
                revoke(sandbox)
                with pytest.raises(ConnectionClosed, match="1008"):
                    link.recv(timeout=30)
                assert inside.recv(1) == b"", "the box's side is closed, too"
    wait_for("all is freed", lambda: not sandbox.services.forward.slots.used_count)


def test_a_forwarded_port_without_frames_is_closed(sandbox: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_TOKEN", token(sandbox, "user", name="ci"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sandbox.ports.listen(80, listener.getsockname()[1])
        with Paddock(f"unix://{sandbox.socket}") as paddock, paddock.sandbox("quickstart").connect(80) as link:
            assert link.raw
            inside, _ = listener.accept()
            with inside:
                link.send(b"there")
                assert inside.recv(5) == b"there"
                revoke(sandbox)
                with pytest.raises(ClientError, match="broke"):
                    link.receive()
                assert inside.recv(1) == b"", "the box's side is closed, too"
    wait_for("all is freed", lambda: not sandbox.services.forward.slots.used_count)


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_transfer_is_cut_off(sandbox: ApiStack, method: str) -> None:
    root = sandbox.files.root("c-quickstart")
    (root / "tmp/x").write_bytes(b"x" * (32 << 20))
    head = (
        f"{method} {SANDBOX}/files?path=/tmp/x HTTP/1.1\r\nHost: paddock\r\nContent-Length: {9 * (method == 'PUT')}\r\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(str(sandbox.socket))
        link.sendall(f"{head}Authorization: Bearer {token(sandbox, 'user', name='ci')}\r\n\r\n".encode())
        wait_for("it has begun", lambda: sandbox.files.open)
        revoke(sandbox)
        wait_for("all is freed", lambda: not sandbox.services.files.slots.used_count and not sandbox.files.open)
        link.settimeout(30)
        reported = link.recv(100) if method == "PUT" else b"".join(iter(lambda: link.recv(1 << 20), b""))
    assert b" 401 " in reported if method == "PUT" else len(reported) < 32 << 20
    assert (root / "tmp/x").stat().st_size == 32 << 20


def test_waiting_exec_is_answered_401(sandbox: ApiStack) -> None:
    answers: list[httpx.Response] = []
    with client(sandbox, token(sandbox, "user", name="ci")) as created:
        asking = threading.Thread(
            target=lambda: answers.append(created.post(f"{SANDBOX}/exec", json={"command": ["cat"]}, timeout=60))
        )
        asking.start()
        while not sandbox.streams.asked:
            asking.join(0.01)
        revoke(sandbox)
        asking.join(60)
    assert answers[0].status_code == 401
    assert "token ci was revoked: its open requests were ended" in answers[0].json()["message"]
    freed(sandbox)


def test_other_tokens_are_unaffected(sandbox: ApiStack) -> None:
    with (
        exec_(sandbox, token(sandbox, "user", name="other")) as open_,
        exec_(sandbox, token(sandbox, "user", name="ci")) as output,
    ):
        for client_connection in (open_, output):
            assert client_connection.recv(timeout=30) == b"\x01"
        revoke(sandbox)
        with pytest.raises(ConnectionClosed, match="1008"):
            _ = list(output)
        assert open_.recv(timeout=30) == b"\x01first\n"
        with client(sandbox, "") as root:
            assert root.get(SANDBOX).status_code == 200
