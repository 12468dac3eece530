"""Transfer of a file operation's data between a request and blocking work, in constant memory.

Calls into the work have a thread limiter of their own, so that waiting transfers do not delay other requests.
A client that disconnects or sends nothing for too long ends the work. So does one that reads nothing
(stalled_clients.py).
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import anyio
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from controller.service.errors import BadRequest, ServiceError
from controller.service.sandbox.files import SandboxFiles, Work

T = TypeVar("T")
_log = structlog.get_logger("paddock.api")
_PART_BYTES = 1 << 20


class Threads:
    """Threads for blocking calls into file operations."""

    def __init__(self, files: SandboxFiles) -> None:
        # An operation is in one thread at a time, and its end may be in another.
        self._limiter = anyio.CapacityLimiter(2 * files.limits.total + 8)

    async def run(self, do: Callable[..., T], *arguments: Any) -> T:
        """Return the call's result. A cancelled call goes on until its work is closed."""
        return await anyio.to_thread.run_sync(do, *arguments, abandon_on_cancel=True, limiter=self._limiter)

    async def close(self, work: Work) -> None:
        """Close the work, even if the request is cancelled meanwhile."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(work.close, limiter=self._limiter)


async def take_in(request: Request, work: Work, threads: Threads, files: SandboxFiles) -> dict[str, Any]:
    """Send the request's body to the work and return its result. Raises ServiceError."""
    body = request.stream().__aiter__()
    count, batch = 0, _Batch(work, threads)
    try:
        while True:
            try:
                async with asyncio.timeout(files.limits.stall_seconds):
                    piece = await anext(body)
            except StopAsyncIteration:
                break
            count += len(piece)
            files.refuse_larger(count)
            await batch.add(piece)
        await batch.flush()
        await threads.run(work.end)
        return await threads.run(work.result)
    except TimeoutError:
        raise silent(files) from None
    except ClientDisconnect:
        raise BadRequest("the client disconnected") from None
    finally:
        batch.cancel()


def silent(files: SandboxFiles) -> BadRequest:
    """Return the error for a client that sends nothing."""
    message = f"nothing was sent for {files.limits.stall_seconds:g} s (transfer_stall_seconds)"
    return BadRequest(f"{message}: the transfer was ended; incomplete files were removed")


class _Batch:
    """Buffer that sends data to slow work in larger parts, because every change of threads costs time.

    It holds at most two parts and a piece. Cancel it in the end.
    """

    def __init__(self, work: Work, threads: Threads) -> None:
        self._work, self._threads = work, threads
        self._pieces: list[bytes] = []
        self._size = 0
        self._sending: asyncio.Task[None] | None = None

    async def add(self, piece: bytes) -> None:
        """Add a piece. Raises the error of an earlier one."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._sending is None or self._sending.done() or self._size >= _PART_BYTES:
            await self._hand_over()

    async def flush(self) -> None:
        """Send all of it and wait."""
        await self._hand_over()
        await self._sent()

    def cancel(self) -> None:
        """Cancel the part that is being sent."""
        if self._sending is not None:
            self._sending.cancel()

    async def _hand_over(self) -> None:
        await self._sent()
        data = b"".join(self._pieces)
        self._pieces = []
        self._size = 0
        if data:
            self._sending = asyncio.create_task(self._threads.run(self._work.send, data))
            # Retrieve the exception: the work's result reports it.
            self._sending.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _sent(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            await sending


class WorkResponse(Response):
    """A response whose body is the work's output. It closes the work."""

    def __init__(self, work: Work, threads: Threads, *, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(media_type=media_type, headers=headers)
        if "content-length" not in headers:
            del self.headers["content-length"]  # that of an empty body
        self._work, self._threads = work, threads

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        disconnected = asyncio.create_task(_until_disconnect(receive))
        try:
            await asyncio.wait({sending, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, disconnected):
                task.cancel()
            await self._threads.close(self._work)
            with contextlib.suppress(asyncio.CancelledError):
                await sending

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            while piece := await self._threads.run(self._work.receive):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await self._threads.run(self._work.result)
        except (ServiceError, OSError) as error:
            # The response has started: an unfinished body reports the error to the client.
            _log.info("transfer failed", error=str(error))
            return
        await send({"type": "http.response.body", "body": b""})


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
