"""Rate limit of each caller's requests, with the time to retry after."""

import threading
import time
from collections.abc import Callable

BURST_SECONDS = 5.0  # unused requests accumulate for so long
_MOST_CALLERS = 10_000


class RateLimiter:
    """Token buckets by the caller's name. Thread-safe. `per_second` 0: no limit.

    `now` is a monotonic clock, in seconds.
    """

    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._now = per_second, now
        self._lock = threading.Lock()
        self._full_at: dict[str, float] = {}  # when the bucket will be full again

    def take(self, name: str) -> float:
        """Take one request. Return 0.0, or the seconds to wait if the limit is reached."""
        if not self._per_second:
            return 0.0
        with self._lock:
            now = self._now()
            full_at = max(now, self._full_at.get(name, now)) + 1 / self._per_second
            early = full_at - now - max(BURST_SECONDS, 1 / self._per_second)
            if early > 1e-9:
                return early
            if len(self._full_at) >= _MOST_CALLERS:
                self._full_at = {caller: at for caller, at in self._full_at.items() if at > now}
            self._full_at[name] = full_at
            return 0.0
