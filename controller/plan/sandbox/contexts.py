"""Code contexts in a sandbox's status: those of its run, and those that the end of the run before has ended."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.kinds.observed.observed import Container
from controller.plan.base.reconcile_context import ALIVE, ReconcileContext
from controller.plan.base.status_json import rfc3339

_MOST_NAMES = 8  # in a message


def listed(context: ReconcileContext) -> list[dict[str, str]]:
    """Return the contexts as the status lists them.

    What is known of the run counts. A daemon that has just started knows nothing yet: then it is what was stored of it.
    """
    container, stored = context.container, list(context.obj.status.get("contexts", ()))
    if container is None or container.state not in ALIVE:
        return stored if context.blind else []
    activity = context.activity
    if activity is None or activity.contexts_run is None:
        return stored if _is_same_run(context, container) else []
    if activity.contexts_run != container.run:
        return []
    return [{"name": name, "language": language} for name, language in activity.contexts]


def ended_contexts(context: ReconcileContext) -> list[str]:
    """Return the names of the contexts that ended with the last run, while the sandbox does not run."""
    container, status = context.container, context.obj.status
    earlier = list(status.get("endedContexts", ()))
    if context.blind:
        return earlier
    if container is not None and container.state in ALIVE:
        return []
    return [str(context_status["name"]) for context_status in status.get("contexts", ())] or earlier


def with_ended(message: str, names: Sequence[str]) -> str:
    """Return the message of a suspension with the contexts that it has ended."""
    if not names:
        return message
    counted = f"{len(names)} code context{'s' if len(names) > 1 else ''}"
    listed_names = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    return f"{message}; that ended {counted} ({listed_names})"


def fields(context: ReconcileContext) -> Mapping[str, Any]:
    """Return the status fields; none where there are no contexts."""
    names = {"contexts": listed(context), "endedContexts": ended_contexts(context)}
    return {name: value for name, value in names.items() if value}


def _is_same_run(context: ReconcileContext, container: Container) -> bool:
    status = context.obj.status
    started = rfc3339(max(container.started_at, context.obj.created_at))
    return status.get("instanceRef", {}).get("containerID") == container.id and status.get("startTime") == started
