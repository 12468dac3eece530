"""Sockets in a container's own network, which reach nothing but the box; also where its network is `none`.

A thread enters the namespace with setns(2), makes the socket, and ends: no other code ever runs in there. A socket
stays in the namespace that it was made in, so whoever asked may use it from anywhere.
"""

import ctypes
import errno
import os
import socket
import threading
from pathlib import Path

from controller.engine.kernel.cgroups import PROC, own_path, parse_paths

_CLONE_NEWNET = 0x40000000


class NoWayIn(Exception):
    """The box's network can't be entered; says why and what to do."""


def socket_in(
    pid: int, container_id: str, proc: Path = PROC, *, family: socket.AddressFamily = socket.AF_INET
) -> socket.socket:
    """An unconnected TCP socket in the network of the container whose PID 1 is `pid`. Raises NoWayIn."""
    try:
        namespace = os.open(proc / str(pid) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NoWayIn(_words(error)) from error
    try:
        # Asked once the namespace is held: a pid that was given to another process meanwhile is found out.
        _check(pid, container_id, namespace, proc)
        return _made_in(namespace, family)
    finally:
        os.close(namespace)


def _check(pid: int, container_id: str, namespace: int, proc: Path) -> None:
    try:
        paths = parse_paths((proc / str(pid) / "cgroup").read_text())
        own, host = os.fstat(namespace), (proc / "self" / "ns" / "net").stat()
    except OSError as error:
        raise NoWayIn(_words(error)) from error
    if pid <= 1 or not any(own_path(each, container_id) for each in paths.values()):
        raise NoWayIn(f"process {pid} is not of container {container_id[:12]} any more")
    if (own.st_dev, own.st_ino) == (host.st_dev, host.st_ino):
        raise NoWayIn("the box has no network of its own: 127.0.0.1 would be the host; use an exec probe")


def _made_in(namespace: int, family: socket.AddressFamily) -> socket.socket:
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def enter() -> None:
        try:
            _setns(namespace)
            made.append(socket.socket(family, socket.SOCK_STREAM))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter, name="engine-netns", daemon=True)
    thread.start()
    thread.join()
    if not made:
        raise NoWayIn(_words(failed[0]) if failed else "no socket could be made in the box's network")
    return made[0]


def _setns(namespace: int) -> None:
    """Move the calling thread into that network. Raises OSError. (os.setns comes with Python 3.12.)"""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _words(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return "entering a box's network needs root (CAP_SYS_ADMIN): run the daemon as root, or use an exec probe"
    return f"the box's network can't be entered: {(error.strerror or str(error)).lower()}"
