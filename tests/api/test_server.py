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
from tests.helpers_api import World


def ask(path: Path) -> str:
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(path), verify=False), base_url="http://paddock", timeout=60
    ) as client:
        return client.get("/healthz").text


def test_server_answers_until_stop_and_removes_socket(world: World) -> None:
    server = world.server()
    server.start()
    assert ask(world.socket) == "ok"
    assert stat.S_IMODE(world.socket.stat().st_mode) == 0o660
    server.stop()
    server.stop()
    assert not world.socket.exists()


def test_an_unused_server_ends_without_a_nap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    server = world.server()
    server.start()
    assert ask(world.socket) == "ok"
    monkeypatch.setattr(server_module, "_NAP_SECONDS", 3600)
    server.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "api"]


def test_second_daemon_reports_pid_of_first(served: World) -> None:
    with pytest.raises(SocketTaken, match=rf"another daemon answers at .*p\.sock \(pid {os.getpid()}\)"):
        served.server().start()
    assert ask(served.socket) == "ok"


def test_a_stale_socket_is_replaced(world: World) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(world.socket))
    server = world.server()
    server.start()
    assert ask(world.socket) == "ok"
    server.stop()


def test_the_folder_is_made(world: World) -> None:
    path = world.folder / "run" / "paddock" / "p.sock"
    bind(path).close()
    assert path.is_socket()


def test_regular_file_at_socket_path_is_kept(world: World) -> None:
    world.socket.write_text("mine")
    with pytest.raises(SocketTaken, match="is no socket; move it away"):
        bind(world.socket)
    assert world.socket.read_text() == "mine"


def test_a_path_that_is_too_long_or_cannot_be_made_is_said_so(world: World) -> None:
    with pytest.raises(SocketTaken, match="at most 107 bytes"):
        bind(world.folder / ("x" * 108))
    (world.folder / "file").write_text("")
    with pytest.raises(SocketTaken, match="can't make the socket"):
        bind(world.folder / "file" / "p.sock")


def test_stop_does_not_remove_the_socket_of_another_daemon(world: World) -> None:
    server = world.server()
    server.start()
    world.socket.unlink()
    with bind(world.socket):
        server.stop()
        assert world.socket.exists()


def test_stop_cuts_off_a_stream_that_would_never_end(world: World) -> None:
    world.apply()
    world.view.show(world.sandbox())
    world.streams.log = world.streams.endless
    server = world.server()
    server.start()
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(world.socket), verify=False), base_url="http://paddock", timeout=60
    ) as client:
        path = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart/logs?follow=true"
        with client.stream("GET", path) as answer:
            assert next(answer.iter_raw()) == b"first\n"
            server.stop()
            assert world.streams.closed.wait(30)
