"""A spinner where a person watches, once something takes over a second; nothing in a pipe."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from controller.cli.output import on_terminal

_AFTER_SECONDS = 1.0


@contextmanager
def waiting_for(label: str) -> Iterator[None]:
    """Show on stderr what is waited for, and for how long already."""
    if not on_terminal():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("waiting for {task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task(label, total=None)
    later = threading.Timer(_AFTER_SECONDS, progress.start)
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()
        later.join()
        progress.stop()
