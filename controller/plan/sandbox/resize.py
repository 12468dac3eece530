"""Resizing a running container: the update of its limits, and the wait after a failed one."""

from dataclasses import replace

from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import Action, UpdateLimits
from controller.plan.base.backoff import CALL_LONGEST_SECONDS, is_backing_off, waits
from controller.plan.base.limits import DEFAULT_SHARES
from controller.plan.base.reconcile_context import ReconcileContext
from controller.plan.sandbox import drift
from controller.policy.sandbox import Rendered


def resize(
    context: ReconcileContext, container: Container, rendered: Rendered
) -> tuple[tuple[Action, ...], float | None, tuple[str, ...]]:
    """Return the update that brings the limits into force, or the end of its wait; and the limits that differ."""
    if container.limits is None:
        return (), None, ()
    differences = tuple(drift.differences(rendered.config.limits, container))
    limits = drift.charged_limits(rendered.config.limits, container)
    fields = tuple(field for field, _, _ in differences)
    failure = context.state.backoff.resize
    if failure is not None and is_backing_off(failure, context.obj.generation, context.deleting):
        if failure.terminal:
            return (), None, fields
        if waits(context.now, failure.retry_at, CALL_LONGEST_SECONDS):
            return (), failure.retry_at if differences else None, fields
    if not differences:
        return (), None, ()
    why = ", ".join(f"{field} found {observed}, desired {want}" for field, observed, want in differences)
    if "cpuShares" in fields and not limits.cpu_shares:
        limits = replace(limits, cpu_shares=DEFAULT_SHARES)
    return (
        (
            UpdateLimits(
                uid=context.obj.uid, name=rendered.config.name, container_id=container.id, limits=limits, why=why
            ),
        ),
        None,
        fields,
    )
