"""Changes of labels and annotations by `app=web` and `tier-`, for `paddock label` and `paddock annotate`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError
from controller.cli.output import say
from controller.cli.patch import ObjectRef, change_line, find_objects, with_version


@dataclass(frozen=True, slots=True)
class MetadataField:
    """Field of the metadata (`labels`), and the verbs for its changes."""

    part: str
    set_word: str
    removed_word: str


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """A parsed command line."""

    words: Sequence[str]
    namespace: str
    selector: str
    everything: bool
    overwrite: bool
    listing: bool
    dry_run: bool


def change_metadata(ctx: click.Context, field: MetadataField, asked: MetadataRequest) -> None:
    """Change the metadata; all objects are read and checked before the first is changed."""
    objects = [each for each in asked.words if not _is_change(each)]
    changes = _changes([each for each in asked.words if _is_change(each)], field)
    if not changes and not asked.listing:
        raise click.UsageError(f"no change given; write KEY=VALUE, or KEY- to remove one of the {field.part}")
    client = connect(ctx)
    found = find_objects(client, objects, asked.namespace, selector=asked.selector, everything=asked.everything)
    read = [(each, each.read(client)) for each in found]
    if not asked.overwrite:
        _refuse_overwriting(read, changes, field)
    for each, before in read:
        after: Mapping[str, Any] = before
        if changes:
            after = _change(client, each, before, changes, field, asked)
        if asked.listing:
            _list(each, after, field, single=len(read) == 1)


def _is_change(word: str) -> bool:
    return "=" in word or word.endswith("-")


def _changes(words: Sequence[str], field: MetadataField) -> dict[str, str | None]:
    """Parse the changes: key -> new value, None to remove it."""
    found: dict[str, str | None] = {}
    for word in words:
        key, equals, value = word.partition("=")
        key = key if equals else word.removesuffix("-")
        if not key:
            raise click.UsageError(f"`{word}`: a key is missing; write KEY=VALUE or KEY-")
        if key in found:
            raise click.UsageError(f"`{key}` is given twice among the {field.part}; keep one")
        found[key] = value if equals else None
    return found


def _refuse_overwriting(
    read: Sequence[tuple[ObjectRef, Mapping[str, Any]]], changes: Mapping[str, str | None], field: MetadataField
) -> None:
    problems = [
        f"{each}: `{key}` is `{held[key]}` already; add --overwrite to make it `{value}`"
        for each, obj in read
        for held in [obj["metadata"].get(field.part, {})]
        for key, value in changes.items()
        if value is not None and held.get(key, value) != value
    ]
    if problems:
        raise CliError("nothing was changed\n" + "\n".join(problems))


def _change(
    client: Client,
    each: ObjectRef,
    before: Mapping[str, Any],
    changes: Mapping[str, str | None],
    field: MetadataField,
    asked: MetadataRequest,
) -> Mapping[str, Any]:
    patch: dict[str, Any] = {"metadata": {field.part: dict(changes)}}
    # Without --overwrite, the object must not have changed since it was read.
    sent = patch if asked.overwrite else with_version(patch, before)
    after = each.patch(client, sent, dry_run=asked.dry_run)
    removed = all(value is None for value in changes.values())
    if not asked.listing:
        say(change_line(each, field.removed_word if removed else field.set_word, before, after, dry_run=asked.dry_run))
    return after


def _list(each: ObjectRef, obj: Mapping[str, Any], field: MetadataField, *, single: bool) -> None:
    if not single:
        say(f"Listing {field.part} for {each}:")
    for key, value in sorted(obj["metadata"].get(field.part, {}).items()):
        say(f"{'' if single else ' '}{key}={value}")
