"""ports.Ports: connections to a sandbox's own 127.0.0.1, from inside its network namespace; also with network `none`.

No port of the host is opened, no route or rule is added, and nothing but the sandbox is reachable.
"""

import socket

from controller.engine.kernel.network_namespace import NetworkUnreachable, socket_in
from controller.kinds.observed.observed import Container
from controller.ports import StreamError

_CONNECT_SECONDS = 5.0
_LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class DockerPorts:
    """Connections to the TCP ports on a container's own loopback. Needs root on the engine's host."""

    def __init__(self, *, ipv4_only: bool = False) -> None:
        self._loopbacks = _LOOPBACKS[:1] if ipv4_only else _LOOPBACKS

    def connect(self, container: Container, port: int) -> socket.socket:
        """Connect to that TCP port, by IPv4 or else IPv6. Raises StreamError. May block for some seconds."""
        said: OSError | None = None
        for family, address in self._loopbacks:
            try:
                made = socket_in(container.pid, container.id, family=family)
            except NetworkUnreachable as error:
                if said is not None:  # no IPv6 in the sandbox: report the error of IPv4
                    break
                raise StreamError(f"port {port} can't be reached: {error}") from error
            try:
                made.settimeout(_CONNECT_SECONDS)
                made.connect((address, port))
                made.settimeout(None)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                made.close()
                said = said or error
                continue
            return made
        assert said is not None  # each attempt either connected or failed
        if isinstance(said, ConnectionRefusedError):
            raise StreamError(f"nothing listens on port {port} in the sandbox") from said
        raise StreamError(
            f"port {port} in the sandbox does not answer: {(said.strerror or str(said)).lower()}"
        ) from said
