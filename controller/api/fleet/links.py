"""Connections to the daemons of other hosts. Idle ones are kept a while for the next request."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

import h11
import structlog

from controller.api.fleet.tls import FleetTls, why_refused
from controller.api.server.peer_credentials import set_keepalive
from controller.api.streams.relay import ServerLink
from controller.kinds.common.address import parse_address

CONNECT_SECONDS = 2.0
IDLE_SECONDS = 20.0  # the other side waits for longer, so that none ends as it is taken
_OLDEST_SECONDS = 300.0
_MOST_IDLE = 16  # of one host
_LOST_MILLISECONDS = 20_000  # without an acknowledgement of what was sent
_PIECE_BYTES = 1 << 18
_log = structlog.get_logger("paddock.fleet")
_Key = tuple[str, str]


class Unreachable(Exception):
    """The daemon of another host can't be reached; the message says why."""


class Link(ServerLink):
    """One connection to a host's daemon, for one request at a time."""

    def __init__(self, key: _Key, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, since: float) -> None:
        """Take a connection that was opened at `since`, of a monotonic clock."""
        super().__init__()
        self.key, self.reader, self.writer, self.since = key, reader, writer, since
        self.idle_since = 0.0
        self.is_reused = False

    async def write(self, data: bytes) -> None:
        """As of the base class."""
        self.writer.write(data)
        await self.writer.drain()

    async def read(self) -> bytes:
        """As of the base class."""
        return await self.reader.read(_PIECE_BYTES)

    @property
    def fresh(self) -> bool:
        """Return True if it can take a request."""
        return not (self.writer.is_closing() or self.reader.at_eof() or self.reader.exception())

    def close(self) -> None:
        """End it at once."""
        self.writer.transport.abort()


class Links:
    """The connections of this daemon, of each event loop its own. Without `tls` no host can be reached."""

    def __init__(self, tls: FleetTls | None) -> None:
        self.tls = tls
        self._lock, self._closed = threading.Lock(), False
        self._idle: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, deque[Link]]] = WeakKeyDictionary()

    async def open(self, host: str, address: str) -> Link:
        """Return a connection to the daemon of `host`, an idle one if there is one. Raises Unreachable."""
        idle = self._of_loop().get((host, address), ())
        while idle:
            link = idle.pop()
            now = time.monotonic()
            if link.fresh and now - link.idle_since < IDLE_SECONDS and now - link.since < _OLDEST_SECONDS:
                link.http.start_next_cycle()
                link.is_reused = True
                return link
            link.close()
        reader = asyncio.StreamReader(limit=_PIECE_BYTES)
        transport = await self.connect(host, address, lambda: asyncio.StreamReaderProtocol(reader))
        protocol = transport.get_protocol()
        assert isinstance(protocol, asyncio.StreamReaderProtocol)
        writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
        return Link((host, address), reader, writer, time.monotonic())

    async def connect(self, host: str, address: str, protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        """Return a new connection to the daemon of `host`, with a protocol of that factory. Raises Unreachable."""
        if self.tls is None:
            raise Unreachable(
                "this daemon has no certificate for it; set fleet_cert_file, fleet_key_file, fleet_ca_file"
            )
        if not address:
            raise Unreachable("its daemon reports no address; set fleet_address there")
        try:
            name, port = parse_address(address)
            async with asyncio.timeout(CONNECT_SECONDS):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    protocol,
                    name,
                    port,
                    ssl=self.tls.client,
                    server_hostname=host,
                    ssl_shutdown_timeout=CONNECT_SECONDS,
                )
        except (OSError, ValueError) as error:  # TimeoutError, and all of ssl
            why = str(error) if isinstance(error, ValueError) and not isinstance(error, OSError) else why_refused(error)
            _log.warning("host unreachable", host=host, address=address, error=why)
            raise Unreachable(f"{address}: {why}") from error
        if problem := self.tls.problem(transport.get_extra_info("peercert"), host):
            transport.abort()
            _log.warning("host certificate refused", host=host, address=address, error=problem)
            raise Unreachable(f"{address}: {problem}")
        _set_options(transport.get_extra_info("socket"))
        return transport

    def keep(self, link: Link) -> None:
        """Keep a connection whose request and answer are complete; else close it."""
        self.remember(link.key[0], link.writer.get_extra_info("ssl_object"))
        if (
            self._closed
            or not link.fresh
            or link.http.our_state is not h11.DONE
            or link.http.their_state is not h11.DONE
        ):
            link.close()
            return
        link.idle_since = time.monotonic()
        idle = self._of_loop().setdefault(link.key, deque(maxlen=_MOST_IDLE + 1))
        idle.append(link)
        if len(idle) > _MOST_IDLE:
            idle.popleft().close()
        asyncio.get_running_loop().call_later(IDLE_SECONDS, self._expire, link)

    def close(self) -> None:
        """Close idle connections, and keep no more. From any thread, while the event loops run."""
        self._closed = True
        with self._lock:
            idle_connections = list(self._idle.items())
        for loop, idle in idle_connections:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(_close_all, idle)

    def remember(self, host: str, tls: ssl.SSLObject | None) -> None:
        """Keep the TLS session of a connection for the next one."""
        if self.tls is not None and tls is not None:
            self.tls.remember(host, tls)

    def _expire(self, link: Link) -> None:
        if time.monotonic() - link.idle_since < IDLE_SECONDS:  # used meanwhile
            return
        with contextlib.suppress(KeyError, ValueError):
            self._of_loop()[link.key].remove(link)
            link.close()

    def _of_loop(self) -> dict[_Key, deque[Link]]:
        with self._lock:
            return self._idle.setdefault(asyncio.get_running_loop(), {})


def was_refused(transport: asyncio.BaseTransport) -> bool:
    """Return True if the other side ended the connection within the TLS handshake, and so has read nothing.

    In TLS 1.3 a client is through first. A server that accepts its certificate sends a session ticket.
    """
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return tls is not None and not tls.session_reused and (tls.session is None or not tls.session.has_ticket)


def _close_all(idle: dict[_Key, deque[Link]]) -> None:
    for links in idle.values():
        while links:
            links.pop().close()


def _set_options(connection: socket.socket) -> None:
    """Have the kernel notice a host that vanished."""
    set_keepalive(connection)
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LOST_MILLISECONDS)
