"""What the commands that change objects share: which objects are meant, reading them, and sending a patch."""

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
class Meant:
    """One object that a command line names."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        return self.resource.word(self.name)

    def read(self, client: Client) -> dict[str, Any]:
        """The object as it is."""
        found: dict[str, Any] = client.get(self.resource.path(self.namespace, self.name))
        return found

    def patch(self, client: Client, patch: Any, *, type_: str = "merge", dry_run: bool = False) -> dict[str, Any]:
        """The object as it is with the patch."""
        params = {"dryRun": "true"} if dry_run else None
        path = self.resource.path(self.namespace, self.name)
        found: dict[str, Any] = client.request("PATCH", path, json=patch, params=params, content_type=_TYPES[type_])
        return found


def meant(
    client: Client, words: Sequence[str], namespace: str, *, selector: str = "", everything: bool = False
) -> list[Meant]:
    """The objects that these words name. A kind without a name needs a selector, or `--all`."""
    found = []
    for target in Kinds(client).targets(words):
        target.resource.check_writable()
        names = target.names
        if not names:
            if not selector and not everything:
                raise click.UsageError(f"name the {target.resource.plural} to change, or say --all or -l")
            items = client.get(target.resource.path(namespace), labelSelector=selector)["items"]
            names = tuple(each["metadata"]["name"] for each in items)
        elif selector or everything:
            raise click.UsageError("a name can't be combined with --all or -l; leave one of them out")
        found += [Meant(target.resource, namespace, name) for name in names]
    if not found:
        raise CliError(f"there is nothing to change in namespace {namespace}")
    return found


def the_one(client: Client, words: Sequence[str], namespace: str) -> Meant:
    """The one object that these words name."""
    found = meant(client, words, namespace)
    if len(found) != 1:
        raise click.UsageError("name one object")
    return found[0]


def with_version(patch: Mapping[str, Any], obj: Mapping[str, Any]) -> dict[str, Any]:
    """The patch, for the object as it was read only."""
    metadata = {**patch.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
    return {**patch, "metadata": metadata}


def told(each: Meant, what: str, before: Mapping[str, Any], after: Mapping[str, Any], *, dry_run: bool) -> str:
    """kubectl's line about a change."""
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
    """--dry-run; `server` checks and admits the change, and writes nothing."""
    return click.option(
        "--dry-run",
        type=click.Choice(["none", "server"]),
        default="none",
        help="server: check and admit the change, but write nothing.",
    )(command)
