"""Audited starts: their audit entries are written with the plan, in one transaction, before they happen.

If the store cannot be written, the whole plan is refused and nothing is started.
"""

from collections.abc import Iterator

from controller.kinds.access.audit import AuditEntry
from controller.kinds.planning.action import StartContainer
from controller.plan.common.reconcile_context import Decision, ReconcileContext

_ACTOR = "paddock"


def starts(context: ReconcileContext, decision: Decision) -> Iterator[AuditEntry]:
    """Yield an audit entry for each start of the sandbox's own container, if its level asks for one."""
    if context.rendered is None or not context.rendered.audited:
        return
    obj = context.obj
    for each in decision.actions:
        if isinstance(each, StartContainer) and each.uid == obj.uid:
            yield AuditEntry(
                at=context.now,
                actor=_ACTOR,
                source="",
                verb="start",
                kind=obj.kind,
                namespace=obj.namespace,
                name=obj.name,
                uid=obj.uid,
                detail={"generation": obj.generation, "container": each.name},
            )
