"""`paddock diff`."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from controller.cli.client import connect
from controller.cli.compose.file import ComposeFile, allow_outside_option, compose_options
from controller.cli.errors import CliError, UsageProblem
from controller.cli.objects import files
from controller.cli.options import files_option, namespace_option, set_fields, set_options
from controller.cli.text.output import say
from paddock._client.errors import ClientError


@click.command("diff")
@files_option
@namespace_option
@set_options
@compose_options
@allow_outside_option
@click.option("--plan", is_flag=True, help="Show how each change takes effect, and the engine calls.")
@click.option("--delete", "deletion", is_flag=True, help="Show the effect of deleting these objects instead.")
@click.pass_context
def diff_(
    ctx: click.Context,
    /,
    files_: Sequence[str],
    recursive: bool,
    namespace: str | None,
    plan: bool,
    deletion: bool,
    compose_file: str | None,
    project: str | None,
    variables: Sequence[str],
    allow_outside: bool,
    **as_set: Any,
) -> None:
    """Show what applying spec files would change. Exit code: 0 nothing, 1 something, 2 or more an error.

    \b
    paddock diff -f specs/quickstart.yaml
    paddock diff --plan -f specs/
    paddock diff --compose compose.yaml
    """
    if bool(files_) == bool(compose_file):
        raise click.UsageError("no files given; add -f FILE, -f FOLDER or -f -, or else --compose FILE")
    try:
        compose = ComposeFile.of(compose_file, project, variables, allow_outside=allow_outside)
        if compose is not None:
            compose, _ = compose.prepare(as_set, namespace, connect(ctx))
        fields = {} if compose is not None and deletion else set_fields(**as_set)
        documents = [compose.body()] if compose is not None else files.read(files_, recursive=recursive)
        items = _ask(ctx, documents, namespace, plan=plan, delete=deletion, **fields)
    except (CliError, ClientError) as error:
        raise UsageProblem(error.message) from error  # 1 means that something differs
    for change in items:
        _show(change, plan=plan)
    if plan:
        from controller.cli.text.plan_text import quota_lines

        for line in quota_lines(items):
            say(line)
    ctx.exit(1 if any(change["before"] != change["after"] for change in items) else 0)


def _ask(ctx: click.Context, documents: Any, namespace: str | None, **options: Any) -> list[dict[str, Any]]:
    body = {"documents": documents, "namespace": namespace, **options}
    items: list[dict[str, Any]] = connect(ctx).request("POST", "diff", json=body)["items"]
    return items


def _show(item: Mapping[str, Any], *, plan: bool) -> None:
    text = "".join(_unified_diff(item))
    if text:
        say(text.rstrip("\n"))
    if plan:
        from controller.cli.text.plan_text import plan_text

        say(plan_text(item))


def _unified_diff(item: Mapping[str, Any]) -> Iterator[str]:
    metadata = item["metadata"]
    name_parts = (item["resource"], metadata.get("namespace", ""), metadata["name"])
    name = ".".join(name_part for name_part in name_parts if name_part)
    return difflib.unified_diff(_lines(item["before"]), _lines(item["after"]), f"live/{name}", f"merged/{name}")


def _lines(obj: Mapping[str, Any] | None) -> list[str]:
    from controller.cli.text.output import yaml_text

    if obj is None:
        return []
    sorted_parts = {section: _sort_fields(value) for section, value in obj.items()}
    return [f"{line}\n" for line in yaml_text(sorted_parts).splitlines()]


def _sort_fields(value: Any) -> Any:
    """Sort fields by name: stores and models order them differently."""
    if isinstance(value, Mapping):
        return {name: _sort_fields(value[name]) for name in sorted(value)}
    return [_sort_fields(element) for element in value] if isinstance(value, list) else value
