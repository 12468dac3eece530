"""`paddock project`: a project is a sandbox of that name, opened and closed with what is worked on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from controller.cli.client import connect, segment
from controller.cli.errors import CliError, Refused
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, Group, namespace_option
from controller.cli.text.output import columns, note, say

_LABEL = "paddock/project"
_NETWORKS = {
    "none": "--network none: that is the level full-isolation; write --security-level full-isolation",
    "host": "--network host: no sandbox shares the network of the host; leave it out, and publish ports with "
    "`paddock port-forward`",
}


@click.group("project", cls=Group)
def project_() -> None:
    """Open and close projects: sandboxes that run while they are worked in.

    \b
    paddock project open my-app
    paddock project config sandbox --project my-app --memory 8G --cpus 4
    paddock project close my-app
    """


@project_.command("open")
@click.argument("name")
@namespace_option
@click.option("--template", default="", metavar="NAME", help="SandboxTemplate of a new project.")
@click.option("--image", default="", metavar="IMAGE", help="Image of a new project without a template.")
@click.option("--folder", default="", metavar="DIR", help="Folder of the host for /workspace/src, instead of a volume.")
@click.option("--size", default="", metavar="SIZE", help="Size of a new project's volumes. [default: 1Gi]")
@click.option("--wait", "wait_seconds", type=DURATION, default="60s", help="How long to wait. [default: 60s]")
@click.pass_context
def open_(ctx: click.Context, /, name: str, namespace: str | None, **options: Any) -> None:
    """Start the sandbox of a project, creating it if there is none. An existing one is never changed.

    A new one has its sources on a volume that survives closing, and stops when nobody used it for 30 minutes.
    """
    if options["template"] and options["image"]:
        raise click.UsageError("--template brings the image; leave out --image")
    folder = os.path.abspath(options["folder"]) if options["folder"] else ""  # as it is: the daemon judges it
    parts = {"image": options["image"], "folder": folder, "size": options["size"]}
    body: dict[str, Any] = {"waitSeconds": options["wait_seconds"]}
    body["project"] = {field: value for field, value in parts.items() if value}
    body |= {"templateRef": {"name": options["template"]}} if options["template"] else {}
    client = connect(ctx)
    client.request("POST", f"{_path(namespace, name)}/open", json=body)
    say(f"project {name} is open; `paddock shell {name}` works in it")


@project_.command("close")
@click.argument("name")
@namespace_option
@click.pass_context
def close(ctx: click.Context, name: str, namespace: str | None) -> None:
    """Suspend the sandbox of a project, unless its lifecycle says keepRunning. Its volumes stay."""
    with _opened(namespace, name):
        project = connect(ctx).request("POST", f"{_path(namespace, name)}/close")
    keeps_running = project["spec"].get("runState") == "Running"
    say(f"project {name} keeps running (lifecycle.keepRunning)" if keeps_running else f"project {name} is closed")


@project_.command("list")
@namespace_option
@click.option("-A", "--all-sandboxes", is_flag=True, help="Also sandboxes that were not created by opening a project.")
@click.pass_context
def list_(ctx: click.Context, namespace: str | None, all_sandboxes: bool) -> None:
    """List the projects of the namespace."""
    path = f"namespaces/{segment(namespace or DEFAULT_NAMESPACE)}/sandboxes"
    projects = connect(ctx).get(path, labelSelector="" if all_sandboxes else _LABEL)["items"]
    if not projects:
        note("No projects; `paddock project open NAME` creates one.")
        return
    say(columns([["PROJECT", "STATE", "TEMPLATE", "LEVEL"], *map(_row, projects)]))


def _row(obj: dict[str, Any]) -> list[str]:
    spec = obj["spec"]
    ready: dict[str, str] = next(
        (condition for condition in obj.get("status", {}).get("conditions", ()) if condition["type"] == "Ready"), {}
    )
    state = "open" if ready.get("status") == "True" else str(ready.get("reason", "Pending"))
    closed = spec.get("runState") == "Suspended"
    level = spec.get("securityLevel") or spec.get("template", {}).get("securityLevel", "-")
    return [obj["metadata"]["name"], "closed" if closed else state, spec.get("templateRef", {}).get("name", "-"), level]


@project_.group("config")
def config() -> None:
    """Configure a project."""


@config.command("sandbox")
@click.option("--project", "name", required=True, metavar="NAME", help="The project.")
@namespace_option
@click.option("--memory", metavar="SIZE", help="Memory limit, such as 8G.")
@click.option("--cpus", metavar="CPUS", help="Processors, such as 4 or 1.5.")
@click.option("--security-level", metavar="LEVEL", help="Security level. A change recreates the container.")
@click.option("--network", type=click.Choice(["none", "bridge", "host"]), help="bridge: the network of the level.")
@click.option("--keep-running/--no-keep-running", default=None, help="Run on when the project is closed or idle.")
@click.pass_context
def sandbox(ctx: click.Context, /, name: str, namespace: str | None, **settings: Any) -> None:
    """Set limits, level and network of a project's sandbox."""
    change: dict[str, Any] = {}
    limits = {"memory": settings["memory"], "cpu": settings["cpus"]}
    if limits := {field: value for field, value in limits.items() if value}:
        change["resources"] = {"limits": limits}
    if settings["security_level"]:
        change["securityLevel"] = settings["security_level"]
    if settings["keep_running"] is not None:
        change["lifecycle"] = {"keepRunning": settings["keep_running"]}
    if refusal := _NETWORKS.get(settings["network"] or ""):
        if settings["network"] == "host" or settings["security_level"] != "full-isolation":
            raise CliError(refusal)
    elif settings["network"] == "bridge":
        note("network bridge: each level has its own network; the sandbox keeps that of its level")
    if not change and not settings["network"]:
        raise click.UsageError("nothing to set; give --memory, --cpus, --security-level, --network or --keep-running")
    if change or settings["network"]:
        client, patch = connect(ctx), "application/merge-patch+json"
        with _opened(namespace, name):
            client.request("PATCH", _path(namespace, name), json={"spec": change}, content_type=patch)
    say(f"project {name} configured")


@contextmanager
def _opened(namespace: str | None, name: str) -> Iterator[None]:
    """Name the command that creates a project where there is none of that name."""
    try:
        yield
    except Refused as error:
        if error.reason != "NotFound":
            raise
        place = f" -n {namespace}" if namespace else ""
        raise CliError(
            f"project {name}: does not exist; open it first with `paddock project open {name}{place}`"
        ) from error


def _path(namespace: str | None, name: str) -> str:
    return f"namespaces/{segment(namespace or DEFAULT_NAMESPACE)}/sandboxes/{segment(name)}"
