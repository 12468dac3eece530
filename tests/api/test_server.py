"""The Unix socket: who may use it, whose it is, and that starting and stopping leave nothing behind."""

import os
import socket
import stat
import threading
from pathlib import Path

import httpx
import pytest

from controller.api.server import server as server_module
from controller.api.server.server import SocketTaken, bind
from tests.helpers_api import ApiStack


def ask(path: Path) -> str:
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(path), verify=False), base_url="http://paddock", timeout=60
    ) as client:
        return client.get("/healthz").text


def test_server_answers_until_stop_and_removes_socket(api: ApiStack) -> None:
    server = api.server()
    server.start()
    assert ask(api.socket) == "ok"
    assert stat.S_IMODE(api.socket.stat().st_mode) == 0o660
    server.stop()
    server.stop()
    assert not api.socket.exists()


def test_an_unused_server_ends_without_a_nap(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    server = api.server()
    server.start()
    assert ask(api.socket) == "ok"
    monkeypatch.setattr(server_module, "_NAP_SECONDS", 3600)
    server.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "api"]


def test_second_daemon_reports_pid_of_first(served: ApiStack) -> None:
    with pytest.raises(SocketTaken, match=rf"another daemon answers at .*p\.sock \(pid {os.getpid()}\)"):
        served.server().start()
    assert ask(served.socket) == "ok"


def test_a_stale_socket_is_replaced(api: ApiStack) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(api.socket))
    server = api.server()
    server.start()
    assert ask(api.socket) == "ok"
    server.stop()


def test_the_folder_is_made(api: ApiStack) -> None:
    path = api.folder / "run" / "paddock" / "p.sock"
    bind(path).close()
    assert path.is_socket()


def test_regular_file_at_socket_path_is_kept(api: ApiStack) -> None:
    api.socket.write_text("mine")
    with pytest.raises(SocketTaken, match="is no socket; move it away"):
        bind(api.socket)
    assert api.socket.read_text() == "mine"


def test_a_path_that_is_too_long_or_cannot_be_made_is_said_so(api: ApiStack) -> None:
    with pytest.raises(SocketTaken, match="at most 107 bytes"):
        bind(api.folder / ("x" * 108))
    (api.folder / "file").write_text("")
    with pytest.raises(SocketTaken, match="can't make the socket"):
        bind(api.folder / "file" / "p.sock")


def test_stop_does_not_remove_the_socket_of_another_daemon(api: ApiStack) -> None:
    server = api.server()
    server.start()
    api.socket.unlink()
    with bind(api.socket):
        server.stop()
        assert api.socket.exists()


def test_stop_cuts_off_a_stream_that_would_never_end(api: ApiStack) -> None:
    api.apply()
    api.view.show(api.sandbox())
    api.streams.log = api.streams.endless
    server = api.server()
    server.start()
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(api.socket), verify=False), base_url="http://paddock", timeout=60
    ) as client:
        path = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart/logs?follow=true"
        with client.stream("GET", path) as answer:
            assert next(answer.iter_raw()) == b"first\n"
            server.stop()
            assert api.streams.closed.wait(30)
