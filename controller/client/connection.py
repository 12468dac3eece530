"""HTTP connection to the daemon. Each failure becomes a ClientError that says what to do next."""

import json as json_
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx

from controller.client.credentials import authorization, trusted
from controller.client.errors import ClientError, TimeIsOver, refusal
from controller.client.server import Server, dial, locate, unreachable
from controller.version import API_VERSION, VERSION

PREFIX = f"/apis/{API_VERSION}"
TABLE = {"Accept": "application/json;as=Table"}
_AGENT = f"paddock/{VERSION}"
# How long a connection is kept for the next request. The daemon ends one that was idle for 5 s: what is sent in that
# moment is lost, and whoever sent it can not tell whether it was heeded (a soak found it).
IDLE_SECONDS = 2.0


class Connection:
    """HTTP with one daemon, from any thread. Paths are relative to the API version unless they start with `/`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        verify = trusted() if server.url.startswith("https") else False  # without TLS nothing is read for it
        kept = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS)
        transport = httpx.HTTPTransport(uds=server.socket or None, verify=verify, trust_env=False, limits=kept)
        # No time limit on reading: a long transaction ends, and a log that is followed may be silent for hours.
        limits = httpx.Timeout(10.0, read=None)
        headers = {"User-Agent": _AGENT, **authorization(server)}
        self._http = httpx.Client(
            base_url=server.url,
            transport=RetryingTransport(transport),
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
        table: bool = False,
        content_type: str = "",
    ) -> Any:
        """The JSON of the answer. Refused when the daemon says no. `content_type` is the body's, if not plain JSON."""
        headers = {**(TABLE if table else {}), **({"Content-Type": content_type} if content_type else {})}
        with self._translated():
            answer = self._http.request(method, full_path(path), params=params, json=json, headers=headers)
            body = _json(answer)
        if answer.is_error or body is None:
            raise refusal(body, answer.status_code)
        return body

    def get(self, path: str, *, table: bool = False, **params: str) -> Any:
        """GET; parameters that are empty are left out."""
        return self.request("GET", path, params={key: value for key, value in params.items() if value}, table=table)

    @contextmanager
    def stream(
        self, path: str, params: Mapping[str, str], *, warn: Callable[[str], None] = lambda _: None
    ) -> Iterator[Iterator[bytes]]:
        """The pieces of an answer as they come. `warn` is called with what the daemon says about it, if anything."""
        with self._translated(), self._http.stream("GET", full_path(path), params=params) as answer:
            if answer.is_error:
                answer.read()
                raise refusal(_json(answer), answer.status_code)
            if "Warning" in answer.headers:
                warn(_warning(answer.headers["Warning"]))
            yield answer.iter_bytes()

    @contextmanager
    def lines(
        self, path: str, params: Mapping[str, str], *, table: bool = False, seconds: float = math.inf
    ) -> Iterator[Iterator[str]]:
        """The lines of an answer as they come. TimeIsOver when none has come for `seconds`."""
        limits = httpx.Timeout(10.0, read=None if math.isinf(seconds) else seconds)
        headers = TABLE if table else None
        try:
            with (
                self._translated(),
                self._http.stream("GET", full_path(path), params=params, headers=headers, timeout=limits) as answer,
            ):
                if answer.is_error:
                    answer.read()
                    raise refusal(_json(answer), answer.status_code)
                yield answer.iter_lines()
        except ClientError as error:
            if isinstance(error.__cause__, httpx.ReadTimeout):
                raise TimeIsOver(str(error)) from error
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
                f"the connection to {self.server} broke: {error}; is the daemon still running?"
            ) from error


def connect(address: str | None = None) -> Connection:
    """A connection to the daemon at that address, or to the one that `locate` finds. Raises BadAddress, Unreachable."""
    server = locate(address)
    if server.socket:
        # httpcore never closes a socket whose connect failed, and its words are worse.
        dial(server).close()
    return Connection(server)


def segment(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")


def full_path(path: str) -> str:
    """A path relative to the API version as the server knows it."""
    return path if path.startswith("/") else f"{PREFIX}/{path}"


def _warning(header: str) -> str:
    """The text of `299 - "text"`."""
    quoted = header.split(" ", 2)[-1]
    try:
        return str(json_.loads(quoted))
    except ValueError:
        return quoted


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


_MAX_RETRIES = 5
_MAX_WAIT_SECONDS = 10.0


class RetryingTransport(httpx.BaseTransport):
    """Another transport, but an answer 429 with `Retry-After` is heeded, a few times, before it is given.

    A body that is sent as it comes can't be sent again: its answer is given at once.
    """

    def __init__(self, inner: httpx.BaseTransport, sleep: Callable[[float], None] = time.sleep) -> None:
        self._inner, self._sleep = inner, sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        same = isinstance(request.stream, httpx.ByteStream)
        for _ in range(_MAX_RETRIES if same else 0):
            answer = self._inner.handle_request(request)
            wait = _seconds(answer)
            if wait is None:
                return answer
            answer.close()
            self._sleep(wait)
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


def _seconds(answer: httpx.Response) -> float | None:
    told = answer.headers.get("Retry-After", "")
    if answer.status_code != 429 or not told.isdecimal() or float(told) > _MAX_WAIT_SECONDS:
        return None
    return float(told)
