"""Budgets of bytes in memory: of all callers together, and of one."""

import asyncio
import threading
import time
from collections import Counter

_POLL_SECONDS = 0.02  # callers on other event loops give bytes back, too


class ByteBudget:
    """A budget, of which one caller may hold `share`. Thread-safe."""

    def __init__(self, most_bytes: int, share: float = 1.0) -> None:
        self._left_bytes, self._most_of_one = most_bytes, max(1, int(most_bytes * share))
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, name: str, count: int) -> bool:
        """Reserve so many bytes for a caller; False when the budget, or the caller's share, is exhausted."""
        with self._lock:
            if count > self._left_bytes or self._held[name] + count > self._most_of_one:
                return False
            self._left_bytes -= count
            self._held[name] += count
            return True

    def give_back(self, name: str, count: int) -> None:
        with self._lock:
            self._left_bytes += count
            self._held[name] -= count
            if self._held[name] <= 0:
                del self._held[name]

    @property
    def most_of_one(self) -> int:
        """Bytes that one caller may hold."""
        return self._most_of_one

    async def wait(self, name: str, count: int, seconds: float) -> bool:
        """Reserve so many bytes within that time; False: in vain."""
        deadline = time.monotonic() + seconds
        while not self.take(name, count):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True


class HeldBytes:
    """Bytes that one request holds of a budget: of its body, and of an answer that is joined. Thread-safe."""

    def __init__(self, budget: ByteBudget, name: str) -> None:
        self._budget = budget
        self._name = name
        self._lock = threading.Lock()
        self._count, self._over = 0, False

    def take(self, count: int) -> bool:
        """Hold so many bytes more; False when the budget is exhausted, or the request is over."""
        with self._lock:
            is_held = not self._over and self._budget.take(self._name, count)
            self._count += count * is_held
            return is_held

    def give_back(self) -> None:
        """Give all back: the request is over."""
        with self._lock:
            self._over = True
            self._budget.give_back(self._name, self._count)
            self._count = 0
