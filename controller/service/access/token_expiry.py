"""Token expiry: open streams end when their caller's token expires or is revoked.

A daemon that is alone does every revocation itself. Others are found in the store, in a few seconds.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence

import structlog

from controller.kinds.access.access import Caller, Token
from controller.ports import Clock, StoreError

_LOOK_SECONDS = 2.0
_log = structlog.get_logger("paddock.access")


class TokenExpirations:
    """Thread-safe. Tokens are known by their id."""

    def __init__(self, clock: Clock, stored: Callable[[], Sequence[Token]] | None = None) -> None:
        """`stored` reads all tokens, where other daemons may revoke some."""
        self._clock, self._lock, self._stored = clock, threading.Lock(), stored
        self._looked_at = 0.0
        self._revoked: set[str] = set()
        self._followers: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)

    def mark_revoked(self, token_id: str) -> None:
        """Mark a token as revoked, and wake its followers."""
        with self._lock:
            self._revoked.add(token_id)  # kept: a request may have authenticated just before
            followers = tuple(self._followers.get(token_id, ()))
        for wake in followers:
            wake()

    def is_due(self) -> bool:
        """Return True if somebody has to `look` now; then nobody else has to for a while."""
        now = self._clock.now()
        with self._lock:
            if self._stored is None or 0 <= now - self._looked_at < _LOOK_SECONDS:
                return False
            self._looked_at = now
            return True

    def look(self) -> None:
        """End what is open of tokens that other daemons have revoked. While the store is away, the next look does."""
        try:
            stored_tokens = self._stored() if self._stored is not None else ()
        except StoreError as error:
            _log.warning("revoked tokens not read", error=str(error))
            return
        with self._lock:
            revoked_ids = [
                token.id for token in stored_tokens if token.revoked_at is not None and token.id in self._followers
            ]
        for token_id in revoked_ids:
            self.mark_revoked(token_id)

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
