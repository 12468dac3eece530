"""`paddock sandbox`: the verbs for sandboxes, below their noun."""

import copy

import click

from controller.cli.commands import load
from controller.cli.options import Group, namespace_option, split_flag_values

_VERBS = ("run", "exec", "logs", "shell", "cp", "port-forward", "inspect", "attest", "why", "restart", "top")
_OF_KIND = {"create": "create", "list": "get", "get": "get", "describe": "describe", "delete": "delete"}
_STATES = {"start": "Running", "stop": "Suspended"}


class _Nouns(Group):
    """Group of other commands; those that take a kind get it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted((*_VERBS, *_OF_KIND, *_STATES))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in _VERBS:
            return load(cmd_name)
        if cmd_name in _STATES:
            return _with_state(cmd_name)
        return _with_kind(cmd_name) if cmd_name in _OF_KIND else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, remaining = super().resolve_command(ctx, args)
        return name, command, split_flag_values(command, remaining) if command else remaining


def _with_kind(name: str) -> click.Command:
    """Return the command that does the same to sandboxes: its arguments are their names."""
    command = copy.copy(load(_OF_KIND[name]))
    command.name, command.params = name, [_names(param) if param.name == "what" else param for param in command.params]
    return command


def _names(argument: click.Parameter) -> click.Parameter:
    """Return this argument of kinds and names as one of sandboxes' names."""
    from controller.cli.options import sandbox_name

    names_argument = copy.copy(argument)
    if argument.nargs == -1 and argument.type is click.UNPROCESSED:  # a name and its command, or files
        names_argument.metavar = "[NAME [-- COMMAND ...]]"
        names_argument.callback = lambda _ctx, _param, value: ("sandboxes", *value) if value else ()
        return names_argument
    names_argument.metavar = "[NAME ...]"
    names_argument.callback = lambda _ctx, _param, value: ("sandboxes", *map(sandbox_name, value))
    return names_argument


def _with_state(name: str) -> click.Command:
    """Return the command that sets the run state of sandboxes."""
    from controller.cli.commands.objects.set import set_

    @click.command(
        name, help=f"Set the run state of sandboxes to {_STATES[name]}; the same as `paddock set run-state`."
    )
    @click.argument("names", nargs=-1, required=True, metavar="NAME ...")
    @namespace_option
    @click.pass_context
    def run(ctx: click.Context, names: tuple[str, ...], namespace: str | None) -> None:
        arguments = [
            *(f"sandbox/{sandbox_name}" for sandbox_name in names),
            _STATES[name],
            *(["-n", namespace] if namespace else []),
        ]
        command = set_.commands["run-state"]
        with command.make_context(name, arguments, parent=ctx) as child_context:
            command.invoke(child_context)

    return run


@click.group("sandbox", cls=_Nouns)
def sandbox_() -> None:
    """Work with sandboxes: other commands, below their noun.

    \b
    paddock sandbox list
    paddock sandbox exec my-app -- npm test
    """
