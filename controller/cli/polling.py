"""Waiting for the daemon: ask again until it is so, with a spinner where a person watches."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controller.cli.output import on_terminal

_EVERY_SECONDS = 0.2
_SPINNER_AFTER_SECONDS = 1.0


def until(done: Callable[[], bool], timeout_seconds: float, label: str) -> bool:
    """Ask until `done` says so; False when the time is over. It is asked at least once, and once at the end."""
    deadline = time.monotonic() + timeout_seconds
    if done():
        return True
    with _progress(label) as show:
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_EVERY_SECONDS, left))
            if done():
                return True
            show()
    return False


@contextmanager
def _progress(label: str) -> Iterator[Callable[[], None]]:
    """A spinner on a terminal, from the second second on; nothing anywhere else."""
    if not on_terminal():
        yield lambda: None
        return
    from rich.console import Console

    started = time.monotonic()
    status = Console(stderr=True).status(f"waiting for {label}")
    shown = False

    def show() -> None:
        nonlocal shown
        seconds = time.monotonic() - started
        if seconds < _SPINNER_AFTER_SECONDS:
            return
        status.update(f"waiting for {label} ({seconds:.0f} s)")
        if not shown:
            status.start()
            shown = True

    try:
        yield show
    finally:
        status.stop()
