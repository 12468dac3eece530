"""Connections to the ports of a sandbox: limited in number; each counts as use and wakes the sandbox."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from controller.kinds.observed.observed import Container
from controller.kinds.registry import Kind
from controller.ports import PortForwarder, StreamError
from controller.service import errors
from controller.service.exec.slots import Slots
from controller.service.exec.streams import SandboxStreams


@dataclass(frozen=True, slots=True)
class PortLimits:
    """Limits of concurrent connections."""

    total: int = 512
    per_sandbox: int = 128


class NoPorts:
    """Ports of a daemon without an engine."""

    def connect(self, _container: Container, _port: int) -> socket.socket:
        """Raise StreamError."""
        raise StreamError("ports are not served here")

    def listen(self, _container: Container, _port: int) -> socket.socket:
        """Raise StreamError."""
        raise StreamError("the gateway listens in no sandbox here")


@dataclass(frozen=True, slots=True)
class Forwarded:
    """An open connection. `close` ends the use and frees the slot; any thread may call it, repeatedly."""

    sock: socket.socket
    close: Callable[[], None]


class PortForward:
    """Opens connections to the ports of a sandbox."""

    def __init__(self, sandbox_streams: SandboxStreams, ports: PortForwarder, limits: PortLimits) -> None:
        self._sandbox_streams, self._ports = sandbox_streams, ports
        self.limits = limits
        names = ("port_connections", "port_connections_per_sandbox")
        self.slots = Slots("connections to ports", limits.total, limits.per_sandbox, names)

    def open(self, kind: Kind, namespace: str, name: str, port: int) -> Forwarded:
        """Connect; may block while an idle-suspended sandbox starts. Raises ServiceError."""
        if not 1 <= port <= 65535:
            raise errors.BadRequest(f"a port is a number from 1 to 65535, not {port}")
        release = self.slots.take(f"{namespace}/{name}")
        try:
            sock, end_use = self._sandbox_streams.enter(
                kind, namespace, name, lambda container: self._ports.connect(container, port)
            )
        except BaseException:
            release()
            raise

        def close() -> None:
            sock.close()
            end_use()
            release()

        return Forwarded(sock, close)
