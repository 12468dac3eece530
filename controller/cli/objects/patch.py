"""Helpers of the commands that change objects: select, read and patch them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

from controller.cli.client import Client
from controller.cli.errors import CliError
from controller.cli.objects.kinds import Kinds, Resource

DryRun = Literal["none", "server"]
_TYPES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One object given on a command line."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        return self.resource.word(self.name)

    def read(self, client: Client) -> dict[str, Any]:
        """Read the object."""
        current: dict[str, Any] = client.get(self.resource.path(self.namespace, self.name))
        return current

    def patch(self, client: Client, patch: Any, *, type_: str = "merge", dry_run: bool = False) -> dict[str, Any]:
        """Send a patch; return the patched object."""
        params = {"dryRun": "true"} if dry_run else None
        path = self.resource.path(self.namespace, self.name)
        patched: dict[str, Any] = client.request("PATCH", path, json=patch, params=params, content_type=_TYPES[type_])
        return patched


def find_objects(
    client: Client, arguments: Sequence[str], namespace: str, *, selector: str = "", everything: bool = False
) -> list[ObjectRef]:
    """Return the objects that these words name. A kind without a name needs a selector or `--all`."""
    targets = []
    for target in Kinds(client).targets(arguments, namespace):
        target.resource.check_patchable()
        names = target.names
        if not names:
            if not selector and not everything:
                raise click.UsageError(f"name the {target.resource.plural} to change, or add --all or -l")
            items = client.get(target.resource.path(namespace), labelSelector=selector)["items"]
            names = tuple(entry["metadata"]["name"] for entry in items)
        elif selector or everything:
            raise click.UsageError("a name can't be combined with --all or -l; leave one of them out")
        targets += [ObjectRef(target.resource, namespace, name) for name in names]
    if not targets:
        raise CliError(f"no objects to change in namespace {namespace}; check the selector")
    return targets


def find_one(client: Client, arguments: Sequence[str], namespace: str) -> ObjectRef:
    """Return the one object that these words name."""
    targets = find_objects(client, arguments, namespace)
    if len(targets) != 1:
        raise click.UsageError("name one object")
    return targets[0]


def with_version(patch: Mapping[str, Any], obj: Mapping[str, Any]) -> dict[str, Any]:
    """Bind the patch to the resourceVersion that was read."""
    metadata = {**patch.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
    return {**patch, "metadata": metadata}


def change_line(
    target: ObjectRef, what: str, before: Mapping[str, Any], after: Mapping[str, Any], *, dry_run: bool
) -> str:
    """Format a change as kubectl does."""
    parts = ("spec", "metadata")
    hidden = ("resourceVersion", "generation")
    contents = [
        [obj["spec"], {key: value for key, value in obj["metadata"].items() if key not in hidden}]
        for obj in (before, after)
        if all(section in obj for section in parts)
    ]
    remark = " (no change)" if contents[0] == contents[1] else ""
    return f"{target} {what}{remark}{' (server dry run)' if dry_run else ''}"


def dry_run_option(command: Any) -> Any:
    """Add --dry-run; `server` admits the change without writing it."""
    return click.option(
        "--dry-run",
        type=click.Choice(["none", "server"]),
        default="none",
        help="server: validate and admit the change without writing it.",
    )(command)
