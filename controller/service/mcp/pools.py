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
        documents = pool_documents(server.obj.name, server.spec) if is_there else ()
        with access.acting(None):
            stored = {kind.name: self._get(kind, place, name) for kind in (POOL, TEMPLATE)}
            if documents:
                for obj in stored.values():
                    if obj is not None and not _is_owned(obj, server):
                        message = (
                            f"{obj.kind.lower()} `{name}` is not the server's; delete it, or set warmReplicas to 0"
                        )
                        raise errors.Conflict(message)
                sources = [Source(f"warm sandboxes of {server}", json.dumps(document)) for document in documents]
                self._apply.apply(sources, namespace=place, replaces=True, applied_by=_WRITTEN_BY)
                return
            for kind in (POOL, TEMPLATE):  # a template in use stays until the sessions have ended
                obj = stored[kind.name]
                if obj is not None and obj.deleted_at is None and _is_owned(obj, server):
                    self._objects.delete(kind, place, name, deleted_by=_WRITTEN_BY)

    def is_usable(self, server: Server) -> bool:
        """Return True if a session's sandbox may be of the pool's template: it is the server's own, and as it asks."""
        if not server.spec.warm_replicas:
            return False
        template = self._get(TEMPLATE, server.obj.namespace, pool_name(server.obj.name))
        if template is None or template.deleted_at is not None or not _is_owned(template, server):
            return False
        desired = SandboxTemplateSpec.model_validate(session_template(server.spec))
        return SandboxTemplateSpec.model_validate(template.spec) == desired

    def _get(self, kind: Kind, namespace: str, name: str) -> StoredObject | None:
        try:
            return self._objects.get(kind, namespace, name)
        except errors.NotFound:
            return None


def _is_owned(obj: StoredObject, server: Server) -> bool:
    return any(reference.get("uid") == server.obj.uid for reference in obj.owner_references)
