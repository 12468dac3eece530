"""Copies of the whole interpreter: what forbids one, and what a copy has to do anew."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import re
import selectors
import socket
import sys
import threading
from typing import Any

_ANONYMOUS = re.compile(r"(pipe|anon_inode|eventpoll)")


def obstacles(loop: asyncio.AbstractEventLoop, known_descriptors: set[int], known_threads: int) -> list[str]:
    """Return what a copy would break, in words; empty: nothing."""
    found = _thread_obstacles(known_threads)
    found += _descriptor_obstacles(known_descriptors)
    pending = [task for task in asyncio.all_tasks(loop) if not task.done() and not getattr(task, "paddock", False)]
    if pending:
        found.append(f"{len(pending)} tasks are pending on the event loop; await or cancel them")
    children = _children()
    if children:
        found.append(f"processes are running ({', '.join(map(str, children[:8]))}): a copy can't wait for them")
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        found.append("CUDA is in use, which no copy can have")
    return found


def _thread_obstacles(known_threads: int) -> list[str]:
    names = [thread.name for thread in threading.enumerate() if thread.name not in ("MainThread", "paddock-kernel")]
    if names:
        return [f"threads are running ({', '.join(names[:8])}), which a copy would not have"]
    native = len(os.listdir("/proc/self/task")) - max(known_threads, threading.active_count())
    # The threads of OpenBLAS end at a fork and begin again when they are needed.
    native -= _blas_threads()
    return [f"{native} native threads of libraries are running, which a copy would not have"] if native > 0 else []


def _blas_threads() -> int:
    with open("/proc/self/maps") as maps:
        libraries = {line.rsplit(None, 1)[-1] for line in maps if "openblas" in line.lower()}
    threads = next(
        (
            value
            for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
            if (value := os.environ.get(name, "")).isdigit()
        ),
        str(os.cpu_count() or 1),
    )
    return len(libraries) * max(int(threads) - 1, 0)


def _descriptor_obstacles(known_descriptors: set[int]) -> list[str]:
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor in known_descriptors:
            continue
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            with open(f"/proc/self/fdinfo/{name}") as info:
                flags = next((int(line.split()[1], 8) for line in info if line.startswith("flags:")), 0)
        except OSError:
            continue
        if target.startswith("socket:"):
            found.append(f"a socket is open (descriptor {descriptor}): both would read from it; close it")
        elif target.startswith("/") and not target.startswith("/dev/") and flags & os.O_ACCMODE != os.O_RDONLY:
            kind = "a SQLite database or file" if ".db" in target or "sqlite" in target else "a file"
            found.append(f"{kind} is open for writing ({target}); close it")
    return found


def _children() -> list[int]:
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as children:
                found += map(int, children.read().split())
        except OSError:
            continue
    return [pid for pid in found if not _has_ended(pid)]


def _has_ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def flush_files() -> None:
    """Write out what files hold, else each copy would write it."""
    for value in gc.get_objects():
        if isinstance(value, (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            try:
                value.flush()
            except (OSError, ValueError):
                continue


def renew_loop(loop: Any) -> None:
    """Give the loop of a copy a selector of its own: an epoll descriptor is shared over a fork."""
    loop._selector.close()
    loop._selector = selectors.DefaultSelector()
    loop._ssock.close()
    loop._csock.close()
    loop._internal_fds = 0
    loop._make_self_pipe()
    asyncio._set_running_loop(loop)  # it is noted with the process


def reseed() -> None:
    """Let a copy draw other random numbers than its original; the module random does so itself."""
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def loop_descriptors(loop: Any) -> set[int]:
    return {loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()}


def adopt(descriptors: list[int]) -> socket.socket:
    """Take a socket and the two pipes of output in the place of the original's."""
    connection = socket.socket(fileno=descriptors[0])
    connection.set_inheritable(False)
    for target, descriptor in ((1, descriptors[1]), (2, descriptors[2])):
        os.dup2(descriptor, target)
        os.close(descriptor)
    return connection
