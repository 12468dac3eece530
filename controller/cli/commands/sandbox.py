"""`paddock sandbox`: the verbs for sandboxes, below their noun."""

import importlib

import click

from controller.cli.options import namespace_option

_VERBS = ("create", "run", "exec", "logs", "shell", "cp", "port-forward", "inspect", "attest", "why", "restart", "top")
_OF_KIND = {"list": "get", "get": "get", "describe": "describe", "delete": "delete"}
_STATES = {"start": "Running", "stop": "Suspended"}


class _Nouns(click.Group):
    """Group of other commands; those that take a kind get it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted((*_VERBS, *_OF_KIND, *_STATES))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in _VERBS:
            return _command(cmd_name)
        if cmd_name in _STATES:
            return _with_state(cmd_name)
        return _with_kind(_OF_KIND[cmd_name]) if cmd_name in _OF_KIND else None


def _command(name: str) -> click.Command:
    plain = name.replace("-", "_")
    found: click.Command = getattr(importlib.import_module(f"controller.cli.commands.{plain}"), f"{plain}_")
    return found


def _with_kind(name: str) -> click.Command:
    """Return the command of that name for sandboxes."""

    @click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def run(ctx: click.Context, words: tuple[str, ...]) -> None:
        command = _command(name)
        with command.make_context(name, ["sandboxes", *words], parent=ctx) as made:
            command.invoke(made)

    run.short_help = _command(name).get_short_help_str()
    return run


def _with_state(name: str) -> click.Command:
    """Return the command that sets the run state of sandboxes."""

    @click.command(
        name, help=f"Set the run state of sandboxes to {_STATES[name]}; the same as `paddock set run-state`."
    )
    @click.argument("names", nargs=-1, required=True, metavar="NAME ...")
    @namespace_option
    @click.pass_context
    def run(ctx: click.Context, names: tuple[str, ...], namespace: str | None) -> None:
        words = [*(f"sandbox/{each}" for each in names), _STATES[name], *(["-n", namespace] if namespace else [])]
        command = importlib.import_module("controller.cli.commands.set").set_.commands["run-state"]
        with command.make_context(name, words, parent=ctx) as made:
            command.invoke(made)

    return run


@click.group("sandbox", cls=_Nouns)
def sandbox_() -> None:
    """Work with sandboxes: other commands, below their noun.

    \b
    paddock sandbox list
    paddock sandbox exec my-app -- npm test
    """
