"""Peer credentials (pid, uid, groups) of each connection on a Unix socket, as reported by the kernel."""

import asyncio
import contextlib
import grp
import os
import pwd
import socket
import struct
from typing import Any, cast

from controller.api.server.connection_limiter import connection_holder
from controller.api.server.request_deadline import SHARE, RequestDeadlineProtocol
from controller.api.server.stalled_clients import StalledClients
from controller.service.access.authenticate import Names, Peer

STATE = "peer"  # where a request's scope keeps it
CONNECTION = "connection"  # and its connection
_SO_PEERGROUPS = 59
_MOST_GROUPS = 256  # read at once; the groups of users with more are looked up by name, on a thread
_UCRED = struct.Struct("3i")
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


class PeerProtocol(RequestDeadlineProtocol):
    """uvicorn's protocol, with the peer in the state of each request and WebSocket.

    `clients` cuts its stalled connections.
    """

    def __init__(self, *arguments: Any, clients: StalledClients, share: float = SHARE, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._stalls, self.share = clients, share

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        connection, link = transport.get_extra_info("socket"), self._stalls.watch(transport)
        peer = peer_of(connection)
        self.holder = None if connection is None else connection_holder(connection)
        super().connection_made(cast("asyncio.Transport", link))
        self.app_state = {**self.app_state, STATE: peer, CONNECTION: link}
        set_keepalive(connection)


def set_keepalive(connection: Any) -> None:
    """Enable TCP keepalive, so that the kernel ends the connection of a client that vanished."""
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE.items():
                connection.setsockopt(socket.IPPROTO_TCP, option, value)


def peer_of(connection: Any) -> Peer | None:
    """Return the process that connected; None if this is not a Unix socket."""
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid, gid, _groups(connection))


def _groups(connection: Any) -> tuple[int, ...] | None:
    """Return its supplementary groups at connect time; None if the kernel does not report them."""
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS * 4)
    except OSError:
        return None
    return struct.unpack(f"{len(packed) // 4}I", packed)


def _user(uid: int) -> str | None:
    """Return the name of a user of this host."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None


def _uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _gid(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


HOST_NAMES = Names(uid=_uid, gid=_gid, user=_user, groups=os.getgrouplist)
