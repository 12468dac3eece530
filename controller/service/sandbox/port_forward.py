"""Connections to the ports of a box: bounded in number, and each of them a use of the box that wakes it."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from controller.kinds.observed.observed import Container
from controller.kinds.registry import Kind
from controller.ports import Ports, StreamError
from controller.service import errors
from controller.service.sandbox.slots import Slots
from controller.service.sandbox.streams import IntoBox


@dataclass(frozen=True, slots=True)
class PortLimits:
    """How many connections at a time."""

    total: int = 512
    per_sandbox: int = 128


class NoPorts:
    """Where no engine's ports are at hand."""

    def connect(self, _container: Container, _port: int) -> socket.socket:
        """Refuse it."""
        raise StreamError("ports are not served here")


@dataclass(frozen=True, slots=True)
class Forwarded:
    """An open connection. `close` frees the box and the slot; from any thread, and again."""

    sock: socket.socket
    close: Callable[[], None]


class Forward:
    """Opens connections to the ports of a sandbox."""

    def __init__(self, into_box: IntoBox, ports: Ports, limits: PortLimits) -> None:
        self._into_box, self._ports = into_box, ports
        self.limits = limits
        names = ("port_connections", "port_connections_per_sandbox")
        self.slots = Slots("connections to ports", limits.total, limits.per_sandbox, names)

    def open(self, kind: Kind, namespace: str, name: str, port: int) -> Forwarded:
        """Connect; may block for as long as a box that sleeps takes to start. Raises ServiceError."""
        if not 1 <= port <= 65535:
            raise errors.BadRequest(f"a port is a number from 1 to 65535, not {port}")
        give_back = self.slots.take(f"{namespace}/{name}")
        try:
            sock, over = self._into_box.enter(kind, namespace, name, lambda box: self._ports.connect(box, port))
        except BaseException:
            give_back()
            raise

        def close() -> None:
            sock.close()
            over()
            give_back()

        return Forwarded(sock, close)
