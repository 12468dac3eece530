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
    """What is waited for, and why. Methods may be called from any thread."""

    def __init__(self, spinner: "Progress | None") -> None:
        self._spinner = spinner
        self._lock = threading.Lock()
        self._shown = False
        self._reasons: dict[str, str] = {}
        self._untold: dict[str, str] = {}

    def because(self, what: str, reason: str, words: str) -> None:
        """Tell on stderr why `what` is waited for: one line for each change of its `reason`; empty: none."""
        with self._lock:
            if self._reasons.get(what, "") == reason:
                return
            self._reasons[what] = reason
            self._untold[what] = f"waiting for {what}: {words}"
            if not reason:
                del self._untold[what]
            self._tell()

    def label(self, text: str) -> None:
        """Say beside the spinner what is waited for now."""
        if self._spinner is not None:
            self._spinner.update(self._spinner.task_ids[0], description=plain(text))

    def show(self) -> None:
        """Begin to show all this: it takes longer than a person would not notice."""
        with self._lock:
            self._shown = True
            if self._spinner is not None:
                self._spinner.start()
            self._tell()

    def _tell(self) -> None:
        if not self._shown:
            return
        for text in self._untold.values():
            if self._spinner is None:
                note(text)
            else:
                self._spinner.console.print(plain(text), markup=False, highlight=False, soft_wrap=True)
        self._untold.clear()


@contextmanager
def waiting_for(label: str) -> Iterator[Waiting]:
    """Show on stderr what is waited for, for how long already, and why."""
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

    words = TextColumn("waiting for {task.description}", markup=False)
    made = Progress(SpinnerColumn(), words, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    made.add_task(plain(label), total=None)
    return made


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
