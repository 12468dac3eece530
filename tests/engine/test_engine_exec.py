"""Exec on a real engine: terminals, signals, and a time-out that ends all child processes."""

import contextlib
import os
import queue
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from controller.engine.kernel.cgroups import PROC
from controller.engine.kernel.kill import process_of
from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import Container, State
from controller.ports import DetachableExec, ExecStream, StreamError
from tests.byte_by_byte import begin, outcome
from tests.contract.engine_hosts import EngineHost, docker_host, read_all
from tests.daemon import wait_for

pytestmark = pytest.mark.docker
NEWER = "PADDOCK_TEST_NEWER" in os.environ  # a later Debian's engine, in a lab


@pytest.fixture(scope="module")
def host() -> Iterator[EngineHost]:
    with docker_host() as created:
        yield created.settled()


@pytest.fixture(scope="module")
def sandbox(host: EngineHost) -> Container:
    """Return the sandbox of all tests whose commands have ended with them."""
    return host.running(host.new_uid())


@pytest.fixture
def own_host() -> Iterator[EngineHost]:
    with docker_host() as created:
        yield created.settled()


@pytest.fixture
def own_sandbox(host: EngineHost) -> Iterator[Container]:
    """Return a sandbox in which something is left, or which ends."""
    created = host.running(host.new_uid())
    yield created
    host.hand.remove(created.name)


def until(stream: Iterator[Chunk], words: bytes) -> bytes:
    """Read until these words have come."""
    answer = b""
    while words not in answer:
        answer += next(stream).data
    return answer


def processes(host: EngineHost, sandbox: Container) -> str:
    return read_all(host.streams.exec(sandbox.id, ["ps"]))[0].decode()


def pids_of(command: bytes) -> list[int]:
    """Return the processes of this host that run a command line."""
    pids = []
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes() == command:
                pids.append(int(folder.name))
    return pids


def in_time(
    host: EngineHost, sandbox: Container, command: Sequence[str], seconds: float = 1.0
) -> tuple[list[str], list[str]]:
    """Run a command past its time: the names of its last two chunks, and what was left by then."""
    remaining: list[str] = []
    stream = host.streams.exec(sandbox.id, command, timeout_seconds=seconds, escaped=remaining.append)
    chunks = list(stream)
    assert chunks[-1].data == b"124"
    return [chunk.stream for chunk in chunks[-2:]], remaining


class Typist:
    """Input that comes when the test says so."""

    def __init__(self) -> None:
        self._keys: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.type = self._keys.put

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._keys.get, b"")


@pytest.fixture
def typist() -> Iterator[Typist]:
    created = Typist()
    yield created
    created.type(b"")


def test_a_terminal_has_the_size_it_is_given(host: EngineHost, sandbox: Container, typist: Typist) -> None:
    script = "echo begun; read _; stty size; read _; stty size; exit 7"
    stream = host.streams.exec(sandbox.id, ["sh", "-c", script], stdin=typist, tty=True)
    until(stream, b"begun")
    stream.resize(30, 90)
    typist.type(b"\n")
    until(stream, b"30 90")
    stream.resize(41, 123)
    typist.type(b"\n")
    until(stream, b"41 123")
    assert list(stream)[-1] == Chunk("exit", b"7")


def test_a_later_size_is_not_undone_by_the_first(host: EngineHost, sandbox: Container) -> None:
    script = "echo begun; read _; stty size"
    for _ in range(5):
        typist = Typist()
        stream = host.streams.exec(sandbox.id, ["sh", "-c", script], stdin=typist, tty=True, size=(30, 100))
        until(stream, b"begun")
        stream.resize(31, 101)
        typist.type(b"\n")
        until(stream, b"31 101")
        typist.type(b"")
        assert list(stream)[-1] == Chunk("exit", b"0")


def test_a_terminal_is_one(host: EngineHost, sandbox: Container, typist: Typist) -> None:
    script = "test -t 0 && test -t 1 && echo yes >&2"
    stream = host.streams.exec(sandbox.id, ["sh", "-c", script], stdin=typist, tty=True)
    assert read_all(stream) == (b"yes\r\n", b"", b"0")


def test_no_key_is_held_back(host: EngineHost, sandbox: Container, typist: Typist) -> None:
    """The engine's own escape sequence would begin with Ctrl-P, and wait for what follows it."""
    script = "stty raw -echo; echo begun; head -c 1 | od -An -b"
    stream = host.streams.exec(sandbox.id, ["sh", "-c", script], stdin=typist, tty=True)
    until(stream, b"begun")
    typist.type(b"\x10")
    until(stream, b"020")


@pytest.mark.parametrize(("name", "code"), [("INT", b"130"), ("TERM", b"143"), ("KILL", b"137")])
def test_a_signal_reaches_the_command(host: EngineHost, sandbox: Container, name: str, code: bytes) -> None:
    stream = host.streams.exec(sandbox.id, ["sh", "-c", "echo begun; sleep 1000"])
    assert next(stream).data == b"begun\n"
    stream.signal(name)
    assert list(stream)[-1].data == code


def test_a_start_error_is_on_stderr(host: EngineHost, sandbox: Container) -> None:
    out, err, code = read_all(host.streams.exec(sandbox.id, ["none-such"]))
    assert (out, code) in [(b"", b"126"), (b"", b"127")]
    assert err.startswith(b'executable "none-such" is not in ')
    assert b"OCI" not in err
    out, err, _ = read_all(host.streams.exec(sandbox.id, ["none-such"], tty=True))
    assert (out.startswith(b'executable "none-such" is not in '), err) == (True, b"")
    _, err, _ = read_all(host.streams.exec(sandbox.id, ["true"], working_dir="/none/such"))
    assert err.startswith(b'working folder "/none/such" can\'t be entered in ')
    message = b"OCI runtime exec failed: said by the command"
    assert read_all(host.streams.exec(sandbox.id, ["printf", "%s", message.decode()])) == (message, b"", b"0")


def test_an_unknown_signal_is_refused(host: EngineHost, sandbox: Container) -> None:
    with contextlib.closing(host.streams.exec(sandbox.id, ["sleep", "1000"])) as stream:
        assert isinstance(stream, ExecStream)
        with pytest.raises(StreamError, match="signal `NOPE`: unknown"):
            stream.signal("NOPE")


@pytest.mark.parametrize(
    "script",
    [
        "sleep 4321 & sleep 4321",
        "setsid sleep 4321 & sleep 1000",
        "trap '' TERM INT HUP; while :; do sleep 4321; done",
    ],
)
def test_a_timeout_kills_all_known_processes(host: EngineHost, sandbox: Container, script: str) -> None:
    ends, remaining = in_time(host, sandbox, ["sh", "-c", f"echo begun; {script}"])
    assert (ends, remaining) == (["timeout", "exit"], [])
    assert "sleep 4321" not in processes(host, sandbox)


def test_children_that_hold_the_output_are_killed_at_the_timeout(host: EngineHost, sandbox: Container) -> None:
    """Newer engines may give up the output 2 s after the command's end, and tell only then that it ended in time."""
    command = ["sh", "-c", "echo begun; setsid sh -c 'setsid sleep 4321 & sleep 4321' & exit 0"]
    remaining: list[str] = []
    chunks = list(host.streams.exec(sandbox.id, command, timeout_seconds=1.0, escaped=remaining.append))
    if NEWER and chunks[-1] == Chunk("exit", b"0"):
        assert chunks[:-1] == [Chunk("stdout", b"begun\n")]
    else:
        assert (chunks[-2:], remaining) == ([Chunk("timeout", b""), Chunk("exit", b"124")], [])
        assert "sleep 4321" not in processes(host, sandbox)


# A process of its own session, whose first thread ends: for the rest of its life the host shows it as a zombie.
HEADLESS = """
import ctypes, os, sys, threading, time
if os.fork():
    time.sleep(1000)
os.setsid()
threading.Thread(target=time.sleep, args=(4321,)).start()
print("begun", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""


def test_a_process_without_first_thread_is_killed(host: EngineHost) -> None:
    sandbox = host.running(host.new_uid(), image="paddock/python:1")
    ends, remaining = in_time(host, sandbox, ["python3", "-c", HEADLESS], 3)
    assert (ends, remaining) == (["timeout", "exit"], [])
    observed, _, _ = read_all(host.streams.exec(sandbox.id, ["sh", "-c", "cat /proc/[0-9]*/task/*/stat"]))
    assert b"python3" not in observed


def test_possible_escapes_are_counted(host: EngineHost, own_sandbox: Container) -> None:
    _, remaining = in_time(host, own_sandbox, ["sh", "-c", "env -i setsid sleep 4321 & sleep 1000"], 3)
    assert remaining == ["processes that can't be told from the sandbox's own"]
    assert "sleep 4321" in processes(host, own_sandbox)


def test_other_commands_are_let_be(host: EngineHost, own_sandbox: Container) -> None:
    with contextlib.closing(
        host.streams.exec(own_sandbox.id, ["sh", "-c", "echo begun; setsid sleep 5432 & wait"])
    ) as closing:
        assert next(closing).data == b"begun\n"
        _, remaining = in_time(host, own_sandbox, ["sleep", "1000"])
        assert remaining == []
        assert "sleep 5432" in processes(host, own_sandbox)


def test_a_disconnect_kills_processes_outside_the_group(host: EngineHost, sandbox: Container) -> None:
    stream = host.streams.exec(sandbox.id, ["sh", "-c", "setsid sleep 4321 & echo begun; wait"])
    assert next(stream).data == b"begun\n"
    stream.close()
    wait_for("its end", lambda: "sleep 4321" not in processes(host, sandbox))


def test_a_daemon_that_stops_has_killed_its_commands(own_host: EngineHost) -> None:
    """Its process ends with its threads: what they have not killed by then would run on, and in no record."""
    host, sandbox = own_host, own_host.running(own_host.new_uid())
    streams = [host.streams.exec(sandbox.id, ["sleep", "4323"]) for _ in range(4)]
    wait_for("they run", lambda: len(pids_of(b"sleep\x004323\x00")) == len(streams))
    readings = [begin(lambda stream=stream: list(stream)) for stream in streams]  # type: ignore[misc]
    host.streams.close()  # type: ignore[attr-defined]
    assert pids_of(b"sleep\x004323\x00") == [], "none is alive a moment later"
    assert all("the daemon is stopping" in str(outcome(reading)) for reading in readings)


def test_a_command_whose_shim_was_killed_is_lost(host: EngineHost, own_sandbox: Container) -> None:
    attached = host.streams.exec(own_sandbox.id, ["sleep", "4322"])
    detached = host.streams.exec(own_sandbox.id, ["sleep", "4322"])
    assert isinstance(detached, DetachableExec)
    reading = begin(lambda: list(attached))
    detached.detach_stream()
    adopted = begin(lambda: list(host.engine.adopted_execs.follow(detached.ref, timeout_seconds=None)))  # type: ignore[attr-defined]
    wait_for("both run", lambda: processes(host, own_sandbox).count("sleep 4322") == 2)
    shim = process_of(PROC, own_sandbox.pid)
    assert shim is not None
    os.kill(shim.parent, signal.SIGKILL)
    for stream in (reading, adopted):
        error = outcome(stream)
        assert isinstance(error, StreamError)
        assert "exit code is unknown" in str(error)


def test_closed_stdin_is_the_end_of_a_terminals_input(host: EngineHost, sandbox: Container) -> None:
    output, _, code = read_all(host.streams.exec(sandbox.id, ["cat"], stdin=[b"half a line"], tty=True))
    assert (output.replace(b"half a line", b"").strip(), code) == (b"", b"0")
    running = host.streams.exec(sandbox.id, ["sh", "-c", "echo ready; exec sleep 4323"], stdin=[b""], tty=True)
    until(running, b"ready")
    assert "sleep 4323" in processes(host, sandbox)
    running.close()
    wait_for("its client has left, and it has ended", lambda: "sleep 4323" not in processes(host, sandbox))


def test_a_container_that_hangs_with_a_stalled_reader_is_freed(host: EngineHost, own_sandbox: Container) -> None:
    stream = host.streams.exec(own_sandbox.id, ["yes"])
    next(stream)
    wait_for("its queue is full", lambda: stream.queue.full)  # type: ignore[attr-defined]
    subprocess.run(["docker", "kill", own_sandbox.id], check=True, timeout=60, stdout=subprocess.DEVNULL)
    wait_for("its end is seen", lambda: host.only(own_sandbox.uid).state is State.EXITED)
    stream.close()


def test_arguments_that_are_not_utf8_arrive(host: EngineHost, sandbox: Container) -> None:
    odd = [b"\xff", b"a'b\n\n", b"%s\\x", "é".encode()]
    arguments = ["sh", "-c", 'for each; do printf "<%s>" "$each"; done', "sh", *map(os.fsdecode, odd)]
    output, _, code = read_all(host.streams.exec(sandbox.id, arguments))
    assert (output, code) == (b"".join(b"<%s>" % entry for entry in odd), b"0")


def test_a_terminal_begins_with_its_size(host: EngineHost, sandbox: Container) -> None:
    for _ in range(5):
        output, _, code = read_all(host.streams.exec(sandbox.id, ["stty", "size"], tty=True, size=(33, 44)))
        assert (output.strip(), code) == (b"33 44", b"0")


def test_a_command_ends_with_its_reader(host: EngineHost, sandbox: Container) -> None:
    quiet = host.streams.exec(sandbox.id, ["sh", "-c", "echo begun; sleep 4000 & wait"])
    loud = host.streams.exec(sandbox.id, ["yes"])
    for exec_stream in (quiet, loud):
        next(exec_stream)
        exec_stream.close()
    wait_for("both have ended", lambda: not re.search("yes|sleep 4000", processes(host, sandbox)))


def test_a_lot_of_output_comes_whole(host: EngineHost, sandbox: Container) -> None:
    out, _, code = read_all(host.streams.exec(sandbox.id, ["sh", "-c", "head -c 20000000 /dev/zero"]))
    assert (len(out), code) == (20_000_000, b"0")


def test_a_lot_of_input_arrives_whole(host: EngineHost, sandbox: Container) -> None:
    pieces = (b"x" * 65_536 for _ in range(200))
    assert read_all(host.streams.exec(sandbox.id, ["sh", "-c", "wc -c"], stdin=pieces))[0].strip() == b"13107200"


def test_input_may_outlive_its_command(host: EngineHost, sandbox: Container) -> None:
    pieces = (b"x" * 65_536 for _ in range(200))
    assert read_all(host.streams.exec(sandbox.id, ["false"], stdin=pieces))[2] == b"1"


def test_a_command_that_is_not_there(host: EngineHost, sandbox: Container) -> None:
    out, err, code = read_all(host.streams.exec(sandbox.id, ["/no/such/thing"]))
    assert code in (b"126", b"127")
    assert out == b""
    assert b"is not in the image" in err


def test_environment_folder_and_user_of_a_command(host: EngineHost, sandbox: Container) -> None:
    command = ["sh", "-c", "echo $A; pwd; id -u"]
    stream = host.streams.exec(sandbox.id, command, env={"A": "b c"}, working_dir="/etc", user="12345")
    assert read_all(stream)[0] == b"b c\n/etc\n12345\n"
