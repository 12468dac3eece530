"""Token expiry: open streams end when their caller's token expires or is revoked.

Only one daemon serves, and every revocation goes through it: the store is not read for this.
"""

import threading
from collections import defaultdict
from collections.abc import Callable

from controller.kinds.access.access import Caller
from controller.ports import Clock


class TokenExpirations:
    """Thread-safe. Tokens are known by their id."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._revoked: set[str] = set()
        self._followers: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)

    def revoked(self, token_id: str) -> None:
        """Mark a token as revoked, and wake its followers."""
        with self._lock:
            self._revoked.add(token_id)  # kept: a request may have authenticated just before
            followers = tuple(self._followers.get(token_id, ()))
        for wake in followers:
            wake()

    def follow(self, token_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from any thread, when the token is revoked, until the result is called."""
        with self._lock:
            self._followers[token_id].add(wake)

        def unfollow() -> None:
            with self._lock:
                self._followers[token_id].discard(wake)
                if not self._followers[token_id]:
                    del self._followers[token_id]

        return unfollow

    def over(self, caller: Caller) -> str:
        """Return the reason to end the caller's streams; empty while the token is valid."""
        if caller.token_id in self._revoked:
            return f"{caller.name} was revoked"
        expired = caller.expires_at is not None and self._clock.now() >= caller.expires_at
        return f"{caller.name} has expired" if expired else ""
