"""Warm sandboxes of MCP servers: a SandboxPool and its SandboxTemplate, owned by their server."""

import json

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.kinds.sandboxpool import KIND as POOL
from controller.kinds.sandboxtemplate import KIND as TEMPLATE
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.policy.mcpserver import not_installed, pool_documents, pool_name, session_template
from controller.service import errors
from controller.service.access import access
from controller.service.mcp.server import Server
from controller.service.objects.apply import Apply, Source
from controller.service.objects.objects import Objects

_WRITTEN_BY = "mcp"


class WarmPools:
    """The use-cases. Paddock itself writes these objects, whoever wrote the server."""

    def __init__(self, objects: Objects, apply: Apply) -> None:
        self._objects, self._apply = objects, apply

    def keep(self, server: Server) -> None:
        """Make the pool as the server's spec asks, or remove it. Raises ServiceError."""
        place, name = server.obj.namespace, pool_name(server.obj.name)
        is_there = server.obj.deleted_at is None and not not_installed(server.spec)
        wanted = pool_documents(server.obj.name, server.spec) if is_there else ()
        with access.acting(None):
            found = {kind.name: self._found(kind, place, name) for kind in (POOL, TEMPLATE)}
            if wanted:
                for each in found.values():
                    if each is not None and not _is_owned(each, server):
                        words = f"{each.kind.lower()} `{name}` is not the server's; delete it, or set warmReplicas to 0"
                        raise errors.Conflict(words)
                sources = [Source(f"warm sandboxes of {server}", json.dumps(each)) for each in wanted]
                self._apply.apply(sources, namespace=place, whole=True, applied_by=_WRITTEN_BY)
                return
            for kind in (POOL, TEMPLATE):  # a template in use stays until the sessions have ended
                each = found[kind.name]
                if each is not None and each.deleted_at is None and _is_owned(each, server):
                    self._objects.delete(kind, place, name, deleted_by=_WRITTEN_BY)

    def is_usable(self, server: Server) -> bool:
        """Return True if a session's sandbox may be of the pool's template: it is the server's own, and as it asks."""
        if not server.spec.warm_replicas:
            return False
        found = self._found(TEMPLATE, server.obj.namespace, pool_name(server.obj.name))
        if found is None or found.deleted_at is not None or not _is_owned(found, server):
            return False
        wanted = SandboxTemplateSpec.model_validate(session_template(server.spec))
        return SandboxTemplateSpec.model_validate(found.spec) == wanted

    def _found(self, kind: Kind, namespace: str, name: str) -> StoredObject | None:
        try:
            return self._objects.get(kind, namespace, name)
        except errors.NotFound:
            return None


def _is_owned(obj: StoredObject, server: Server) -> bool:
    return any(each.get("uid") == server.obj.uid for each in obj.owner_references)
