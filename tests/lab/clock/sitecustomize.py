"""On PYTHONPATH of a process: its wall clock goes wrong by the seconds that are written in the file LAB_CLOCK names.

Monotonic time goes on as it does when somebody sets a host's clock. The host's own clock is left alone.
"""

import datetime
import os
import time
from typing import Any

_real_time, _real = time.time, datetime.datetime


def _wrong_by() -> float:
    try:
        with open(os.environ["LAB_CLOCK"]) as file:
            return float(file.read() or 0)
    except (KeyError, OSError):
        return 0.0


def _time() -> float:
    return _real_time() + _wrong_by()


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real)


class _Datetime(_real, metaclass=_AnyDatetime):  # type: ignore[valid-type, misc]
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return _real.fromtimestamp(_time(), tz)


time.time = _time
time.time_ns = lambda: int(_time() * 1e9)
datetime.datetime = _Datetime  # type: ignore[misc]
