"""Commands of all sandboxes: what code in one says of its own reaches no other."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from controller.e2b.envd.processes import OrphanProcess, Process, Processes
from controller.kinds.common.chunk import Chunk
from controller.service.exec.activity import TrackedStream


class Command:
    """A command that runs until it is closed."""

    def __init__(self) -> None:
        self.opened, self._ended = 0, threading.Event()

    def open(self) -> TrackedStream:
        """Open its stream."""
        self.opened += 1
        return TrackedStream(self._chunks(), lambda: None)

    def _chunks(self) -> Iterator[Chunk]:
        assert self._ended.wait(10)
        yield Chunk("exit", b"0")

    def end(self) -> None:
        """End it."""
        self._ended.set()


def _start(processes: Processes, uid: str, pid: int, command: Command) -> Process:
    return processes.start(uid, pid, {}, tag="", terminal=False, stdin=None, open_=command.open, reader=None)


def _wait_for_end(processes: Processes, uid: str, pid: int) -> None:
    until = threading.Event()
    for _ in range(1000):
        if processes.get(uid, pid, "") is None:
            return
        until.wait(0.01)
    raise AssertionError("it runs on")


def test_a_joined_pid_displaces_no_other_command() -> None:
    processes, own_command, forged, command = Processes(1.0), Command(), Command(), Command()
    process = _start(processes, "victim", 7, own_command)
    orphan = OrphanProcess(7, "", {})
    joined = processes.join("attacker", orphan, forged.open, None)
    assert processes.join("victim", orphan, command.open, None) is process
    assert not command.opened
    assert (processes.of("victim"), processes.of("attacker")) == ([process], [joined])
    forged.end()
    _wait_for_end(processes, "attacker", 7)
    assert processes.get("victim", 7, "") is process
    assert processes.has_just_ended("attacker", 7)
    assert not processes.has_just_ended("victim", 7)
    own_command.end()


def test_requests_that_join_at_once_share_one() -> None:
    processes, command = Processes(1.0), Command()
    orphan = OrphanProcess(7, "", {})
    with ThreadPoolExecutor(4) as threads:
        joins = [threads.submit(processes.join, "uid", orphan, command.open, None) for _ in range(4)]
        joined = [join.result(10) for join in joins]
    assert command.opened == 1
    assert all(process is joined[0] for process in joined)
    command.end()
