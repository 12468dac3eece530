"""Notifications of servers for whoever listens on their connection: bounded, and repeated ones become one."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from controller.service.mcp.server import Server

Params = Mapping[str, Any]
Place = tuple[str, str]
"""A caller, and their connection."""
MESSAGE, UPDATED = "notifications/message", "notifications/resources/updated"
TOOLS_CHANGED = "notifications/tools/list_changed"
PROMPTS_CHANGED, RESOURCES_CHANGED = "notifications/prompts/list_changed", "notifications/resources/list_changed"
PROGRESS = "notifications/progress"
KNOWN = (MESSAGE, UPDATED, TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED)
ENDED = "paddock/ended"
"""Not of the protocol: the session has ended."""
_MOST_WAITING = 500  # for one listener; what comes after is lost until some are taken


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification of a server, or (server None) of Paddock's about all of a namespace."""

    namespace: str
    server: Server | None
    method: str
    params: Params = field(default_factory=dict)


class Mailbox:
    """Notices for one listener. Any thread may `put` and `wake`; it is read on the loop that made it.

    `of_call`: it belongs to a call in progress, and gets log messages before other listeners do.
    """

    def __init__(self, place: Place, wants: Callable[[Notice], bool], *, of_call: bool = False) -> None:
        self.place, self.wants, self.of_call = place, wants, of_call
        self._loop, self._filled = asyncio.get_running_loop(), asyncio.Event()
        self._lock = threading.Lock()
        self._waiting: dict[object, Notice] = {}
        self.is_closed = False

    def close(self) -> None:
        """End the wait for good: the daemon stops."""
        self.is_closed = True
        self.wake()

    def put(self, notice: Notice) -> None:
        """Add a notice, in the place of one that waits and says the same; log messages are all kept."""
        name = notice.server.obj.name if notice.server is not None else ""
        key: object = object() if notice.method == MESSAGE else (name, notice.method, str(notice.params.get("uri")))
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING and key not in self._waiting:
                return
            self._waiting[key] = notice
        self.wake()

    def wake(self) -> None:
        """End a wait."""
        with suppress(RuntimeError):  # the listener has stopped
            self._loop.call_soon_threadsafe(self._filled.set)

    async def wait(self) -> None:
        """Wait for notices, or for `wake`."""
        await self._filled.wait()
        self._filled.clear()

    def take(self) -> list[Notice]:
        """Return the notices in order, without waiting."""
        with self._lock:
            notices, self._waiting = list(self._waiting.values()), {}
        return notices


class Notices:
    """Every listener of this daemon. Any thread may publish."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mailboxes: list[Mailbox] = []
        self._closed = False

    def close(self) -> None:
        """Close all mailboxes, also those to come: who listens would delay the end of the daemon."""
        with self._lock:
            self._closed = True
        for mailbox in self._all():
            mailbox.close()

    @contextmanager
    def listening(self, mailbox: Mailbox) -> Iterator[Mailbox]:
        """Let the mailbox receive notices within the block."""
        with self._lock:
            self._mailboxes.append(mailbox)
            if self._closed:
                mailbox.close()
        try:
            yield mailbox
        finally:
            with self._lock:
                self._mailboxes.remove(mailbox)

    def is_heard(self, place: Place) -> bool:
        """Return True if somebody listens on this connection, other than a call in progress."""
        return any(mailbox.place == place and not mailbox.of_call for mailbox in self._all())

    def publish(self, place: Place, notice: Notice) -> None:
        """Hand a notice of a session to the listeners of its connection: a log message to one, the rest to all."""
        mailboxes = [mailbox for mailbox in self._all() if mailbox.place == place and mailbox.wants(notice)]
        if notice.method == MESSAGE:
            mailboxes = ([mailbox for mailbox in mailboxes if mailbox.of_call] or mailboxes)[-1:]
        for mailbox in mailboxes:
            mailbox.put(notice)

    def publish_to_all(self, notice: Notice) -> None:
        """Hand a notice of Paddock's own to the listeners of every connection."""
        for mailbox in self._all():
            if mailbox.wants(notice):
                mailbox.put(notice)

    def _all(self) -> list[Mailbox]:
        with self._lock:
            return list(self._mailboxes)
