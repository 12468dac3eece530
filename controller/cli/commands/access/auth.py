"""`paddock auth`: your identity and permissions."""

from typing import Any

import click

from controller.cli.client import PREFIX, Client, connect
from controller.cli.options import DEFAULT_NAMESPACE, Group, namespace_option
from controller.cli.text.output import columns, json_text, note, say, say_table, yaml_text

_LISTED = ("get", "list", "create", "update", "delete")
_VERBS = {"exec": ("use", "exec"), "logs": ("get", "logs"), "watch": ("list", ""), "patch": ("update", "")}


@click.group("auth", cls=Group)
def auth_() -> None:
    """Show your identity and permissions."""


@auth_.command("whoami")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: text.")
@click.pass_context
def whoami(ctx: click.Context, output: str | None) -> None:
    """Show your user name and grants."""
    identity = connect(ctx).get("auth/whoami")
    if output is not None:
        say((json_text if output == "json" else yaml_text)(identity))
        return
    say(identity["name"])
    rows = [["ROLE", "NAMESPACES", "BOUNDS"]]
    say_table(
        columns(rows + [[grant["role"], ",".join(grant["namespaces"]), bounds(grant)] for grant in identity["grants"]])
    )


@auth_.command("can-i")
@click.argument("verb", metavar="VERB", default="")
@click.argument("kind", metavar="KIND[/NAME]", default="")
@click.option("--list", "every", is_flag=True, help="List what you may do with each kind.")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; exit code 0 for yes, 1 for no.")
@click.pass_context
def can_i(
    ctx: click.Context, verb: str, kind: str, every: bool, namespace: str | None, everywhere: bool, quiet: bool
) -> None:
    """Check a permission. VERB: get list create update delete exec logs.

    \b
    paddock auth can-i create sandboxes -n team-a
    paddock auth can-i exec sandbox/my-app
    paddock auth can-i --list
    """
    if every == bool(verb or kind) or bool(verb) != bool(kind):
        raise click.UsageError("write VERB KIND, or --list alone")
    if every:
        say_table(columns(_every(connect(ctx), None if everywhere else namespace or DEFAULT_NAMESPACE)))
        return
    api_verb, sub = _VERBS.get(verb, (verb, ""))
    word, _, name = kind.partition("/")
    place = None if everywhere else namespace or DEFAULT_NAMESPACE
    body: dict[str, Any] = {"verb": api_verb, "kind": word, "namespace": place, "name": name, "subresource": sub}
    decision = connect(ctx).request("POST", "auth/can-i", json=body)
    if not quiet:
        say("yes" if decision["allowed"] else "no")
        if not decision["allowed"]:
            note(decision["reason"])
    ctx.exit(0 if decision["allowed"] else 1)


def _every(client: Client, place: str | None) -> list[list[str]]:
    """Return the verbs that are allowed for each kind, as rows."""
    rows = [["RESOURCES", "VERBS"]]
    for kind in client.get(PREFIX)["resources"]:
        verbs = [verb for verb in _LISTED if verb in kind["verbs"]]
        verbs += ["exec", "logs"] if kind["kind"] == "Sandbox" else []
        rows.append([kind["name"], " ".join(verb for verb in verbs if _is_allowed(client, verb, kind["name"], place))])
    return rows


def _is_allowed(client: Client, verb: str, kind: str, place: str | None) -> bool:
    api_verb, sub = _VERBS.get(verb, (verb, ""))
    body = {"verb": api_verb, "kind": kind, "namespace": place, "name": "", "subresource": sub}
    return bool(client.request("POST", "auth/can-i", json=body)["allowed"])


def bounds(grant: dict[str, Any]) -> str:
    """Format the bounds of a grant in one line."""
    terms = [f"{name}={','.join(grant[name])}" for name in ("levels", "images", "tools") if name in grant]
    terms += ["digests only"] if grant.get("requireDigest") else []
    terms += [f"{name}<={most}" for name, most in grant.get("limits", {}).items() if most is not None]
    terms += [f"{name}<={grant[name]}" for name in ("cpuShares", "priority") if grant.get(name) is not None]
    return " ".join(terms) or "none"
