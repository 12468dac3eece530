"""Time-outs that pause a sandbox. Those that delete one are the reconcile loop's (`activeDeadlineSeconds`).

They are looked at once a second, on a thread, as long as there are any. A pause is only asked for here: the reconcile
loop carries it out, and one that takes long keeps no other sandbox from its time.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog

from controller.e2b import metadata
from controller.kinds.meta import StoredObject
from controller.ports import Clock
from controller.service.access.access import acting
from controller.service.errors import ServiceError

_POLL_SECONDS = 1.0
_AGAIN_SECONDS = 10.0  # after a failure
_log = structlog.get_logger("paddock.e2b")
Pause = Callable[[str, str, str, float], Awaitable[None]]  # asked for by namespace, name, uid, and the time now


class Deadlines:
    """Pauses sandboxes at their time. Thread-safe."""

    def __init__(self, clock: Clock, pause: Pause) -> None:
        self._clock, self._pause = clock, pause
        self._lock = threading.Lock()
        self._due: dict[str, tuple[float, str, str]] = {}
        self._starting = Counter[str]()  # by uid: how many wait until it runs
        self._runs = False

    @contextmanager
    def starting(self, uid: str) -> Iterator[None]:
        """Keep a sandbox from being paused meanwhile: whoever waits until it runs would wait in vain.

        Begin it before its time-out is followed.
        """
        with self._lock:
            self._starting[uid] += 1
        try:
            yield
        finally:
            with self._lock:
                self._starting[uid] -= 1
                if not self._starting[uid]:
                    del self._starting[uid]

    def follow(self, obj: StoredObject) -> None:
        """Note the time-out of a sandbox, new or changed."""
        ends = metadata.seconds_in(obj, metadata.ENDS)
        with self._lock:
            if ends is None or obj.annotations.get(metadata.ON_TIMEOUT, "kill") == "kill":
                self._due.pop(obj.uid, None)
                return
            self._due[obj.uid] = ends, obj.namespace, obj.name
            if self._runs:
                return
            self._runs = True
        threading.Thread(target=asyncio.run, args=(self._look(),), name="e2b-deadlines", daemon=True).start()

    async def _look(self) -> None:
        while uids := self._uids():
            now = self._clock.now()
            for uid in uids:
                await self._look_at(uid, now)
            await asyncio.sleep(_POLL_SECONDS)

    def _uids(self) -> list[str]:
        """Return whose time is to be looked at; none: the thread ends."""
        with self._lock:
            self._runs = bool(self._due)
            return list(self._due)

    async def _look_at(self, uid: str, now: float) -> None:
        """Pause a sandbox if its time has passed."""
        with self._lock:
            ends, namespace, name = self._due.get(uid, (now + 1.0, "", ""))
            if ends > now or uid in self._starting:
                return
            del self._due[uid]
        try:
            with acting(None):
                await self._pause(namespace, name, uid, now)
        except Exception as error:  # of one sandbox: the others have their time too
            expected = isinstance(error, ServiceError)
            _log.warning(
                "sandbox not paused at its time",
                sandbox=f"{namespace}/{name}",
                why=str(error),
                exc_info=None if expected else error,
            )
            with self._lock:
                self._due.setdefault(uid, (now + _AGAIN_SECONDS, namespace, name))
