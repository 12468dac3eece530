"""Progress on stderr once something takes over a second: the reason of a wait, or the bar of a transfer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from controller.cli.output import note, on_terminal
from controller.cli.safe_text import plain

if TYPE_CHECKING:
    from rich.progress import Progress

_AFTER_SECONDS = 1.0


class Waiting:
    """Progress of a wait and its reasons. Methods may be called from any thread."""

    def __init__(self, spinner: "Progress | None") -> None:
        self._spinner = spinner
        self._lock = threading.Lock()
        self._shown = False
        self._reasons: dict[str, str] = {}
        self._unreported: dict[str, str] = {}

    def report(self, what: str, reason: str, message: str) -> None:
        """Print why `what` is waited for: one line for each new `reason`; none if it is empty."""
        with self._lock:
            if self._reasons.get(what, "") == reason:
                return
            self._reasons[what] = reason
            self._unreported[what] = f"waiting for {what}: {message}"
            if not reason:
                del self._unreported[what]
            self._print()

    def label(self, text: str) -> None:
        """Set the text beside the spinner."""
        if self._spinner is not None:
            self._spinner.update(self._spinner.task_ids[0], description=plain(text))

    def show(self) -> None:
        """Start to show progress, once the wait is long enough to notice."""
        with self._lock:
            self._shown = True
            if self._spinner is not None:
                self._spinner.start()
            self._print()

    def _print(self) -> None:
        if not self._shown:
            return
        for text in self._unreported.values():
            if self._spinner is None:
                note(text)
            else:
                self._spinner.console.print(plain(text), markup=False, highlight=False, soft_wrap=True)
        self._unreported.clear()


@contextmanager
def waiting_for(label: str) -> Iterator[Waiting]:
    """Show on stderr what is waited for, since when, and why."""
    spinner = _spinner(label) if on_terminal() else None
    waiting = Waiting(spinner)
    later = threading.Timer(_AFTER_SECONDS, waiting.show)
    later.daemon = True
    later.start()
    try:
        yield waiting
    finally:
        later.cancel()
        later.join()
        if spinner is not None:
            spinner.stop()


def _spinner(label: str) -> "Progress":
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    column = TextColumn("waiting for {task.description}", markup=False)
    made = Progress(SpinnerColumn(), column, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    made.add_task(plain(label), total=None)
    return made


@contextmanager
def transferring(label: str, size: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts bytes; show amount and speed on stderr, of `size` if known."""
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
