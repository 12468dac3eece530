"""Helpers of the commands that change objects: select, read and patch them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

from controller.cli.client import Client
from controller.cli.errors import CliError
from controller.cli.kinds import Kinds, Resource

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
        found: dict[str, Any] = client.get(self.resource.path(self.namespace, self.name))
        return found

    def patch(self, client: Client, patch: Any, *, type_: str = "merge", dry_run: bool = False) -> dict[str, Any]:
        """Send a patch; return the patched object."""
        params = {"dryRun": "true"} if dry_run else None
        path = self.resource.path(self.namespace, self.name)
        found: dict[str, Any] = client.request("PATCH", path, json=patch, params=params, content_type=_TYPES[type_])
        return found


def find_objects(
    client: Client, words: Sequence[str], namespace: str, *, selector: str = "", everything: bool = False
) -> list[ObjectRef]:
    """Return the objects that these words name. A kind without a name needs a selector or `--all`."""
    found = []
    for target in Kinds(client).targets(words):
        target.resource.check_patchable()
        names = target.names
        if not names:
            if not selector and not everything:
                raise click.UsageError(f"name the {target.resource.plural} to change, or add --all or -l")
            items = client.get(target.resource.path(namespace), labelSelector=selector)["items"]
            names = tuple(each["metadata"]["name"] for each in items)
        elif selector or everything:
            raise click.UsageError("a name can't be combined with --all or -l; leave one of them out")
        found += [ObjectRef(target.resource, namespace, name) for name in names]
    if not found:
        raise CliError(f"no objects to change in namespace {namespace}; check the selector")
    return found


def find_one(client: Client, words: Sequence[str], namespace: str) -> ObjectRef:
    """Return the one object that these words name."""
    found = find_objects(client, words, namespace)
    if len(found) != 1:
        raise click.UsageError("name one object")
    return found[0]


def with_version(patch: Mapping[str, Any], obj: Mapping[str, Any]) -> dict[str, Any]:
    """Bind the patch to the resourceVersion that was read."""
    metadata = {**patch.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
    return {**patch, "metadata": metadata}


def change_line(
    each: ObjectRef, what: str, before: Mapping[str, Any], after: Mapping[str, Any], *, dry_run: bool
) -> str:
    """Format a change as kubectl does."""
    parts = ("spec", "metadata")
    hidden = ("resourceVersion", "generation")
    seen = [
        [obj["spec"], {key: value for key, value in obj["metadata"].items() if key not in hidden}]
        for obj in (before, after)
        if all(part in obj for part in parts)
    ]
    same = " (no change)" if seen[0] == seen[1] else ""
    return f"{each} {what}{same}{' (server dry run)' if dry_run else ''}"


def dry_run_option(command: Any) -> Any:
    """Add --dry-run; `server` admits the change without writing it."""
    return click.option(
        "--dry-run",
        type=click.Choice(["none", "server"]),
        default="none",
        help="server: validate and admit the change without writing it.",
    )(command)
