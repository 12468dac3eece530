"""Examples for every operation of /openapi.json: of specs and bodies written ones, else made from schemas. Pure."""

from collections.abc import Mapping
from typing import Any

from controller.version import API_VERSION

Json = Any
_REF = "#/components/schemas/"
_DEPTH = 12

_SPECS: Mapping[str, Json] = {
    "Sandbox": {
        "template": {"image": "paddock/python:1", "command": ["sleep", "infinity"]},
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}},
    },
    "SandboxTemplate": {"image": "paddock/python:1", "command": ["sleep", "infinity"]},
    "SandboxPool": {"templateRef": {"name": "python"}, "warmReplicas": 2},
    "Workflow": {
        "sandbox": {"template": {"image": "paddock/python:1"}},
        "stages": [{"name": "test", "exec": {"commands": ["python3 -m unittest"]}}],
    },
    "WorkflowRun": {"workflowRef": {"name": "build"}},
    "Plugin": {
        "version": "1.0.0",
        "type": "Tool",
        "objects": [
            {"kind": "SandboxTemplate", "metadata": {"name": "tool"}, "spec": {"image": "paddock/python:1"}},
        ],
    },
    "Provider": {"type": "OpenAI", "url": "https://api.openai.com/v1", "secretRef": {"name": "openai-key"}},
    "ModelServer": {"template": {"image": "paddock/model-tiny:1"}, "port": 8080},
    "Quota": {"hard": {"cpu": "4", "memory": "8Gi", "sandboxes": 20}},
    "HostQuota": {"hard": {"cpu": "8", "memory": "16Gi"}},
}
# By the name of a schema.
_WRITTEN: Mapping[str, Json] = {
    "ExecRequest": {"command": ["python3", "-c", "print(6 * 7)"], "timeoutSeconds": 60},
    "DetachRequest": {"command": ["python3", "-m", "http.server", "8000"]},
    "ApplyRequest": {
        "documents": [
            {
                "file": "app.yaml",
                "text": "apiVersion: paddock/v1alpha1\nkind: Sandbox\nmetadata: {name: quickstart}\n"
                "spec: {template: {image: paddock/python:1, command: [sleep, infinity]}}\n",
            }
        ]
    },
    "OpenRequest": {"templateRef": {"name": "project"}},
    "RunRequest": {"command": ["python3", "-c", "print(6 * 7)"]},
    "CanI": {"verb": "create", "kind": "sandboxes", "namespace": "default"},
    "TokenRequest": {"name": "ci", "grant": {"role": "user", "namespaces": ["default"]}},
    "Status": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "sandboxes default/quickstart not found",
        "reason": "NotFound",
        "code": 404,
    },
}
_WRITTEN = {**_WRITTEN, "DiffRequest": _WRITTEN["ApplyRequest"]}
# By the name of a property.
_VALUES: Mapping[str, Json] = {
    "namespace": "default",
    "name": "quickstart",
    "uid": "1f3c9a2e-6a0b-4c4e-9d57-0a6c6e1f7b11",
    "resourceVersion": "42",
    "image": "paddock/python:1",
    "creationTimestamp": "2026-01-31T12:00:00Z",
    "timestamp": "2026-01-31T12:00:00Z",
    "time": "2026-01-31T12:00:00Z",
    "startedTime": "2026-01-31T12:00:00Z",
}
_PATCH = {"spec": {"resources": {"limits": {"memory": "512Mi"}}}}


def with_examples(description: dict[str, Any]) -> None:
    """Add an example to each request and response body of the description that has none."""
    schemas = description["components"]["schemas"]
    for operations in description["paths"].values():
        for operation in operations.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for body in bodies:
                for type_, media in body.get("content", {}).items():
                    _add(type_, media, schemas)


def _add(type_: str, media: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    if "example" in media or "examples" in media:
        return
    if type_ == "application/merge-patch+json":
        media["example"] = _PATCH
    elif type_ == "application/json-patch+json":
        media["example"] = [{"op": "replace", "path": "/spec/priority", "value": 5}]
    elif type_ == "text/plain":
        media["example"] = "hello\n"
    elif "json" in type_ and "schema" in media:
        media["example"] = example(media["schema"], schemas)


def example(schema: Mapping[str, Any], schemas: Mapping[str, Any], name: str = "", depth: int = 0) -> Json:
    """Return a value that fits the schema: its required fields, and written values where there are some."""
    if "$ref" in schema:
        return _of_model(schema["$ref"].removeprefix(_REF), schemas, depth)
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return example(schema[key][0], schemas, name, depth + 1)
    if name in _VALUES and schema.get("type") == "string":
        return _VALUES[name]
    return _of_type(schema, schemas, depth)


def _of_type(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int) -> Json:
    type_ = schema.get("type", "object")
    if type_ == "object":
        properties = schema.get("properties", {})
        needed = schema.get("required", ()) if depth < _DEPTH else ()
        return {name: example(properties[name], schemas, name, depth + 1) for name in needed if name in properties}
    if type_ == "array":
        items = schema.get("items", {})
        return [example(items, schemas, "", depth + 1)] if "$ref" in items or schema.get("minItems") else []
    if type_ in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    return {"boolean": True, "null": None}.get(type_, "quickstart" if "pattern" in schema else "text")


def _of_model(model: str, schemas: Mapping[str, Any], depth: int) -> Json:
    if model in _WRITTEN:
        return _WRITTEN[model]
    schema = schemas[model]
    kind = model.removesuffix("Written")
    if kind not in _SPECS:
        return example(schema, schemas, "", depth + 1)
    metadata = {"name": "quickstart"}
    if model == kind:
        metadata |= {"uid": _VALUES["uid"], "resourceVersion": _VALUES["resourceVersion"]}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": _SPECS[kind]}
