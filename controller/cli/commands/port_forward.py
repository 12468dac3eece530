"""`paddock port-forward`."""

import contextlib
import re
import signal
import threading
from collections.abc import Sequence

import click

from controller.cli.client import connect
from controller.cli.commands.logs import sandbox_name
from controller.cli.errors import UsageProblem
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.output import note, say
from paddock._client.sandbox import Sandbox

_PORT = re.compile(r"(?:(\d{0,5}):)?(\d{1,5})")


@click.command("port-forward")
@click.argument("name")
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]REMOTE ...")
@namespace_option
@click.option("--address", default="127.0.0.1", show_default=True, help="Local address to listen on.")
@click.pass_context
def port_forward_(ctx: click.Context, name: str, ports: Sequence[str], namespace: str | None, address: str) -> None:
    """Forward local ports to a sandbox until interrupted; it needs no network for that.

    Without LOCAL the same number is used here; `:REMOTE` takes a free one. Connections count as activity: they prevent
    idle suspension, and resume an idle sandbox.

    \b
    paddock port-forward quickstart 8080:80
    """
    pairs = [_pair(each) for each in ports]
    connection = connect(ctx)
    box = Sandbox(connection, namespace or DEFAULT_NAMESPACE, sandbox_name(name))
    connection.get(box.path)  # fail now if it does not exist
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with contextlib.ExitStack() as held:
        for local, remote in pairs:
            listening = box.forward(remote, local=local, address=address, failed=lambda words: note(f"error: {words}"))
            held.enter_context(listening)
            say(f"Forwarding from {address}:{listening.port} -> {remote}")
        over.wait()


def _pair(text: str) -> tuple[int, int]:
    found = _PORT.fullmatch(text)
    local, remote = (found[1], int(found[2])) if found else (None, 0)
    here = remote if local is None else int(local or 0)
    if not 1 <= remote <= 65535 or here > 65535:
        raise UsageProblem(f"`{text}` is not a port pair; write LOCAL:REMOTE, REMOTE or :REMOTE, each up to 65535")
    return here, remote
