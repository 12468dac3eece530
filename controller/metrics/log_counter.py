"""Counter of the daemon's warnings and errors in the log, by level."""

import logging

from controller.ports import Meter

_LEVELS = {logging.WARNING: "warning", logging.ERROR: "error", logging.CRITICAL: "critical"}


class LogCounter(logging.Handler):
    """Handler of the root logger that only counts."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(logging.WARNING)
        self._meter = meter

    def emit(self, record: logging.LogRecord) -> None:
        level = _LEVELS.get(record.levelno)
        if level is not None:
            self._meter.count("paddock_log_messages_total", level=level)
