"""Listeners of the API over one application: the Unix socket; TCP, and one for other daemons, if set up."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from starlette.types import ASGIApp

from controller.api.fleet.listener import FleetServer
from controller.api.fleet.tls import FleetTls
from controller.api.middleware.authenticate import Authenticator, authenticator_of
from controller.api.server.peer_credentials import HOST_NAMES
from controller.api.server.request_deadline import SHARE
from controller.api.server.server import ApiServer
from controller.api.server.stalled_clients import STALL_SECONDS
from controller.api.server.tcp import TcpServer
from controller.kinds.access.access import PeerGrant, Role
from controller.ports import Clock, Tokens
from controller.service.access.authenticate import Identify


@dataclass(frozen=True, slots=True)
class ListenerRules:
    """Addresses of the API, and the grants of the Unix socket's users."""

    socket: Path | None
    """Path of the Unix socket; None: there is none."""
    group: str = ""
    """Group that may use it."""
    group_role: Role | Literal["none"] = "admin"
    """Role of that group's members."""
    grants: Sequence[PeerGrant] = ()
    """Grants of single users and groups."""
    host: str = ""
    """Address of the TCP listener; empty: there is none."""
    port: int = 0
    """Port of it."""
    cert: Path | None = None
    """Certificate of it; None: it speaks no TLS."""
    key: Path | None = None
    """Key of that certificate."""
    stall_seconds: float = STALL_SECONDS
    """Longest pause of a client that reads its answer (seconds)."""
    share: float = SHARE
    """Part of the requests that one user of this host, or one remote address, may have."""
    fleet: tuple[str, int] | None = None
    """Address for other daemons; None: there is no such listener."""
    fleet_tls: FleetTls | None = None
    """Certificates of that listener."""


class Listeners:
    """The listeners. `start` opens all of them or raises SocketTaken. `make` builds the application.

    Root and the daemon's own user are admins. So is the socket's group, unless the rules say otherwise.
    """

    def __init__(
        self, rules: ListenerRules, tokens: Tokens, clock: Clock, make: Callable[[Authenticator], ASGIApp]
    ) -> None:
        identify = Identify(
            tokens=tokens,
            clock=clock,
            names=HOST_NAMES,
            owners=frozenset((0, os.geteuid())),
            group=lambda: self._socket.group_id if self._socket else None,
            group_role=rules.group_role,
            grants=rules.grants,
        )
        app = make(authenticator_of(identify))
        stall = rules.stall_seconds
        self._socket: ApiServer | None = None
        if rules.socket is not None:
            self._socket = ApiServer(app, rules.socket, group=rules.group, stall_seconds=stall, share=rules.share)
        self._tcp: TcpServer | None = None
        if rules.host:
            cert, key = rules.cert, rules.key
            self._tcp = TcpServer(
                app, rules.host, rules.port, cert=cert, key=key, stall_seconds=stall, share=rules.share
            )

        self._fleet: FleetServer | None = None
        if rules.fleet is not None and rules.fleet_tls is not None:
            self._fleet = FleetServer(app, *rules.fleet, rules.fleet_tls)

    @property
    def fleet_address(self) -> str:
        """HOST:PORT of the fleet listener; empty when there is none."""
        return self._fleet.address if self._fleet else ""

    @property
    def url(self) -> str:
        """URL of the TCP listener; empty when there is none."""
        return self._tcp.url if self._tcp else ""

    def start(self) -> None:
        if self._tcp is not None:
            self._tcp.start()
        try:
            if self._fleet is not None:
                self._fleet.start()
            if self._socket is not None:
                self._socket.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Accept no more requests, and let running ones end. May be called again."""
        for listener in (self._socket, self._tcp, self._fleet):
            if listener is not None:
                listener.stop()
