"""Time-outs that pause a sandbox. Those that delete one are the reconcile loop's (`activeDeadlineSeconds`).

They are looked at once a second, from the first request of this protocol on.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from controller.e2b import metadata
from controller.kinds.meta import StoredObject
from controller.ports import Clock
from controller.service.access.access import acting
from controller.service.errors import ServiceError

_POLL_SECONDS = 1.0
_AGAIN_SECONDS = 10.0  # after a failure
_log = structlog.get_logger("paddock.e2b")
Pause = Callable[[str, str, str, float], Awaitable[None]]  # namespace, name, uid, and the time now


class Deadlines:
    """Pauses sandboxes at their time. For one event loop."""

    def __init__(self, clock: Clock, pause: Pause) -> None:
        self._clock, self._pause = clock, pause
        self._due: dict[str, tuple[float, str, str]] = {}
        self._task: asyncio.Task[None] | None = None

    def follow(self, obj: StoredObject) -> None:
        """Note the time-out of a sandbox, new or changed. On the event loop, or before it runs."""
        ends = metadata.seconds_in(obj, metadata.ENDS)
        if ends is None or obj.annotations.get(metadata.ON_TIMEOUT, "kill") == "kill":
            self._due.pop(obj.uid, None)
        else:
            self._due[obj.uid] = ends, obj.namespace, obj.name

    def begin(self) -> None:
        """Look from now on; called by each request."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while True:
            now = self._clock.now()
            for uid, (ends, namespace, name) in list(self._due.items()):
                if ends > now:
                    continue
                del self._due[uid]
                try:
                    with acting(None):
                        await self._pause(namespace, name, uid, now)
                except ServiceError as error:
                    _log.warning("sandbox not paused at its time", sandbox=f"{namespace}/{name}", why=str(error))
                    self._due[uid] = now + _AGAIN_SECONDS, namespace, name
            await asyncio.sleep(_POLL_SECONDS)
