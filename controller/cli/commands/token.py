"""`paddock token`: bearer tokens, for the API's TCP door and for programs."""

import os
from pathlib import Path
from typing import Any

import click

from controller.cli.client import connect, segment
from controller.cli.commands.auth import bounds
from controller.cli.errors import CliError
from controller.cli.options import DURATION
from controller.cli.output import columns, json_text, note, say, yaml_text

_ROLES = ("viewer", "user", "operator", "admin")


@click.group("token")
def token_() -> None:
    """Make, list and revoke bearer tokens."""


@token_.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What it may do.")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Where: a namespace, team-*, or * for everywhere. May be given often.",
)
@click.option(
    "--level", "levels", multiple=True, metavar="LEVEL", help="Only these security levels. May be given often."
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="IMAGE",
    help="Only these images; registry.example.org/team/* for all below. May be given often.",
)
@click.option("--require-digest", is_flag=True, help="Only images that are pinned by their digest.")
@click.option("--max-cpu", metavar="CPU", help="The most one sandbox may ask for.")
@click.option("--max-memory", metavar="BYTES", help="The same for memory.")
@click.option("--max-pids", type=click.IntRange(1), metavar="COUNT", help="The same for processes.")
@click.option("--max-cpu-shares", type=click.IntRange(2, 262144), metavar="SHARES", help="The same for its weight.")
@click.option("--max-priority", type=int, metavar="NUMBER", help="The same for its priority.")
@click.option(
    "--expires", metavar="DURATION|never", default="30d", show_default=True, help="How long it is good, at most 366d."
)
@click.option("--out", metavar="FILE", help="Write it to a new file that only you can read, instead of showing it.")
@click.pass_context
def create(ctx: click.Context, /, name: str, role: str, namespaces: tuple[str, ...], **options: Any) -> None:
    """Make a token. It is shown once; Paddock keeps only a hash of it.

    \b
    paddock token create ci --role user -n team-a --image 'registry.example.org/team/*' --out ci.token
    PADDOCK_TOKEN_FILE=ci.token paddock --server https://host:9465 get sandboxes -n team-a
    """
    expires, out = options["expires"], options["out"]
    seconds = None if expires == "never" else int(DURATION.convert(expires, None, ctx))
    grant: dict[str, Any] = {"role": role, "namespaces": list(namespaces), "requireDigest": options["require_digest"]}
    grant |= {key: list(options[key]) for key in ("levels", "images") if options[key]}
    limits = {each: options[f"max_{each}"] for each in ("cpu", "memory", "pids")}
    grant["limits"] = {key: value for key, value in limits.items() if value is not None}
    weights = {"cpuShares": options["max_cpu_shares"], "priority": options["max_priority"]}
    grant |= {key: value for key, value in weights.items() if value is not None}
    opened = _new_file(out) if out else None
    try:
        found = connect(ctx).request(
            "POST", "tokens", json={"name": name, "grant": grant, "expirationSeconds": seconds}
        )
    except BaseException:
        if opened is not None:
            os.close(opened)
            Path(out).unlink()
        raise
    until = f"until {found['expires']}" if "expires" in found else "until it is revoked"
    note(f"token/{name} created, good {until}")
    if opened is None:
        note("This is the only time that it is shown:")
        say(found["token"])
        return
    with os.fdopen(opened, "w") as file:
        file.write(found["token"] + "\n")


@token_.command("list")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Another form than a table.")
@click.pass_context
def list_(ctx: click.Context, output: str | None) -> None:
    """Show all tokens: what they grant, and whether they are good."""
    found = connect(ctx).get("tokens")
    if output is not None:
        say((json_text if output == "json" else yaml_text)(found))
        return
    rows = [["NAME", "STATE", "ROLE", "NAMESPACES", "BOUNDS", "EXPIRES", "CREATED-BY"]]
    for each in found["items"]:
        grant = each["grant"]
        places, until = ",".join(grant["namespaces"]), each.get("expires", "never")
        row = [each["metadata"]["name"], each["state"], grant["role"], places, bounds(grant), until, each["createdBy"]]
        rows.append(row)
    if len(rows) == 1:
        note("No tokens found.")
    else:
        say(columns(rows))


@token_.command("revoke")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.pass_context
def revoke(ctx: click.Context, names: tuple[str, ...]) -> None:
    """End tokens now."""
    client = connect(ctx)
    for name in names:
        client.request("DELETE", f"tokens/{segment(name)}")
        say(f"token/{name} revoked")


def _new_file(path: str) -> int:
    """Made before the token, so that one that can't be kept is not made."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}; name a new file") from error
