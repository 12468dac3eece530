"""`paddock explain`: documentation of the fields of a kind. Needs no daemon."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click

from controller.cli.errors import CliError
from controller.cli.text.output import json_text, say
from controller.version import API_VERSION

_EFFECT = "x-paddock-takes-effect"
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "pattern {}",
}


@click.command("explain")
@click.argument("what", required=False, metavar="KIND[.FIELD[.FIELD ...]]")
@click.option("--recursive", is_flag=True, help="Include nested fields.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: as JSON Schema.")
@click.option("--schema", "whole_schema", is_flag=True, help="Print the published JSON Schema of all kinds.")
def explain_(what: str | None, recursive: bool, output: str, whole_schema: bool) -> None:
    """Show the fields of a kind: meaning, type, bounds, and how a change takes effect.

    \b
    paddock explain sandbox
    paddock explain sandbox.spec.template.tmpfs
    """
    from controller.documents import json_schema
    from controller.documents.foreign_kinds import word_advice
    from controller.kinds.registry import discover

    if whole_schema:
        say(json_schema.text(discover()).rstrip("\n"))
        return
    if not what:
        raise click.UsageError("no kind given; name one, such as `sandbox`, or a field, such as sandbox.spec.template")
    word, *names = [name_part for name_part in what.removesuffix(".").split(".") if name_part]
    kind = discover().by_word(word)
    if kind is None:
        kind_names = ", ".join(known_kind.name.lower() for known_kind in discover())
        raise CliError(f"unknown kind `{word}`; {word_advice(word) or f'known kinds: {kind_names}'}")
    schema = _find(json_schema.document_schema(kind), names, word)
    if output == "json":
        say(json_text(schema))
        return
    say("\n".join(_page(kind.name, names, schema, recursive=recursive)))


def _find(top: dict[str, Any], names: list[str], word: str) -> dict[str, Any]:
    from controller.documents import json_schema
    from controller.documents.model_fields import closest

    schema = top
    for at, name in enumerate(names):
        inner = json_schema.fields(schema).get(name)
        if inner is None:
            field_names = list(json_schema.fields(schema))
            meant = closest(name, field_names)
            hint = (
                f"did you mean `{meant}`?"
                if meant
                else f"known fields: {', '.join(field_names)}"
                if field_names
                else "it has none"
            )
            raise CliError(f"`{'.'.join((word, *names[:at]))}` has no field `{name}`; {hint}")
        schema = inner
    return schema


def _page(kind: str, names: list[str], schema: dict[str, Any], *, recursive: bool) -> Iterator[str]:
    from controller.documents import json_schema

    yield f"KIND:       {kind}"
    yield f"VERSION:    {API_VERSION}"
    yield ""
    if names:
        yield f"FIELD: {names[-1]} <{_type(schema)}>"
        yield ""
    yield "DESCRIPTION:"
    yield from _paragraph(str(schema.get("description", "")) or "none", 4)
    yield from (f"    {fact}" for fact in _facts(schema))
    if json_schema.fields(schema):
        yield ""
        yield "FIELDS:"
        yield from _fields(schema, 2, recursive=recursive)


def _fields(schema: dict[str, Any], indent: int, *, recursive: bool) -> Iterator[str]:
    from controller.documents import json_schema

    needed = json_schema.required_fields(schema)
    for name, field_schema in json_schema.fields(schema).items():
        yield f"{' ' * indent}{name}\t<{_type(field_schema)}>{' -required-' if name in needed else ''}"
        if recursive:
            yield from _fields(field_schema, indent + 2, recursive=True)
            continue
        yield from _paragraph(str(field_schema.get("description", "")), indent + 2)
        yield from (f"{' ' * (indent + 2)}{line}" for line in _facts(field_schema))
        yield ""


def _paragraph(text: str, indent: int) -> list[str]:
    pad = " " * indent
    return textwrap.wrap(text, 100, initial_indent=pad, subsequent_indent=pad, break_on_hyphens=False)


def _type(schema: Mapping[str, Any]) -> str:
    if schema.get("type") == "array":
        return f"[]{_type(schema['items'])}"
    if "anyOf" in schema:
        return "Quantity"
    if schema.get("type") == "object":
        return "Object" if "properties" in schema else "map[string]string"
    return str(schema.get("type", "any"))


def _facts(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield default, choices, bounds and effect, one line each."""
    if "enum" in schema:
        yield f"one of: {', '.join(map(str, schema['enum']))}"
    if schema.get("default") not in (None, [], {}) and "properties" not in schema:
        yield f"default: {schema['default']}"
    bounds = [template.format(schema[name]) for name, template in _BOUNDS.items() if name in schema]
    if bounds:
        yield f"bounds: {', '.join(bounds)}"
    if _EFFECT in schema:
        yield f"a change takes effect: {schema[_EFFECT]}"
