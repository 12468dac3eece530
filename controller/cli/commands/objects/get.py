"""`paddock get`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError, Refused, as_cli_error, only_reads
from controller.cli.objects.kinds import ALL, Kinds, Resource, Target, read_named
from controller.cli.objects.watch import follow, name_params
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, selector_option
from controller.cli.text.output import (
    FORMS,
    is_object_format,
    note,
    object_format,
    say,
    say_table,
    sort_key,
    table,
    without,
)


@dataclass(frozen=True, slots=True)
class GetRequest:
    """Parsed request."""

    client: Client
    """Client of the API."""
    targets: Sequence[Target]
    """Kinds, and names of objects."""
    place: str | None
    """Namespace; None: all."""
    selector: str
    """Label selector."""
    fields: str
    """Field selector."""
    output: str | None
    """Form of the output; None: a table."""
    header: bool
    """Print the line of titles."""
    sort: Callable[[Any], Any] | None
    """Returns what objects are sorted by; None: as they come."""
    labels: bool = False
    """Print all labels in a column."""
    label_columns: Sequence[str] = ()
    """Labels with a column of their own."""
    prefixed: bool = False
    """Print names with their kind."""
    refusals: list[Refused] = field(default_factory=list)
    """Collects the errors of missing objects."""

    @property
    def params(self) -> dict[str, str]:
        """Return the selectors of a list."""
        selectors = {"labelSelector": self.selector, "fieldSelector": self.fields}
        return {key: value for key, value in selectors.items() if value}

    @property
    def of_all(self) -> bool:
        """Tell if no object is named."""
        return not any(target.names for target in self.targets)


@click.command("get")
@click.argument("what", nargs=-1, metavar="KIND [NAME ...] | KIND/NAME ... | SANDBOX ...")
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
    targets = Kinds(client).targets(what, place)
    request = GetRequest(
        client=client,
        targets=targets,
        place=place,
        selector=selector,
        fields=fields,
        output=output,
        header=not no_headers,
        sort=sort,
        labels=show_labels,
        label_columns=tuple(label for title_list in titles for label in title_list.split(",") if label),
        prefixed=tuple(what) == (ALL,),
    )
    if not request.of_all and (everywhere or selector or fields):
        raise click.UsageError("a name can't be combined with -A, -l or --field-selector; leave one of them out")
    if watch or watch_only:
        _watch(request, only=watch_only)
        return
    (_objects if is_object_format(output) else _tables)(request)
    if ignore_not_found:
        request.refusals.clear()
    for error in request.refusals:
        as_cli_error(error).show()
    ctx.exit(1 if request.refusals else 0)


def _fetch(request: GetRequest, target: Target, *, rows: bool) -> list[Any]:
    """Read a target: one response for a whole kind, or one for each name that exists."""
    if not target.names:
        path, params = target.resource.path(request.place), request.params
        read = request.client.list if target.resource.watched else request.client.get
        return [read(path, table=rows, **params)]
    answers = []
    for name in target.names:
        try:
            answers.append(read_named(request.client, target.resource, request.place, name, rows=rows))
        except Refused as error:
            if error.reason != "NotFound":
                raise
            if error.message not in {refusal.message for refusal in request.refusals}:
                request.refusals.append(error)
    return answers


def _tables(request: GetRequest) -> None:
    tables = []
    for kind in dict.fromkeys(target.resource for target in request.targets):
        targets = [target for target in request.targets if target.resource == kind]
        answers = [answer for target in targets for answer in _fetch(request, target, rows=True)]
        rows = [row for answer in answers for row in answer["rows"]]
        _note_missing(answers, kind)
        if rows:
            merged = {**answers[0], "rows": _sort_rows(request, targets, rows)}
            tables.append(_text(request, kind, merged, header=request.header))
    if tables:
        say_table("\n\n".join(tables))
    elif not request.refusals:
        _note_nothing(request)


def _text(request: GetRequest, kind: Resource, answer: dict[str, Any], *, header: bool) -> str:
    if request.prefixed:
        answer = {**answer, "rows": [_with_prefix(kind, row) for row in answer["rows"]]}
    return table(
        answer,
        wide=request.output == "wide",
        header=header,
        namespaces=request.place is None and kind.namespaced,
        labels=request.labels,
        label_columns=request.label_columns,
    )


def _with_prefix(kind: Resource, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the kind in front of its name, as in `get all`."""
    return {**row, "cells": [kind.word(str(row["cells"][0])), *row["cells"][1:]]}


def _note_nothing(request: GetRequest) -> None:
    namespaced = any(target.resource.namespaced for target in request.targets)
    note("No resources found" + (f" in {request.place} namespace." if request.place and namespaced else "."))


def _sort_rows(request: GetRequest, targets: Sequence[Target], rows: list[Any]) -> list[Any]:
    """Sort the rows by the sort key, which needs the whole objects."""
    if request.sort is None:
        return rows
    objects = [obj for target in targets for answer in _fetch(request, target, rows=False) for obj in _items(answer)]
    keys = {obj["metadata"]["uid"]: request.sort(obj) for obj in objects}
    return sorted(rows, key=lambda row: keys.get(row["object"]["metadata"]["uid"], (0,)))


def _items(answer: Any) -> list[Any]:
    return list(answer.get("items", [answer]))


def _note_missing(answers: Sequence[Any], kind: Resource) -> None:
    for line in dict.fromkeys(without(answer.get("missing"), kind.plural) for answer in answers):
        if line:
            note(line)


def _objects(request: GetRequest) -> None:
    objects = []
    for target in request.targets:
        answers = _fetch(request, target, rows=False)
        objects += [obj for answer in answers for obj in _items(answer)]
        _note_missing(answers, target.resource)
    if request.sort is not None:
        objects.sort(key=request.sort)
    single = len(objects) == 1 and not request.of_all
    if objects or not request.refusals:
        text = object_format(request.output or "", header=request.header)(objects, single)
        if text or request.output != "name":
            say(text, exact=True)


def _watch(request: GetRequest, *, only: bool) -> None:
    """Show the existing objects (unless `only` changes are asked for), then every change until interrupted."""
    kinds = list(dict.fromkeys(target.resource for target in request.targets))
    if len(kinds) > 1:
        raise click.UsageError("several kinds can't be watched at once; name one")
    if not kinds[0].watched:
        reason = "are computed on each read and can't be watched; repeat the command, or use `paddock wait`"
        raise CliError(f"{kinds[0].plural} {reason}")
    (kind,), names = kinds, {name for target in request.targets for name in target.names}
    params = request.params or name_params(names)
    path, rows = kind.path(request.place), not is_object_format(request.output)
    listed = request.client.list(path, table=rows, **params)
    revision = listed["metadata"].get("resourceVersion", "0")  # 0: an empty store
    display = _Display(request, kind, listed if rows and not only else None)
    if not only:
        (_tables if rows else _objects)(request)
        for error in request.refusals:
            as_cli_error(error).show()
    for event in follow(request.client, path, revision, params, table=rows):
        obj = event.obj["rows"][0]["object"] if rows else event.obj
        if not names or obj["metadata"]["name"] in names:
            display.show(event.obj)


class _Display:
    """Printer of single objects; rows stay aligned with earlier ones, with titles once."""

    def __init__(self, request: GetRequest, kind: Resource, listed: Any) -> None:
        self._asked, self._kind = request, kind
        self._widest: Any = None
        self._header = request.header
        for row in listed["rows"] if listed else ():
            self._widen(row)
            self._header = False
        if listed is not None:
            titles = [str(column["name"]) for column in listed["columnDefinitions"]]
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
        widest_row = self._widest or {"cells": cells, "object": {"metadata": {"namespace": namespace}}}
        widest = [max(pair, key=len) for pair in zip(widest_row["cells"], cells, strict=True)]
        wider = max(widest_row["object"]["metadata"]["namespace"], namespace, key=len)
        self._widest = {"cells": widest, "object": {"metadata": {"namespace": wider}}}
