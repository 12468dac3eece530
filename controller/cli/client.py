"""Connection of one command to the daemon, built on `controller.client`."""

import click

from controller.cli.options import Target
from paddock._client.connection import PREFIX as PREFIX
from paddock._client.connection import Connection
from paddock._client.connection import connect as connect_to
from paddock._client.connection import segment as segment
from paddock._client.server import locate

Client = Connection


def connect(ctx: click.Context) -> Client:
    """Return the connection for this command; it is closed when the command ends."""
    target: Target = ctx.obj
    made = connect_to(locate(target.address, context=target.context))
    ctx.call_on_close(made.close)
    return made
