"""The forms in which objects are printed besides tables: -o json, yaml, name, jsonpath=... and custom-columns=..."""

from collections.abc import Callable, Sequence
from typing import Any

from controller.cli.errors import Misused
from controller.cli.output import columns, json_text, many, yaml_text

# Objects, and whether they are the one object that was asked for -> the text, without a line break at its end.
Format = Callable[[Sequence[Any], bool], str]
_NONE = "<none>"
FORMS = "wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=TITLE:PATH,..."


def reads(output: str | None) -> bool:
    """Whether this form is made of whole objects: all are, but tables."""
    return output not in (None, "wide")


def made(output: str, *, header: bool = True) -> Format:
    """The form of that name. Misused for one that there is not, or that can't be read."""
    word, equals, rest = output.partition("=")
    if output in ("json", "yaml"):
        write = json_text if output == "json" else yaml_text
        return lambda found, single: write(found[0] if single else many(found))
    if output == "name":
        return lambda found, _single: "\n".join(f"{each['kind'].lower()}.paddock/{_name(each)}" for each in found)
    if word == "jsonpath" and rest:
        return _template(rest)
    if word == "custom-columns" and rest:
        return _columns(rest, header=header)
    hint = f"; write {word}=..." if word in ("jsonpath", "custom-columns") and not equals else ""
    raise Misused(f"`-o {output}` is no form{hint}; there are {FORMS}")


def sort_key(path: str) -> Callable[[Any], tuple[Any, ...]]:
    """The key that orders objects by what a JSONPath leads to: nothing first, then numbers, then text."""
    from controller.cli.jsonpath import compile_path, text_of, values

    compiled = compile_path(path)

    def key(obj: Any) -> tuple[Any, ...]:
        found = values(compiled, obj)[:1]
        if not found or found[0] is None:
            return (0,)
        if isinstance(found[0], int | float) and not isinstance(found[0], bool):
            return 1, found[0]
        return 2, text_of(found[0])

    return key


def _name(obj: Any) -> str:
    return str(obj["metadata"]["name"])


def _template(text: str) -> Format:
    from controller.cli.jsonpath import Template

    template = Template(text)
    return lambda found, single: template.render(found[0] if single else many(found))


def _columns(text: str, *, header: bool) -> Format:
    from controller.cli.jsonpath import compile_path, text_of, values

    pairs = [each.partition(":") for each in text.split(",")]
    if any(not title or not path for title, _, path in pairs):
        raise Misused("custom-columns: write TITLE:PATH,TITLE:PATH, such as NAME:.metadata.name")
    titles, paths = [title for title, _, _ in pairs], [compile_path(path) for _, _, path in pairs]

    def write(found: Sequence[Any], _single: bool) -> str:
        rows = [[",".join(map(text_of, values(path, each))) or _NONE for path in paths] for each in found]
        return columns([titles, *rows] if header else rows)

    return write
