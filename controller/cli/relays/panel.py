"""A relay on 127.0.0.1 between a browser and the daemon, with the identity of whoever started it.

The browser never gets that identity. It exchanges a one-time code for a session that lives as long as the relay, and
sends it as a bearer token. The relay checks Host and Origin of every request, so that neither another site nor a name
that points to 127.0.0.1 reaches the daemon through it. Each connection carries one request: what follows it is copied.
"""

import asyncio
import base64
import binascii
import contextlib
import hmac
import json
import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from controller.cli.client import sandbox_path
from paddock._client.connection import Connection
from paddock._client.credentials import authorization, trusted
from paddock._client.errors import ClientError
from paddock._client.port_forward import Forwarding, open_port, own_host

CODE_SECONDS = 60.0
ADDRESS = "127.0.0.1"
_PAGE = "/panel/"
_SESSION, _PREVIEWS = "/panel/session", "/panel/previews"
_SERVED = ("/apis/", "/version", "/openapi.json", "/readyz")
_TO_PORT = re.compile(r"/apis/[^/]+/[^/]+/namespaces/[^/]+/sandboxes/[^/]+/proxy(/|\Z)")
_SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
# Headers about the browser, the page and the hop to it. The daemon sees a local client instead.
_DROPPED = frozenset(
    ("host", "connection", "keep-alive", "proxy-connection", "authorization", "cookie", "origin", "referer", "te")
)
# By peer credentials the daemon would take every connection of ours for its user. A page's request it never does.
_NOBODY = {"Sec-Fetch-Site": "none"}
_OF_FILES = ("accept", "accept-encoding", "if-none-match", "host")
_HEAD_BYTES, _BODY_BYTES, _PIECE_BYTES = 1 << 16, 1 << 12, 1 << 16
_HEAD_SECONDS = 30.0
_STEPS = 4  # of the event loop, from an accepted connection to the first step of its task
_MOST_CONNECTIONS, _MOST_PREVIEWS = 256, 32
_REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
_REASONS |= {200: "OK", 429: "Too Many Requests", 502: "Bad Gateway", 503: "Service Unavailable"}


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a request. Header names are in lower case."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def get(self, name: str) -> str:
        """Return the value of a header, empty without it. Raises _Refused if there are several."""
        texts = [value for header_name, value in self.headers if header_name == name]
        if len(texts) > 1:
            raise _Refused(400, f"{name}: the header is there {len(texts)} times; send it once")
        return texts[0] if texts else ""

    @property
    def token(self) -> str:
        """The session that the page sent, as a header or, for a WebSocket, as a subprotocol."""
        scheme, _, token = self.get("authorization").partition(" ")
        if scheme.lower() == "bearer":
            return token.strip()
        for offer in _offers(self.get("sec-websocket-protocol")):
            if offer.startswith(_SUBPROTOCOL):
                return _decode(offer.removeprefix(_SUBPROTOCOL))
        return ""


class PanelRelay:
    """The relay. `url` opens the panel and signs in, once and within a minute of its call. Close it."""

    def __init__(
        self,
        connection: Connection,
        *,
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
        failed: Callable[[str], None] = lambda _message: None,
    ) -> None:
        """Raises ClientError if it can't listen. `failed` gets a message for each failed preview, from any thread."""
        self._connection, self._clock, self._failed = connection, clock, failed
        self._codes: dict[str, float] = {}
        self._token = secrets.token_urlsafe(32)
        self._previews: dict[tuple[str, str, int], Forwarding] = {}
        self._serving: set[asyncio.Task[None]] = set()  # the event loop itself keeps no task alive
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="panel", daemon=True)
        self._thread.start()
        try:
            self._server: asyncio.Server = self._do(asyncio.start_server(self._serve, ADDRESS, port, limit=_HEAD_BYTES))
        except OSError as error:
            self._end()
            text = f"{ADDRESS}:{port}: can't listen ({error.strerror or error}); choose another with --port"
            raise ClientError(text) from error
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> "PanelRelay":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def origin(self) -> str:
        """Origin of the panel."""
        return f"http://{ADDRESS}:{self.port}"

    def url(self) -> str:
        """Return an address that opens the panel and signs in, once and within a minute."""
        code = secrets.token_urlsafe(24)
        self._codes[code] = self._clock() + CODE_SECONDS
        return f"{self.origin}{_PAGE}#code={code}"

    def close(self) -> None:
        """End the relay, its connections and its previews."""
        if not self._loop.is_closed():
            self._do(self._stop())
            for preview in self._previews.values():
                preview.close()
            self._end()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _stop(self) -> None:
        self._server.close()
        for _ in range(_STEPS):  # a task that is cancelled before its first step would leave its connection open
            await asyncio.sleep(0)
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._answer(reader, writer)
        except _Refused as error:
            await _send(writer, error.code, _status(error.code, str(error)))
        except ClientError as error:
            await _send(writer, 503, _status(503, error.message))
        except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the browser left
        except asyncio.CancelledError:
            pass  # the relay is closed: `asyncio.streams` would log a task that ends as cancelled
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._serving.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request: a session, a file of the panel, or a call with the user's rights. Raises _Refused."""
        if len(self._serving) > _MOST_CONNECTIONS:
            raise _Refused(429, f"the panel has {_MOST_CONNECTIONS} connections open; close some of its tabs")
        head = await _head(reader)
        self._check(head)
        if head.path == _SESSION and head.method == "POST":
            await _send(writer, 200, {"token": self._session(await _body(head, reader))})
            return
        if head.path == "/panel" or (head.path.startswith(_PAGE) and head.path not in (_SESSION, _PREVIEWS)):
            if head.method not in ("GET", "HEAD"):
                raise _Refused(405, "the panel's files can only be read")
            await self._forward(_of_file(head), reader, writer, _NOBODY)
            return
        if not hmac.compare_digest(head.token.encode(), self._token.encode()):
            raise _Refused(401, "this panel's session has ended; open the panel again with `paddock panel`")
        if head.path == _SESSION:
            await _send(writer, 200, {"local": True, "server": str(self._connection.server)})
        elif head.path == _PREVIEWS:
            await self._preview(head, reader, writer)
        elif _TO_PORT.match(unquote(head.path)):
            raise _Refused(403, "a sandbox's page would have the panel's origin here; open a preview of its port")
        elif head.path.startswith(_SERVED):
            await self._forward(head, reader, writer, authorization(self._connection.server))
        else:
            raise _Refused(404, "there is nothing at this path; open /panel/")

    def _check(self, head: _Head) -> None:
        """Refuse other names of this address, and requests of other sites. Raises _Refused."""
        if head.get("host") != f"{ADDRESS}:{self.port}":
            raise _Refused(403, f"this panel is served at {self.origin} alone; open it there")
        if head.path in ("/panel", _PAGE):
            return  # a link may lead here: the page has no session until it is given one
        if head.get("origin") not in ("", self.origin) or head.get("sec-fetch-site") not in ("", "none", "same-origin"):
            raise _Refused(403, "the request is of another site's page; only the panel itself may send any")

    def _session(self, body: Any) -> str:
        """Exchange a one-time code for the session. Raises _Refused."""
        code = body.get("code") if isinstance(body, dict) else None
        until = self._codes.pop(code, None) if isinstance(code, str) else None
        if until is None or self._clock() > until:
            raise _Refused(401, "this link was used, or is older than a minute; open a new one with `paddock panel`")
        return self._token

    async def _preview(self, head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open a sandbox's port at an origin of its own: a page in it can't act as the panel."""
        if head.method != "POST":
            raise _Refused(405, "send POST with namespace, name and port")
        body = await _body(head, reader)
        match body:
            case {"namespace": str(namespace), "name": str(name), "port": int(port)} if 0 < port < 1 << 16:
                key = (namespace, name, port)
            case _:
                raise _Refused(400, "send namespace, name and a port from 1 to 65535")
        path = sandbox_path(namespace, name)
        if key not in self._previews:
            await asyncio.to_thread(self._connection.get, path)
        # No await from here on: meanwhile another request may have opened this preview, or the last one allowed.
        if key not in self._previews:
            if len(self._previews) >= _MOST_PREVIEWS:
                raise _Refused(429, f"{_MOST_PREVIEWS} previews are open, the most of one panel; start it again")
            open_ = partial(open_port, self._connection.server, path)
            self._previews[key] = Forwarding(open_, port, address=ADDRESS, failed=self._failed, host=own_host())
        opened = self._previews[key]
        await _send(writer, 200, {"url": f"http://{opened.host}:{opened.port}/"})

    async def _forward(
        self, head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, identity: dict[str, str]
    ) -> None:
        """Send the request to the daemon, then copy both directions until one ends; what nobody sends is dropped."""
        above, below = await self._dial()
        try:
            below.write(_rewritten(head, urlsplit(self._connection.server.url).netloc, identity))
            sent = _drop(reader) if identity is _NOBODY else _copy(reader, below)
            tasks = [asyncio.create_task(sent), asyncio.create_task(_copy(above, writer))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            below.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        server = self._connection.server
        parts = urlsplit(server.url)
        secure: ssl.SSLContext | None = trusted(server) if parts.scheme == "https" else None
        try:
            if server.socket:
                return await asyncio.open_unix_connection(server.socket)
            port = parts.port or (443 if secure else 80)
            return await asyncio.open_connection(parts.hostname, port, ssl=secure)
        except OSError as error:
            raise _Refused(502, f"no Paddock daemon answers at {server} ({error.strerror or error})") from error


async def _head(reader: asyncio.StreamReader) -> _Head:
    """Read and parse the head of a request. Raises _Refused for one that is malformed."""
    try:
        async with asyncio.timeout(_HEAD_SECONDS):
            data = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise _Refused(400, f"the head of the request is over {_HEAD_BYTES >> 10} KiB") from error
    first, *lines = data[:-4].decode("latin-1").split("\r\n")
    fields = first.split(" ")
    if (
        len(fields) != 3
        or not fields[1].startswith("/")
        or fields[2] != "HTTP/1.1"
        or "\n" in data[:-4].decode("latin-1").replace("\r\n", "")
    ):
        raise _Refused(400, "the request is not HTTP/1.1")
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or "\r" in value:
            raise _Refused(400, "a header of the request is malformed")
        headers.append((name.lower(), value.strip(" \t")))
    return _Head(fields[0], fields[1], tuple(headers))


def _of_file(head: _Head) -> _Head:
    """Return the request for a file of the panel, without a body or anything else that its sender could add."""
    return _Head(head.method, head.target, tuple(header for header in head.headers if header[0] in _OF_FILES))


def _rewritten(head: _Head, host: str, identity: dict[str, str]) -> bytes:
    """Return the head for the daemon: without the browser's headers, with the caller's identity, for one request."""
    lines = [f"{head.method} {head.target} HTTP/1.1", f"Host: {host}"]
    upgraded = head.get("upgrade").lower() == "websocket"
    lines.append(f"Connection: {'Upgrade' if upgraded else 'close'}")
    for name, value in head.headers:
        if name in _DROPPED or name.startswith(("sec-fetch-", "sec-ch-")) or (name == "upgrade" and not upgraded):
            continue
        if name == "sec-websocket-protocol":
            value = ", ".join(offer for offer in _offers(value) if not offer.startswith(_SUBPROTOCOL))
        if value or name != "sec-websocket-protocol":
            lines.append(f"{name}: {value}")
    lines += [f"{name}: {value}" for name, value in identity.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _offers(value: str) -> list[str]:
    return [offer.strip() for offer in value.split(",") if offer.strip()]


def _decode(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""


async def _body(head: _Head, reader: asyncio.StreamReader) -> Any:
    """Read a small JSON body. Raises _Refused."""
    size = head.get("content-length")
    if head.get("content-type").partition(";")[0].strip() != "application/json" or not size.isdigit():
        raise _Refused(400, "send a JSON body with the header `Content-Type: application/json`")
    if int(size) > _BODY_BYTES:
        raise _Refused(400, f"the body is over {_BODY_BYTES} bytes")
    try:
        async with asyncio.timeout(_HEAD_SECONDS):
            return json.loads(await reader.readexactly(int(size)))
    except ValueError as error:
        raise _Refused(400, "the body is not valid JSON") from error


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_PIECE_BYTES):
        target.write(data)
        await target.drain()


async def _drop(source: asyncio.StreamReader) -> None:
    """Read to the end, which tells that the browser left."""
    while await source.read(_PIECE_BYTES):
        pass


async def _send(writer: asyncio.StreamWriter, code: int, body: Any) -> None:
    data = json.dumps(body).encode()
    lines = (
        f"HTTP/1.1 {code} {_REASONS.get(code, 'Error')}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    )
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + data)
    with contextlib.suppress(OSError):
        await writer.drain()


def _status(code: int, message: str) -> dict[str, Any]:
    """Return an error in the API's own format."""
    reason = _REASONS.get(code, "Error").replace(" ", "")
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
