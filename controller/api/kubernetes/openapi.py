"""OpenAPI v2 and v3 as Kubernetes' servers publish them, for kubectl's apply, explain, diff and edit. Pure.

`/openapi.json` describes every route. These describe the kinds: their schemas, and what their routes take.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from controller.api.common.models import PREFIX
from controller.documents.aliases import PROBES
from controller.documents.json_schema import document_schema
from controller.kinds.registry import Kind, Registry
from controller.version import API_GROUP, API_VERSION, VERSION

Json = dict[str, Any]
_GVK = "x-kubernetes-group-version-kind"
_KEPT = ("description", "format", "type", "required", "enum", "default")
_INFO = {"title": "Paddock", "version": VERSION}
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# What objects have that are read and sent back, besides the fields that people write.
_READ_METADATA: Json = {
    "creationTimestamp": {"type": "string", "format": "date-time", "description": "when it was created"},
    "deletionGracePeriodSeconds": {"type": "integer"},
    "deletionTimestamp": {"type": "string", "format": "date-time", "description": "when its deletion was requested"},
    "finalizers": {"type": "array", "items": {"type": "string"}},
    "generateName": {"type": "string"},
    "generation": {"type": "integer", "description": "moves when the spec changes"},
    "managedFields": {"type": "array", "items": {"type": "object"}},
    "selfLink": {"type": "string"},
}
_WRITES = ("dryRun", "fieldManager", "fieldValidation")


@lru_cache(maxsize=4)
def openapi_v2(registry: Registry) -> Json:
    """Return the document of `/openapi/v2`."""
    schemas = _schemas(registry, "#/definitions/")
    return {"swagger": "2.0", "info": _INFO, "paths": _paths(registry, _v2_parameter), "definitions": schemas}


@lru_cache(maxsize=4)
def openapi_v3(registry: Registry) -> Json:
    """Return the document of `/openapi/v3` for the kinds' group and version."""
    schemas = _schemas(registry, "#/components/schemas/")
    paths = _paths(registry, _v3_parameter)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _v2_parameter(name: str) -> Json:
    return {"name": name, "in": "query", "type": "string", "uniqueItems": True}


def _v3_parameter(name: str) -> Json:
    return {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}


def _gvk(kind: Kind) -> Json:
    return {"group": API_GROUP, "version": API_VERSION.partition("/")[2], "kind": kind.name}


def _paths(registry: Iterable[Kind], parameter: Any) -> Json:
    paths: Json = {}
    for kind in registry:
        place = f"{PREFIX}/namespaces/{{namespace}}" if kind.namespaced else PREFIX
        writes = {"parameters": [parameter(name) for name in _WRITES], _GVK: _gvk(kind)}
        reads = {_GVK: _gvk(kind)}
        of_collection = ("post",) if not kind.read_only else ()
        of_object = ("put", "delete") if not kind.read_only else ()
        of_object = (*of_object, "patch") if not kind.read_only or kind.patchable else of_object
        paths[f"{place}/{kind.plural}"] = {"get": reads, **dict.fromkeys(of_collection, writes)}
        paths[f"{place}/{kind.plural}/{{name}}"] = {"get": reads, **dict.fromkeys(of_object, writes)}
    return paths


def _schemas(registry: Iterable[Kind], ref: str) -> Json:
    schemas: Json = {}
    for kind in registry:
        schema = _structural_document(kind)
        metadata = schema["properties"]["metadata"]
        schemas[_METADATA] = {**metadata, "properties": {**_READ_METADATA, **metadata["properties"]}}
        schemas[_METADATA].pop("required", None)  # lists have it, too
        properties = {**schema["properties"], "metadata": {"$ref": f"{ref}{_METADATA}"}}
        schemas[f"{API_GROUP}.{API_VERSION.partition('/')[2]}.{kind.name}"] = {
            **schema,
            "properties": properties,
            _GVK: [_gvk(kind)],
        }
    return schemas


@lru_cache(maxsize=64)
def _structural_document(kind: Kind) -> Json:
    """Return the schema of a kind's documents. Working it out takes some milliseconds: both versions share it."""
    return _structural(document_schema(kind))


def _structural(schema: Mapping[str, Any]) -> Json:
    """Return a schema with types alone that kubectl knows: what may be several is left open."""
    plain: Json = {name: schema[name] for name in _KEPT if name in schema}
    if not isinstance(plain.get("type", ""), str) or "anyOf" in schema or "oneOf" in schema:
        plain.pop("type", None)
    if "properties" in schema:
        plain["properties"] = {name: _structural(inner) for name, inner in schema["properties"].items()}
        plain["properties"] |= {
            alias: plain["properties"][ours] for alias, ours in PROBES.items() if ours in plain["properties"]
        }
        plain["type"] = "object"
    values = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
    if isinstance(values, Mapping) and "properties" not in schema:
        plain["additionalProperties"] = _structural(values)
    if plain.get("type") == "array":
        plain["items"] = _structural(schema.get("items", {}))
    return plain
