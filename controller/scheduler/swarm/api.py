"""HTTP to one engine, for its swarm's API: JSON in and out, a connection for each request, a stream of events."""

import contextlib
import http
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from controller.kinds.runtime.engine_api import OLDEST, negotiated, parse_version
from controller.ports.scheduler import SchedulerError, SchedulerProblem

_FAILED = (OSError, http.client.HTTPException, ValueError)


class Refusal(Exception):
    """An answer of HTTP status 400 or above. `message` is the engine's, for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class SwarmApi:
    """Calls to one engine. Connects at the first call. Every call may raise Refusal or SchedulerError."""

    def __init__(self, base_url: str, *, timeout_seconds: float) -> None:
        """`base_url` is `unix://<path>` or `tcp://<host>:<port>`. Raises ValueError for any other."""
        self.base_url = base_url
        self._timeout_seconds = timeout_seconds
        self._version: tuple[int, int] | None = None
        _connection(base_url, timeout_seconds)

    @property
    def version(self) -> tuple[int, int]:
        """Version of the API that both sides know; asked again once the engine refuses it."""
        if self._version is None:
            versions = self._request("GET", "/version", None)
            newest, lowest = (parse_version(str(versions.get(name) or "")) for name in ("ApiVersion", "MinAPIVersion"))
            self._version = max(OLDEST, negotiated(newest, lowest))
        return self._version

    def get(self, path: str, **filters: list[str]) -> Any:
        return self._call("GET", path, filters=filters)

    def post(self, path: str, body: Any, **parameters: str) -> Any:
        return self._call("POST", path, body=json.dumps(body).encode(), parameters=parameters)

    def delete(self, path: str) -> None:
        self._call("DELETE", path)

    def load_image(self, archive: bytes) -> None:
        """Load the images of a tar archive, as `docker load` does."""
        path = self._path("/images/load", {"quiet": "1"})
        self._request("POST", path, archive, kind="application/x-tar", is_json=False)

    def find(self, path: str) -> Any:
        """Return what is there, or None."""
        try:
            return self.get(path)
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            return None

    @contextlib.contextmanager
    def events(self, *types: str) -> Iterator[tuple[socket.socket, Iterator[bytes]]]:
        """Open the stream of events of these types: its socket, to be shut down by another thread, and its lines."""
        link = _connection(self.base_url, self._timeout_seconds)
        try:
            link.request("GET", self._path("/events", {"filters": json.dumps({"type": list(types)})}))
            answer = link.getresponse()
            if answer.status >= 400:
                raise Refusal(answer.status, answer.read().decode(errors="replace"))
            assert link.sock is not None
            link.sock.settimeout(None)
            with answer:
                yield link.sock, iter(answer.readline, b"")
        except _FAILED as error:
            raise self._unreachable(error) from error
        finally:
            link.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        filters: Mapping[str, list[str]] | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> Any:
        query = dict(parameters or {})
        if filters:
            query["filters"] = json.dumps(filters)
        return self._request(method, self._path(path, query), body)

    def _path(self, path: str, parameters: Mapping[str, str]) -> str:
        version = ".".join(map(str, self.version))
        return f"/v{version}{path}{'?' if parameters else ''}{urlencode(parameters)}"

    def _request(
        self, method: str, path: str, body: bytes | None, *, kind: str = "application/json", is_json: bool = True
    ) -> Any:
        with contextlib.closing(_connection(self.base_url, self._timeout_seconds)) as link:
            try:
                link.request(method, path, body, {"Content-Type": kind} if body is not None else {})
                answer = link.getresponse()
                answer_body = answer.read()
                if answer.status < 400:
                    return json.loads(answer_body) if answer_body and is_json else None
            except _FAILED as error:
                raise self._unreachable(error) from error
            if answer.status == http.HTTPStatus.BAD_REQUEST and self._is_replaced():
                raise self._unreachable(OSError("another version has taken its place, and is asked again"))
            raise Refusal(answer.status, _message(answer_body))

    def _is_replaced(self) -> bool:
        """Tell whether the engine has another version of the API now than the one in use."""
        version, self._version = self._version, None
        return version is not None and self.version != version

    def _unreachable(self, error: Exception) -> SchedulerError:
        return SchedulerError(
            SchedulerProblem.UNREACHABLE,
            f"Docker Swarm: the engine at {self.base_url} does not answer ({error}); see `journalctl -u docker`",
        )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


def _connection(base_url: str, timeout_seconds: float) -> http.client.HTTPConnection:
    parts = urlsplit(base_url)
    if parts.scheme == "unix" and parts.path:
        return _UnixConnection(parts.path, timeout_seconds)
    if parts.scheme in ("tcp", "http") and parts.hostname:
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_seconds)
    raise ValueError(f"`{base_url}` is not an engine address; write unix:///path or tcp://host:port")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"]).strip()
    except (ValueError, TypeError, KeyError):
        return body.decode(errors="replace").strip()
