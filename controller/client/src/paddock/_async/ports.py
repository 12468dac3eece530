"""Ports of a sandbox on this machine."""

from paddock._client.port_forward import Forwarding
from paddock._transport.aio import AsyncTransport


class AsyncForward:
    """A local listener whose connections reach a port of a sandbox, until it is closed.

    async with sandbox.forward(5432) as forward:
        print(forward.address, forward.port)
    """

    def __init__(self, transport: AsyncTransport, inner: Forwarding, path: str = "/") -> None:
        self._transport, self._inner, self._url_path = transport, inner, path

    async def __aenter__(self) -> "AsyncForward":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """Local address."""
        return self._inner.address

    @property
    def port(self) -> int:
        """Local port."""
        return self._inner.port

    @property
    def host(self) -> str:
        """Host name of a preview: connections to any other are refused."""
        return self._inner.host

    @property
    def url(self) -> str:
        """Address for an HTTP client; of a preview for a browser."""
        host = self.host or (f"[{self.address}]" if ":" in self.address else self.address)
        return f"http://{host}:{self.port}{self._url_path}"

    async def close(self) -> None:
        """Stop listening, and close every connection."""
        await self._transport.call(self._inner.close)
