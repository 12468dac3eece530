"""Connection of one command to the daemon, built on `paddock._client`."""

import click

from controller.cli.options import located
from paddock._client.connection import PREFIX as PREFIX
from paddock._client.connection import Connection
from paddock._client.connection import connect as connect_to
from paddock._client.connection import segment as segment

Client = Connection


def connect(ctx: click.Context) -> Client:
    """Return the connection for this command; it is closed when the command ends."""
    client = connect_to(located(ctx))
    ctx.call_on_close(client.close)
    return client
