"""HTTP connection to the daemon. Each failure becomes a ClientError that says what to do next."""

import json as json_
import math
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import httpx

from paddock._client.credentials import authorization, trusted
from paddock._client.errors import ClientError, TimedOut, refusal
from paddock._client.forks import ProcessTransport
from paddock._client.request_log import logged
from paddock._client.server import Server, dial, locate, unreachable
from paddock._version import API_VERSION, VERSION

PREFIX = f"/apis/{API_VERSION}"
TABLE = {"Accept": "application/json;as=Table"}
AGENT = f"paddock/{VERSION}"
# Idle connections are kept this long. The daemon closes them after 5 s: a request sent at that moment is lost, and
# its sender can't tell whether it was executed (found by a soak test).
IDLE_SECONDS = 2.0
_PAGE = "500"  # objects
MAX_LINE_BYTES = 16 << 20


class Connection:
    """Thread-safe HTTP connection to one daemon. Paths are relative to the API version unless they start with `/`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        options = transport_options(server, max_connections=100)
        # No read timeout: a long transaction ends by itself, and a followed log may be silent for hours.
        limits = httpx.Timeout(10.0, read=None)
        headers = {"User-Agent": AGENT, **authorization(server)}
        self._http = httpx.Client(
            base_url=server.url,
            transport=RetryingTransport(ProcessTransport(lambda: httpx.HTTPTransport(**options))),
            timeout=limits,
            headers=headers,
            trust_env=False,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        text: str | None = None,
        table: bool = False,
        content_type: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request; return the JSON response. Raises Refused.

        The body is `json` or `text`; `content_type` is its type, if it is not plain JSON.
        """
        body, types = body_of(json, text, content_type)
        headers = {**(TABLE if table else {}), **types, **(headers or {})}
        with self._translated():
            answer = self._http.request(method, full_path(path), params=params, content=body, headers=headers)
            body = json_of(answer)
        if answer.is_error or body is None:
            raise refusal(body, answer.status_code)
        return body

    def send(self, method: str, path: str, pieces: Iterable[bytes], *, content_type: str = "application/x-tar") -> Any:
        """Send a request whose body comes in pieces; return the JSON response. Raises Refused."""
        headers = {"Content-Type": content_type}
        with self._translated():
            answer = self._http.request(method, full_path(path), content=pieces, headers=headers)
            body = json_of(answer)
        if answer.is_error or body is None:
            raise refusal(body, answer.status_code)
        return body

    def daemon_time(self) -> float:
        """Return the daemon's clock in Unix seconds, never behind it and at most two seconds ahead."""
        with self._translated():
            return date_of(self._http.get("/version"))

    def get(self, path: str, *, table: bool = False, **params: str) -> Any:
        """Send a GET request; empty parameters are omitted."""
        return self.request("GET", path, params={key: value for key, value in params.items() if value}, table=table)

    def list(self, path: str, *, table: bool = False, **params: str) -> Any:
        """Return a whole list of a stored kind, read in pages: no answer of the daemon grows with the store."""
        name = "rows" if table else "items"
        listing = self.get(path, table=table, limit=_PAGE, **params)
        while token := listing["metadata"].get("continue"):
            page = self.get(path, table=table, limit=_PAGE, **{**params, "continue": token})
            listing = {**listing, "metadata": page["metadata"], name: listing[name] + page[name]}
        return listing

    @contextmanager
    def stream(
        self, path: str, params: Mapping[str, str], *, warn: Callable[[str], None] = lambda _: None
    ) -> Iterator[Iterator[bytes]]:
        """Stream the chunks of a response. `warn` is called with the daemon's warning, if any."""
        with self._translated(), self._http.stream("GET", full_path(path), params=params) as answer:
            if answer.is_error:
                answer.read()
                raise refusal(json_of(answer), answer.status_code)
            if "Warning" in answer.headers:
                warn(_warning(answer.headers["Warning"]))
            yield answer.iter_bytes()

    @contextmanager
    def lines(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        table: bool = False,
        seconds: float = math.inf,
        json: Any = None,
    ) -> Iterator[Iterator[str]]:
        """Stream the lines of a response. TimedOut once `seconds` are over, whatever arrives. `json`: of a POST."""
        deadline = time.monotonic() + seconds
        limits = httpx.Timeout(10.0, read=None if math.isinf(seconds) else seconds)
        options: dict[str, Any] = {"headers": TABLE if table else None} if json is None else posted(json)
        method = "GET" if json is None else "POST"
        try:
            with (
                self._translated(),
                self._http.stream(method, full_path(path), params=params, timeout=limits, **options) as answer,
            ):
                if answer.is_error:
                    answer.read()
                    raise refusal(json_of(answer), answer.status_code)
                with _cut_off_at(answer, deadline) as reached:
                    yield _lines(_until(reached, answer.iter_bytes(), str(self.server)))
        except ClientError as error:
            if isinstance(error.__cause__, httpx.ReadTimeout):
                raise TimedOut(str(error)) from error
            raise

    def close(self) -> None:
        """Free the connection."""
        self._http.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise unreachable(self.server, str(error)) from error
        except httpx.HTTPError as error:
            raise ClientError(
                f"the connection to {self.server} broke: {error}; check that the daemon is running"
            ) from error


def transport_options(server: Server, *, max_connections: int | None = None) -> dict[str, Any]:
    """Return the options of httpx's transports for a daemon. Certificates are only loaded for TLS."""
    verify = trusted(server) if server.url.startswith("https") else False
    limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS)
    return {"uds": server.socket or None, "verify": verify, "trust_env": False, "limits": limits}


def proxy_options(server: Server, path: str) -> dict[str, Any]:
    """Return the options of httpx's clients of a program behind a path of the daemon."""
    auth = _ProxyAuth(httpx.URL(f"{server.url}{full_path(path)}/"), authorization(server))
    return {"base_url": auth.base, "auth": auth, "timeout": httpx.Timeout(10.0, read=None), "trust_env": False}


class _ProxyAuth(httpx.Auth):
    """The daemon's credentials, for requests below one path alone. Raises ClientError for another address."""

    def __init__(self, base: httpx.URL, headers: Mapping[str, str]) -> None:
        self.base, self._headers = base, headers

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        is_daemon = (request.url.scheme, request.url.netloc) == (self.base.scheme, self.base.netloc)
        if not is_daemon or not request.url.raw_path.startswith(self.base.raw_path):
            raise ClientError(f"{request.url}: not below {self.base}; use a client of your own for other addresses")
        request.headers.update(self._headers)
        yield request


class LineSplitter:
    """Lines of a stream in pieces of any size. They end at a line feed alone: JSON may hold other line breaks.

    A line of more than `MAX_LINE_BYTES` comes in parts: who writes it may be a program of a sandbox.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, piece: bytes) -> list[str]:
        """Return the lines that this piece ends."""
        first, *line_starts = piece.split(b"\n")
        self._add(first)
        lines = []
        for line_start in line_starts:
            lines += self.flush(empty=True)
            self._add(line_start)
        return lines + (self.flush() if self._held > MAX_LINE_BYTES else [])

    def _add(self, piece: bytes) -> None:
        self._parts.append(piece)
        self._held += len(piece)

    def flush(self, *, empty: bool = False) -> list[str]:
        """Return the last line, if there is one without an end."""
        line = b"".join(self._parts)
        self._parts = []
        self._held = 0
        return [line.removesuffix(b"\r").decode(errors="replace")] if line or empty else []


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    lines = LineSplitter()
    for piece in pieces:
        yield from lines.feed(piece)
    yield from lines.flush()


@contextmanager
def _cut_off_at(answer: httpx.Response, deadline: float) -> Iterator[threading.Event]:
    """Shut the connection of a response down at a deadline; yield the event of it.

    This wakes a reader that waits. A read time-out would begin again with every byte that arrives.
    """
    reached = threading.Event()
    if math.isinf(deadline):
        yield reached
        return

    def cut() -> None:
        reached.set()
        with suppress(OSError):
            # Not the method of an SSLSocket: it takes the state away that its reader uses.
            socket.socket.shutdown(answer.extensions["network_stream"].get_extra_info("socket"), socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield reached
    finally:
        timer.cancel()


def _until(reached: threading.Event, pieces: Iterable[bytes], server: str) -> Iterator[bytes]:
    """Yield the pieces of a body. Raises TimedOut once its connection was cut off."""
    try:
        for piece in pieces:
            if reached.is_set():
                break
            yield piece
    except httpx.HTTPError:
        if not reached.is_set():
            raise
    if reached.is_set():
        raise TimedOut(f"{server} did not end its answer within the time allowed")


def connect(address: str | Server | None = None) -> Connection:
    """Connect to the daemon at that address, or to the one that `locate` finds. Raises BadAddress, Unreachable."""
    server = address if isinstance(address, Server) else locate(address)
    if server.socket:
        # httpcore never closes a socket whose connect failed, and its message is worse.
        dial(server).close()
    return Connection(server)


def segment(text: str) -> str:
    """Quote a name as one path segment."""
    return quote(text, safe="")


def full_path(path: str) -> str:
    """Return the absolute path of one relative to the API version."""
    return path if path.startswith("/") else f"{PREFIX}/{path}"


def _warning(header: str) -> str:
    """Return the text of `299 - "text"`."""
    quoted = header.split(" ", 2)[-1]
    try:
        return str(json_.loads(quoted))
    except ValueError:
        return quoted


def date_of(answer: httpx.Response) -> float:
    """Return the end of the second in which a response was written; of this machine's clock if it has no date."""
    text = answer.headers.get("Date")
    return (parsedate_to_datetime(text).timestamp() if text else time.time()) + 1.0


def posted(json: Any) -> dict[str, Any]:
    """Return the options of a request with a JSON body."""
    content, headers = body_of(json, None, "")
    return {"content": content, "headers": headers}


def body_of(json: Any, text: str | None, content_type: str) -> tuple[str | None, Mapping[str, str]]:
    """Return the body of a request, and the header of its type.

    Surrogate escapes stand for bytes that are not UTF-8: JSON can write those by their numbers alone.
    """
    types = {"Content-Type": content_type} if content_type else {}
    if json is None:
        return text, types
    body = json_.dumps(json, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        body.encode()
    except UnicodeEncodeError:
        body = json_.dumps(json)
    return body, {"Content-Type": "application/json", **types}


def json_of(answer: httpx.Response) -> Any:
    """Return the body as JSON, or None if it is malformed."""
    try:
        return answer.json()
    except ValueError:
        return None


MAX_RETRIES = 5
_MAX_WAIT_SECONDS = 10.0


class RetryingTransport(httpx.BaseTransport):
    """Transport that retries a request, a few times, after a 429 response with `Retry-After`, a read after a 503, too.

    A streamed body can't be sent again: its response is returned at once.
    """

    def __init__(self, inner: httpx.BaseTransport, sleep: Callable[[float], None] = time.sleep) -> None:
        self._inner, self._sleep = inner, sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        is_repeatable = isinstance(request.stream, httpx.ByteStream)
        for _ in range(MAX_RETRIES if is_repeatable else 0):
            answer = self._sent(request)
            answer.request = request
            wait = retry_seconds(answer)
            if wait is None:
                return answer
            answer.close()
            self._sleep(wait)
        return self._sent(request)

    def _sent(self, request: httpx.Request) -> httpx.Response:
        with logged(request.method, request.url.raw_path.decode("latin-1")) as log_entry:
            answer = self._inner.handle_request(request)
            log_entry.status = answer.status_code
        return answer

    def close(self) -> None:
        self._inner.close()


def retry_seconds(answer: httpx.Response) -> float | None:
    """Return the wait that the daemon asks for before a retry; None: don't retry."""
    value = answer.headers.get("Retry-After", "")
    may_retry = answer.status_code == 429 or (answer.status_code == 503 and answer.request.method in ("GET", "HEAD"))
    if not may_retry or not value.isdecimal() or float(value) > _MAX_WAIT_SECONDS:
        return None
    return float(value)
