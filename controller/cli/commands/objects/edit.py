"""`paddock edit`."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError, Refused
from controller.cli.objects.patch import ObjectRef, change_line, find_one, with_version
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.text.output import note, say, yaml_text
from paddock._client.errors import ClientError

_HEAD = """\
# Edit the object below and save; lines that start with # are ignored.
# An unchanged or empty file cancels the edit.
#
"""
_SAVED = "your changes are saved in {path}"


@click.command("edit")
@click.argument("what", nargs=-1, metavar="KIND NAME | KIND/NAME")
@namespace_option
@click.pass_context
def edit_(ctx: click.Context, what: Sequence[str], namespace: str | None) -> None:
    """Edit an object in your editor ($VISUAL, else $EDITOR, else vi). A refused change opens it again."""
    client = connect(ctx)
    target = find_one(client, what, namespace or DEFAULT_NAMESPACE)
    folder = Path(tempfile.mkdtemp(prefix="paddock-edit-"))
    path = folder / f"{target.name}.yaml"
    keep = True
    try:
        keep = not _edit(client, target, path)
    finally:
        if not keep or not path.exists():
            path.unlink(missing_ok=True)
            folder.rmdir()


def _edit(client: Client, target: ObjectRef, path: Path) -> bool:
    """Edit until the change is accepted or cancelled. True when the file is no longer needed."""
    base = target.read(client)
    text, complaint = yaml_text(_editable(base)) + "\n", ""
    while True:
        edited = _in_editor(path, text, complaint)
        if not edited.strip():
            note("Edit cancelled, saved file was empty.")
            return True
        if edited == text:
            if not complaint:
                note("Edit cancelled, no changes made.")
                return True
            raise CliError(f"{complaint}\nedit cancelled, nothing was changed; {_SAVED.format(path=path)}")
        text = edited
        try:
            result_line = _send(client, target, base, path.name, edited)
        except Refused as error:
            if error.reason not in ("Invalid", "Conflict", "BadRequest"):
                raise CliError(f"{error.message}\n{_SAVED.format(path=path)}") from error
            base, complaint = _again(client, target, base, error)
        except (CliError, ClientError) as error:
            complaint = error.message
        else:
            say(result_line)
            return True


def _again(client: Client, target: ObjectRef, base: Mapping[str, Any], error: Refused) -> tuple[dict[str, Any], str]:
    """Return the new base of comparison, and the message for the editor."""
    if error.reason != "Conflict":
        return dict(base), error.message
    live = target.read(client)
    if live["metadata"]["uid"] != base["metadata"]["uid"] or "deletionTimestamp" in live["metadata"]:
        return dict(base), error.message
    message = (
        f"{error.message}\nThe object was changed by others meanwhile. Your changes are kept: edit anything (also a "
        "comment) and save to merge them into the current object."
    )
    rebased = {**base, "metadata": {**base["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}}
    return rebased, message


def _editable(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the editable part of an object, without its status."""
    metadata = {
        key: value for key, value in obj["metadata"].items() if key in ("name", "namespace", "labels", "annotations")
    }
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, "spec": obj["spec"]}


def _in_editor(path: Path, text: str, complaint: str) -> str:
    """Return the file's text after the editor exits, without the comment lines at its top."""
    header = "".join(f"# {line}\n" for line in complaint.splitlines())
    path.write_text(_HEAD + (f"{header}#\n" if header else "") + text)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(editor), str(path)], check=False)
    except OSError as error:
        raise CliError(
            f"can't start the editor `{editor}`: {error.strerror}; set EDITOR to an installed one"
        ) from error
    if done.returncode != 0:
        raise CliError(f"the editor `{editor}` failed with exit code {done.returncode}; nothing was changed")
    try:
        edited = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"can't read {path}: {error}; nothing was changed") from error
    return _without_head(edited)


def _without_head(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    return "".join(lines)


def _send(client: Client, target: ObjectRef, base: Mapping[str, Any], file: str, edited: str) -> str:
    """Send the change; return its result line. CliError with every problem of the text."""
    from controller.service.objects.json_patch import merge_patch_between

    before = _editable(base)
    after = _read(before, file, edited)
    patch = merge_patch_between(before, after)
    changed = target.patch(client, with_version(patch, base))
    return change_line(target, "edited", base, changed, dry_run=False)


def _read(before: Mapping[str, Any], file: str, text: str) -> dict[str, Any]:
    from controller.documents.document import parse, without_nulls
    from controller.kinds.registry import discover

    documents, problems = parse(file, text, discover())
    if problems:
        raise CliError("\n".join(map(str, problems)))
    if len(documents) != 1:
        raise CliError(f"{file} must hold one document, not {len(documents)}")
    (document,) = documents
    after: dict[str, Any] = without_nulls(document.tree.root.plain())
    for name in ("apiVersion", "kind"):
        if after[name] != before[name]:
            raise CliError(f"{name} can't be changed; it was `{before[name]}`")
    metadata = {key: value for key, value in after["metadata"].items() if key in before["metadata"] or key in _FREE}
    if {**metadata, "labels": 0, "annotations": 0} != {**before["metadata"], "labels": 0, "annotations": 0}:
        raise CliError(
            "a name or namespace can't be changed; apply a file with the new one, then delete the old object"
        )
    return {"apiVersion": after["apiVersion"], "kind": after["kind"], "metadata": metadata, "spec": after["spec"]}


_FREE = ("labels", "annotations")
