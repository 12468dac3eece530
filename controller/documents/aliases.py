"""Fields that a spec may spell or nest as Kubernetes does; what is stored has Paddock's own form. Pure.

`livenessProbe`, `readinessProbe` and `startupProbe` of a template are its probes. A SandboxTemplate may have its fields
below `template:`, as a Sandbox has them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from controller.documents.yaml_tree import Tree
from controller.kinds.common.problem import Path

T = TypeVar("T")
PROBES = {"livenessProbe": "liveness", "readinessProbe": "readiness", "startupProbe": "startup"}
_NESTED = "template"


def resolve(tree: Tree, kind: str) -> Iterator[tuple[Path, str]]:
    """Rewrite a document in Paddock's own form, with all positions; yield (path, message) of each contradiction."""
    spec = tree.find(("spec",))
    if spec is None or spec.fields is None or kind not in ("Sandbox", "SandboxTemplate"):
        return
    nested = spec.fields.get(_NESTED, (None, None))[1]
    if kind == "SandboxTemplate" and nested is not None and nested.fields is not None:
        sibling_names = [f"`{name}`" for name in spec.fields if name != _NESTED]
        if sibling_names:
            yield (
                ("spec", _NESTED),
                f"has {', '.join(sibling_names)} beside it; write all fields of the template in one place",
            )
            return
        spec.fields, spec.nested_in = nested.fields, _NESTED
        spec.line, spec.column = nested.line, nested.column
    template = spec if kind == "SandboxTemplate" else nested
    if template is None or template.fields is None:
        return
    around: Path = ("spec",) if template is spec else ("spec", _NESTED)
    for alias, ours in PROBES.items():
        if alias in template.fields and ours in template.fields:
            yield (*around, alias), f"is the same as `{ours}`, which is set, too; keep one of them"
    template.fields = _rename_fields(template.fields)


def resolve_spec(spec: Any, kind: str) -> Any:
    """Return a spec, or a merge patch of one, in Paddock's own form; one that contradicts itself as it is."""
    if not isinstance(spec, Mapping):
        return spec
    nested = spec.get(_NESTED)
    if kind == "SandboxTemplate":
        return _rename_fields(nested if isinstance(nested, Mapping) and len(spec) == 1 else spec)
    if kind == "Sandbox" and isinstance(nested, Mapping):
        return {**spec, _NESTED: _rename_fields(nested)}
    return spec


def _rename_fields(fields: Mapping[str, T]) -> dict[str, T]:
    """Return the fields with their own names, in their order."""
    return {ours if (ours := PROBES.get(name, name)) not in fields else name: field for name, field in fields.items()}
