"""Dependencies of route handlers: what one application keeps in `app.state` for all of its requests."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import anyio
from fastapi import Depends
from starlette.requests import HTTPConnection

from controller.api.common.parsing import Parsing
from controller.api.streams.watch import WatchStreams
from controller.service.services import Services

_LISTS_AT_ONCE = 2
_Result = TypeVar("_Result")


async def _services(connection: HTTPConnection) -> Services:
    found: Services = connection.app.state.services
    return found


async def _parsing(connection: HTTPConnection) -> Parsing:
    found: Parsing = connection.app.state.parsing
    return found


class ListThreads:
    """Threads that read and write lists: few, so that many clients that poll do not take the reconcile loop's time.

    The interpreter runs one thread at a time, each that can run in its turn. The other lists wait without one.
    """

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, do: Callable[..., _Result], *arguments: Any) -> _Result:
        """Run a function on one of them."""
        if self._limiter is None:  # it belongs to an event loop
            self._limiter = anyio.CapacityLimiter(_LISTS_AT_ONCE)
        return await anyio.to_thread.run_sync(do, *arguments, limiter=self._limiter)


async def _list_threads(connection: HTTPConnection) -> ListThreads:
    found: ListThreads = connection.app.state.list_threads
    return found


async def _watch_streams(connection: HTTPConnection) -> WatchStreams:
    found: WatchStreams = connection.app.state.watch_streams
    return found


# They are coroutines because FastAPI runs every other dependency on a thread.
UseCases = Annotated[Services, Depends(_services)]
LargeBodies = Annotated[Parsing, Depends(_parsing)]
Lists = Annotated[ListThreads, Depends(_list_threads)]
Watches = Annotated[WatchStreams, Depends(_watch_streams)]
