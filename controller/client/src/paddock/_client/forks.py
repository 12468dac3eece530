"""State that belongs to one process: connections, threads and locks, which a child after a fork makes anew.

A connection that two processes use gives the answer of one to the other. A child therefore opens its own, and leaves
its parent's as they are: what it would close or shut down, the parent still uses.
"""

import os
from collections.abc import Callable
from typing import Generic, TypeVar

import httpx

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value of the running process, created at its first use there. It has no lock: a fork could leave it locked."""

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._values: dict[int, T] = {}

    def get(self) -> T:
        """Return the value of this process; that of its parent is dropped, and not closed."""
        pid = os.getpid()
        value = self._values.get(pid)
        if value is None:
            value = self._values.setdefault(pid, self._create())  # one of two threads that create it wins
            for inherited in [other_pid for other_pid in self._values if other_pid != pid]:
                self._values.pop(inherited, None)
        return value

    def pop(self) -> T | None:
        """Forget the value of this process and return it, if there is one."""
        return self._values.pop(os.getpid(), None)


class ProcessTransport(httpx.BaseTransport):
    """Transport with a connection pool of its own in each process."""

    def __init__(self, create: Callable[[], httpx.BaseTransport]) -> None:
        self._pool = PerProcess(create)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._pool.get().handle_request(request)

    def close(self) -> None:
        if (pool := self._pool.pop()) is not None:
            pool.close()


class AsyncProcessTransport(httpx.AsyncBaseTransport):
    """The same for asyncio."""

    def __init__(self, create: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._pool = PerProcess(create)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._pool.get().handle_async_request(request)

    async def aclose(self) -> None:
        if (pool := self._pool.pop()) is not None:
            await pool.aclose()
