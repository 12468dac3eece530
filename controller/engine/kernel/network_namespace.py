"""Sockets in a container's network namespace, which reach nothing but the sandbox; also with network `none`.

A thread enters the namespace with setns(2), creates the socket, and ends: no other code runs inside. A socket keeps the
namespace of its creation, so the caller may use it from anywhere.
"""

import ctypes
import errno
import os
import socket
import threading
from pathlib import Path

from controller.engine.kernel.cgroups import PROC, own_path, parse_paths

_CLONE_NEWNET = 0x40000000


class NetworkUnreachable(Exception):
    """The sandbox's network can't be entered; the message says why and what to do."""


def socket_in(
    pid: int, container_id: str, proc: Path = PROC, *, family: socket.AddressFamily = socket.AF_INET
) -> socket.socket:
    """Return an unconnected TCP socket in the network of a container's PID 1. Raises NetworkUnreachable."""
    try:
        namespace = os.open(proc / str(pid) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NetworkUnreachable(_message(error)) from error
    try:
        # Checked once the namespace is open, so that a reused pid is detected.
        _check(pid, container_id, namespace, proc)
        return _made_in(namespace, family)
    finally:
        os.close(namespace)


def _check(pid: int, container_id: str, namespace: int, proc: Path) -> None:
    try:
        paths = parse_paths((proc / str(pid) / "cgroup").read_text())
        own_namespace, host = os.fstat(namespace), (proc / "self" / "ns" / "net").stat()
    except OSError as error:
        raise NetworkUnreachable(_message(error)) from error
    if pid <= 1 or not any(own_path(path, container_id) for path in paths.values()):
        raise NetworkUnreachable(f"process {pid} no longer belongs to container {container_id[:12]}; retry")
    if (own_namespace.st_dev, own_namespace.st_ino) == (host.st_dev, host.st_ino):
        raise NetworkUnreachable(
            "the sandbox has no network of its own: 127.0.0.1 would be the host; use an exec probe"
        )


def _made_in(namespace: int, family: socket.AddressFamily) -> socket.socket:
    sockets: list[socket.socket] = []
    failed: list[OSError] = []

    def enter() -> None:
        try:
            _setns(namespace)
            sockets.append(socket.socket(family, socket.SOCK_STREAM))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter, name="engine-netns", daemon=True)
    thread.start()
    thread.join()
    if not sockets:
        raise NetworkUnreachable(
            _message(failed[0]) if failed else "no socket could be created in the sandbox's network"
        )
    return sockets[0]


def _setns(namespace: int) -> None:
    """Move the calling thread into that network namespace. os.setns comes with Python 3.12. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _message(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return "entering a sandbox's network needs root (CAP_SYS_ADMIN); run the daemon as root, or use an exec probe"
    return f"the sandbox's network can't be entered: {(error.strerror or str(error)).lower()}"
