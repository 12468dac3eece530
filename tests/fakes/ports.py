"""FakePorts: ports.Ports over servers of this host, set by `listen`; every other port refuses."""

import socket

from controller.kinds.observed.observed import Container
from controller.ports import StreamError


class FakePorts:
    def __init__(self) -> None:
        self._listening: dict[int, int] = {}

    def listen(self, port: int, real: int) -> None:
        """Map a port of every sandbox to a port of this host."""
        self._listening[port] = real

    def connect(self, container: Container, port: int) -> socket.socket:
        if port not in self._listening:
            raise StreamError(f"nothing listens on port {port} in the sandbox")
        return socket.create_connection(("127.0.0.1", self._listening[port]))
