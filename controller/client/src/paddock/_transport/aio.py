"""Requests of asyncio; the names are those of `blocking`, with `Async` in front of classes."""

import asyncio
import contextlib
import functools
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ParamSpec, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from paddock._client.connection import (
    AGENT,
    MAX_RETRIES,
    LineSplitter,
    body_of,
    date_of,
    full_path,
    json_of,
    posted,
    proxy_options,
    retry_seconds,
    transport_options,
)
from paddock._client.credentials import authorization
from paddock._client.errors import ClientError, TimedOut, refusal
from paddock._client.forks import AsyncProcessTransport, PerProcess
from paddock._client.port_forward import PortConnection
from paddock._client.request_log import logged
from paddock._client.server import Server, unreachable
from paddock._client.transfer import check_size
from paddock._client.websocket import broken, connect_websocket

P = ParamSpec("P")
T = TypeVar("T")
TextCallback = Callable[[str], object]
_THREADS = 64  # at once, for copies of trees
_CONNECT_SECONDS = 10.0
_PIECE_BYTES = 1 << 18


class Opening(Coroutine[Any, Any, T]):
    """A call that returns a context manager: `await` it for that, or write `async with` at once."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._opened: Any = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """Go on, as a coroutine does."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error within it."""
        return self._work.throw(*error)

    def close(self) -> None:
        """End it before it is awaited."""
        self._work.close()

    async def __aenter__(self) -> T:
        self._opened = await self._work
        entered: T = await self._opened.__aenter__()
        return entered

    async def __aexit__(self, *error: object) -> None:
        await self._opened.__aexit__(*error)


def opening(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Opening[T]]:
    """Let what the method returns be used in an `async with` without `await`, too."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Opening[T]:
        return Opening(method(*args, **kwargs))

    return call


class AsyncSocket:
    """A WebSocket; one task may send while another receives."""

    def __init__(self, inner: ClientConnection) -> None:
        self._inner = inner

    async def send(self, data: bytes) -> bool:
        """Send one frame; False: the other side has closed."""
        try:
            await self._inner.send(data)
        except ConnectionClosed:
            return False
        return True

    async def receive(self) -> bytes | str:
        """Receive the next frame. Raises ClientError when the connection broke."""
        try:
            return await self._inner.recv()
        except ConnectionClosed as error:
            raise broken(error) from error

    async def close(self) -> None:
        """Close it."""
        await self._inner.close()


class RetryingAsyncTransport(httpx.AsyncBaseTransport):
    """Transport that retries as `RetryingTransport` does."""

    def __init__(
        self, inner: httpx.AsyncBaseTransport, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._inner, self._sleep = inner, sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        is_repeatable = isinstance(request.stream, httpx.ByteStream)
        for _ in range(MAX_RETRIES if is_repeatable else 0):
            answer = await self._sent(request)
            answer.request = request
            wait = retry_seconds(answer)
            if wait is None:
                return answer
            await answer.aclose()
            await self._sleep(wait)
        return await self._sent(request)

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        with logged(request.method, request.url.raw_path.decode("latin-1")) as log_entry:
            answer = await self._inner.handle_async_request(request)
            log_entry.status = answer.status_code
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


class AsyncTransport:
    """Requests to one daemon, in one event loop."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._http = httpx.AsyncClient(
            base_url=server.url,
            transport=RetryingAsyncTransport(_pool(server)),
            timeout=httpx.Timeout(_CONNECT_SECONDS, read=None),
            headers={"User-Agent": AGENT, **authorization(server)},
            trust_env=False,
        )
        self._threads = PerProcess(lambda: ThreadPoolExecutor(_THREADS, "paddock"))

    async def aclose(self) -> None:
        """Free the connections."""
        await self._http.aclose()
        if (threads := self._threads.pop()) is not None:
            threads.shutdown(wait=False)

    async def request(
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
        content, types = body_of(json, text, content_type)
        headers = {**types, **(headers or {})}
        with self._translated():
            answer = await self._http.request(method, full_path(path), params=params, content=content, headers=headers)
        body = json_of(answer)
        if answer.is_error or body is None:
            raise refusal(body, answer.status_code)
        return body

    async def daemon_time(self) -> float:
        """Return the daemon's clock in Unix seconds, never behind it and at most two seconds ahead."""
        with self._translated():
            return date_of(await self._http.get("/version"))

    @asynccontextmanager
    async def lines(
        self, path: str, params: Mapping[str, str], seconds: float, *, json: Any = None
    ) -> AsyncIterator[AsyncIterator[str]]:
        """Stream the lines of a response. TimedOut once `seconds` are over, whatever arrives. `json`: of a POST."""
        end = asyncio.get_running_loop().time() + seconds
        options = {} if json is None else posted(json)
        async with self._opened("GET" if json is None else "POST", path, params, seconds=seconds, **options) as answer:
            yield self._lines(answer, end)

    async def download(self, path: str, params: Mapping[str, str], *, max_bytes: float = math.inf) -> bytes:
        """Return the whole body of a response. Raises TooLarge as soon as it is over the limit."""
        data = bytearray()
        async with self._opened("GET", path, params) as answer:
            async for piece in answer.aiter_bytes():
                data += piece
                check_size(len(data), max_bytes, params)
        return bytes(data)

    async def upload_nothing(self, method: str, path: str) -> None:
        """Send a request without a body, whose answer has none either. Raises Refused."""
        async with self._opened(method, path, {}) as answer:
            await answer.aread()

    async def upload(self, path: str, params: Mapping[str, str], data: bytes) -> None:
        """Send bytes with PUT."""
        headers = {"Content-Type": "application/octet-stream"}
        async with self._opened("PUT", path, params, content=_cut(data), headers=headers) as answer:
            await answer.aread()

    async def websocket(self, path: str, query: Sequence[tuple[str, str]], protocol: str) -> AsyncSocket:
        """Open a WebSocket. Raises Unreachable and Refused."""
        return AsyncSocket(await connect_websocket(self.server, path, query, protocol=protocol))

    async def connect(self, path: str, port: int) -> "AsyncPortConnection":
        """Connect to a port of the sandbox at `path`. Raises Refused."""
        return AsyncPortConnection(await self.call(PortConnection, self.server, path, port))

    def proxy(self, path: str) -> httpx.AsyncClient:
        """Return a client of the program behind a path of the daemon."""
        return httpx.AsyncClient(transport=_pool(self.server), **proxy_options(self.server, path))

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that blocks, in a thread."""
        work = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads.get(), work)

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, params: Mapping[str, str], *, seconds: float = math.inf, **options: Any
    ) -> AsyncIterator[httpx.Response]:
        limits = httpx.Timeout(_CONNECT_SECONDS, read=None if math.isinf(seconds) else seconds)
        with self._translated():
            async with self._http.stream(method, full_path(path), params=params, timeout=limits, **options) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise refusal(json_of(answer), answer.status_code)
                yield answer

    async def _lines(self, answer: httpx.Response, end: float) -> AsyncIterator[str]:
        with self._translated():
            lines = LineSplitter()
            async for piece in self._until(end, answer.aiter_bytes()):
                for line in lines.feed(piece):
                    yield line
            for line in lines.flush():
                yield line

    async def _until(self, end: float, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces of a body until `end` (the event loop's time). Raises TimedOut then."""
        time = asyncio.get_running_loop().time
        while time() < end:
            try:
                # A read time-out would begin again with every byte that arrives.
                async with asyncio.timeout_at(None if math.isinf(end) else end):
                    piece = await anext(pieces, None)
            except TimeoutError:
                break
            if piece is None:
                return
            yield piece
        raise TimedOut(f"{self.server} did not end its answer within the time allowed")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise unreachable(self.server, str(error)) from error
        except httpx.ReadTimeout as error:
            raise TimedOut(f"{self.server} sent nothing within the time allowed") from error
        except httpx.HTTPError as error:
            raise ClientError(
                f"the connection to {self.server} broke: {error}; check that the daemon is running"
            ) from error


class AsyncPortConnection:
    """One connection to a port of a sandbox; one task may send while another receives."""

    def __init__(self, inner: PortConnection) -> None:
        self._inner = inner
        # Its own: a program that sends nothing must not keep a thread from others. They end with this object.
        self._threads = ThreadPoolExecutor(2, "paddock-port")

    async def __aenter__(self) -> "AsyncPortConnection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, data: bytes) -> None:
        """Send all data. Raises ClientError."""
        await self._call(self._inner.send, data)

    async def end(self) -> None:
        """Close the sending direction; receiving goes on."""
        await self._call(self._inner.end)

    async def receive(self) -> bytes:
        """Receive data, b"" at the end. Raises ClientError when the connection broke."""
        try:
            return await self._call(self._inner.receive)
        except asyncio.CancelledError:
            self._inner.break_off()  # wakes the thread
            raise

    async def close(self) -> None:
        """Close it at once, in both directions."""
        self._inner.close()

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        work = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


@asynccontextmanager
async def beside(
    function: Callable[P, Coroutine[Any, Any, object]], *args: P.args, **kwargs: P.kwargs
) -> AsyncIterator[None]:
    """Run a function at the same time as the body, and wait for it at the end."""
    task = asyncio.ensure_future(function(*args, **kwargs))
    try:
        yield
    except BaseException:
        task.cancel()
        raise
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def tell(callback: Callable[[Any], object] | None, value: Any) -> None:
    """Call a callback, if there is one, with text or a result, and await what it returns if it can be awaited."""
    if callback is not None and value:
        answered = callback(value)
        if inspect.isawaitable(answered):
            await answered


async def pause(seconds: float) -> None:
    """Wait for a time."""
    await asyncio.sleep(seconds)


def _pool(server: Server) -> AsyncProcessTransport:
    options = transport_options(server)
    return AsyncProcessTransport(lambda: httpx.AsyncHTTPTransport(**options))


async def _cut(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), _PIECE_BYTES):
        yield data[at : at + _PIECE_BYTES]
