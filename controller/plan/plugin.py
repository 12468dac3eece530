"""Decisions on one plugin: the objects that it wants, or why it gets none, and its conditions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from controller.kinds.meta import Condition, StoredObject
from controller.kinds.plugin import PluginSpec
from controller.policy.plugin import missing_permissions, needed_permissions, rendered
from controller.version import API_VERSION


@dataclass(frozen=True, slots=True)
class PluginPlan:
    """The documents to keep, or None: nothing is to change. `accepted` says why."""

    accepted: Condition
    documents: tuple[Mapping[str, Any], ...] | None = None
    needed: tuple[tuple[str, str], ...] = ()


def plan_plugin(obj: StoredObject) -> PluginPlan:
    """Return what a plugin wants now."""
    try:
        spec = PluginSpec.model_validate(obj.spec)
    except ValidationError as error:
        message = f"this version can't read its spec ({error.error_count()} errors); apply it again"
        return PluginPlan(Condition("Accepted", "False", "Refused", message))
    needs = tuple(sorted(needed_permissions(spec)))
    if missing := missing_permissions(spec):
        message = (
            f"not granted: {', '.join(missing)}; `paddock plugin config {obj.name} --grant` grants what it declares"
        )
        return PluginPlan(Condition("Accepted", "False", "PermissionsNotGranted", message), needed=needs)
    documents = tuple(_with_owner(document, obj) for document in rendered(spec))
    return PluginPlan(Condition("Accepted", "True", "Admitted"), documents, needs)


def ready_condition(plan: PluginPlan, failure: str, foreign_names: Sequence[str]) -> Condition:
    """Return the condition Ready. `foreign_names` are objects of its names that belong to others."""
    if plan.documents is None:
        return Condition("Ready", "False", "NotAccepted", "its objects stay as they were")
    if foreign_names:
        message = f"{', '.join(foreign_names)}: not this plugin's; delete it, or have the plugin use another name"
        return Condition("Ready", "False", "ObjectTaken", message)
    if failure:
        return Condition("Ready", "False", "ApplyFailed", failure)
    return Condition("Ready", "True", "Applied", f"{len(plan.documents)} objects")


def _with_owner(document: Mapping[str, Any], plugin: StoredObject) -> dict[str, Any]:
    owner = {"kind": plugin.kind, "name": plugin.name, "uid": plugin.uid}
    metadata = {**document["metadata"], "namespace": plugin.namespace, "ownerReferences": [owner]}
    return {"apiVersion": API_VERSION, "kind": document["kind"], "metadata": metadata, "spec": document.get("spec", {})}
