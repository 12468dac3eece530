"""A thread that should go on for ever, and has ended by an error: the daemon ends with it.

Half a daemon would go on answering and would do nothing. One that has ended is seen, and started anew: by systemd, by
Docker, or by a stand-by that takes over.
"""

import threading
from collections.abc import Callable

import structlog

_log = structlog.get_logger("paddock")
ENDLESS = frozenset(
    (
        *("heartbeat", "leading", "engine-look", "engine-inspect", "engine-events", "prober"),
        *("api", "watches", "paddock-metrics", "APScheduler"),
    )
)


def end_with_endless_threads(end: Callable[[], None]) -> None:
    """From now on `end` is called when one of them raises. Every thread's error goes to the log."""

    def hook(raised: threading.ExceptHookArgs) -> None:
        name = raised.thread.name if raised.thread else ""
        told = (raised.exc_type, raised.exc_value, raised.exc_traceback)
        if name not in ENDLESS:
            _log.error("a thread ended by an error; please report this", thread=name, exc_info=told)
            return
        words = "a thread that the daemon can not do without ended by an error: the daemon ends, to be started anew"
        try:
            _log.critical(f"{words}; please report this", thread=name, exc_info=told)
        finally:
            end()

    threading.excepthook = hook
