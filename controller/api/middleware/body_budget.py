"""How much of requests' bodies is in memory at a time."""

import threading


class BodyBudget:
    """So many bytes of bodies in memory at a time, of all requests together."""

    def __init__(self, most_bytes: int = 256 << 20) -> None:
        self._left_bytes, self._lock = most_bytes, threading.Lock()

    def take(self, count: int) -> bool:
        """So many more; False when there is no room."""
        with self._lock:
            room = count <= self._left_bytes
            self._left_bytes -= count * room
            return room

    def give_back(self, count: int) -> None:
        with self._lock:
            self._left_bytes += count
