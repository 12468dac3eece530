"""`paddock port-forward`."""

import contextlib
import re
import signal
import threading
import webbrowser
from _thread import start_new_thread
from collections.abc import Sequence
from functools import partial

import click

from controller.cli.client import connect, sandbox_path
from controller.cli.errors import UsageProblem
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, sandbox_name
from controller.cli.text.output import note, say
from paddock._client.port_forward import Forwarding, open_port, own_host

_LOOPBACK = ("127.0.0.1", "::1", "localhost")  # where a browser reaches any `localhost` name
_PORT = re.compile(r"(?:(\d{0,5}):)?(\d{1,5})")


@click.command("port-forward")
@click.argument("name")
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]REMOTE ...")
@namespace_option
@click.option("--address", default="127.0.0.1", show_default=True, help="Local address to listen on.")
@click.option("--open", "show", is_flag=True, help="Open each port in your browser, at a host name of its own.")
@click.pass_context
def port_forward_(
    ctx: click.Context, name: str, ports: Sequence[str], namespace: str | None, address: str, show: bool
) -> None:
    """Forward local ports to a sandbox until interrupted; it needs no network for that.

    With --open only that name is served: a page of the sandbox gets none of your browser's cookies for 127.0.0.1.
    Without LOCAL the same number is used here; `:REMOTE` takes a free one. Connections count as activity: they prevent
    idle suspension, and resume an idle sandbox.

    \b
    paddock port-forward quickstart 8080:80
    """
    pairs = [_pair(port) for port in ports]
    connection = connect(ctx)
    path = sandbox_path(namespace or DEFAULT_NAMESPACE, sandbox_name(name))
    connection.get(path)  # fail now if it does not exist
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # On a thread of its own: the one that is interrupted may hold the event's lock, about to wait for it.
        signal.signal(number, lambda *_: start_new_thread(over.set, ()))
    with contextlib.ExitStack() as stack:
        for local, remote in pairs:
            listening = Forwarding(
                partial(open_port, connection.server, path),
                remote,
                local=local,
                address=address,
                failed=lambda message: note(f"error: {message}"),
                host=own_host() if show and address in _LOOPBACK else "",
            )
            stack.enter_context(listening)
            say(f"Forwarding from {address}:{listening.port} -> {remote}")
            url = f"http://{listening.host or _host(address)}:{listening.port}/"
            if show and not webbrowser.open(url):
                note(f"no browser could be opened; open {url} yourself")
        over.wait()


def _host(address: str) -> str:
    """Return the address as it is written in a URL; that of this machine where all are listened on."""
    shown_address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - compared, not bound
    return f"[{shown_address}]" if ":" in shown_address else shown_address


def _pair(text: str) -> tuple[int, int]:
    match = _PORT.fullmatch(text)
    local, remote = (match[1], int(match[2])) if match else (None, 0)
    local_port = remote if local is None else int(local or 0)
    if not 1 <= remote <= 65535 or local_port > 65535:
        raise UsageProblem(f"`{text}` is not a port pair; write LOCAL:REMOTE, REMOTE or :REMOTE, each up to 65535")
    return local_port, remote
