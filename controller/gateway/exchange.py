"""One exchange with the gateway's process over a connection, as HTTP. It is loaded when a stage first asks a model."""

import socket
import time
from collections.abc import Callable
from typing import Any

import httpcore

from controller.gateway.conversation import ROUTES, Form
from controller.ports import ModelError

_LOOK_SECONDS = 0.25
_MOST_BYTES = 16 << 20


def exchange(
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
