"""`paddock open`."""

import time
import webbrowser
from urllib.parse import urlsplit

import click

from controller.cli.client import connect, segment
from controller.cli.errors import CliError
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, sandbox_name
from controller.cli.text.output import note, say
from paddock._client.server import Server

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command("open")
@click.argument("name")
@click.argument("port", type=click.IntRange(1, 65535))
@namespace_option
@click.option(
    "--expires", type=DURATION, default="8h", show_default=True, help="For how long the link holds; 7d at most."
)
@click.option("--print", "only_print", is_flag=True, help="Print the link instead of opening a browser.")
@click.option("--void", is_flag=True, help="First end all links of this sandbox.")
@click.pass_context
def open_(
    ctx: click.Context, name: str, port: int, namespace: str | None, expires: float, only_print: bool, void: bool
) -> None:
    """Open a port of a sandbox in a browser; the sandbox needs no network for that, and is woken.

    Whoever has the link has the port, without a login, until it expires, the sandbox is deleted, your token ends, or
    `--void` ends all links of the sandbox. The agent's port and the model gateway's have no links.

    \b
    paddock open quickstart 8080
    paddock open quickstart 8080 --expires 30m --print
    """
    connection = connect(ctx)
    path = f"namespaces/{segment(namespace or DEFAULT_NAMESPACE)}/sandboxes/{segment(sandbox_name(name))}/previews"
    if void:
        connection.request("DELETE", path)
    link = connection.request("POST", path, json={"port": port, "expiresSeconds": int(expires)})
    _check_reachable(connection.server, str(link["url"]))
    if only_print:
        say(str(link["url"]))
        return
    note(f"The link holds until {time.strftime('%H:%M on %d %b', time.localtime(link['expires']))}")
    if not webbrowser.open(str(link["url"])):
        say(str(link["url"]))


def _check_reachable(server: Server, url: str) -> None:
    """Raise CliError for a link that leads to this machine, while the daemon is on another one."""
    host = urlsplit(url).hostname or ""
    is_here = bool(server.socket) or (urlsplit(server.url).hostname or "") in _LOOPBACK
    if host.endswith(".localhost") and not is_here:
        raise CliError(
            "the daemon serves previews on its own machine alone (setting preview_domain is empty); use `paddock"
            " port-forward NAME PORT --open`"
        )
