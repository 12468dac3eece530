"""The root of the command line. Commands are loaded when they are called, so that `paddock version` is quick."""

import importlib
from typing import Any

import click

from controller.cli.errors import in_words
from controller.cli.options import split_flag_values
from controller.client.errors import ClientError

# Command -> its one line of help; the command is the function of that name in controller.cli.commands.<name>.
COMMANDS = {
    "apply": "Create or change objects as spec files say.",
    "diff": "Show what applying spec files would change, and do.",
    "get": "Show objects, as a table or as they are.",
    "describe": "Show an object with its conditions and events.",
    "delete": "Delete objects, and wait until they are gone.",
    "edit": "Change an object in your editor.",
    "patch": "Change parts of an object.",
    "set": "Set an image, limits, a command, variables or the run state.",
    "scale": "Set how many members a pool keeps ready.",
    "label": "Set or remove labels.",
    "annotate": "Set or remove annotations.",
    "wait": "Wait for a condition, or until an object is gone.",
    "events": "Show what happened, newest last.",
    "top": "Show what sandboxes use now: CPU, memory, network, disk, processes.",
    "why": "Show why a sandbox is as it is, and what it waits for.",
    "inspect": "Show the container of a sandbox as the engine tells of it.",
    "attest": "Read a sandbox from inside, and compare it with its security level.",
    "logs": "Show the log of a sandbox.",
    "run": "Run a command in a box of its own.",
    "exec": "Run a command in a sandbox.",
    "execs": "Show the commands that were started with `exec --detach`, or kill one.",
    "shell": "Open a shell in a sandbox.",
    "cp": "Copy files and folders into a sandbox, or out of it.",
    "port-forward": "Reach ports of a sandbox from this machine.",
    "explain": "Show what the fields of a kind mean.",
    "api-resources": "Show the kinds that the daemon serves.",
    "completion": "Print the script that completes words in your shell.",
    "auth": "Show who you are here, and what you may do.",
    "audit": "Show who asked for what, and verify that nothing of it was changed.",
    "backup": "Write a copy of everything that is stored to a file, while the daemon runs.",
    "restore": "Put a backup in the place of this host's store, while no daemon runs.",
    "doctor": "Check this host, and say what to do about what is found.",
    "token": "Make, list and revoke bearer tokens.",
    "serve": "Run the daemon.",
    "version": "Show the versions of this command and of the daemon.",
}


class LazyGroup(click.Group):
    """A group that imports a command only to run it, or to show that command's own help."""

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
            raise in_words(error) from error

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
    """Paddock keeps sandboxes on this host as your spec files say.

    Start with `paddock apply -f specs/quickstart.yaml`, then `paddock get sandboxes`.
    """
    ctx.obj = server
