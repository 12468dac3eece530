"""Channels of an SSH connection in the daemon: whatever a client sends costs a bounded number of threads."""

import threading
from types import SimpleNamespace
from typing import Any

from controller.service.front.ssh import SshLogin
from controller.ssh.channels import MOST_CHANNELS, Channel, Connection, Opener
from controller.ssh.command import FewVariables, command_line, passed_environment


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


def test_a_flood_of_variables_takes_no_memory() -> None:
    variables = FewVariables()
    for number in range(10_000):
        variables[b"NAME_%d" % number] = b"x" * 1000
        variables[b"LC_" + bytes(chr(65 + number % 26) + chr(65 + number // 26 % 26), "ascii")] = b"C"
    variables[b"TERM"] = b"x" * 100_000
    assert len(variables) == 64
    assert all(name.startswith(b"LC_") for name in variables)


def test_old_scp_says_what_to_do_without_it() -> None:
    assert "run scp without -O" in command_line("/bin/sh", "scp -r -t /tmp")[2]
    assert command_line("/bin/sh", "scp a b") == ["/bin/sh", "-c", "scp a b"]
    assert command_line("/usr/bin/fish", "scp -t x") == ["/usr/bin/fish", "-c", "scp -t x"]


def test_a_client_passes_few_variables() -> None:
    names = [f"LC_{chr(65 + first)}{chr(65 + second)}" for first in range(26) for second in range(26)]
    assert len(passed_environment(dict.fromkeys(names, "C"))) == 64
