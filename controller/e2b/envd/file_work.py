"""Operations on the files of a sandbox, on threads of their own, audited as the API's are."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

from controller.e2b.envd.workplace import Workplace
from controller.e2b.parts import Parts
from controller.kinds.access.access import Verb
from controller.kinds.runtime.files import READ_OPERATIONS, FileRequest
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.sandbox.files import Work

T = TypeVar("T")
_SUB = {"stat": "files/stat", "list": "files/list", "mkdir": "files/folder"}
_PART_BYTES = 1 << 20


class FileWork:
    """File operations of this protocol."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self.files = parts, parts.services.files
        self._limiter = anyio.CapacityLimiter(2 * self.files.limits.total + 8)

    async def run(self, do: Callable[..., T], *arguments: object) -> T:
        """Return the result of a blocking call. A cancelled one goes on until its work is closed."""
        return await anyio.to_thread.run_sync(do, *arguments, abandon_on_cancel=True, limiter=self._limiter)

    @asynccontextmanager
    async def opened(self, place: Workplace, request: FileRequest, *, again: bool = False) -> AsyncIterator[Work]:
        """Begin an operation, and close it at the end. Raises ServiceError."""
        work = await self.begin(place, request, again=again)
        try:
            yield work
        finally:
            await self.close(work)

    async def begin(self, place: Workplace, request: FileRequest, *, again: bool = False) -> Work:
        """Begin an operation, which the caller closes. `again`: as part of a use that is recorded.

        Raises ServiceError.
        """
        verb: Verb = "get" if request.op in READ_OPERATIONS else "use"
        sub = _SUB.get(request.op, "files")

        def begin() -> Work:
            if again:
                self._parts.require(verb, place.namespace, place.name, sub)
            else:
                self._parts.use(place.namespace, place.name, sub, verb)
            return self.files.begin(SANDBOX, place.namespace, place.name, request)

        # Not abandoned by a client that leaves: nobody would close the work, and its slot were lost for good.
        return await anyio.to_thread.run_sync(begin, limiter=self._limiter)

    async def result(self, place: Workplace, request: FileRequest, *, again: bool = False) -> dict[str, Any]:
        """Return the result of an operation without data. Raises ServiceError."""
        async with self.opened(place, request, again=again) as work:
            return await self.run(work.result)

    async def close(self, work: Work) -> None:
        """Close the work, even if the request is cancelled meanwhile."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(work.close, limiter=self._limiter)


class Upload:
    """Data on their way into a file: sent in larger parts, since every change of threads costs time."""

    def __init__(self, files: FileWork, work: Work) -> None:
        self._files, self._work = files, work
        self._pieces: list[bytes] = []
        self._size = self._total = 0

    async def add(self, piece: bytes) -> None:
        """Add a piece. Raises ServiceError."""
        self._total += len(piece)
        self._files.files.refuse_larger(self._total)
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _PART_BYTES:
            await self._send()

    async def end(self) -> dict[str, Any]:
        """Finish the file, and return what is known of it. Raises ServiceError."""
        await self._send()
        await self._files.run(self._work.end)
        return await self._files.run(self._work.result)

    async def _send(self) -> None:
        data, self._pieces, self._size = b"".join(self._pieces), [], 0
        if data:
            await self._files.run(self._work.send, data)


def kind_of(error: Exception) -> str:
    """Return the word for programs of a failed file operation; "" for other errors."""
    causes = getattr(error, "causes", ())
    return str(causes[0].get("reason", "")) if causes else ""
