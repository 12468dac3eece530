"""`paddock describe`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from controller.cli.calls.images import Images
from controller.cli.client import Client, connect
from controller.cli.errors import only_reads
from controller.cli.objects.kinds import Kinds, Target, read_named
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, selector_option
from controller.cli.text.output import columns, note, say_table, table, yaml_text
from controller.cli.text.progress import pull_text

_LABEL_WIDTH = 14
_PULLING = "ImagePulling"


@click.command("describe")
@click.argument("what", nargs=-1, metavar="KIND [NAME ...] | KIND/NAME ...")
@namespace_option
@selector_option
@click.pass_context
@only_reads
def describe_(ctx: click.Context, what: Sequence[str], namespace: str | None, selector: str) -> None:
    """Show objects with their conditions and events."""
    client = connect(ctx)
    place = namespace or DEFAULT_NAMESPACE
    entries = [
        entry for target in Kinds(client).targets(what, place) for entry in _fetch(client, target, place, selector)
    ]
    if not entries:
        note(f"No resources found in {place} namespace.")
    if entries:
        say_table("\n\n\n".join(_describe(client, entry) for entry in entries))


def _fetch(client: Client, target: Target, place: str, selector: str) -> list[Any]:
    if target.names:
        answers = [read_named(client, target.resource, place, name) for name in target.names]
        return [entry for answer in answers for entry in answer.get("items", [answer])]
    return list(client.get(target.resource.path(place), labelSelector=selector)["items"])


def _describe(client: Client, obj: Mapping[str, Any]) -> str:
    metadata, status = obj["metadata"], dict(obj.get("status", {}))
    conditions, last_termination = status.pop("conditions", []), status.pop("lastTermination", None)
    parts = list(_identity(metadata))
    if "spec" not in obj:  # an Event: its fields are at the top level, and it has no events
        fields = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}
        return "\n".join([*parts, yaml_text(fields)])
    if obj["spec"]:
        parts += ["Spec:", _indent(obj["spec"])]
    if status:
        parts += ["Status:", _indent(status)]
    if last_termination:
        parts += ["Last termination:", _indent(last_termination)]
    if conditions or "generation" in metadata:
        parts += ["Conditions:", _conditions(conditions) if conditions else "  none yet"]
    if any(condition["reason"] == _PULLING for condition in conditions):
        image = obj["spec"].get("template", {}).get("image")
        parts += [pull_text(pull) for pull in Images(client).pulling() if image in (None, pull["image"])]
    events = client.get(_events_path(metadata), table=True, uid=metadata["uid"])
    parts += ["Events:", _shift(table(events))] if events["rows"] else ["Events:  none"]
    return "\n".join(parts)


def _events_path(metadata: Mapping[str, Any]) -> str:
    return f"namespaces/{metadata['namespace']}/events" if "namespace" in metadata else "events"


def _identity(metadata: Mapping[str, Any]) -> Iterator[str]:
    fields = {
        "Name": metadata["name"],
        "Namespace": metadata.get("namespace", ""),
        "Labels": _pairs(metadata.get("labels", {})),
        "Annotations": _pairs(metadata.get("annotations", {})),
        "UID": metadata["uid"],
        "Generation": str(metadata.get("generation", "")),
        "Created": metadata.get("creationTimestamp", ""),
        "Deleting since": metadata.get("deletionTimestamp", ""),
    }
    for title, value in fields.items():
        if value:
            yield f"{title + ':':<{_LABEL_WIDTH + 2}}{value}"


def _pairs(values: Mapping[str, str]) -> str:
    between = "\n" + " " * (_LABEL_WIDTH + 2)
    return between.join(f"{key}={value}" for key, value in sorted(values.items()))


def _conditions(conditions: Sequence[Mapping[str, Any]]) -> str:
    fields = {
        "TYPE": "type",
        "STATUS": "status",
        "SINCE": "lastTransitionTime",
        "REASON": "reason",
        "MESSAGE": "message",
    }
    if not any("lastTransitionTime" in condition for condition in conditions):  # as of a host, whose are of this moment
        del fields["SINCE"]
    rows = [[condition.get(field, "") for field in fields.values()] for condition in conditions]
    return _shift(columns([list(fields), *rows]))


def _indent(value: Any) -> str:
    return _shift(yaml_text(value))


def _shift(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
