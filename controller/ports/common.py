"""Ports that every package may use: clock, meter, wake."""

from collections.abc import Callable
from typing import Protocol

Wake = Callable[[], None]
Heard = Callable[[str], None]


class Clock(Protocol):
    def now(self) -> float:
        """Wall clock, Unix seconds."""
        ...


class Meter(Protocol):
    """Counts and times, independent of the metrics backend. Names are those of the metrics catalogue."""

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None: ...
    def observe(self, name: str, seconds: float, /, **labels: str) -> None: ...
    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...


class NullMeter:
    """Counts nothing; for commands that publish no metrics."""

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None: ...
    def observe(self, name: str, seconds: float, /, **labels: str) -> None: ...
    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...
