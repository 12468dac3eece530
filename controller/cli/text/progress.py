"""Progress on stderr once something takes over a second: the reason of a wait, or the bar of a transfer."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from controller.cli.safe_text import plain
from controller.cli.text.output import note, on_terminal

if TYPE_CHECKING:
    from rich.progress import Progress

    from paddock._client.connection import Connection

_AFTER_SECONDS = 1.0
_PULLS_SECONDS = 1.0
_LAST_ANSWER_SECONDS = 2.0


class Waiting:
    """Progress of a wait and its reasons. Methods may be called from any thread."""

    def __init__(self, spinner: "Progress | None") -> None:
        self._spinner = spinner
        self._lock = threading.Lock()
        self._shown = False
        self._reasons: dict[str, str] = {}
        self._quarters: dict[str, int] = {}
        self._unreported: dict[str, str] = {}

    def report(self, what: str, reason: str, message: str, *, counts: bool = False) -> None:
        """Print why `what` is waited for: one line for each new `reason`; none if it is empty.

        A message that `counts` is shown beside the spinner, or as a line each where there is no terminal.
        """
        if counts and self._spinner is not None:
            self.label(message)
        elif counts:
            reason = message
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

    def count(self, text: str) -> None:
        """Show how far it is: beside the spinner, or as a line where there is no terminal."""
        self.label(text)
        with self._lock:
            if self._spinner is None:
                self._unreported[""] = f"waiting for {text}"
                self._print()

    def pulling(self, pulls: Iterable[Mapping[str, Any]]) -> None:
        """Show the bytes of pulls: beside the spinner, or as a line each quarter where there is no terminal."""
        with self._lock:
            texts = []
            for pull in pulls:
                quarter = 4 * pull["currentBytes"] // pull["totalBytes"] if pull["totalBytes"] else -1
                texts.append(pull_text(pull))
                if self._spinner is None and self._shown and self._quarters.get(pull["image"], -1) < quarter:
                    self._quarters[pull["image"]] = quarter
                    note(plain(texts[-1]))
            if self._spinner is not None:
                self._spinner.update(self._spinner.task_ids[0], pulls=plain("".join(f"; {text}" for text in texts)))

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

    column = TextColumn("waiting for {task.description}{task.fields[pulls]}", markup=False)
    spinner = Progress(SpinnerColumn(), column, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    spinner.add_task(plain(label), total=None, pulls="")
    return spinner


def pull_text(pull: Mapping[str, Any]) -> str:
    """Return a pull in progress as text: `Pulling paddock/x:1: 43 of 120 MiB`."""
    if not pull["totalBytes"]:
        return f"Pulling {pull['image']}"
    return f"Pulling {pull['image']}: {pull['currentBytes'] >> 20} of {-(-pull['totalBytes'] >> 20)} MiB"


@contextmanager
def pulls_shown(client: "Connection", waiting: Waiting) -> Iterator[None]:
    """Ask once a second for the bytes of pulls while something waits for them, and show them."""
    from controller.cli.calls.images import Images
    from paddock._client.errors import ClientError

    is_over = threading.Event()

    def ask() -> None:
        while not is_over.wait(_PULLS_SECONDS):
            try:
                waiting.pulling(Images(client).pulling())
            except ClientError:  # the wait itself says so
                return

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        yield
    finally:
        is_over.set()
        # The client is closed next: a question under way would be sent on a connection that nobody closes.
        asking.join(_LAST_ANSWER_SECONDS)


@contextmanager
def image_work(label: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function for the steps of a pull, build or push. Shows them on stderr: on a terminal the bytes, too."""
    work = _ImageWork()
    if not on_terminal():
        yield work.print
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(plain(label), total=None)

        def step(update: Mapping[str, Any]) -> None:
            current, total = work.count(update)
            bars.update(task, completed=current, total=total or None)
            if not update.get("layer"):
                bars.console.print(plain(str(update.get("text", ""))), markup=False, highlight=False, soft_wrap=True)

        yield step


class _ImageWork:
    """State of a pull, build or push: bytes by layer, and the last text of each."""

    def __init__(self) -> None:
        self._bytes: dict[str, tuple[int, int]] = {}
        self._texts: dict[str, str] = {}

    def count(self, step: Mapping[str, Any]) -> tuple[int, int]:
        """Return the bytes so far and in all, of the layers whose size is known."""
        total = step.get("totalBytes", 0)
        if total:
            self._bytes[step.get("layer", "")] = (step.get("currentBytes", 0), total)
        return sum(current for current, _ in self._bytes.values()), sum(
            total_bytes for _, total_bytes in self._bytes.values()
        )

    def print(self, step: Mapping[str, Any]) -> None:
        """Print a step, unless only its bytes are new."""
        layer, text = step.get("layer", ""), str(step.get("text", ""))
        if not layer or self._texts.get(layer) != text:
            self._texts[layer] = text
            note(plain(f"{layer}: {text}" if layer else text))


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
