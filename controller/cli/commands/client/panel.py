"""`paddock panel`."""

import contextlib
import html
import os
import shutil
import signal
import sys
import tempfile
import threading
import webbrowser
from _thread import start_new_thread
from collections.abc import Iterator
from pathlib import Path

import click

from controller.cli.client import connect
from controller.cli.relays.panel import CODE_SECONDS, PanelRelay
from controller.cli.text.output import note, say


@click.command("panel")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Local port. [default: a free one]")
@click.option("--no-open", is_flag=True, help="Print the address instead of opening a browser.")
@click.pass_context
def panel_(ctx: click.Context, port: int, no_open: bool) -> None:
    """Open the web panel in your browser, with your own permissions, until interrupted.

    It is served at 127.0.0.1 alone. The printed address signs in once, within a minute; Enter prints a new one.
    """
    connection = connect(ctx)
    connection.get("auth/whoami")  # fail now if nobody answers
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # On a thread of its own: the one that is interrupted may hold the event's lock, about to wait for it.
        signal.signal(number, lambda *_: start_new_thread(over.set, ()))
    with PanelRelay(connection, port=port, failed=lambda text: note(f"error: {text}")) as relay:
        if no_open:
            say(relay.url())
        else:
            note(f"Panel at {relay.origin}/panel/ until you press Ctrl-C")
            _open(relay.url(), over)
        if sys.stdin.isatty():
            note("Press Enter for a new link, which signs in once.")
            threading.Thread(target=_links, args=(relay, over), daemon=True).start()
        over.wait()


def _links(relay: PanelRelay, over: threading.Event) -> None:
    while sys.stdin.readline() and not over.is_set():
        say(relay.url())


def _open(url: str, over: threading.Event) -> None:
    """Open a browser at a file that leads there: the address has a code, and arguments are in the process list."""
    stack = contextlib.ExitStack()
    file = stack.enter_context(_redirect(url))
    if not webbrowser.open(file.as_uri()):
        stack.close()
        say(url)
        return

    def remove() -> None:
        over.wait(CODE_SECONDS)
        stack.close()

    threading.Thread(target=remove).start()


@contextlib.contextmanager
def _redirect(url: str) -> Iterator[Path]:
    """Write a page that only this user can read, and that leads to this address."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-panel-", dir=os.environ.get("XDG_RUNTIME_DIR")))
    try:
        file = folder / "panel.html"
        file.touch(mode=0o600)
        escaped = html.escape(url)
        page = (
            f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escaped}"><a href="{escaped}">Panel</a>'
        )
        file.write_text(page)
        yield file
    finally:
        shutil.rmtree(folder, ignore_errors=True)
