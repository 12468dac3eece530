"""A stream whose whole content is the answer; a client that disconnects meanwhile closes it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

from starlette.requests import Request

from controller.kinds.common.chunk import Chunk
from controller.service.exec.reading import Reading

T = TypeVar("T")


async def read(
    request: Request,
    open_stream: Callable[[], Iterator[Chunk]],
    do: Callable[[Iterator[Chunk]], T],
    *,
    keep: bool = False,
) -> T:
    """Open a stream and return what `do` makes of it. The request's body must have been read.

    `keep`: it stays open after that. Raises what either raises; then it is closed.
    """
    reading = Reading(open_stream, keep=keep)
    disconnect = asyncio.create_task(_stop_on_disconnect(request, reading))
    try:
        return await reading.run(do)
    finally:
        disconnect.cancel()


async def _stop_on_disconnect(request: Request, reading: Reading) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    reading.stop()
