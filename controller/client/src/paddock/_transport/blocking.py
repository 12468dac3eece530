"""Requests that block; the names are those of `aio`."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import httpx

from paddock._client.connection import Connection, connect, proxy_options, transport_options
from paddock._client.forks import PerProcess, ProcessTransport
from paddock._client.port_forward import PortConnection as PortConnection
from paddock._client.server import Server
from paddock._client.transfer import check_size, exchange

if TYPE_CHECKING:
    from paddock._client.websocket import WebSocket

P = ParamSpec("P")
T = TypeVar("T")
TextCallback = Callable[[str], object]
Socket: TypeAlias = "WebSocket"  # its import takes longer than a small copy, which needs none


class Transport:
    """Requests to one daemon, from any thread."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._connection = PerProcess(lambda: connect(server))

    def close(self) -> None:
        """Free the connections; a later request opens new ones."""
        if (connection := self._connection.pop()) is not None:
            connection.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        text: str | None = None,
        content_type: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request with a JSON or text body; return the JSON response. Raises Refused."""
        return self._connected().request(
            method, path, params=params, json=json, text=text, content_type=content_type, headers=headers
        )

    def daemon_time(self) -> float:
        """Return the daemon's clock in Unix seconds, never behind it and at most two seconds ahead."""
        return self._connected().daemon_time()

    @contextmanager
    def lines(
        self, path: str, params: Mapping[str, str], seconds: float, *, json: Any = None
    ) -> Iterator[Iterator[str]]:
        """Stream the lines of a response. TimedOut once `seconds` are over, whatever arrives. `json`: of a POST."""
        with self._connected().lines(path, params, seconds=seconds, json=json) as lines:
            yield lines

    def download(self, path: str, params: Mapping[str, str], *, max_bytes: float = math.inf) -> bytes:
        """Return the whole body of a response. Raises TooLarge as soon as it is over the limit."""
        data = bytearray()
        with exchange(self.server, "GET", path, params) as answer:
            for piece in answer.pieces():
                data += piece
                check_size(len(data), max_bytes, params)
        return bytes(data)

    def upload_nothing(self, method: str, path: str) -> None:
        """Send a request without a body, whose answer has none either. Raises Refused."""
        with exchange(self.server, method, path, {}):
            pass

    def upload(self, path: str, params: Mapping[str, str], data: bytes) -> None:
        """Send bytes with PUT."""
        from paddock._client.files import cut

        with exchange(self.server, "PUT", path, params, cut(data)):
            pass

    def websocket(self, path: str, query: Sequence[tuple[str, str]], protocol: str) -> Socket:
        """Open a WebSocket. Raises Unreachable and Refused."""
        from paddock._client.websocket import open_websocket

        return open_websocket(self.server, path, query, protocol=protocol)

    def connect(self, path: str, port: int) -> PortConnection:
        """Connect to a port of the sandbox at `path`. Raises Refused."""
        return PortConnection(self.server, path, port)

    def proxy(self, path: str) -> httpx.Client:
        """Return a client of the program behind a path of the daemon."""
        options = transport_options(self.server)
        inner = ProcessTransport(lambda: httpx.HTTPTransport(**options))
        return httpx.Client(transport=inner, **proxy_options(self.server, path))

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that blocks."""
        return function(*args, **kwargs)

    def _connected(self) -> Connection:
        return self._connection.get()


@contextmanager
def beside(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Iterator[None]:
    """Run a function at the same time as the body, and wait for it at the end."""
    thread = threading.Thread(target=function, args=args, kwargs=kwargs, name="paddock-stdin", daemon=True)
    thread.start()
    with contextlib.ExitStack() as stack:
        stack.callback(thread.join)
        yield


def tell(callback: Callable[[Any], object] | None, value: Any) -> None:
    """Call a callback, if there is one, with text or a result."""
    if callback is not None and value:
        callback(value)


def pause(seconds: float) -> None:
    """Wait for a time."""
    time.sleep(seconds)
