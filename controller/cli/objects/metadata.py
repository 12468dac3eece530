"""Changes of labels and annotations by `app=web` and `tier-`, for `paddock label` and `paddock annotate`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError
from controller.cli.objects.patch import ObjectRef, change_line, find_objects, with_version
from controller.cli.text.output import say


@dataclass(frozen=True, slots=True)
class MetadataField:
    """Field of the metadata (`labels`), and the verbs for its changes."""

    subject: str
    set_word: str
    removed_word: str


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """A parsed command line."""

    arguments: Sequence[str]
    namespace: str
    selector: str
    everything: bool
    overwrite: bool
    listing: bool
    dry_run: bool


def change_metadata(ctx: click.Context, field: MetadataField, request: MetadataRequest) -> None:
    """Change the metadata; all objects are read and checked before the first is changed."""
    objects = [argument for argument in request.arguments if not _is_change(argument)]
    changes = _changes([argument for argument in request.arguments if _is_change(argument)], field)
    if not changes and not request.listing:
        raise click.UsageError(f"no change given; write KEY=VALUE, or KEY- to remove one of the {field.subject}")
    client = connect(ctx)
    targets = find_objects(client, objects, request.namespace, selector=request.selector, everything=request.everything)
    read = [(target, target.read(client)) for target in targets]
    if not request.overwrite:
        _refuse_overwriting(read, changes, field)
    for target, before in read:
        after: Mapping[str, Any] = before
        if changes:
            after = _change(client, target, before, changes=changes, field=field, request=request)
        if request.listing:
            _list(target, after, field, single=len(read) == 1)


def _is_change(word: str) -> bool:
    return "=" in word or word.endswith("-")


def _changes(arguments: Sequence[str], field: MetadataField) -> dict[str, str | None]:
    """Parse the changes: key -> new value, None to remove it."""
    changes: dict[str, str | None] = {}
    for word in arguments:
        key, equals, value = word.partition("=")
        key = key if equals else word.removesuffix("-")
        if not key:
            raise click.UsageError(f"`{word}`: a key is missing; write KEY=VALUE or KEY-")
        if key in changes:
            raise click.UsageError(f"`{key}` is given twice among the {field.subject}; keep one")
        changes[key] = value if equals else None
    return changes


def _refuse_overwriting(
    read: Sequence[tuple[ObjectRef, Mapping[str, Any]]], changes: Mapping[str, str | None], field: MetadataField
) -> None:
    problems = [
        f"{target}: `{key}` is `{present[key]}` already; add --overwrite to make it `{value}`"
        for target, obj in read
        for present in [obj["metadata"].get(field.subject, {})]
        for key, value in changes.items()
        if value is not None and present.get(key, value) != value
    ]
    if problems:
        raise CliError("nothing was changed\n" + "\n".join(problems))


def _change(
    client: Client,
    target: ObjectRef,
    before: Mapping[str, Any],
    changes: Mapping[str, str | None],
    field: MetadataField,
    request: MetadataRequest,
) -> Mapping[str, Any]:
    patch: dict[str, Any] = {"metadata": {field.subject: dict(changes)}}
    # Without --overwrite, the object must not have changed since it was read.
    sent = patch if request.overwrite else with_version(patch, before)
    after = target.patch(client, sent, dry_run=request.dry_run)
    removed = all(value is None for value in changes.values())
    if not request.listing:
        say(
            change_line(
                target, field.removed_word if removed else field.set_word, before, after, dry_run=request.dry_run
            )
        )
    return after


def _list(target: ObjectRef, obj: Mapping[str, Any], field: MetadataField, *, single: bool) -> None:
    if not single:
        say(f"Listing {field.subject} for {target}:")
    for key, value in sorted(obj["metadata"].get(field.subject, {}).items()):
        say(f"{'' if single else ' '}{key}={value}")
