"""`paddock explain`: documentation of the fields of a kind. Needs no daemon."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click

from controller.cli.errors import CliError
from controller.cli.output import json_text, say
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
@click.option("--schema", "whole", is_flag=True, help="Print the published JSON Schema of all kinds.")
def explain_(what: str | None, recursive: bool, output: str, whole: bool) -> None:
    """Show the fields of a kind: meaning, type, bounds, and how a change takes effect.

    \b
    paddock explain sandbox
    paddock explain sandbox.spec.template.tmpfs
    """
    from controller.documents import json_schema
    from controller.kinds.registry import discover

    if whole:
        say(json_schema.text(discover()).rstrip("\n"))
        return
    if not what:
        raise click.UsageError("no kind given; name one, such as `sandbox`, or a field, such as sandbox.spec.template")
    word, *names = [each for each in what.removesuffix(".").split(".") if each]
    kind = discover().by_word(word)
    if kind is None:
        known = ", ".join(each.name.lower() for each in discover())
        raise CliError(f"unknown kind `{word}`; known kinds: {known}")
    found = _find(json_schema.document_schema(kind), names, word)
    if output == "json":
        say(json_text(found))
        return
    say("\n".join(_page(kind.name, names, found, recursive=recursive)))


def _find(top: dict[str, Any], names: list[str], word: str) -> dict[str, Any]:
    from controller.documents import json_schema
    from controller.documents.model_fields import closest

    found = top
    for at, name in enumerate(names):
        inner = json_schema.fields(found).get(name)
        if inner is None:
            known = list(json_schema.fields(found))
            meant = closest(name, known)
            hint = (
                f"did you mean `{meant}`?" if meant else f"known fields: {', '.join(known)}" if known else "it has none"
            )
            raise CliError(f"`{'.'.join((word, *names[:at]))}` has no field `{name}`; {hint}")
        found = inner
    return found


def _page(kind: str, names: list[str], found: dict[str, Any], *, recursive: bool) -> Iterator[str]:
    from controller.documents import json_schema

    yield f"KIND:       {kind}"
    yield f"VERSION:    {API_VERSION}"
    yield ""
    if names:
        yield f"FIELD: {names[-1]} <{_type(found)}>"
        yield ""
    yield "DESCRIPTION:"
    yield from _paragraph(str(found.get("description", "")) or "none", 4)
    yield from (f"    {each}" for each in _facts(found))
    if json_schema.fields(found):
        yield ""
        yield "FIELDS:"
        yield from _fields(found, 2, recursive=recursive)


def _fields(found: dict[str, Any], indent: int, *, recursive: bool) -> Iterator[str]:
    from controller.documents import json_schema

    needed = json_schema.required(found)
    for name, each in json_schema.fields(found).items():
        yield f"{' ' * indent}{name}\t<{_type(each)}>{' -required-' if name in needed else ''}"
        if recursive:
            yield from _fields(each, indent + 2, recursive=True)
            continue
        yield from _paragraph(str(each.get("description", "")), indent + 2)
        yield from (f"{' ' * (indent + 2)}{line}" for line in _facts(each))
        yield ""


def _paragraph(text: str, indent: int) -> list[str]:
    pad = " " * indent
    return textwrap.wrap(text, 100, initial_indent=pad, subsequent_indent=pad, break_on_hyphens=False)


def _type(found: Mapping[str, Any]) -> str:
    if found.get("type") == "array":
        return f"[]{_type(found['items'])}"
    if "anyOf" in found:
        return "Quantity"
    if found.get("type") == "object":
        return "Object" if "properties" in found else "map[string]string"
    return str(found.get("type", "any"))


def _facts(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield default, choices, bounds and effect, one line each."""
    if "enum" in found:
        yield f"one of: {', '.join(map(str, found['enum']))}"
    if found.get("default") not in (None, [], {}) and "properties" not in found:
        yield f"default: {found['default']}"
    bounds = [words.format(found[name]) for name, words in _BOUNDS.items() if name in found]
    if bounds:
        yield f"bounds: {', '.join(bounds)}"
    if _EFFECT in found:
        yield f"a change takes effect: {found[_EFFECT]}"
