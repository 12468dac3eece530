"""Connections to the sources of models: to checked addresses only, or to a server's sandbox through the daemon."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.abc
import certifi
import httpcore

from controller.gateway.config import Target
from controller.policy.addresses import is_public

_CONNECT_SECONDS = 10.0
_KEEP_SECONDS = 15.0
_MOST_CONNECTIONS, _MOST_IDLE = 256, 16
_KNOWN_SECONDS = 30.0
_MOST_ADDRESSES = 3

Open = Callable[[Target], Awaitable[tuple[socket.socket, Callable[[], None]]]]


class UpstreamError(Exception):
    """The source can't be used now; `reason` is that of its condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def tls_context() -> ssl.SSLContext:
    """Return the context of all providers: the certificates of this host, or certifi's if it has none."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        context.load_verify_locations(certifi.where())
    return context


@dataclass(slots=True)
class Answer:
    """An answer of a source: its head, and its body as it comes."""

    status: int
    headers: list[tuple[bytes, bytes]]
    parts: AsyncIterator[bytes]


class Upstream:
    """Connections to one source. `tls` is the context of those without an authority of their own.

    `open_` connects to a model server.
    """

    def __init__(self, target: Target, tls: ssl.SSLContext, open_: Open) -> None:
        self.target = target
        backend: httpcore.AsyncNetworkBackend = _Through(target, open_) if target.is_server else _Checked(target)
        self._base = (target.base or "http://model.internal/v1").encode()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(cadata=target.authority) if target.authority else tls,
            network_backend=backend,
            max_connections=_MOST_CONNECTIONS,
            max_keepalive_connections=0
            if target.is_server
            else _MOST_IDLE,  # a kept one would keep its sandbox running
            keepalive_expiry=_KEEP_SECONDS,
        )

    @asynccontextmanager
    async def send(
        self, method: str, route: str, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> AsyncIterator[Answer]:
        """Send a request, and yield its answer once that begins. Raises UpstreamError."""
        target, seconds = self.target, self.target.timeouts
        length = [(b"Content-Length", str(len(body)).encode())] if method == "POST" else []
        request = httpcore.Request(
            method,
            self._base + route.encode(),
            headers=[(b"Host", self._host()), *length, *headers, *_key_headers(target)],
            content=body,
            extensions={"timeout": {"connect": None, "read": None, "write": seconds.idle, "pool": seconds.first_byte}},
        )
        try:
            async with asyncio.timeout(None if target.is_server else seconds.first_byte):
                response = await self._pool.handle_async_request(request)
        except TimeoutError as error:
            message = f"{target.subject} did not begin to answer within {seconds.first_byte:g} s"
            raise UpstreamError("Unreachable", message) from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise UpstreamError("Unreachable", f"{target.subject} can't be reached: {self._explain(error)}") from error
        try:
            yield Answer(response.status, list(response.headers), self._parts(response))
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def _parts(self, response: httpcore.Response) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises UpstreamError."""
        target, idle = self.target, self.target.timeouts.idle
        async with aclosing(response.aiter_stream()) as stream:  # type: ignore[type-var] # it is a generator
            parts = stream.__aiter__()
            while True:
                try:
                    async with asyncio.timeout(idle):
                        chunk = await anext(parts)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    raise UpstreamError("Stalled", f"{target.subject} sent nothing for {idle:g} s") from error
                except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
                    raise UpstreamError(
                        "Broken", f"{target.subject} broke off its answer: {self._explain(error)}"
                    ) from error
                yield chunk

    def _explain(self, error: Exception) -> str:
        if (certificate_error := _certificate_error(error)) is not None:
            trusted = "its certificateAuthority" if self.target.authority else "the authorities of this host"
            return f"its certificate is refused ({certificate_error.verify_message}); check its URL, and {trusted}"
        if isinstance(error, httpcore.ProtocolError):
            return "it sent no HTTP that can be read"  # its bytes, which the library would show, may be anything
        return str(error) or type(error).__name__

    def _host(self) -> bytes:
        return self._base.partition(b"://")[2].partition(b"/")[0]

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.aclose()


def _key_headers(target: Target) -> list[tuple[bytes, bytes]]:
    if not target.key:
        return []
    if target.form == "Anthropic":
        return [(b"x-api-key", target.key.encode())]
    return [(b"Authorization", b"Bearer " + target.key.encode())]


def _certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the refusal of a certificate that an error comes from."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


class _Checked(httpcore.AsyncNetworkBackend):
    """Connects to a provider, at addresses that are checked when they are used: a name may resolve to any."""

    def __init__(self, target: Target) -> None:
        self._target, self._inner = target, httpcore.AnyIOBackend()
        self._known: tuple[float, list[str]] = (0.0, [])

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the library's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of its addresses that answers."""
        failed: Exception = httpcore.ConnectError(f"`{host}` has no address")
        for address in (await self._addresses(host, port))[:_MOST_ADDRESSES]:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout=_CONNECT_SECONDS, local_address=local_address, socket_options=socket_options
                )
            except (httpcore.NetworkError, httpcore.TimeoutException) as error:
                failed = error
        raise failed

    async def _addresses(self, host: str, port: int) -> list[str]:
        at, cached = self._known
        if cached and time.monotonic() - at < _KNOWN_SECONDS:
            return cached
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                address_infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"the name `{host}` could not be resolved in time") from error
        except OSError as error:
            raise httpcore.ConnectError(f"the name `{host}` can't be resolved") from error
        addresses = list(dict.fromkeys(str(address_info[4][0]) for address_info in address_infos))
        permitted = [address for address in addresses if self._target.private or is_public(address)]
        if addresses and not permitted:
            message = f"`{host}` resolves to {addresses[0]}, which is no public address; the setting provider_hosts"
            raise UpstreamError("NotAllowed", f"{message} can allow it")
        self._known = (time.monotonic(), permitted)
        return permitted


class _Through(httpcore.AsyncNetworkBackend):
    """Connects to a model server in its sandbox, by a socket that the daemon opens."""

    def __init__(self, target: Target, open_: Open) -> None:
        self._target, self._open = target, open_

    async def connect_tcp(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        """Have the daemon connect, which starts the server if it was stopped."""
        sock, end = await self._open(self._target)
        try:
            return _Stream(await anyio.abc.SocketStream.from_socket(sock), end)
        except BaseException:
            sock.close()
            end()
            raise


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that the daemon opened; `end` tells it that it is closed."""

    def __init__(self, stream: anyio.abc.SocketStream, end: Callable[[], None]) -> None:
        self._stream, self._end = stream, end

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        """Return some bytes, b"" at the end."""
        try:
            return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        """Send all."""
        if not buffer:
            return
        try:
            await self._stream.send(buffer)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        """Close it."""
        try:
            await self._stream.aclose()
        finally:
            self._end()

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks before it uses a kept connection: none is kept."""
        return True if info == "is_readable" else None
