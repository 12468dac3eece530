"""Who is at the other end of a Unix socket, by the kernel's word, for each connection."""

import asyncio
import contextlib
import grp
import os
import pwd
import socket
import struct
from typing import Any, cast

from controller.api.server.connection_limiter import holder_of
from controller.api.server.request_deadline import SHARE, PatientProtocol
from controller.api.streams.stalled_clients import Stalls
from controller.service.access.identify import Names, Peer

STATE = "peer"  # where a request's scope keeps it
LINK = "link"  # and the connection that it came on
_SO_PEERGROUPS = 59
_MOST_GROUPS = 256  # what Python reads at once; who has more is looked up by name, where that does not hold up others
_UCRED = struct.Struct("3i")
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


class PeerProtocol(PatientProtocol):
    """uvicorn's protocol, which also puts the peer into each request's (and WebSocket's) state.

    Its connections are looked after by `stalls`.
    """

    def __init__(self, *arguments: Any, stalls: Stalls, share: float = SHARE, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._stalls, self.share = stalls, share

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        connection, link = transport.get_extra_info("socket"), self._stalls.watch(transport)
        peer = peer_of(connection)
        self.holder = None if connection is None else holder_of(connection)
        super().connection_made(cast(asyncio.Transport, link))
        self.app_state = {**self.app_state, STATE: peer, LINK: link}
        _notice_loss(connection)


def _notice_loss(connection: Any) -> None:
    """Over a network a client may go without a word: then the kernel asks for it, and ends the connection."""
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE.items():
                connection.setsockopt(socket.IPPROTO_TCP, option, value)


def peer_of(connection: Any) -> Peer | None:
    """The process that connected; None where that is not a Unix socket."""
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid, gid, _groups(connection))


def _groups(connection: Any) -> tuple[int, ...] | None:
    """Its supplementary groups as they were; None where the kernel does not tell them."""
    try:
        told = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS * 4)
    except OSError:
        return None
    return struct.unpack(f"{len(told) // 4}I", told)


def _user(uid: int) -> str | None:
    """The name of a user of this host."""
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
