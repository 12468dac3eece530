"""How long a caller may go on: what a token opened ends with it, also in the middle of a stream.

A daemon that serves is the one that acts, so every token that is revoked is revoked in it: nothing is read for this.
"""

import threading
from collections import defaultdict
from collections.abc import Callable

from controller.kinds.access.access import Caller
from controller.ports import Clock


class Lifetimes:
    """Thread-safe. Tokens are known by their id."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._revoked: set[str] = set()
        self._followers: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)

    def revoked(self, token_id: str) -> None:
        """Tell whoever follows this token, and all who ask from now on."""
        with self._lock:
            self._revoked.add(token_id)  # kept, since a request may have shown it just before
            followers = tuple(self._followers.get(token_id, ()))
        for wake in followers:
            wake()

    def follow(self, token_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called, from any thread, when it is revoked; until what is returned is called."""
        with self._lock:
            self._followers[token_id].add(wake)

        def leave() -> None:
            with self._lock:
                self._followers[token_id].discard(wake)
                if not self._followers[token_id]:
                    del self._followers[token_id]

        return leave

    def over(self, caller: Caller) -> str:
        """Why the caller may not go on, in words; empty while they may."""
        if caller.token_id in self._revoked:
            return f"{caller.name} was revoked"
        expired = caller.expires_at is not None and self._clock.now() >= caller.expires_at
        return f"{caller.name} has expired" if expired else ""
