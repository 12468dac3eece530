"""Messages of the daemon to systemd: that it is ready, that it lives, that it stops; nobody else hears anything."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.loop.fleet.leader import wait_to_lead
from controller.loop.systemd import ALIVE, notify


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as created:
        created.bind(str(tmp_path / "notify"))
        created.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield created


class Taken:
    """A lease that another daemon has, until it is asked for the third time."""

    def __init__(self) -> None:
        self.asked = self.lapses = 0

    def acquire(self) -> str:
        self.asked += 1
        return "" if self.asked > 2 else "pid 1"

    def renew(self) -> bool:
        return True

    def is_held(self) -> bool:
        return True

    def release(self) -> None: ...


def test_it_is_said_in_one_datagram(heard: socket.socket) -> None:
    notify(ALIVE, "STATUS=well")
    assert heard.recv(100) == b"WATCHDOG=1\nSTATUS=well"


def test_an_abstract_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as created:
        created.bind("")  # the kernel picks one
        created.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + created.getsockname()[1:].decode())
        notify(ALIVE)
        assert created.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "nonsense", "/nowhere/at/all"])
def test_nobody_who_listens_is_no_trouble(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify(ALIVE)


def test_a_standby_daemon_has_started_and_lives(heard: socket.socket) -> None:
    assert wait_to_lead(Taken(), threading.Event()) == ""
    assert heard.recv(100).startswith(b"READY=1\nSTATUS=standby")
    assert heard.recv(100) == b"WATCHDOG=1"
