"""A tool, one call of it, and what all tools share: rights, audit, progress, blocking work."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import anyio

from controller.kinds.access.access import AccessRequest, Role, Verb
from controller.kinds.common.chunk import Chunk
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.kinds.sandbox import KIND as SANDBOX
from controller.mcp.arguments import Arguments, Result
from controller.mcp.outputs import Outputs
from controller.ports import StreamError
from controller.service.access import access
from controller.service.errors import NotFound, of_stream
from controller.service.exec.reading import Reading
from controller.service.services import Services

T = TypeVar("T")
IsHere = Callable[[str, str], bool]  # if a sandbox, by namespace and name, is of no other host
Progress = Callable[[float, float | None, str], Awaitable[None]]
Run = Callable[["Call", Any], Awaitable[Result | Mapping[str, Any]]]
RESOURCE = "resource"  # the field of a result with the URI of what was left out
WAIT_SECONDS = 25.0  # below the time-out of common clients
_POLL_SECONDS = 0.1
_REPORT_SECONDS = 1.0


class Picture(NamedTuple):
    """A picture beside the text of an answer; `data` is in base64."""

    mime: str
    data: str


@dataclass(frozen=True, slots=True)
class Basic:
    """A tool as the toolset `basic` lists it: in few words, with the arguments that most calls need."""

    description: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that agents may call."""

    name: str
    """Name, such as sandbox.create."""
    title: str
    """Name for people."""
    description: str
    """Text for the model that chooses it."""
    arguments: type[Arguments]
    """Model of its arguments."""
    result: type[Result]
    """Model of its result."""
    run: Run
    """Function that does it."""
    role: Role = "user"
    """Least role that any use of it needs; what it does is decided by each object's own rules."""
    read_only: bool = False
    """It changes nothing."""
    destructive: bool = False
    """It may remove or overwrite."""
    idempotent: bool = False
    """A second call changes nothing more."""
    long_texts: tuple[str, ...] = ()
    """Fields of the result that may be shortened so that the message fits."""
    basic: Basic | None = None
    """The tool as the toolset `basic` lists it; None: that lacks it."""
    at_host: bool = False
    """Only the daemon of the sandbox's host can answer."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `namespace` is that of arguments that name none. `progress` takes done, total and a message.

    `size_bytes` is the size of its request. `outputs` keeps what is too long for its answer. `is_here` is None where
    there is one host.
    """

    services: Services
    namespace: str
    progress: Progress
    size_bytes: int = 0
    outputs: Outputs = field(default_factory=Outputs)
    is_here: IsHere | None = None

    async def thread(self, do: Callable[..., T], *arguments: Any, **kwargs: Any) -> T:
        """Return the result of a blocking call."""
        return await anyio.to_thread.run_sync(partial(do, *arguments, **kwargs))

    async def parse(self, do: Callable[..., T], *arguments: Any, **kwargs: Any) -> T:
        """Return the result of a call that parses texts of the caller. Raises TooManyRequests."""
        return await self.services.parsing.run(self.size_bytes, do, *arguments, **kwargs)

    async def read(self, open_stream: Callable[[], Iterator[Chunk]], do: Callable[[Iterator[Chunk]], T]) -> T:
        """Open a stream, and return what `do` makes of it. Raises what either raises; a StreamError as unavailable."""
        try:
            return await Reading(open_stream).run(do)
        except StreamError as error:
            raise of_stream(error) from error

    def require(self, verb: Verb, kind: Kind, namespace: str, name: str = "", sub: str = "") -> None:
        """Raise Forbidden or NotFound unless the caller may do this, as the API's routes do."""
        access.require(AccessRequest(verb, kind.name, namespace, name, sub), self.services.registry)

    def use(self, verb: Verb, namespace: str, name: str, sub: str, **detail: Any) -> Callable[[], None]:
        """Require the right to work in a sandbox. Return what records the use: call it on a thread before it starts."""
        self.require(verb, SANDBOX, namespace, name, sub)
        ask = AccessRequest(verb, SANDBOX.name, namespace, name, sub)
        return partial(self.services.recorder.record_use, ask, detail)

    async def wait(
        self, namespace: str, name: str, done: Callable[[StoredObject | None], str | None], seconds: float
    ) -> StoredObject | None:
        """Return the sandbox once `done` returns None for it, or after so many seconds. None: it is gone.

        `done` returns the message of what it waits for, which is reported as progress.
        """
        started_at = reported = time.monotonic()
        while True:
            sandbox = await self.thread(self._sandbox, namespace, name)
            waits_for, now = done(sandbox), time.monotonic()
            if waits_for is None or now - started_at >= seconds:
                return sandbox
            if now - reported >= _REPORT_SECONDS:
                reported = now
                await self.progress(round(now - started_at, 1), seconds, waits_for)
            await asyncio.sleep(_POLL_SECONDS)

    def _sandbox(self, namespace: str, name: str) -> StoredObject | None:
        try:
            return self.services.objects.get(SANDBOX, namespace, name)
        except NotFound:
            return None
