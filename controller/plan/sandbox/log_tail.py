"""Log tail of an ended container: read once for each end, before the container is started again or removed."""

from dataclasses import replace

from controller.kinds.common.log_tail import GONE, Tail
from controller.kinds.planning.action import ReadTail, RemoveContainer
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.planning.outcome import Ok
from controller.kinds.planning.snapshot import Result
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.plan.sandbox.deaths import ENDED


def read_first(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with a read of the log before it, if the tail of the last end is not known yet."""
    container, end = context.container, decision.state.runs.last_end
    if container is None or container.state not in ENDED or end is None or end.tail is not None:
        return decision
    if (end.container_id, end.finished_at) != (container.id, container.finished_at):
        return decision
    why = f"{end.reason}: log tail, for the record"
    read = ReadTail(
        context.obj.uid,
        container.name,
        container_id=container.id,
        finished_at=container.finished_at,
        why=why,
        since=end.log_since,
    )
    return replace(decision, actions=(read, *decision.actions))


def remember(state: InstanceState, result: Result) -> InstanceState:
    """Return the state with the tail that was read; of a removed container nothing can be read any more."""
    for action, outcome in result.done:
        end = state.runs.last_end
        if end is None or not isinstance(outcome, Ok):
            continue
        if isinstance(action, ReadTail) and (action.container_id, action.finished_at) == (
            end.container_id,
            end.finished_at,
        ):
            state = replace(state, runs=replace(state.runs, last_end=replace(end, tail=outcome.tail or Tail())))
        elif isinstance(action, RemoveContainer) and action.container_id == end.container_id and end.tail is None:
            state = replace(state, runs=replace(state.runs, last_end=replace(end, tail=GONE)))
    return state
