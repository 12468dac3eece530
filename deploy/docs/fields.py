"""Field tables of the kinds, made from the schema that `paddock explain` shows."""

from collections.abc import Iterator, Mapping
from typing import Any

from controller.documents import json_schema
from controller.kinds.registry import discover

Schema = dict[str, Any]
_TEMPLATE, _PROBE = "[Fields of a template](#fields-of-a-template)", "[Fields of a probe](#fields-of-a-probe)"
# Objects with a table of their own, by the name of the field.
_ELSEWHERE: Mapping[str, str] = {
    "template": _TEMPLATE,
    "startup": _PROBE,
    "readiness": _PROBE,
    "liveness": _PROBE,
    "sandbox": "[Sandbox](#sandbox)",
    "workflow": "[Workflow](#workflow)",
    "finally": "the fields of `stages`",
}
# Forms that many fields have are types of their own here, explained once in specs/README.md.
_FORMS: Mapping[str, str] = {
    "lower-case letters, digits and `-`, starting and ending with a letter or digit": "name",
    "an absolute path without a colon": "path",
    "bytes, with Ki Mi Gi Ti or k M G T (512Mi, 8G)": "bytes",
    "CPU in cores (2, 0.5) or millicores (500m)": "CPU",
}
_EFFECTS = {"live": "at once", "recreate": "new container", "at next start": "next start"}


def spec_fields(kind: str) -> str:
    """Return the table of all fields below `spec` of a kind."""
    return _table(_schema(kind, "spec"), kind=kind)


def probe_fields() -> str:
    """Return the table of the fields of a probe."""
    return _table(_schema("Sandbox", "spec", "template", "readiness"), kind="")


def status_fields(kind: str) -> str:
    """Return the table of all fields below `status` of a kind."""
    return _table(_schema(kind, "status"), kind="")


def metadata_fields() -> str:
    """Return the table of the fields below `metadata`."""
    return _table(_schema("Sandbox", "metadata"), kind="")


def event_fields() -> str:
    """Return the table of the fields of an Event."""
    schema = _schema("Event")
    own = {name: each for name, each in schema["properties"].items() if name not in ("apiVersion", "kind", "metadata")}
    return _table({**schema, "properties": own, "required": []}, kind="")


def _schema(kind: str, *names: str) -> Schema:
    found = discover().by_name(kind)
    assert found is not None, kind
    schema = json_schema.at(json_schema.document_schema(found), names)
    assert schema is not None, (kind, names)
    return schema


def _table(schema: Schema, *, kind: str) -> str:
    effects = bool(kind) and any(json_schema.EFFECT in each for _, each, _ in _rows(schema, ""))
    # Where a change does the same everywhere, the text says so and the table has no column for it.
    same = len({each.get(json_schema.EFFECT) for _, each, leaf in _rows(schema, "") if leaf}) == 1
    shown = effects and not same
    titles = ["field", "type", "default", *(["a change"] if shown else []), "meaning"]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for path, each, leaf in _rows(schema, ""):
        effect = _EFFECTS.get(str(each.get(json_schema.EFFECT, "")), "") if leaf else ""
        cells = [f"`{path}`", _type(each), _default(each, leaf=leaf), *([effect] if shown else []), _meaning(each)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rows(schema: Schema, prefix: str) -> Iterator[tuple[str, Schema, bool]]:
    """Yield path, schema and True for a leaf, of each field and of those below it."""
    needed = json_schema.required_fields(schema)
    for name, each in json_schema.fields(schema).items():
        path = f"{prefix}{name}"
        marked = {**each, "required": name in needed} if name in needed else each
        elsewhere = _ELSEWHERE.get(name, "")
        if elsewhere and json_schema.fields(each):
            yield path, {**marked, "elsewhere": elsewhere}, True
            continue
        inner = bool(json_schema.fields(each))
        yield path, marked, not inner
        if inner:
            yield from _rows(each, f"{path}[]." if each.get("type") == "array" else f"{path}.")


def _type(schema: Schema) -> str:
    form = _form(schema)
    if form:
        return _FORMS[form]
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_PLURALS.get(_type(schema['items']), _type(schema['items']))}"
    if "enum" in schema:
        return " \\| ".join(f"`{each}`" for each in schema["enum"])
    if kind == "object":
        return "object" if json_schema.fields(schema) else "map"
    return {"string": "text", "integer": "number", "boolean": "true \\| false"}.get(str(kind), "any")


_PLURALS = {"text": "texts", "object": "objects", "number": "numbers", "name": "names", "path": "paths"}


def _form(schema: Schema) -> str:
    """Return the form of the values that is a type of its own; "" if there is none."""
    text = str(schema.get("description", ""))
    return next((each for each in _FORMS if f"({each})" in text or f"({each}, from" in text), "")


def _default(schema: Schema, *, leaf: bool) -> str:
    if schema.get("required") is True:
        return "**required**"
    default = schema.get("default")
    if not leaf or default is None or default in ([], {}):
        return ""
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return f"`{text}`" if text else "empty"


def _meaning(schema: Schema) -> str:
    text, form = str(schema.get("description", "")), _form(schema)
    if form:
        text = text.replace(f" ({form})", "").replace(f"({form}, from ", "(")
    bounds = _bounds(schema)
    parts = [text, f"({bounds})" if bounds else "", f"See {schema['elsewhere']}." if "elsewhere" in schema else ""]
    return cell(" ".join(each for each in parts if each))


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if schema.get("type") == "integer" and high is not None:
        return f"{low} to {high}" if low is not None else f"at most {high}"
    return f"at most {schema['maxItems']}" if "maxItems" in schema else ""


def cell(text: str) -> str:
    """Return a text that fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
