"""/openapi.json: FastAPI's description of the routes, with schemas of bodies that are read or streamed as text."""

from collections.abc import Iterable
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from controller.api.common import models
from controller.api.common.models import PREFIX
from controller.api.common.openapi_examples import with_examples
from controller.documents.json_schema import with_description as with_form
from controller.kinds.base import FORM
from controller.kinds.registry import Kind

_REF = "#/components/schemas/{model}"
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `paddock token create`. Over the Unix socket local users need none.",
}
_SERVER = {"url": "/", "description": "The daemon that serves this description."}
_Mode = Literal["validation", "serialization"]


def install(app: FastAPI, kinds: Iterable[Kind]) -> None:
    """Complete the description of this application at its first request."""
    served, described = tuple(kinds), app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            description = described()
            schemas = description.setdefault("components", {}).setdefault("schemas", {})
            for name, schema in _schemas(served).items():
                schemas.setdefault(name, schema)
            description["components"]["schemas"] = _without_foreign_bounds(_with_forms(schemas))
            description["components"]["securitySchemes"] = {"bearer": _BEARER}
            # Local users are authenticated by Unix uid and groups, so a token may be left out.
            description |= {"security": [{"bearer": []}, {}], "servers": [_SERVER]}
            description["info"]["license"] = {"name": "Apache 2.0", "identifier": "Apache-2.0"}
            for path, operations in description["paths"].items():
                for operation in operations.values() if path.startswith(PREFIX) else ():
                    _describe_errors(operation["responses"])
            _describe_optional_bodies(description)
            with_examples(description)
        return described()

    app.openapi = openapi  # type: ignore[method-assign]


def _describe_optional_bodies(description: dict[str, Any]) -> None:
    """Describe a body that may be null by its own schema: generators of clients send no null."""
    for operations in description["paths"].values():
        for operation in operations.values():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                first, *alternatives = media["schema"].get("anyOf", [{}])
                if alternatives == [{"type": "null"}]:
                    media["schema"] = first


def _without_foreign_bounds(schema: Any) -> Any:
    """Return a schema without the bounds of quantities: they are texts, which JSON Schema can't bound."""
    if isinstance(schema, list):
        return [_without_foreign_bounds(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    numbers = {key for key in ("ge", "le") if isinstance(schema.get(key), int)}
    return {key: _without_foreign_bounds(value) for key, value in schema.items() if key not in numbers}


def _with_forms(schema: Any) -> Any:
    """Return a schema, and all that it is made of, with each value's form in its description."""
    if isinstance(schema, list):
        return [_with_forms(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _with_forms(value) for key, value in schema.items()}
    return with_form(inner) if FORM in schema else inner


def _describe_errors(responses: dict[str, Any]) -> None:
    """Describe every error as a Status, but for those that describe themselves."""
    responses.setdefault("default", {"description": "Any other error."})
    for code, response in responses.items():
        if (code == "default" or code >= "400") and "anyOf" not in _json_schema(response):
            response["content"] = {"application/json": {"schema": {"$ref": _REF.format(model="Status")}}}


def _json_schema(response: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = response.get("content", {}).get("application/json", {}).get("schema", {})
    return schema


def _schemas(kinds: Iterable[Kind]) -> dict[str, Any]:
    needed: list[tuple[type[BaseModel], _Mode]] = []
    for kind in (listed_kind for listed_kind in kinds if not listed_kind.read_only):
        needed += [(models.watch_model(kind), "serialization"), (models.written_model(kind), "validation")]
    _, json_schemas = models_json_schema(needed, ref_template=_REF)
    schemas: dict[str, Any] = json_schemas.get("$defs", {})
    return schemas
