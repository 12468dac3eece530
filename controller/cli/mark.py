"""What `paddock label` and `paddock annotate` share: words such as `app=web` and `tier-`, and their effect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError
from controller.cli.output import say
from controller.cli.patch import Meant, meant, told, with_version


@dataclass(frozen=True, slots=True)
class Marks:
    """Which part of the metadata is changed (`labels`), and what a change of it is called."""

    part: str
    set_word: str
    removed_word: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A command line, read."""

    words: Sequence[str]
    namespace: str
    selector: str
    everything: bool
    overwrite: bool
    listing: bool
    dry_run: bool


def run(ctx: click.Context, marks: Marks, asked: Asked) -> None:
    """Carry the command out: all objects are looked at before the first is changed."""
    objects = [each for each in asked.words if not _is_change(each)]
    changes = _changes([each for each in asked.words if _is_change(each)], marks)
    if not changes and not asked.listing:
        raise click.UsageError(f"say what to change: KEY=VALUE, or KEY- to remove one of the {marks.part}")
    client = connect(ctx)
    found = meant(client, objects, asked.namespace, selector=asked.selector, everything=asked.everything)
    read = [(each, each.read(client)) for each in found]
    if not asked.overwrite:
        _refuse_overwriting(read, changes, marks)
    for each, before in read:
        after: Mapping[str, Any] = before
        if changes:
            after = _change(client, each, before, changes, marks, asked)
        if asked.listing:
            _list(each, after, marks, single=len(read) == 1)


def _is_change(word: str) -> bool:
    return "=" in word or word.endswith("-")


def _changes(words: Sequence[str], marks: Marks) -> dict[str, str | None]:
    """Key -> its new value; None takes it away."""
    found: dict[str, str | None] = {}
    for word in words:
        key, equals, value = word.partition("=")
        key = key if equals else word.removesuffix("-")
        if not key:
            raise click.UsageError(f"`{word}`: a key is missing; write KEY=VALUE or KEY-")
        if key in found:
            raise click.UsageError(f"`{key}` is given twice among the {marks.part}; keep one")
        found[key] = value if equals else None
    return found


def _refuse_overwriting(
    read: Sequence[tuple[Meant, Mapping[str, Any]]], changes: Mapping[str, str | None], marks: Marks
) -> None:
    problems = [
        f"{each}: `{key}` is `{held[key]}` already; say --overwrite to make it `{value}`"
        for each, obj in read
        for held in [obj["metadata"].get(marks.part, {})]
        for key, value in changes.items()
        if value is not None and held.get(key, value) != value
    ]
    if problems:
        raise CliError("nothing was changed\n" + "\n".join(problems))


def _change(
    client: Client,
    each: Meant,
    before: Mapping[str, Any],
    changes: Mapping[str, str | None],
    marks: Marks,
    asked: Asked,
) -> Mapping[str, Any]:
    patch: dict[str, Any] = {"metadata": {marks.part: dict(changes)}}
    # Without --overwrite, what was looked at must still be so.
    sent = patch if asked.overwrite else with_version(patch, before)
    after = each.patch(client, sent, dry_run=asked.dry_run)
    removed = all(value is None for value in changes.values())
    if not asked.listing:
        say(told(each, marks.removed_word if removed else marks.set_word, before, after, dry_run=asked.dry_run))
    return after


def _list(each: Meant, obj: Mapping[str, Any], marks: Marks, *, single: bool) -> None:
    if not single:
        say(f"Listing {marks.part} for {each}:")
    for key, value in sorted(obj["metadata"].get(marks.part, {}).items()):
        say(f"{'' if single else ' '}{key}={value}")
