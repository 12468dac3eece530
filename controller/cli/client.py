"""Connection of one command to the daemon: the SDK's, for objects as dictionaries, and its handles of sandboxes."""

from typing import TYPE_CHECKING

import click

from controller.cli.options import located
from paddock._client.connection import PREFIX as PREFIX
from paddock._client.connection import Connection
from paddock._client.connection import connect as connect_to
from paddock._client.connection import segment as segment

if TYPE_CHECKING:
    from paddock._client.server import Server
    from paddock._sync.sandbox import Sandbox

Client = Connection


def connect(ctx: click.Context) -> Client:
    """Return the connection for this command; it is closed when the command ends."""
    client = connect_to(located(ctx))
    ctx.call_on_close(client.close)
    return client


def sandbox_path(namespace: str, name: str) -> str:
    """Return the path of a sandbox in the API, relative to its version."""
    return f"namespaces/{segment(namespace)}/sandboxes/{segment(name)}"


def sandbox_handle(ctx: click.Context, server: "Server", namespace: str, name: str) -> "Sandbox":
    """Return the SDK's handle of a sandbox, for commands in it; its connections are closed when the command ends."""
    from paddock._sync.sandbox import Sandbox  # commands that run nothing in a sandbox start quicker without
    from paddock._transport.blocking import Transport

    transport = Transport(server)
    ctx.call_on_close(transport.close)
    return Sandbox(transport, namespace, name)
