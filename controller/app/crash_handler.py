"""Crash handler: an essential thread that dies ends the daemon.

Half a daemon would answer requests and do nothing. A daemon that exits is restarted by systemd or Docker, or a standby
takes over.
"""

import threading
from collections.abc import Callable

import structlog

_log = structlog.get_logger("paddock")
ENDLESS = frozenset(
    (
        *("reconcile-loop", "leader-lease", "engine-look", "engine-inspect", "engine-events", "prober"),
        *("api", "watches", "paddock-metrics", "APScheduler"),
    )
)


def end_with_endless_threads(end: Callable[[], None]) -> None:
    """Call `end` when one of those threads raises. Every thread's error is logged."""

    def hook(raised: threading.ExceptHookArgs) -> None:
        name = raised.thread.name if raised.thread else ""
        raised_info = (raised.exc_type, raised.exc_value, raised.exc_traceback)
        if name not in ENDLESS:
            _log.error("thread crashed; please report this", thread=name, exc_info=raised_info)
            return
        try:
            _log.critical(
                "essential thread crashed, daemon exiting; please report this", thread=name, exc_info=raised_info
            )
        finally:
            end()

    threading.excepthook = hook
