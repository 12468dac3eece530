"""Pressure on the host's resources: read by a pass, at most every few seconds, judged by policy."""

import structlog

from controller.kinds.observed.pressure import NONE, Pressure
from controller.policy.host.pressure import judge
from controller.ports import Clock, HostGauge

_log = structlog.get_logger("paddock.pressure")
# Some file reads: cheap, but passes may follow each other within milliseconds.
_APART_SECONDS = 5.0
LOOK_SECONDS = 10.0


class PressureWatch:
    """Without a gauge, or with a `scale` of 0, there is never any pressure. Used by the loop's thread alone."""

    def __init__(self, gauge: HostGauge | None, clock: Clock, *, scale: float = 1.0) -> None:
        self._gauge, self._clock, self._scale = gauge, clock, scale
        self._read_at: float | None = None
        self._now = NONE

    def observe_now(self, root_dir: str) -> Pressure:
        """Return the pressure; the same Python object as long as nothing changes."""
        now = self._clock.now()
        if self._gauge is None or (self._read_at is not None and 0 <= now - self._read_at < _APART_SECONDS):
            return self._now
        self._read_at = now
        before, self._now = self._now, judge(self._now, self._gauge.read(root_dir), self._scale)
        if _shortages(before) != _shortages(self._now):
            _log.warning("pressure changed", **_shortages(self._now))
        return self._now


def _shortages(pressure: Pressure) -> dict[str, object]:
    """Return what an operator has to know of it, for the log."""
    return {"low": list(pressure.low), "critical": list(pressure.critical), "stalls": pressure.stalls}
