"""`paddock import`: documents of others as those of Paddock. It needs no daemon."""

from collections.abc import Sequence
from typing import Any

import click

from controller.cli.errors import CliError
from controller.cli.options import Group
from controller.cli.text.output import note, say, yaml_text


@click.group("import", cls=Group)
def import_() -> None:
    """Translate the manifests of others into specs of Paddock."""


@import_.command("agent-sandbox")
@click.argument("names", nargs=-1, metavar="FILE ...")
@click.option("-f", "--filename", "files_", multiple=True, metavar="FILE", help="The same as an argument; repeatable.")
@click.option("--lossy", is_flag=True, help="Print the rest, too, if fields can't be translated.")
def agent_sandbox(names: Sequence[str], files_: Sequence[str], lossy: bool) -> None:
    """Translate manifests of kubernetes-sigs/agent-sandbox, and name each field that is lost or means something else.

    Sandbox, SandboxTemplate, SandboxClaim (a Sandbox here) and SandboxWarmPool (a SandboxPool here) of v1alpha1,
    v1beta1 and v1. Give those that refer to each other together. The specs are printed; nothing is applied.

    \b
    paddock import agent-sandbox -f sandbox.yaml | paddock apply -f -
    """
    if not (names or files_):
        raise click.UsageError("no files given; add -f FILE, or -f - for stdin")
    from controller.documents.agent_sandbox.translate import translate
    from controller.documents.document import parse
    from controller.kinds.registry import discover

    translation = translate(_documents((*files_, *names)))
    for remark in translation.notes:
        note(f"note: {remark}")
    texts = [yaml_text(document) for document in translation.documents]
    faults = list(translation.faults)
    for document, text in zip(translation.documents, texts, strict=True):
        name = f"{document['kind']}/{document['metadata'].get('name', '?')}, as translated"
        faults += [f"{name}: {problem.field}: {problem.message}" for problem in parse("", text, discover())[1]]
    if faults and not lossy:
        raise CliError("not translated; correct these, or add --lossy\n" + "\n".join(faults))
    for fault in faults:
        note(f"warning: {fault}")
    say("\n---\n".join(texts))


def _documents(names: Sequence[str]) -> list[Any]:
    from controller.cli.objects import files
    from controller.documents.yaml_tree import read

    documents, problems = [], []
    for source in files.read(names, recursive=False):
        trees, wrong = read(source["file"], source["text"])
        documents += [tree.root.plain() for tree in trees]
        problems += wrong
    if problems:
        raise CliError("\n".join(map(str, problems)))
    return [document for document in documents if isinstance(document, dict)]
