"""What a client says to a command beside its input: the terminal's size, and signals."""

import asyncio
import contextlib
import json
from collections import deque
from functools import partial
from typing import Any

import anyio

from controller.api.streams.relay import Pump
from controller.ports import ExecStream, StreamError

_SIGNALS = 16  # more than that at a time are dropped
_THREADS = 4


class Steering:
    """Takes frames at once, and passes them on in the background: the engine may take its time, and fail."""

    def __init__(self, pump: Pump) -> None:
        self._pump, self._limiter = pump, anyio.CapacityLimiter(_THREADS)
        self._size: tuple[int, int] | None = None
        self._signals: deque[str] = deque(maxlen=_SIGNALS)
        self._changed = asyncio.Event()

    def resize(self, data: bytes) -> None:
        """`{"Width": 80, "Height": 24}`; only the newest counts. Anything else is passed over."""
        found = _object(data)
        rows, columns = found.get("Height"), found.get("Width")
        if isinstance(rows, int) and isinstance(columns, int) and 0 < rows < 1 << 16 and 0 < columns < 1 << 16:
            self._size = (rows, columns)
            self._changed.set()

    def signal(self, data: bytes) -> None:
        """`{"signal": "INT"}`. Anything else is passed over."""
        name = _object(data).get("signal")
        if isinstance(name, str):
            self._signals.append(name)
            self._changed.set()

    async def run(self) -> None:
        """Pass on what comes, until cancelled."""
        stream = await self._pump.opened()
        while isinstance(stream, ExecStream):
            await self._changed.wait()
            self._changed.clear()
            size, self._size = self._size, None
            with contextlib.suppress(StreamError):
                if size is not None:
                    await self._on_a_thread(partial(stream.resize, *size))
                while self._signals:
                    await self._on_a_thread(partial(stream.signal, self._signals.popleft()))

    async def _on_a_thread(self, do: Any) -> None:
        await anyio.to_thread.run_sync(do, limiter=self._limiter, abandon_on_cancel=True)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
