"""JSON Schema of the kinds, made from their models, for `paddock explain`, editors and the published file.

`python -m controller.documents.json_schema` prints the published file, specs/schema/paddock.schema.json.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic.alias_generators import to_camel

from controller.kinds.base import FORM, live_fields
from controller.kinds.common.problem import Path
from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.envelope import Metadata
from controller.kinds.registry import Kind, Registry, discover
from controller.kinds.sandbox import Template
from controller.version import API_VERSION

Json = dict[str, Any]
Effect = Literal["live", "recreate", "at next start"]
EFFECT = "x-paddock-takes-effect"
# Pages of an editor and drafts: the YAML servers of the common editors know this one.
_DRAFT = "http://json-schema.org/draft-07/schema#"
_REF = "#/definitions/{model}"
_RECREATING = (("template",), ("templateRef",), ("workspace",), ("securityLevel",), ("credentials",), ("restoreFrom",))
_GPUS = (("limits", "gpus"), ("resources", "gpuDeviceIds"))
_VOLUMES = ("volume", "volumes", "volumeClaimTemplates")


def takes_effect(kind: str, path: Path) -> Effect:
    """Return the effect of a new value at that path (below `spec`) on a running sandbox.

    A sandbox's own template is hashed, and a change recreates the container. A named template or a profile recreates
    nothing by itself. Limits, probes and everything that Paddock itself does are changed in place.
    """
    if kind == "SecurityProfile":
        return "live" if path[:1] == ("defaultLimits",) else "at next start"
    if kind == "SandboxTemplate":
        return "live" if _is_live(path) and path[-2:] not in _GPUS else "at next start"
    if kind != "Sandbox":
        return "live"
    if path[-2:] in _GPUS:
        return "recreate"
    if (path[:1] == ("template",) and _is_live(path[1:])) or _is_of_volume(path):
        return "live"
    return "recreate" if path[:1] in _RECREATING else "live"


def _is_of_volume(path: Path) -> bool:
    """Return True if a path of a sandbox is a volume's size or reclaim policy: they are no part of a container."""
    return path[-1:] in (("size",), ("reclaimPolicy",)) and any(volume_field in path for volume_field in _VOLUMES)


def _is_live(path: Path) -> bool:
    """Return True if a path below a template starts with a field that reaches running containers."""
    return bool(path) and path[0] in {to_camel(name) for name in live_fields(Template)}


def document_schema(kind: Kind) -> Json:
    """Return the schema of a whole document of one kind, with every reference resolved."""
    spec = kind.spec.model_json_schema(by_alias=True, ref_template=_REF)
    metadata = Metadata.model_json_schema(by_alias=True, ref_template=_REF)
    definitions = {**spec.pop("$defs", {}), **metadata.pop("$defs", {})}
    schema = _plain(spec, definitions)
    if not kind.read_only:
        _mark(schema, kind.name, ())
    needed = ["apiVersion", "kind", "metadata", *(["spec"] if spec.get("required") and not kind.flat else [])]
    read_only = f" Read-only: {kind.read_only}." if kind.read_only else ""
    return {
        "type": "object",
        "description": schema.get("description", "") + read_only,
        "properties": {
            "apiVersion": {"const": API_VERSION, "type": "string", "description": "API version of this document"},
            "kind": {"const": kind.name, "type": "string", "description": "kind of the object"},
            "metadata": _plain(metadata, definitions),
            **(schema["properties"] if kind.flat else {"spec": schema, "status": _status_schema(kind)}),
        },
        "required": needed,
        "additionalProperties": False,
    }


def _status_schema(kind: Kind) -> Json:
    if kind.status is None:
        return {"type": "object", "description": "observed state; only Paddock writes it"}
    status = kind.status.model_json_schema(by_alias=True, ref_template=_REF)
    schema: Json = _plain(status, status.pop("$defs", {}))
    return schema


def published_schema(registry: Registry) -> Json:
    """Return one schema for any document that can be applied, for editors."""
    kinds = sorted((kind for kind in registry if not kind.read_only), key=lambda kind: kind.name)
    return {
        "$schema": _DRAFT,
        "title": f"{API_VERSION}: a document of Paddock",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"kind": {"enum": [kind.name for kind in kinds]}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind.name}}, "required": ["kind"]},
                "then": {"$ref": f"#/definitions/{kind.name}"},
            }
            for kind in kinds
        ],
        "definitions": {kind.name: document_schema(kind) for kind in kinds},
    }


def text(registry: Registry) -> str:
    """Return the published file."""
    return json.dumps(published_schema(registry), indent=2, ensure_ascii=False) + "\n"


def at(schema: Json, names: tuple[str, ...]) -> Json | None:
    """Return the schema of the field at these names, through lists; None if there is none."""
    field_schema: Json | None = schema
    for name in names:
        field_schema = fields(field_schema).get(name) if field_schema is not None else None
    return field_schema


def fields(schema: Json) -> Mapping[str, Json]:
    """Return the fields below a schema: its own, or those of its items."""
    inner = schema.get("items", schema)
    properties: Mapping[str, Json] = inner.get("properties", {})
    return properties


def required_fields(schema: Json) -> tuple[str, ...]:
    """Return the required fields below a schema."""
    return tuple(schema.get("items", schema).get("required", ()))


def _plain(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema without references, titles and nulls. A field that may be unset is one that is not required."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        around = {key: value for key, value in schema.items() if key not in ("$ref", "default")}
        return with_description({**_plain(definitions[name], definitions), **around})
    if "anyOf" in schema:
        schema = _without_null(schema)
        if "$ref" in schema:
            return _plain(schema, definitions)
    plain = {key: value for key, value in schema.items() if key not in ("title", "ge", "le", "properties", "items")}
    if plain.get("default", ...) is None:
        del plain["default"]
    plain = with_description(plain | _bounds(schema))
    if "propertyNames" in schema:
        plain["propertyNames"] = with_description(schema["propertyNames"])
    if "patternProperties" in schema:
        plain["patternProperties"] = {
            key: with_description(property_schema) for key, property_schema in schema["patternProperties"].items()
        }
    if "items" in schema:
        plain["items"] = _plain(schema["items"], definitions)
    if "properties" in schema:
        plain["properties"] = {
            key: _plain(property_schema, definitions) for key, property_schema in schema["properties"].items()
        }
    return plain


def with_description(schema: Json) -> Json:
    """Return a schema with the form of its values in its description: `Meaning. (form)`."""
    form, meaning = schema.get(FORM, ""), " ".join(str(schema.get("description", "")).split())
    text = f"{meaning} ({form})" if meaning and form else meaning or form
    plain = {key: value for key, value in schema.items() if key not in (FORM, "description")}
    return {"description": text, **plain} if text else plain


def _without_null(schema: Json) -> Json:
    """Return `T | None` as T: in a document null removes a field, it is no value."""
    variants = [variant for variant in schema["anyOf"] if variant != {"type": "null"}]
    around = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**variants[0], **around} if len(variants) == 1 else {**around, "anyOf": variants}


def _bounds(schema: Json) -> Json:
    """Return the bounds of a quantity in words: JSON Schema has none for numbers with a suffix."""
    if "ge" not in schema and "le" not in schema:
        return {}
    form = str(schema.get(FORM, ""))
    format_quantity = format_cpu if "CPU" in form else format_bytes
    return {FORM: f"{form}, from {format_quantity(schema['ge'])} to {format_quantity(schema['le'])}"}


def _mark(schema: Json, kind: str, path: tuple[str, ...]) -> None:
    for name, field_schema in fields(schema).items():
        inner = (*path, name)
        effects = sorted(set(_effects(field_schema, kind, inner)))
        field_schema[EFFECT] = effects[0] if len(effects) == 1 else "depends on the field"
        _mark(field_schema, kind, inner)


def _effects(schema: Json, kind: str, path: tuple[str, ...]) -> Iterator[str]:
    inner = fields(schema)
    if not inner:
        yield takes_effect(kind, path)
    for name, field_schema in inner.items():
        yield from _effects(field_schema, kind, (*path, name))


if __name__ == "__main__":
    sys.stdout.write(text(discover()))
