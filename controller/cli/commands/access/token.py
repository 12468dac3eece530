"""`paddock token`: bearer tokens for the TCP listener and for programs."""

import os
from pathlib import Path
from typing import Any

import click

from controller.cli.client import connect, segment
from controller.cli.commands.access.auth import bounds
from controller.cli.errors import CliError
from controller.cli.options import DURATION, Group
from controller.cli.text.output import columns, json_text, note, say, say_table, yaml_text

_ROLES = ("viewer", "user", "operator", "admin")
_LONGEST_SECONDS = 366 * 86400


def _lifetime(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """Return the seconds of --expires; None: it never does."""
    if value == "never":
        return None
    seconds = int(DURATION.convert(value, param, ctx))
    if not 1 <= seconds <= _LONGEST_SECONDS:
        raise click.BadParameter(f"`{value}` is not a lifetime from 1s to 366d; write one, or never", ctx, param)
    return seconds


def _quantity(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check the text of --max-cpu or --max-memory, which the daemon parses."""
    from controller.kinds.common.quantity import parse_bytes, parse_cpu  # slow to import

    try:
        if value is not None:
            (parse_cpu if param.name == "max_cpu" else parse_bytes)(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return value


@click.group("token", cls=Group)
def token_() -> None:
    """Create, list and revoke bearer tokens."""


@token_.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="Role of its holder.")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Namespace, pattern such as team-*, or * for all. Repeatable.",
)
@click.option("--level", "levels", multiple=True, metavar="LEVEL", help="Allowed security levels. Repeatable.")
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="IMAGE",
    help="Allowed images; a pattern such as registry.example.org/team/* covers all below. Repeatable.",
)
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME",
    help="Only calls of this MCP tool, or a pattern such as docker.file.* or SERVER.*, no other request. Repeatable.",
)
@click.option("--require-digest", is_flag=True, help="Only images pinned by digest.")
@click.option("--max-cpu", metavar="CPU", callback=_quantity, help="Maximum CPU limit of one sandbox.")
@click.option("--max-memory", metavar="BYTES", callback=_quantity, help="Maximum memory limit of one sandbox.")
@click.option("--max-pids", type=click.IntRange(1), metavar="COUNT", help="Maximum number of processes of one sandbox.")
@click.option(
    "--max-cpu-shares", type=click.IntRange(2, 262144), metavar="SHARES", help="Maximum CPU weight of one sandbox."
)
@click.option("--max-priority", type=int, metavar="NUMBER", help="Maximum priority of one sandbox.")
@click.option(
    "--expires",
    metavar="DURATION|never",
    default="30d",
    show_default=True,
    callback=_lifetime,
    help="Lifetime, at most 366d.",
)
@click.option("--out", metavar="FILE", help="Write the token to a new file that only you can read, instead of stdout.")
@click.pass_context
def create(ctx: click.Context, /, name: str, role: str, namespaces: tuple[str, ...], **options: Any) -> None:
    """Create a token. It is shown once; Paddock stores only its hash.

    \b
    paddock token create ci --role user -n team-a --image 'registry.example.org/team/*' --out ci.token
    PADDOCK_TOKEN_FILE=ci.token paddock --server https://host:9465 get sandboxes -n team-a
    """
    seconds, out = options["expires"], options["out"]
    grant: dict[str, Any] = {"role": role, "namespaces": list(namespaces), "requireDigest": options["require_digest"]}
    grant |= {key: list(options[key]) for key in ("levels", "images", "tools") if options[key]}
    limits = {limit_name: options[f"max_{limit_name}"] for limit_name in ("cpu", "memory", "pids")}
    grant["limits"] = {key: value for key, value in limits.items() if value is not None}
    weights = {"cpuShares": options["max_cpu_shares"], "priority": options["max_priority"]}
    grant |= {key: value for key, value in weights.items() if value is not None}
    opened = _new_file(out) if out else None
    try:
        token = connect(ctx).request(
            "POST", "tokens", json={"name": name, "grant": grant, "expirationSeconds": seconds}
        )
    except BaseException:
        if opened is not None:
            os.close(opened)
            Path(out).unlink()
        raise
    until = f"until {token['expires']}" if "expires" in token else "until it is revoked"
    note(f"token/{name} created, valid {until}")
    if opened is None:
        note("The token is shown only once:")
        say(token["token"])
        return
    with os.fdopen(opened, "w") as file:
        file.write(token["token"] + "\n")


@token_.command("list")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: table.")
@click.pass_context
def list_(ctx: click.Context, output: str | None) -> None:
    """List all tokens with their grants and state."""
    tokens = connect(ctx).get("tokens")
    if output is not None:
        say((json_text if output == "json" else yaml_text)(tokens))
        return
    rows = [["NAME", "STATE", "ROLE", "NAMESPACES", "BOUNDS", "EXPIRES", "CREATED-BY"]]
    for token in tokens["items"]:
        grant = token["grant"]
        places, until = ",".join(grant["namespaces"]), token.get("expires", "never")
        row = [
            token["metadata"]["name"],
            token["state"],
            grant["role"],
            places,
            bounds(grant),
            until,
            token["createdBy"],
        ]
        rows.append(row)
    if len(rows) == 1:
        note("No tokens found.")
    else:
        say_table(columns(rows))


@token_.command("revoke")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.pass_context
def revoke(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Revoke tokens at once."""
    client = connect(ctx)
    for name in names:
        client.request("DELETE", f"tokens/{segment(name)}")
        say(f"token/{name} revoked")


def _new_file(path: str) -> int:
    """Create the file before the token, so that no token is lost."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}; name a new file") from error
