"""`paddock e2b`: settings for clients of E2B."""

import os
import secrets
import shlex
from pathlib import Path
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError
from controller.cli.options import DEFAULT_NAMESPACE, Group, located, namespace_option
from controller.cli.text.output import json_text, note, say
from paddock._client.contexts import config_file
from paddock._client.credentials import authorization
from paddock._client.errors import ClientError

_LIFETIME_SECONDS = 366 * 86400
_DATA_IMAGE = "paddock/data:1"


@click.group("e2b", cls=Group)
def e2b_() -> None:
    """Use this daemon by E2B's own clients."""


@e2b_.command("env")
@namespace_option
@click.option("--new", is_flag=True, help="Create another API key, instead of the one that was printed before.")
@click.option("-o", "--output", type=click.Choice(["shell", "dotenv", "json"]), default="shell", show_default=True)
@click.pass_context
def env(ctx: click.Context, namespace: str | None, new: bool, output: str) -> None:
    """Print the variables of E2B's clients: the daemon's address, and an API key for one namespace.

    The key is a Paddock token, in E2B's form: of PADDOCK_TOKEN_FILE, else one with the role user, made at the first
    call and kept in a file that only you can read.

    \b
    eval "$(paddock e2b env)"
    paddock e2b env -o dotenv >> .env
    """
    client, place = connect(ctx), namespace or DEFAULT_NAMESPACE
    url = str(client.get("/version").get("e2b", ""))
    if not url:
        raise CliError("this daemon has no listener for clients of E2B; set e2b_address, and restart it")
    key = _own_key(ctx) or (None if new else _kept_key(client, url, place)) or _new_key(client, url, place)
    variables = {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": key}
    if output == "json":
        say(json_text(variables))
        return
    _say_what_lacks(client)
    for name, value in variables.items():
        say(f"{'export ' if output == 'shell' else ''}{name}={shlex.quote(value)}")


def _say_what_lacks(client: Client) -> None:
    """Note that the code interpreter has no data libraries, if the images can be asked for."""
    try:
        images = client.get("images")["items"]
    except ClientError:
        return
    if not any(_DATA_IMAGE in image.get("names", ()) for image in images):
        note(f"run_code has no pandas and matplotlib; `images/build.sh data` builds {_DATA_IMAGE}, which has them")


def _own_key(ctx: click.Context) -> str | None:
    """Return the token of this command as an API key; None: it has none."""
    from controller.kinds.access.api_key import key_of

    header = authorization(located(ctx)).get("Authorization", "")
    return key_of(header.removeprefix("Bearer ")) or None


def _kept_key(client: Client, url: str, namespace: str) -> str | None:
    """Return the key that was printed before, if its token is still active."""
    try:
        name, key = _file(url, namespace).read_text().split()
    except (OSError, ValueError):
        return None
    tokens: list[dict[str, Any]] = client.get("tokens")["items"]
    active = any(token["metadata"]["name"] == name and token["state"] == "active" for token in tokens)
    return key if active else None


def _new_key(client: Client, url: str, namespace: str) -> str:
    """Create a token, and keep it in a file."""
    from controller.kinds.access.api_key import key_of

    name = f"e2b-{namespace[:30]}-{secrets.token_hex(3)}"
    body = {
        "name": name,
        "grant": {"role": "user", "namespaces": [namespace]},
        "expirationSeconds": _LIFETIME_SECONDS,
    }
    key = key_of(client.request("POST", "tokens", json=body)["token"])
    file = _file(url, namespace)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        spare = file.with_suffix(".new")
        with os.fdopen(os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as opened:
            opened.write(f"{name} {key}\n")
        spare.replace(file)
    except OSError as error:
        note(f"{file}: {error.strerror}; the next call makes another key")
    note(f"token/{name} created; `paddock token revoke {name}` ends it and what uses it")
    return key


def _file(url: str, namespace: str) -> Path:
    place = "".join(letter if letter.isalnum() else "-" for letter in url.partition("://")[2])
    return config_file().parent / "e2b" / f"{place}-{namespace}.key"
