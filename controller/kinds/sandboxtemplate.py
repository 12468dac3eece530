"""SandboxTemplate: a named container spec for any number of sandboxes of its namespace.

A change recreates nothing that runs: its sandboxes show `Outdated`, and it takes effect at their next start.
"""

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind, Reference
from controller.kinds.sandbox import Template, age


class SandboxTemplateSpec(Template):
    """The fields of `template:` of a Sandbox."""


def _limits(obj: StoredObject, _now: float) -> str:
    limits = obj.spec.get("resources", {}).get("limits", {})
    return ",".join(f"{name}={limits[name]}" for name in ("cpu", "memory", "pids") if name in limits) or "-"


KIND = Kind(
    name="SandboxTemplate",
    plural="sandboxtemplates",
    short_names=("sbt",),
    spec=SandboxTemplateSpec,
    referenced_by=(
        Reference("Sandbox", ("templateRef", "name")),
        Reference("SandboxPool", ("templateRef", "name")),
    ),
    columns=(
        Column("IMAGE", lambda obj, _now: str(obj.spec.get("image", ""))),
        Column("LEVEL", lambda obj, _now: str(obj.spec.get("securityLevel", ""))),
        Column("LIMITS", _limits),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
