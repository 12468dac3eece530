"""`paddock secret`: the operator's secrets. It runs on the host itself, as root, without a daemon."""

import importlib
import sys
import time
from pathlib import Path
from typing import Any

import click

from controller.cli.errors import CliError, UsageProblem
from controller.cli.options import DEFAULT_NAMESPACE, Group, namespace_option
from controller.cli.text.output import columns, note, say

_MOST_BYTES = 1 << 20
_USE = click.option(
    "--for",
    "use",
    metavar="providers|sandboxes|HOST",
    help="providers: keys that no sandbox can name. sandboxes: files and variables of sandboxes. A host's name: "
    "`credentials` of sandboxes for that host, which none can read.",
)
_HOSTS = click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST[:PORT]",
    help="A host that a provider's key may be sent to; repeatable. A changed key keeps those it has. [PORT: 443]",
)
_CONFIG = click.option("--config", metavar="FILE", help="The daemon's settings. [default: /etc/paddock/paddock.toml]")


@click.group("secret", cls=Group)
def secret_() -> None:
    """Set, list and delete secrets of this host, as root. Values are never shown, and no argument holds one.

    \b
    sudo paddock secret set anthropic-key --host api.anthropic.com
    sudo paddock secret set npm-token --for sandboxes --from-file token.txt
    sudo paddock secret set github-token --for api.github.com
    """


@secret_.command("set")
@click.argument("name")
@click.option("--from-file", metavar="FILE", help="Read the value from a file; `-` is stdin.")
@_USE
@_HOSTS
@namespace_option
@_CONFIG
def set_(
    name: str, from_file: str | None, use: str | None, hosts: tuple[str, ...], namespace: str | None, config: str | None
) -> None:
    """Set a secret: its value is typed without echo, or read from a file or stdin byte for byte.

    A provider's key is sent to its hosts alone, whatever a Provider's URL says.
    """
    space = namespace or DEFAULT_NAMESPACE
    use = use or ("providers" if hosts else _use(config, space, name))
    value = _value(name, from_file)
    is_new = _on_host("set_secret", config, space, name, value, use, hosts)
    say(f"secret {name} of namespace {space} {'set' if is_new else 'changed'}, for {use}")


@secret_.command("bind")
@click.argument("name")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    required=True,
    metavar="HOST[:PORT]",
    help="A host that the key may be sent to, in place of those before; repeatable. [PORT: 443]",
)
@namespace_option
@_CONFIG
def bind(name: str, hosts: tuple[str, ...], namespace: str | None, config: str | None) -> None:
    """Name the hosts that a provider's key may be sent to. Its value stays."""
    space = namespace or DEFAULT_NAMESPACE
    bound = _on_host("bind_secret", config, space, name, hosts)
    say(f"secret {name} of namespace {space} bound to {', '.join(bound)}")


@secret_.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="Those of all namespaces.")
@namespace_option
@_CONFIG
def list_(all_namespaces: bool, namespace: str | None, config: str | None) -> None:
    """List the names of secrets, without their values."""
    space = None if all_namespaces else namespace or DEFAULT_NAMESPACE
    secrets = _on_host("list_secrets", config, space)
    if not secrets:
        note("No secrets found.")
        return
    rows = [["NAMESPACE", "NAME", "FOR", "CHANGED", "HOSTS"]]
    rows += [
        [secret.namespace, secret.name, secret.use, _date(secret.changed_at), ",".join(secret.hosts) or "-"]
        for secret in secrets
    ]
    say(columns(rows))


@secret_.command("delete")
@click.argument("name")
@_USE
@namespace_option
@_CONFIG
def delete(name: str, use: str | None, namespace: str | None, config: str | None) -> None:
    """Delete a secret. Providers with it are not ready from then on."""
    space = namespace or DEFAULT_NAMESPACE
    use = use or _use(config, space, name, of_new=False)
    _on_host("delete_secret", config, space, name, use)
    say(f"secret {name} of namespace {space} deleted, for {use}")


def _use(config: str | None, space: str, name: str, *, of_new: bool = True) -> str:
    """Return what the one secret of that name is for; of a new one it is asked. Raises UsageProblem, CliError."""
    uses: list[str] = _on_host("uses_of_secret", config, space, name)
    if len(uses) == 1:
        return uses[0]
    if not uses and not of_new:
        raise CliError(
            f"secret {name}: there is no secret of that name in namespace {space}; see `paddock secret list`"
        )
    if sys.stdin.isatty():
        return str(click.prompt(f"{name} is for (providers, sandboxes, or a host's name)", err=True))
    choice = f"it is set for {', '.join(uses)}" if uses else "it is not said what it is for"
    raise UsageProblem(f"secret {name}: {choice}; add --for providers, --for sandboxes or --for HOST")


def _value(name: str, from_file: str | None) -> bytes:
    if from_file is not None and from_file != "-":
        try:
            with Path(from_file).open("rb") as file:
                value = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise CliError(f"{from_file}: {error.strerror}; name a readable file") from error
    elif from_file is None and sys.stdin.isatty():
        value = str(click.prompt(f"Value of {name}", hide_input=True, err=True)).encode()
    else:
        value = sys.stdin.buffer.read(_MOST_BYTES + 1)
    # Every byte counts: an SSH key without its last line break is invalid. Who needs text alone strips it.
    if not value.strip(b"\r\n"):
        raise CliError(f"the value of {name} is empty; type it, or give it on stdin or with --from-file")
    return value


def _on_host(what: str, config: str | None, *args: Any) -> Any:
    settings, app = (importlib.import_module(f"controller.{module}") for module in ("settings", "app.secrets"))
    try:
        return getattr(app, what)(settings.load_settings(config), *args)
    except settings.SettingsError as error:
        raise UsageProblem(str(error)) from error
    except app.CannotStart as error:
        raise CliError(str(error)) from error


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
