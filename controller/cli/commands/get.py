"""`paddock get`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError, Refused, as_cli_error, only_reads
from controller.cli.kinds import ALL, Kinds, Resource, Target, read_named
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, selector_option
from controller.cli.output import FORMS, is_object_format, note, object_format, say, say_table, sort_key, table, without
from controller.cli.watch import follow, name_params


@dataclass(frozen=True, slots=True)
class Asked:
    """Parsed request. `refused` collects the errors of missing objects."""

    client: Client
    targets: Sequence[Target]
    place: str | None
    selector: str
    fields: str
    output: str | None
    header: bool
    sort: Callable[[Any], Any] | None
    labels: bool = False
    label_columns: Sequence[str] = ()
    prefixed: bool = False
    refused: list[Refused] = field(default_factory=list)

    @property
    def params(self) -> dict[str, str]:
        """Return the selectors of a list."""
        found = {"labelSelector": self.selector, "fieldSelector": self.fields}
        return {key: value for key, value in found.items() if value}

    @property
    def of_all(self) -> bool:
        """Tell if no object is named."""
        return not any(each.names for each in self.targets)


@click.command("get")
@click.argument("what", nargs=-1, metavar="KIND [NAME ...] | KIND/NAME ...")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
@selector_option
@click.option(
    "--field-selector", "fields", default="", metavar="TERMS", help="By field: metadata.name=web, type!=Normal."
)
@click.option("-o", "--output", metavar="FORMAT", help=f"Output format: {FORMS}.")
@click.option("--no-headers", is_flag=True, help="Print no column titles.")
@click.option("--show-labels", is_flag=True, help="Add a column with labels.")
@click.option("-L", "--label-columns", "titles", multiple=True, metavar="LABELS", help="Add a column for each label.")
@click.option("--ignore-not-found", is_flag=True, help="Ignore objects that do not exist.")
@click.option("--sort-by", metavar="JSONPATH", help="Sort by this field, such as .metadata.creationTimestamp.")
@click.option("-w", "--watch", is_flag=True, help="Show objects, then their changes, until Ctrl-C.")
@click.option("--watch-only", is_flag=True, help="Like --watch, without the existing objects.")
@click.pass_context
@only_reads
def get_(
    ctx: click.Context,
    what: Sequence[str],
    namespace: str | None,
    everywhere: bool,
    selector: str,
    fields: str,
    output: str | None,
    no_headers: bool,
    show_labels: bool,
    titles: Sequence[str],
    ignore_not_found: bool,
    sort_by: str | None,
    watch: bool,
    watch_only: bool,
) -> None:
    """Show objects.

    \b
    paddock get sandboxes
    paddock get all -A
    paddock get sb -L app,tier
    paddock get sb/quickstart -o yaml
    paddock get events --field-selector type=Warning
    paddock get sb -w -o custom-columns=NAME:.metadata.name,IMAGE:.spec.template.image
    """
    if is_object_format(output):
        object_format(output or "")  # report a bad format before any request
    sort = sort_key(sort_by) if sort_by else None
    client = connect(ctx)
    place = None if everywhere else namespace or DEFAULT_NAMESPACE
    targets = Kinds(client).targets(what)
    asked = Asked(
        client,
        targets,
        place,
        selector,
        fields,
        output,
        not no_headers,
        sort,
        show_labels,
        tuple(label for each in titles for label in each.split(",") if label),
        prefixed=tuple(what) == (ALL,),
    )
    if not asked.of_all and (everywhere or selector or fields):
        raise click.UsageError("a name can't be combined with -A, -l or --field-selector; leave one of them out")
    if watch or watch_only:
        _watch(asked, only=watch_only)
        return
    (_objects if is_object_format(output) else _tables)(asked)
    if ignore_not_found:
        asked.refused.clear()
    for error in asked.refused:
        as_cli_error(error).show()
    ctx.exit(1 if asked.refused else 0)


def _fetch(asked: Asked, target: Target, *, rows: bool) -> list[Any]:
    """Read a target: one response for a whole kind, or one for each name that exists."""
    if not target.names:
        path, params = target.resource.path(asked.place), asked.params
        read = asked.client.list if target.resource.watched else asked.client.get
        return [read(path, table=rows, **params)]
    found = []
    for name in target.names:
        try:
            found.append(read_named(asked.client, target.resource, asked.place, name, rows=rows))
        except Refused as error:
            if error.reason != "NotFound":
                raise
            if error.message not in {each.message for each in asked.refused}:
                asked.refused.append(error)
    return found


def _tables(asked: Asked) -> None:
    shown = []
    for kind in dict.fromkeys(each.resource for each in asked.targets):
        targets = [each for each in asked.targets if each.resource == kind]
        answers = [answer for target in targets for answer in _fetch(asked, target, rows=True)]
        rows = [row for answer in answers for row in answer["rows"]]
        _note_missing(answers, kind)
        if rows:
            whole = {**answers[0], "rows": _sorted(asked, targets, rows)}
            shown.append(_text(asked, kind, whole, header=asked.header))
    if shown:
        say_table("\n\n".join(shown))
    elif not asked.refused:
        _nothing(asked)


def _text(asked: Asked, kind: Resource, found: dict[str, Any], *, header: bool) -> str:
    if asked.prefixed:
        found = {**found, "rows": [_named(kind, each) for each in found["rows"]]}
    return table(
        found,
        wide=asked.output == "wide",
        header=header,
        namespaces=asked.place is None and kind.namespaced,
        labels=asked.labels,
        label_columns=asked.label_columns,
    )


def _named(kind: Resource, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the kind in front of its name, as in `get all`."""
    return {**row, "cells": [kind.word(str(row["cells"][0])), *row["cells"][1:]]}


def _nothing(asked: Asked) -> None:
    namespaced = any(each.resource.namespaced for each in asked.targets)
    note("No resources found" + (f" in {asked.place} namespace." if asked.place and namespaced else "."))


def _sorted(asked: Asked, targets: Sequence[Target], rows: list[Any]) -> list[Any]:
    """Sort the rows by the sort key, which needs the whole objects."""
    if asked.sort is None:
        return rows
    found = [obj for target in targets for answer in _fetch(asked, target, rows=False) for obj in _items(answer)]
    keys = {obj["metadata"]["uid"]: asked.sort(obj) for obj in found}
    return sorted(rows, key=lambda row: keys.get(row["object"]["metadata"]["uid"], (0,)))


def _items(answer: Any) -> list[Any]:
    return list(answer.get("items", [answer]))


def _note_missing(answers: Sequence[Any], kind: Resource) -> None:
    for line in dict.fromkeys(without(each.get("missing"), kind.plural) for each in answers):
        if line:
            note(line)


def _objects(asked: Asked) -> None:
    found = []
    for target in asked.targets:
        answers = _fetch(asked, target, rows=False)
        found += [obj for answer in answers for obj in _items(answer)]
        _note_missing(answers, target.resource)
    if asked.sort is not None:
        found.sort(key=asked.sort)
    single = len(found) == 1 and not asked.of_all
    if found or not asked.refused:
        text = object_format(asked.output or "", header=asked.header)(found, single)
        if text or asked.output != "name":
            say(text, exact=True)


def _watch(asked: Asked, *, only: bool) -> None:
    """Show the existing objects (unless `only` changes are asked for), then every change until interrupted."""
    kinds = list(dict.fromkeys(each.resource for each in asked.targets))
    if len(kinds) > 1:
        raise click.UsageError("several kinds can't be watched at once; name one")
    if not kinds[0].watched:
        reason = "are computed on each read and can't be watched; repeat the command, or use `paddock wait`"
        raise CliError(f"{kinds[0].plural} {reason}")
    (kind,), names = kinds, {name for each in asked.targets for name in each.names}
    params = asked.params or name_params(names)
    path, rows = kind.path(asked.place), not is_object_format(asked.output)
    listed = asked.client.list(path, table=rows, **params)
    revision = listed["metadata"].get("resourceVersion", "0")  # 0: an empty store
    shown = _Shown(asked, kind, listed if rows and not only else None)
    if not only:
        (_tables if rows else _objects)(asked)
        for error in asked.refused:
            as_cli_error(error).show()
    for event in follow(asked.client, path, revision, params, table=rows):
        obj = event.obj["rows"][0]["object"] if rows else event.obj
        if not names or obj["metadata"]["name"] in names:
            shown.show(event.obj)


class _Shown:
    """Printer of single objects; rows stay aligned with earlier ones, with titles once."""

    def __init__(self, asked: Asked, kind: Resource, listed: Any) -> None:
        self._asked, self._kind = asked, kind
        self._widest: Any = None
        self._header = asked.header
        for row in listed["rows"] if listed else ():
            self._widen(row)
            self._header = False
        if listed is not None:
            titles = [str(each["name"]) for each in listed["columnDefinitions"]]
            self._widen({"cells": titles, "object": {"metadata": {"namespace": "NAMESPACE"}}})

    def show(self, obj: Any) -> None:
        if is_object_format(self._asked.output):
            say(object_format(self._asked.output or "", header=self._header)([obj], True), exact=True)
        else:
            self._widen(obj["rows"][0])
            lines = _text(self._asked, self._kind, {**obj, "rows": [self._widest, *obj["rows"]]}, header=True)
            title, _, row = lines.split("\n")
            say_table(f"{title}\n{row}" if self._header else row)
        self._header = False

    def _widen(self, row: Any) -> None:
        """Keep the widest text of each column, in a row that is never shown."""
        cells, namespace = row["cells"], row["object"]["metadata"].get("namespace", "")
        known = self._widest or {"cells": cells, "object": {"metadata": {"namespace": namespace}}}
        widest = [max(pair, key=len) for pair in zip(known["cells"], cells, strict=True)]
        wider = max(known["object"]["metadata"]["namespace"], namespace, key=len)
        self._widest = {"cells": widest, "object": {"metadata": {"namespace": wider}}}
