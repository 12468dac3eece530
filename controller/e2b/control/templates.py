"""Templates that a caller may name: those of the namespace, and of the setting e2b_templates. Read only."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.e2b.control.sandboxes import iso, namespace_of
from controller.e2b.control.template import is_name
from controller.e2b.parts import ENVD_VERSION, Parts
from controller.kinds.access.access import AccessRequest, Caller, Grant
from controller.kinds.meta import StoredObject
from controller.kinds.sandboxpool import KIND as POOL
from controller.kinds.sandboxtemplate import KIND as TEMPLATE
from controller.service.access import access
from controller.service.errors import NotFound

_KINDS = (TEMPLATE, POOL)
_EMPTY = StoredObject("", "", "", "", {})


class Templates:
    """The use-cases. They block. The caller is that of the request (service.access)."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def list(self) -> Sequence[Mapping[str, Any]]:
        """Return all of them, by name."""
        return [self._json(name, obj) for name, obj in sorted(self._all().items())]

    def get(self, name: str) -> Mapping[str, Any]:
        """Return one of them. Raises NotFound."""
        obj = self._all().get(name)
        if obj is None:
            raise NotFound(f"template {name[:100]} not found")
        return self._json(name, obj)

    def alias(self, name: str) -> Mapping[str, Any]:
        """Return the template of an alias, which is its name. Raises NotFound."""
        return {"templateID": self.get(name)["templateID"], "public": False}

    def _all(self) -> Mapping[str, StoredObject]:
        namespace = namespace_of(access.caller() or Caller("paddock", grants=(Grant(role="admin"),)))
        templates = dict.fromkeys(self._parts.rules.templates, _EMPTY)
        for kind in _KINDS:
            if access.may(AccessRequest("list", kind.name, namespace)):
                stored = self._parts.services.objects.list(kind, namespace).objects
                templates |= {obj.name: obj for obj in stored if is_name(obj.name)}
        return templates

    def _json(self, name: str, obj: StoredObject) -> Mapping[str, Any]:
        created = iso(obj.created_at)
        return {
            "templateID": name,
            "buildID": obj.uid or name,
            "cpuCount": 1,
            "memoryMB": 512,
            "diskSizeMB": 512,
            "public": False,
            "aliases": [name],
            "names": [name],
            "createdAt": created,
            "updatedAt": created,
            "createdBy": None,
            "lastSpawnedAt": None,
            "spawnCount": 0,
            "buildCount": 1,
            "envdVersion": ENVD_VERSION,
            "buildStatus": "ready",
            "isDefault": obj is _EMPTY,
        }
