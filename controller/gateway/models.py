"""ports.Models over the gateway's process: agent stages ask their models as sandboxes do, without a key."""

import json
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

import httpcore

from controller.gateway.config import Target, User
from controller.gateway.conversation import ROUTES, Form, error_of, reply_of, request_body, wants_newer_bound
from controller.ports import ModelError, ModelReply, ModelRequest

_LOOK_SECONDS = 0.25
_MOST_BYTES = 16 << 20
_AGAIN = (408, 409, 425, 429)
_LIMITED = 429
_MOST_NOTED = 1024


class Connects(Protocol):
    """The supervisor of the gateway's process, as this needs it."""

    def connect(self, namespace: str, source: str, user: User, seconds: float) -> tuple[socket.socket, Target]:
        """Return a connection to the process for one source, and that source. Raises ModelError."""
        ...


class GatewayModels:
    """See ports.Models. `supervisor` is set once the gateway was begun. Thread-safe."""

    def __init__(self) -> None:
        self.supervisor: Connects | None = None
        self._newer: set[tuple[str, str]] = set()  # sources and models that take no `max_tokens`

    def complete(self, request: ModelRequest, *, seconds: float, stopped: Callable[[], bool]) -> ModelReply:
        """See ports.Models."""
        if self.supervisor is None:
            raise ModelError("the daemon is starting, and serves no models yet", again=True)
        until = time.monotonic() + seconds
        while True:
            user = User(request.namespace, request.run, "WorkflowRun")
            sock, target = self.supervisor.connect(request.namespace, request.provider, user, seconds)
            form: Form = "Anthropic" if target.form == "Anthropic" else "OpenAI"
            noted = (target.id, request.model)
            body = json.dumps(request_body(request, form, newer_bound=noted in self._newer)).encode()
            with sock:
                status, headers, answer = _exchange(sock, form, body, until, stopped)
            if status == 400 and noted not in self._newer and wants_newer_bound(answer):
                if len(self._newer) >= _MOST_NOTED:
                    self._newer.clear()
                self._newer.add(noted)
                continue
            if status != 200:
                raise _failure(target, status, headers, answer)
            return reply_of(request, form, body, answer)


def _exchange(
    sock: socket.socket, form: Form, body: bytes, until: float, stopped: Callable[[], bool]
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Send a request and return status, headers and body of its answer. Raises ModelError."""
    url = f"http://models/v1{ROUTES[form]}"
    headers: dict[bytes | str, bytes | str] = {
        "host": "models",
        "content-type": "application/json",
        "connection": "close",
    }
    headers |= {"content-length": str(len(body)), "anthropic-version": "2023-06-01"}
    stream = _Stream(sock, until, stopped)
    connection = httpcore.HTTP11Connection(origin=httpcore.Origin(b"http", b"models", 80), stream=stream)
    request = httpcore.Request("POST", url, headers=headers, content=body)
    try:
        response = connection.handle_request(request)
        parts, size = [], 0
        for chunk in response.iter_stream():
            parts.append(chunk)
            size += len(chunk)
            if size > _MOST_BYTES:
                raise ModelError(f"the model's answer is longer than {_MOST_BYTES} bytes")
        return response.status, {name.lower(): value for name, value in response.headers}, b"".join(parts)
    except httpcore.TimeoutException as error:
        raise ModelError("the model did not answer in time", again=True) from error
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise ModelError("the connection to the model broke off; the gateway may have ended", again=True) from error


def _failure(target: Target, status: int, headers: dict[bytes, bytes], answer: bytes) -> ModelError:
    lasting = headers.get(b"x-should-retry") == b"false"
    after = headers.get(b"retry-after", b"").decode("latin-1").strip()
    return ModelError(
        f"{target.subject} answered {error_of(status, answer)}",
        again=not lasting and (status in _AGAIN or status >= 500),
        limited=status == _LIMITED,
        retry_after=float(after) if after.isascii() and after.isdigit() and len(after) < 8 else 0.0,
    )


class _Stream(httpcore.NetworkStream):
    """A connection that is read until a deadline, or until its reader is stopped."""

    def __init__(self, sock: socket.socket, until: float, stopped: Callable[[], bool]) -> None:
        self._sock, self._until, self._stopped = sock, until, stopped

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        """Return some bytes, b"" at the end."""
        while True:
            # Before each read: a source that drips bytes never lets one time out.
            if self._stopped():
                raise ModelError("stopped on request", again=True)
            if (seconds_left := self._until - time.monotonic()) <= 0:
                raise httpcore.ReadTimeout
            self._sock.settimeout(min(_LOOK_SECONDS, seconds_left))
            try:
                return self._sock.recv(max_bytes)
            except TimeoutError:
                continue
            except OSError as error:
                raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        """Send all."""
        self._sock.settimeout(max(_LOOK_SECONDS, self._until - time.monotonic()))
        try:
            self._sock.sendall(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        """Close it."""
        self._sock.close()

    def get_extra_info(self, info: str) -> Any:  # noqa: ARG002
        """Return None: it has nothing of what is asked for."""
        return None
