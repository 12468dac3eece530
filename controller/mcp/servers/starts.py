"""Sessions for the requests of one event loop. Starts are slow: they have threads of their own, and callers a share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from weakref import WeakValueDictionary

import anyio

from controller.mcp.servers.session import Session
from controller.mcp.servers.sessions import Key, Sessions, StartRefused
from controller.service.mcp.server import Server

_THREADS = 32
_OF_CALLER = 4
_TRIES = 2  # a session that ended is begun anew once


class Starts:
    """Finds and begins sessions. A start goes on when the request that began it is cancelled."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._threads: anyio.CapacityLimiter | None = None
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    async def session(self, server: Server, caller: str, connection: str) -> Session:
        """Return the caller's session of this connection, a new one if there is none. Raises ServiceError."""
        why = ""
        for _ in range(_TRIES):
            key, future, is_new = self._sessions.claim(server, caller, connection)
            if is_new:
                task = asyncio.create_task(self._open(key, server, future))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            session = await asyncio.shield(asyncio.wrap_future(future))  # it is not of this request alone
            if not session.client.is_gone:
                if session.client.tools_changed:
                    await self._in_thread(caller, self._sessions.learn_again, key, future)
                self._sessions.use(session)
                return session
            why = session.client.why
            await self._in_thread(caller, self._sessions.drop, key, future)
        raise StartRefused(f"{server}: StartFailed: {why}")

    async def _open(self, key: Key, server: Server, future: "Future[Session]") -> None:
        try:
            await self._in_thread(key[2], self._sessions.open, key, server, future)
        finally:
            if not future.done():
                self._sessions.abandon(key, future)

    async def _in_thread(self, caller: str, do: Callable[..., Any], *args: Any) -> None:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_THREADS)
        share = self._shares.setdefault(caller, asyncio.Semaphore(_OF_CALLER))
        async with share:
            await anyio.to_thread.run_sync(do, *args, limiter=self._threads)
