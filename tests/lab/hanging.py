"""Hanging containers of a private engine, which answers for all others."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from controller.engine.kernel.kill import process_of
from tests.daemon import wait_for
from tests.lab.engine import PrivateEngine

# runc's error for such a program or folder is longer than a pipe, which the engine reads only after runc's exit.
TOO_LONG = "/" + "a" * 70_000


def answers(private: PrivateEngine, container: str, seconds: float = 1.0) -> bool:
    """Tell whether the engine answers an inspect of that container in time."""
    try:
        private.docker("inspect", container, seconds=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextmanager
def stalled_attach(private: PrivateEngine, container: str) -> Iterator[None]:
    """Kill it out of band while a client of its output stalls: mostly, its kill and every inspect of it hang.

    The container must write all the time (`yes`). Engine 20.10 waits 2 s for the output of a container that ended and
    closes it then. The closing meets the blocked writer or does not: a hang ends after 2 to 12 s, or with the client.
    """
    with contextlib.closing(_attach(private, container)):
        first = int(private.docker("inspect", "-f", "{{.State.Pid}}", container))
        wait_for(f"{container[:12]} can write no more", lambda: _is_blocked(first))
        with _killing(private, container):
            with contextlib.suppress(subprocess.TimeoutExpired):
                while private.docker("inspect", "-f", "{{.State.Running}}", container, seconds=1).strip() == "true":
                    threading.Event().wait(0.05)
            yield


@contextmanager
def frozen(private: PrivateEngine, *containers: str) -> Iterator[None]:
    """Make their kill and every inspect of them hang: containerd's process for each is frozen."""
    shims = [_parent(int(private.docker("inspect", "-f", "{{.State.Pid}}", container))) for container in containers]
    for shim in shims:
        os.kill(shim, signal.SIGSTOP)
    try:
        with _killed(private, *containers):
            yield
    finally:
        for number in shims:
            os.kill(number, signal.SIGCONT)


@contextmanager
def _killed(private: PrivateEngine, *containers: str) -> Iterator[None]:
    """Kill them out of band, until the engine answers for none of them."""

    def wait_until_hanging(container: str) -> None:
        wait_for(f"{container[:12]} hangs", lambda: not answers(private, container))

    with _killing(private, *containers):
        with ThreadPoolExecutor(len(containers)) as pool:
            list(pool.map(wait_until_hanging, containers))
        yield


@contextmanager
def _killing(private: PrivateEngine, *containers: str) -> Iterator[None]:
    """Begin to kill them out of band."""
    command = ["docker", "-H", private.base_url, "kill"]
    kills = [subprocess.Popen([*command, container], stdout=subprocess.DEVNULL) for container in containers]
    try:
        yield
    finally:
        for kill in kills:
            kill.kill()
            kill.wait(60)


def _is_blocked(first: int) -> bool:
    """Tell whether a process of the container waits at a full pipe, and goes on waiting."""
    for _ in range(10):
        tree = [first, *(int(name) for name in Path(f"/proc/{first}/task/{first}/children").read_text().split())]
        if not any("pipe" in Path(f"/proc/{number}/wchan").read_text() for number in tree):
            return False
        threading.Event().wait(0.02)
    return True


def _parent(pid: int) -> int:
    process = process_of(Path("/proc"), pid)
    assert process is not None
    return process.parent


def _attach(private: PrivateEngine, container: str) -> socket.socket:
    """Attach a client that never reads, so that all buffers fill up."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(urlsplit(private.base_url).path)
    path = f"/containers/{container}/attach?stream=1&stdout=1"
    link.sendall(f"POST {path} HTTP/1.1\r\nHost: e\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode())
    answer = http.client.HTTPResponse(link)
    answer.begin()
    assert answer.status == 101, answer.status
    return link
