"""Objects of spec files, created or replaced one by one."""

from collections.abc import Sequence
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError, as_cli_error
from controller.cli.objects import files
from controller.cli.text.output import say
from controller.documents.document import Document, find_duplicates, parse
from controller.kinds.registry import discover
from controller.version import API_VERSION
from paddock._client.connection import segment
from paddock._client.errors import Refused


def write(
    ctx: click.Context,
    names: Sequence[str],
    *,
    recursive: bool,
    namespace: str | None,
    replace: bool,
    only_check: bool = False,
) -> None:
    """Write every object of the files, in order. Each error is printed; the exit code is 1 if there was one."""
    if not names:
        raise click.UsageError("no files given; add -f FILE, -f FOLDER or -f -")
    documents = _documents(files.read(names, recursive=recursive), namespace)
    if only_check:
        for document in documents:
            say(f"{document.kind.name.lower()}.paddock/{document.name} created (client dry run)")
        return
    client, failed = connect(ctx), False
    for document in documents:
        try:
            (_replace if replace else _create)(client, document)
        except Refused as error:
            as_cli_error(error).show()
            failed = True
        else:
            say(f"{document.kind.name.lower()}.paddock/{document.name} {'replaced' if replace else 'created'}")
    ctx.exit(1 if failed else 0)


def _documents(texts: Sequence[dict[str, str]], namespace: str | None) -> list[Document]:
    good: list[Document] = []
    problems = []
    for source in texts:
        valid, wrong = parse(source["file"], source["text"], discover(), namespace=namespace)
        good += valid
        problems += wrong
    problems += find_duplicates(good)
    if problems:
        raise CliError("\n".join(("nothing was changed", *map(str, problems))))
    return good


def _path(document: Document) -> str:
    place = f"namespaces/{segment(document.namespace)}/" if document.kind.namespaced else ""
    return f"{place}{document.kind.plural}"


def _body(document: Document) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": document.name, "labels": document.labels, "annotations": document.annotations}
    if document.owner_references:
        metadata["ownerReferences"] = document.owner_references
    if document.kind.namespaced:
        metadata["namespace"] = document.namespace
    return {"apiVersion": API_VERSION, "kind": document.kind.name, "metadata": metadata, "spec": document.spec}


def _create(client: Client, document: Document) -> None:
    client.request("POST", _path(document), json=_body(document))


def _replace(client: Client, document: Document) -> None:
    path = f"{_path(document)}/{segment(document.name)}"
    version = document.resource_version or client.get(path)["metadata"]["resourceVersion"]
    body = _body(document)
    body["metadata"]["resourceVersion"] = version
    if document.uid:
        body["metadata"]["uid"] = document.uid
    client.request("PUT", path, json=body)
