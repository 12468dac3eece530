"""Root of the command line. A command is imported when it is called, so that `paddock version` is quick."""

import importlib
from typing import Any

import click

from controller.cli.errors import as_cli_error
from controller.cli.options import split_flag_values
from controller.client.errors import ClientError

# Command -> its one line of help; the code is the function of that name in controller.cli.commands.<name>.
COMMANDS = {
    "apply": "Create or change objects from spec files.",
    "diff": "Show what applying spec files would change.",
    "get": "Show objects, as a table, JSON or YAML.",
    "describe": "Show an object with its conditions and events.",
    "delete": "Delete objects, and wait until they are gone.",
    "edit": "Change an object in your editor.",
    "patch": "Change parts of an object.",
    "set": "Set an image, limits, a command, variables or the run state.",
    "scale": "Set how many members a pool keeps ready.",
    "label": "Set or remove labels.",
    "annotate": "Set or remove annotations.",
    "wait": "Wait for a condition, or until an object is gone.",
    "events": "Show events, newest last.",
    "top": "Show resource use of sandboxes: CPU, memory, network, disk, processes.",
    "why": "Explain the state of a sandbox and what it waits for.",
    "inspect": "Show the container of a sandbox as the engine reports it.",
    "attest": "Verify a running sandbox against its security level.",
    "logs": "Show the log of a sandbox.",
    "run": "Run a command in a new sandbox, and remove it afterwards.",
    "exec": "Run a command in a sandbox.",
    "execs": "List commands started with `exec --detach`, or kill one.",
    "shell": "Open a shell in a sandbox.",
    "cp": "Copy files and folders into or out of a sandbox.",
    "port-forward": "Forward local ports to a sandbox.",
    "image": "List, pull, build and push images of the host.",
    "explain": "Document the fields of a kind.",
    "api-resources": "Show the kinds that the daemon serves.",
    "completion": "Print the completion script for your shell.",
    "mcp": "Serve Paddock's tools to an MCP client, and configure clients.",
    "auth": "Show your identity and permissions.",
    "audit": "Show the audit log, and verify its hash chain.",
    "backup": "Write a backup of the store to a file, while the daemon runs.",
    "restore": "Replace this host's store with a backup, while no daemon runs.",
    "doctor": "Check this host and recommend fixes.",
    "token": "Create, list and revoke bearer tokens.",
    "serve": "Run the daemon.",
    "version": "Show the versions of this command and of the daemon.",
}


class LazyGroup(click.Group):
    """Group that imports a command only to run it, or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"controller.cli.commands.{name}")
        command: click.Command = getattr(module, f"{name}_")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ClientError as error:
            raise as_cli_error(error) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, split_flag_values(command, rest) if command else rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--server",
    envvar="PADDOCK_SERVER",
    metavar="URL",
    help="The daemon: unix:///path/to/socket or http://host:port. [env: PADDOCK_SERVER, PADDOCK_SOCKET]",
)
@click.pass_context
def cli(ctx: click.Context, server: str | None) -> None:
    """Paddock keeps the sandboxes on this host in the state that your spec files describe.

    Start with `paddock apply -f specs/quickstart.yaml`, then `paddock get sandboxes`.
    """
    ctx.obj = server
