"""Supervisor of one exec: a forked process that adopts all its command's descendants, and so can end every one.

It speaks with the agent over a socket. From the agent: `K` ends everything with SIGKILL; `S` and a byte sends that
signal to the command; the end of the stream (the agent is gone) is as `K`. To the agent: `E` and an errno: the command
could not be started; `X` and a wait status: the command has ended.

One that is to stay also says `B` and the command's pid once it runs, and outlives it, since others may hold its output
open; `D` (from the agent) leaves those alone, and ends it.
"""

import contextlib
import os
import select
import signal
import struct
import time

from . import linux

FAILED, EXITED, BEGUN = b"E", b"X", b"B"
_CONTROL = 3
EVENTS = 5
"""Descriptor of a command's events, where it has some (contexts.py)."""
_HALTED = (b"T", b"t", b"Z", b"X")  # stopped, traced or ended
_OOM_SCORE = 300  # thousandths of the memory, by which a command seems larger than it is
_MAX_SIGNALS = 65
_ALL = [each for each in range(1, _MAX_SIGNALS) if each not in (signal.SIGKILL, signal.SIGSTOP, 32, 33)]
_STATUS = struct.Struct("=ci")
MESSAGE_SIZE = _STATUS.size


def unpack(message: bytes) -> tuple[bytes, int]:
    kind, value = _STATUS.unpack(message)
    return kind, value


def reset_signals() -> None:
    """Undo what the interpreter and the agent set: what is ignored or blocked is inherited over exec."""
    signal.set_wakeup_fd(-1)
    for number in _ALL:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def run(
    control: int,
    streams: tuple[int, int, int],
    command: list[bytes],
    folder: int,
    environment: dict[bytes, bytes],
    stay: bool = False,
    events: int = -1,
) -> None:
    """Be the supervisor; never returns. Called in the forked child. The command inherits `events` as EVENTS.

    Each object that it touches is a page to copy: it does no more than it must. The agent's handlers stay, which only
    wake it; the command gets all defaults at its start, in C.
    """
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        linux.become_subreaper()
        _place_descriptors((*streams, control, folder, *([events] if events >= 0 else [])))
        woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        child = _start(command, environment)
        if stay:
            os.write(_CONTROL, _STATUS.pack(BEGUN, child))
        os.closerange(0, _CONTROL)
        os.close(_CONTROL + 1)
        if events >= 0:
            os.close(EVENTS)
        _supervise(child, woken, stay)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(_CONTROL, _STATUS.pack(FAILED, error.errno or 0))
    finally:
        os._exit(0)


def _place_descriptors(given: tuple[int, ...]) -> None:
    """Put the streams at 0 to 2, the socket at 3, the working folder at 4, events at 5; close everything else."""
    if min(given) < len(given):  # one would be in another's place
        given = tuple([os.dup2(fd, 100 + at, inheritable=False) for at, fd in enumerate(given)])
    for at, fd in enumerate(given):
        os.dup2(fd, at, inheritable=at < 3 or at == EVENTS)
    if linux.close_from(len(given)):
        return
    for name in os.listdir("/proc/self/fd"):  # a loop to the limit is slow
        if int(name) >= len(given):
            with contextlib.suppress(OSError):
                os.close(int(name))


def _start(command: list[bytes], environment: dict[bytes, bytes]) -> int:
    """Start the command in a session of its own; posix_spawn copies no pages, a second fork would.

    Where memory is short, the kernel ends it, and what it starts, before the agent and this process.
    """
    os.fchdir(_CONTROL + 1)
    os.environb[b"PATH"] = environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")  # where posix_spawnp searches
    child = os.posix_spawnp(command[0], command, environment, setsid=True, setsigmask=(), setsigdef=_ALL)
    _offer_memory_of(child)
    return child


def _offer_memory_of(child: int) -> None:
    """Raise the score of a command for the kernel's choice; this process's own file is root's, as the agent's."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{child}/oom_score_adj", "r+b", buffering=0) as file:
        score = int(file.read(16))
        file.write(b"%d" % min(score + _OOM_SCORE, 1000))


def _supervise(child: int, woken: int, stay: bool) -> None:
    poll = select.poll()
    poll.register(_CONTROL, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        status = _reap(child)
        if status is not None:
            # What the command left in the background lives on and falls to the sandbox's first process.
            try:
                os.write(_CONTROL, _STATUS.pack(EXITED, status))
            except OSError:  # the agent has let go of it in the meantime: it wants the end of all
                end_all(child)
                return
            if not stay:
                return
        for fd, _ in poll.poll():
            if fd == woken:
                os.read(woken, 4096)
                continue
            try:
                order = os.read(_CONTROL, 2)
            except OSError:
                order = b""
            if order == b"D":
                return
            if order[:1] == b"S" and len(order) == 2:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, order[1])
            else:
                status = end_all(child)
                with contextlib.suppress(OSError):
                    os.write(_CONTROL, _STATUS.pack(EXITED, status))
                return


def _reap(child: int) -> int | None:
    """Reap what has ended; return the command's wait status once it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = status
                break
    return found


def end_all(child: int) -> int:
    """Kill every descendant until none is left; return the command's wait status.

    All are stopped before one is killed: a killed one's place among the PIDs would be a fork bomb's next fork.
    """
    result = signal.SIGKILL.value
    stopping = time.monotonic() + 1
    until = stopping + 9
    while time.monotonic() < until:
        found = descendants(os.getpid())
        ending = all(state in _HALTED for state in found.values()) or time.monotonic() > stopping
        for number in (signal.SIGSTOP, signal.SIGKILL) if ending else (signal.SIGSTOP,):
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == child:
                    result = status
        except ChildProcessError:
            return result
        select.select((), (), (), 0.002 if ending else 0.0005)
    return result


def descendants(root: int) -> dict[int, bytes]:
    """Return the processes below ROOT and the letter of each one's state, from /proc."""
    parents: dict[int, list[int]] = {}
    states: dict[int, bytes] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        states[int(name)] = fields[0]
        parents.setdefault(int(fields[1]), []).append(int(name))
    found: dict[int, bytes] = {}
    pending = [root]
    while pending:
        inner = parents.get(pending.pop(), [])
        found.update((pid, states[pid]) for pid in inner)
        pending += inner
    return found
