"""Parts that the calls of E2B's protocol share: services, settings, key, state folder, bodies made while sent."""

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import structlog
from starlette.responses import StreamingResponse
from starlette.types import Send

from controller.kinds.access.access import AccessRequest, Verb
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import Clock, Tokens
from controller.service.access import access
from controller.service.access.authenticate import Identify
from controller.service.errors import ServiceError
from controller.service.services import Services

T = TypeVar("T")
_log = structlog.get_logger("paddock.e2b")
ENVD_PORT, INTERPRETER_PORT = 49983, 49999
ENVD_VERSION = "0.5.7"  # clients refuse by themselves what later versions have
_KEY_BYTES = 32
IsHere = Callable[[str, str], bool]  # if a sandbox, by namespace and name, is of no other host


@dataclass(frozen=True, slots=True)
class Rules:
    """The operator's settings. `domain` is that of host names; `templates` maps E2B's names to images.

    `host` is this daemon's among many; empty: there is one.
    """

    domain: str
    templates: Mapping[str, str]
    folder: Path
    host: str = ""


@dataclass(frozen=True, slots=True)
class Parts:
    """The shared parts. `is_here` is None where there is one host."""

    services: Services
    identify: Identify
    tokens: Tokens
    clock: Clock
    rules: Rules
    is_here: IsHere | None = None

    def require(self, verb: Verb, namespace: str, name: str = "", sub: str = "", kind: str = SANDBOX.name) -> None:
        """Raise Forbidden or NotFound unless the caller may do this."""
        access.require(AccessRequest(verb, kind, namespace, name, sub), self.services.registry)

    def use(self, namespace: str, name: str, sub: str, verb: Verb = "use", **detail: object) -> None:
        """Require the right to work in a sandbox, and record the use before it begins. May block."""
        self.require(verb, namespace, name, sub)
        self.services.recorder.record_use(AccessRequest(verb, SANDBOX.name, namespace, name, sub), detail)


async def on_thread(do: Callable[..., T], *arguments: object) -> T:
    """Return the result of a blocking call."""
    return await anyio.to_thread.run_sync(do, *arguments)


def load_key(folder: Path) -> bytes:
    """Return the key of access tokens, which only the daemon reads; made at the first use. Raises OSError."""
    path = folder / "key"
    try:
        key = path.read_bytes()
        if len(key) == _KEY_BYTES:
            return key
    except FileNotFoundError:
        pass
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key, spare = secrets.token_bytes(_KEY_BYTES), path.with_suffix(".new")
    with os.fdopen(os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key)
    spare.replace(path)
    return key


class Stream(StreamingResponse):
    """A body that is made while it is sent. A failure leaves it unfinished, and closes the connection."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except ServiceError as error:
            _log.info("transfer failed", error=str(error))
