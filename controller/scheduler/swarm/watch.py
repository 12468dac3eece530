"""Watch of a swarm: events for nodes and services, polling for placeholders that have no host yet.

The engine publishes an event when a node goes down or a service changes, but none when a task gets its node. So the
tasks of pending placeholders are polled, and only theirs: a settled fleet costs nothing.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.ports.common import Wake
from controller.ports.scheduler import SchedulerError
from controller.scheduler.swarm.api import Refusal, SwarmApi
from controller.scheduler.swarm.services import progress


@dataclass(frozen=True, slots=True)
class Waiting:
    """A placeholder that was last reported as Pending, and its progress then."""

    service: Mapping[str, Any]
    progress: tuple[str, str]


_FIRST_POLL_SECONDS, _MOST_POLL_SECONDS = 0.05, 2.0
_RECONNECT_SECONDS = 2.0
_TYPES = ("node", "service")


class Watch:
    """Two threads, which end with `stop`."""

    def __init__(self, api: SwarmApi, pending: Callable[[], Mapping[str, Waiting]], wake: Wake) -> None:
        self._api, self._pending, self._wake = api, pending, wake
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._stream: socket.socket | None = None
        self._hurry = threading.Event()  # something changed: poll at once
        for run in (self._follow, self._poll):
            threading.Thread(target=run, name=f"swarm{run.__name__}", daemon=True).start()

    def stop(self) -> None:
        """End the watch; `wake` may be called once more meanwhile."""
        self._ended.set()
        self._hurry.set()
        with self._lock:
            if self._stream is not None:
                with contextlib.suppress(OSError):
                    self._stream.shutdown(socket.SHUT_RDWR)

    def hurry(self) -> None:
        """Poll soon: another placeholder waits for a host."""
        self._hurry.set()

    def _follow(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(SchedulerError, Refusal), self._api.events(*_TYPES) as (link, lines):
                with self._lock:
                    self._stream = link
                if self._ended.is_set():
                    return
                self._notice()  # of what was missed
                for _ in lines:
                    self._notice()
            with self._lock:
                self._stream = None
            self._ended.wait(_RECONNECT_SECONDS)

    def _notice(self) -> None:
        self._hurry.set()
        self._wake()

    def _poll(self) -> None:
        pause = least = _FIRST_POLL_SECONDS
        while not self._ended.is_set():
            if self._hurry.wait(pause if self._pending() else None):
                self._hurry.clear()
                pause = least
                self._ended.wait(pause)  # a choice takes some milliseconds, and events come in bursts
            else:
                pause = min(pause * 1.5, max(least, _MOST_POLL_SECONDS))
            started_at, waiting = time.monotonic(), self._pending()
            with contextlib.suppress(SchedulerError, Refusal):
                if waiting and self._has_changed(waiting):
                    pause = least
                    self._wake()
            # Of hundreds that wait, a poll takes long: it has a fifth of the time at most.
            least = max(_FIRST_POLL_SECONDS, 4 * (time.monotonic() - started_at))

    def _has_changed(self, waiting: Mapping[str, Waiting]) -> bool:
        tasks_by_service: dict[str, list[Any]] = {service_id: [] for service_id in waiting}
        for task in self._api.get("/tasks", service=sorted(waiting)):
            tasks_by_service.get(task["ServiceID"], []).append(task)
        return any(progress(wait.service, tasks_by_service[key]) != wait.progress for key, wait in waiting.items())
