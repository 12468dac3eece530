"""ports.Models over the gateway's process: agent stages ask their models as sandboxes do, without a key."""

import json
import socket
import time
from collections.abc import Callable
from typing import Protocol

from controller.gateway.config import Target, User
from controller.gateway.conversation import Form, error_of, reply_of, request_body, wants_newer_bound
from controller.ports import ModelError, ModelReply, ModelRequest

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
        from controller.gateway.exchange import exchange  # with an HTTP client that nothing else here needs

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
                status, headers, answer = exchange(sock, form, body, until, stopped)
            if status == 400 and noted not in self._newer and wants_newer_bound(answer):
                if len(self._newer) >= _MOST_NOTED:
                    self._newer.clear()
                self._newer.add(noted)
                continue
            if status != 200:
                raise _failure(target, status, headers, answer)
            return reply_of(request, form, body, answer)


def _failure(target: Target, status: int, headers: dict[bytes, bytes], answer: bytes) -> ModelError:
    lasting = headers.get(b"x-should-retry") == b"false"
    after = headers.get(b"retry-after", b"").decode("latin-1").strip()
    return ModelError(
        f"{target.subject} answered {error_of(status, answer)}",
        again=not lasting and (status in _AGAIN or status >= 500),
        limited=status == _LIMITED,
        retry_after=float(after) if after.isascii() and after.isdigit() and len(after) < 8 else 0.0,
    )
