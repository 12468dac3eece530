"""One running server in its sandbox: what it offers, and what of it is followed."""

import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from controller.kinds.meta import StoredObject
from controller.mcp.servers.notices import Place
from controller.mcp.servers.stdio import ServerGone, StdioClient
from controller.policy.foreign_tools import Offered
from controller.service.mcp.server import Server
from controller.version import VERSION

MODERN = "2026-07-28"
HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # versions with `initialize`
LEGACY = HANDSHAKES[0]
_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "paddock", "version": VERSION},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_LIST_CHANGES = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


@dataclass(slots=True)
class Session:
    """A running server, in its sandbox."""

    server: Server
    """Server as configured."""
    sandbox: StoredObject
    """Sandbox that runs it."""
    client: StdioClient
    """Client of its program."""
    place: Place = ("", "")
    """Caller and connection that it serves."""
    offered: Offered = field(default_factory=lambda: Offered({}))
    """Tools that clients get."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """Capabilities that it announced."""
    protocol: str = LEGACY
    """Version that the server speaks."""
    began_at: float = 0.0
    """Start on the monotonic clock."""
    used_at: float = 0.0
    """Last use on that clock."""
    level: str = ""
    """Level of log messages, if a client chose one."""
    subscribed_uris: set[str] = field(default_factory=set)
    """URIs that the connection itself follows."""
    _followed: Counter[str] = field(default_factory=Counter)
    """Followers of each URI, of all clients."""
    _listening: int | None = None
    """Request by which it listens for changes; None: none is open."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards what is followed."""

    @property
    def modern(self) -> bool:
        """True for a server without handshake."""
        return self.protocol == MODERN

    def params(self, request_params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a request in the era that the server speaks."""
        if not self.modern:
            return dict(request_params)
        level = {_LOG_LEVEL: self.level} if self.level else {}
        return {**request_params, "_meta": {**_META, **level, **request_params.get("_meta", {})}}

    def has(self, capability: str) -> bool:
        """Return True if the server says that it can do this."""
        return isinstance(self.capabilities.get(capability), Mapping)

    def has_detail(self, capability: str, detail: str) -> bool:
        """Return True if it says so of a detail, such as `subscribe` of `resources`."""
        return self.has(capability) and self.capabilities[capability].get(detail) is True

    @property
    def is_followed(self) -> bool:
        """True while somebody follows one of its resources."""
        return bool(self._followed)

    def follow(self, uri: str) -> "Future[Any] | None":
        """Hear of changes of a resource; return the answer to come, None: none is needed. Raises ServerGone."""
        with self._lock:
            self._followed[uri] += 1
            if self._followed[uri] > 1:
                return None
        if self.modern:
            self.listen()
            return None
        return self.client.request("resources/subscribe", {"uri": uri})[1]

    def unfollow(self, uri: str) -> None:
        """Hear of its changes no more, if nobody else follows it."""
        with self._lock:
            self._followed[uri] -= 1
            if self._followed[uri] > 0:
                return
            del self._followed[uri]
        with suppress(ServerGone):
            if self.modern:
                self.listen()
            else:
                self.client.request("resources/unsubscribe", {"uri": uri})

    def set_level(self, level: str) -> None:
        """Choose the least level of log messages. Raises ServerGone."""
        if level == self.level:
            return
        self.level = level
        if not self.modern and self.has("logging"):
            self.client.request("logging/setLevel", {"level": level})

    def listen(self) -> None:
        """Ask a server without handshake for its notifications: those of lists, and of followed resources.

        Raises ServerGone.
        """
        notifications: dict[str, Any] = {
            name: True for capability, name in _LIST_CHANGES.items() if self.has(capability)
        }
        with self._lock:
            notifications |= {"resourceSubscriptions": sorted(self._followed)} if self._followed else {}
            before, self._listening = self._listening, None
            if notifications:
                sent = self.params({"notifications": notifications})
                self._listening = self.client.request("subscriptions/listen", sent, lasting=True)[0]
        if before is not None:
            self.client.cancel(before, "another subscription replaces it")
