"""Worker process of one file operation in one sandbox: started by files.py, bounded, and ended with the sandbox.

It gets the sandbox's root as an open descriptor and becomes the sandbox's user, without capabilities, before it reads
anything there. So a hostile sandbox gains no more than its own user's permissions. Its input are frames (4 bytes of
length, then data): the request (marshal, as the daemon is trusted), then data, then an empty frame. Data go to stdout,
results (JSON lines) to stderr. It is forked by fork_server.py, once for each operation, which imports little: json,
pathlib or dataclasses would double its memory.
"""

import ctypes
import marshal
import os
import resource
import select
import signal
import struct
import sys
import threading
from _json import encode_basestring_ascii
from contextlib import suppress
from typing import Any

from controller.archive.moving import move, write_all
from controller.engine.files.results import CutOff, Result, outcome

SANDBOX_ENDED = 3
_LENGTH = struct.Struct(">I")
_MEMORY_BYTES = 512 << 20
_NO_NEW_PRIVS = 38
_CAPABILITY_V3 = 0x20080522
_FRAME_BYTES = 4 << 20
_EXIT_MILLISECONDS = 1000
_SECONDS = 60  # for operations without data, which don't end with their client's connection
_TRANSFERS = ("read", "write", "pack", "unpack", "sftp")


class Frames:
    """Reader of the frames on stdin."""

    def __init__(self) -> None:
        self._left = 0
        self._ended = False

    def read_frame(self) -> bytes:
        """Read one whole frame."""
        size = self._length()
        if size > _FRAME_BYTES:
            raise CutOff("the request is too long")
        return _exactly(size)

    def read(self, count: int) -> bytes:
        """Read 1 to `count` bytes, b"" at the end. Raises CutOff."""
        if self._is_over():
            return b""
        data = os.read(0, min(count, self._left))
        self._take(len(data))
        return data

    def _is_over(self) -> bool:
        if not self._left and not self._ended:
            self._left = self._length()
            self._ended = not self._left
        return self._ended

    def _take(self, count: int) -> None:
        if not count:
            raise CutOff("the transfer broke off")
        self._left -= count

    @staticmethod
    def _length() -> int:
        size: int = _LENGTH.unpack(_exactly(_LENGTH.size))[0]
        return size


def _exactly(count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = os.read(0, count - len(data))
        if not piece:
            raise CutOff("the transfer broke off")
        data += piece
    return data


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Become the sandbox's user irrevocably. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    header = struct.pack("Ii", _CAPABILITY_V3, 0)
    if libc.capset(header, bytes(24)) != 0 or libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "privileges can't be dropped")
    os.umask(0)


def end_with(process: int) -> None:
    """End with the sandbox, so that its file systems are not held."""

    def watch() -> None:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        poll.poll()
        os._exit(SANDBOX_ENDED)

    threading.Thread(target=watch, daemon=True).start()


def say(line: Result) -> None:
    """Send one line of results."""
    write_all(2, _json_of(line).encode() + b"\n")


def _json_of(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{encode_basestring_ascii(key)}:{_json_of(element)}" for key, element in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_json_of, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, (int, float)) else encode_basestring_ascii(str(value))


def _stdin(count: int) -> bytes:
    return os.read(0, count)


def put(data: bytes) -> None:
    """Output data."""
    write_all(1, data)


def draw(fd: int, count: int) -> int:
    """Output up to `count` bytes of a file; return their number. Raises OSError."""
    return move(fd, 1, count)


def main() -> int:
    """Carry out the request; return 0 unless it failed."""
    from controller.engine.files.operations import OPERATIONS, Job

    root, process = int(sys.argv[1]), int(sys.argv[2])
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # kill this process before the sandbox's
    signal.signal(signal.SIGTERM, _cut_off)
    signal.signal(signal.SIGALRM, _cut_off)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of the daemon's terminal; the daemon ends its workers itself

    def work() -> Result:
        frames = Frames()
        ask = marshal.loads(frames.read_frame())  # noqa: S302
        become(int(ask["uid"]), int(ask["gid"]), ask["groups"])
        end_with(process)
        if ask["op"] not in _TRANSFERS:
            signal.alarm(_SECONDS)  # a sandbox may add files for as long as we list or remove them
        read = frames.read if ask["op"] != "sftp" else _stdin  # its client's bytes come without frames
        job = Job(root, ask, read=read, write=put, head=lambda head: say({"head": head}), draw=draw)
        return OPERATIONS[ask["op"]](job)

    report = outcome(work)
    if "error" in report and _has_ended(process, report):
        return SANDBOX_ENDED
    with suppress(OSError):  # the daemon has gone
        say(report)
    return int("error" in report)


def _has_ended(process: int, report: Result) -> bool:
    """Tell whether the sandbox has ended: its mounts are gone then, and the read-only root below them answers.

    The kernel unmounts a moment before it reports the end of the process.
    """
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(_EXIT_MILLISECONDS if report["error"] == "ReadOnly" else 0))


def _cut_off(number: int, _frame: object) -> None:
    late = number == signal.SIGALRM
    raise CutOff(f"it took longer than {_SECONDS} s and may be partly done" if late else "the transfer was cancelled")
