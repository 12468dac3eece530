"""Commands and files of the package paddock against a served API: durations, killed commands, wrong arguments."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.common.chunk import Chunk
from paddock import AsyncPaddock, Paddock, PaddockError, Process, Sandbox
from paddock._client.channels import STATUS, STDOUT
from paddock._sync import process as processes
from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.sdk.hand_clock import HandClock


@pytest.fixture
def sandbox(running_api: ApiStack) -> Iterator[Sandbox]:
    with Paddock(f"unix://{running_api.socket}") as paddock:
        yield paddock.sandbox("quickstart")


class Frames:
    """Socket of a command that ends with exit code 3, four seconds of a hand clock after it has started."""

    def __init__(self, clock: HandClock) -> None:
        causes = [{"reason": "ExitCode", "message": "3"}]
        end = json.dumps({"status": "Failure", "details": {"causes": causes}}).encode()
        self._frames, self._clock = [bytes((STDOUT,)) + b"out", bytes((STATUS,)) + end], clock

    def receive(self) -> bytes:
        self._clock.now += 2
        return self._frames.pop(0)


def test_a_process_tells_how_long_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock(monkeypatch, processes)
    frames: Any = Frames(clock)
    process = Process(frames)
    assert process.duration_seconds is None
    done = process.wait()
    clock.now += 100
    assert (done.exit_code, done.duration_seconds, process.duration_seconds) == (3, 4, 4)
    assert process.wait().duration_seconds == 4


def test_a_wait_for_the_start_loses_no_output(sandbox: Sandbox, running_api: ApiStack) -> None:
    running_api.streams.run = lambda **_: iter((Chunk("stdout", b"hi\n"), Chunk("exit", b"3")))
    with sandbox.start("true", tty=True, size=(30, 90)) as process:
        process.wait_started()
        process.wait_started()
        assert process.wait().stdout == "hi\n"
        process.wait_started()
    assert running_api.streams.asked[-1][1]["size"] == (30, 90)


def test_a_run_with_callbacks_has_a_duration(sandbox: Sandbox, running_api: ApiStack) -> None:
    running_api.streams.run = lambda **_: iter((Chunk("stdout", b"hi\n"), Chunk("exit", b"0")))
    messages: list[str] = []
    done = sandbox.run("echo hi", on_stdout=messages.append)
    assert messages == ["hi\n"]
    assert done.duration_seconds is not None
    assert 0 < done.duration_seconds < 60


def test_a_background_command_has_the_duration_of_its_record(sandbox: Sandbox, running_api: ApiStack) -> None:
    go_on = threading.Event()

    def slow(**_: Any) -> Iterator[Chunk]:
        go_on.wait(30)
        yield Chunk("exit", b"0")

    running_api.streams.run = slow
    command = sandbox.background("make")
    running_api.clock.advance(4.25)
    go_on.set()
    assert command.wait(timeout=30).duration_seconds == 4.25
    running_api.streams.run = lambda **_: iter(())
    lost = sandbox.background("make").wait(timeout=30)
    assert (lost.exit_code, lost.duration_seconds) == (-1, None)


def test_a_killed_process_ends(sandbox: Sandbox, running_api: ApiStack) -> None:
    running_api.streams.run = running_api.streams.endless
    process = sandbox.start("server")
    assert next(process).text == "first\n"
    process.kill()
    assert running_api.streams.closed.wait(30), "the command goes on"
    assert list(process) == []
    done = process.wait()
    assert (done.exit_code, done.timed_out, process.exit_code) == (137, False, 137)


def test_a_kill_by_another_thread_ends_an_iteration(sandbox: Sandbox, running_api: ApiStack) -> None:
    running_api.streams.run = running_api.streams.endless
    process = sandbox.start("server")
    observed = []
    for output in process:
        observed.append(output.text)
        killer = threading.Thread(target=process.kill)
        killer.start()
    killer.join()
    assert (observed, process.exit_code) == (["first\n"], 137)
    assert running_api.streams.closed.wait(30), "the command goes on"


def test_a_kill_by_another_task_ends_an_iteration(running_api: ApiStack) -> None:
    running_api.streams.run = running_api.streams.endless

    async def run() -> tuple[list[str], int]:
        async with AsyncPaddock(f"unix://{running_api.socket}") as paddock:
            process, observed = await paddock.sandbox("quickstart").start("server"), []
            async for output in process:
                observed.append(output.text)
                killer = asyncio.ensure_future(process.kill())
            await killer
            return observed, (await process.wait()).exit_code

    assert asyncio.run(run()) == (["first\n"], 137)
    assert running_api.streams.closed.wait(30), "the command goes on"


def test_a_kill_after_the_end_keeps_output_and_exit_code(sandbox: Sandbox, running_api: ApiStack) -> None:
    running_api.streams.run = lambda **_: iter(
        (Chunk("stdout", b"hi\n"), Chunk("stderr", b"last\n"), Chunk("exit", b"3"))
    )
    process = sandbox.start("true")
    assert next(process).text == "hi\n"  # with three unread frames a client reads no further, until the daemon gives up
    wait_for("its end has arrived", lambda: not process.write("too late"))
    process.kill()
    done = process.wait()
    assert (done.exit_code, done.stderr) == (3, "last\n")


def test_a_binary_file_is_no_text(sandbox: Sandbox) -> None:
    sandbox.files.write("/tmp/raw", b"ok\xff")
    with pytest.raises(PaddockError, match="/tmp/raw: byte 2 is not valid utf-8; use read_bytes"):
        sandbox.files.read("/tmp/raw")
    assert sandbox.files.read("/tmp/raw", errors="replace") == "ok\ufffd"


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("run", 5, r'run: takes a shell line, a string, not int; write run\("ls -l"\)'),
        ("run", ["ls", "-l"], r"run: takes a shell line; write exec\(\['ls', '-l'\]\)"),
        ("run_code", 5, "run_code: takes code, a string, not int"),
        ("exec", 5, "exec: the command must be a list of strings, not int"),
        ("start", None, "start: the command must be a list of strings, not NoneType"),
        ("background", 5, "background: the command must be a list of strings, not int"),
    ],
)
def test_a_wrong_argument_is_explained(sandbox: Sandbox, method: str, argument: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        getattr(sandbox, method)(argument)
