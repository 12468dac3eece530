"""Connections to a sandbox's own 127.0.0.1, and listeners there, from inside its network; also with network `none`.

No port of the host is opened, no route or rule is added, and nothing but the sandbox is reachable.
"""

import errno
import socket

from controller.engine.kernel.network_namespace import NetworkUnreachable, socket_in
from controller.kinds.observed.observed import Container
from controller.ports import NotNow, PortTaken, StreamError

_CONNECT_SECONDS = 5.0
_BACKLOG = 128
_LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class DockerPorts:
    """Connections to the TCP ports on a container's own loopback. Needs root on the engine's host."""

    def __init__(self, *, ipv4_only: bool = False) -> None:
        self._loopbacks = _LOOPBACKS[:1] if ipv4_only else _LOOPBACKS

    def connect(self, container: Container, port: int) -> socket.socket:
        """Connect to that TCP port, by IPv4 or else IPv6. Raises StreamError. May block for some seconds."""
        first_error: OSError | None = None
        for family, address in self._loopbacks:
            try:
                sock = socket_in(container.pid, container.id, family=family)
            except NetworkUnreachable as error:
                if first_error is not None:  # no IPv6 in the sandbox: report the error of IPv4
                    break
                raise NotNow(f"port {port} can't be reached: {error}") from error
            try:
                sock.settimeout(_CONNECT_SECONDS)
                sock.connect((address, port))
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                sock.close()
                first_error = first_error or error
                continue
            return sock
        assert first_error is not None  # each attempt either connected or failed
        if isinstance(first_error, ConnectionRefusedError):
            raise StreamError(f"nothing listens on port {port} in the sandbox") from first_error
        raise StreamError(
            f"port {port} in the sandbox does not answer: {(first_error.strerror or str(first_error)).lower()}"
        ) from first_error

    def listen(self, container: Container, port: int) -> socket.socket:
        """Listen on that port, by IPv4. Nothing outside of the sandbox can connect. Raises PortTaken; StreamError."""
        try:
            sock = socket_in(container.pid, container.id)
        except NetworkUnreachable as error:
            raise NotNow(f"port {port} can't be listened on: {error}") from error
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((_LOOPBACKS[0][1], port))
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(
                    f"a program in the sandbox listens on port {port}; stop it, or let it use another"
                ) from error
            raise StreamError(f"port {port} can't be listened on: {(error.strerror or str(error)).lower()}") from error
        return sock
