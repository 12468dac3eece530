"""Metrics of previews: requests, open ones, and bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from controller.ports import Meter

Outcome = Literal["passed", "refused", "unavailable"]


class Traffic:
    """Counts for one listener, on its event loop."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._open = meter, 0

    def count_request(self, outcome: Outcome) -> None:
        """Count a request. `unavailable`: allowed, but nothing answers at the port."""
        self._meter.count("paddock_preview_requests_total", outcome=outcome)

    def count_bytes(self, *, bytes_in: int = 0, bytes_out: int = 0) -> None:
        """Count bytes of bodies and WebSockets, from and to clients."""
        for direction, count in (("in", bytes_in), ("out", bytes_out)):
            if count:
                self._meter.count("paddock_preview_bytes_total", count, direction=direction)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Count a request as open while the block runs."""
        self._change_open(1)
        try:
            yield
        finally:
            self._change_open(-1)

    def _change_open(self, change: int) -> None:
        self._open += change
        self._meter.gauge("paddock_preview_open_requests", self._open)
