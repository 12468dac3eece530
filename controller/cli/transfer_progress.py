"""A bar where a person watches a transfer, once it takes over a second; nothing in a pipe."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controller.cli.output import on_terminal

_AFTER_SECONDS = 1.0


@contextmanager
def transferring(label: str, size: int | None = None) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told of each piece; shows on stderr how much has gone and how fast, of `size` if known."""
    if not on_terminal():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    task = progress.add_task(label, total=size)
    later = threading.Timer(_AFTER_SECONDS, progress.start)
    later.daemon = True
    later.start()
    try:
        yield lambda count: progress.advance(task, count)
    finally:
        later.cancel()
        later.join()
        progress.stop()
