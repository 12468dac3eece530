"""ports.Ports: connections to a box's own 127.0.0.1, made in its network namespace; also where its network is `none`.

No port of the host is opened, no route or rule is made, and nothing but the box can be reached.
"""

import socket

from controller.engine.kernel.network_namespace import NoWayIn, socket_in
from controller.kinds.observed.observed import Container
from controller.ports import StreamError

_CONNECT_SECONDS = 5.0
_LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class DockerPorts:
    """The ports of the containers of an engine on this host. Needs root."""

    def connect(self, container: Container, port: int) -> socket.socket:
        """A TCP connection to that port, by IPv4 or else IPv6. Raises StreamError. May block for some seconds."""
        said: OSError | None = None
        for family, address in _LOOPBACKS:
            try:
                made = socket_in(container.pid, container.id, family=family)
            except NoWayIn as error:
                if said is not None:  # a box without IPv6: what the other one said matters
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
        assert said is not None  # each way either connected or said why not
        if isinstance(said, ConnectionRefusedError):
            raise StreamError(f"nothing listens on port {port} in the box") from said
        raise StreamError(f"port {port} of the box does not answer: {(said.strerror or str(said)).lower()}") from said
