"""Channels of an SSH connection in the daemon: whatever a client sends costs a bounded number of threads."""

import threading
from types import SimpleNamespace
from typing import Any

from controller.service.front.ssh import SshLogin
from controller.ssh.channels import MOST_CHANNELS, Channel, Connection, Opener
from controller.ssh.command import passed_environment


class SlowCommand:
    """A command whose engine answers late."""

    def __init__(self) -> None:
        self.proceed, self.is_done = threading.Event(), threading.Event()
        self.sizes: list[tuple[int, int]] = []

    def resize(self, rows: int, columns: int) -> None:
        self.proceed.wait(20)
        self.sizes.append((rows, columns))
        if columns == 999:
            self.is_done.set()


def test_a_flood_of_sizes_is_one_thread() -> None:
    command: Any = SlowCommand()
    channel, before = Channel(control=command), threading.active_count()
    for columns in range(1, 1000):
        channel.resize(24, columns)
    assert threading.active_count() <= before + 1
    command.proceed.set()
    assert command.is_done.wait(20)
    assert len(command.sizes) <= 2


def test_channels_closed_at_once_count_until_their_end() -> None:
    proceed, all_ended = threading.Event(), threading.Event()
    answers: list[Any] = []

    def get(*_: Any) -> Any:
        proceed.wait(20)
        return SimpleNamespace(uid="another")

    registry = SimpleNamespace()
    work: Any = SimpleNamespace(registry=registry, objects=SimpleNamespace(get=get), recorder=SimpleNamespace())
    opener, connection = Opener(work), Connection(SshLogin(None, "default", "sb", "uid"), all_ended.set)
    before = threading.active_count()
    for number in range(3 * MOST_CHANNELS):
        opener.open(connection, number, {"what": "files"}, lambda message, _: answers.append(message))
        connection.release(number)
    assert threading.active_count() - before <= MOST_CHANNELS
    assert len(answers) == 2 * MOST_CHANNELS
    proceed.set()


def test_a_client_passes_few_variables() -> None:
    names = [f"LC_{chr(65 + first)}{chr(65 + second)}" for first in range(26) for second in range(26)]
    assert len(passed_environment(dict.fromkeys(names, "C"))) == 64
