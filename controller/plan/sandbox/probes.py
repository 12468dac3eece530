"""Probes: which run now, readiness by them, and the stop of a sandbox that fails them.

The startup probe holds up the other two; readiness ends once it has passed; liveness goes on. A result counts for the
run (container and start time) it came from, and a probe that could not run counts for nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import SignalContainer
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.runtime.probe import NO_PROBES, Probe, ProbeProgress, ProbeResult, ProbeSet, Tally, Watch
from controller.kinds.runtime.run import Run
from controller.plan.base.backoff import waits
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.plan.sandbox.lifecycle import asked_to_stop, stop


def add_probe_result(before: Tally | None, result: ProbeResult, probe: Probe) -> Tally:
    """Return the tally with one more result; the same object if nothing changes."""
    tally = before or Tally(result)
    if result.outcome == "success":
        after = Tally(result, successes=min(tally.successes + 1, probe.success_threshold))
    elif result.outcome == "failure":
        after = Tally(result, failures=min(tally.failures + 1, probe.failure_threshold))
    else:
        after = replace(tally, last=result)
    return before if before is not None and after == before else after


def probe_set(context: ReconcileContext) -> ProbeSet:
    """Return the probes of the sandbox's template."""
    return context.rendered.probes if context.rendered else NO_PROBES


def observe(context: ReconcileContext, container: Container, state: InstanceState) -> InstanceState:
    """Return the state with this run's probe results; unchanged if there are no probes."""
    probes = probe_set(context)
    if not probes or container.state not in (State.RUNNING, State.PAUSED):
        return state
    run = container.run
    progress = (
        state.runs.probes if state.runs.probes is not None and state.runs.probes.run == run else ProbeProgress(run)
    )
    tallies = _tallies(context, run)
    progress = replace(
        progress,
        started=progress.started or _has_passed(tallies.get("startup"), probes.startup),
        ready=progress.ready or _has_passed(tallies.get("readiness"), probes.readiness),
    )
    waiting = bool(_pending(probes, progress)) and container.state is State.RUNNING
    return replace(
        state,
        runs=replace(state.runs, probes=replace(progress, since=(progress.since or context.now) if waiting else 0.0)),
    )


def watches(context: ReconcileContext, state: InstanceState) -> tuple[Watch, ...]:
    """Return the probes to run from now on: none of a sandbox that is not to run, or is being removed."""
    container, checked = context.container, state.runs.probes
    if container is None or checked is None or not _is_up(context, container) or context.deleting or checked.ended:
        return ()
    return tuple(
        Watch(name, probe, checked.run, container.pid, container.started_at + probe.initial_delay_seconds)
        for name, probe in _due(probe_set(context), checked)
    )


def unready(context: ReconcileContext, state: InstanceState) -> tuple[str, str]:
    """Return the reason and message of a running sandbox that its probes do not call ready; empty ones if they do."""
    probes = probe_set(context)
    checked = state.runs.probes
    container = context.container
    end_reason = state.runs.ended_by_probes(container.run) if container else ""
    if end_reason:
        return _condition_reason(end_reason), "its probes failed: it is being stopped"
    if not probes or checked is None:
        return "", ""
    name = _pending(probes, checked)
    if not name:
        return "", ""
    tally = _tallies(context, checked.run).get(name)
    return "StartupProbe" if name == "startup" else "NotReady", _probe_message(name, tally)


def are_passed(probes: ProbeSet, state: InstanceState) -> bool:
    """Return True if all probes needed for readiness passed in the last observed run."""
    checked = state.runs.probes
    if not probes:
        return True
    return (
        checked is not None and checked.run == state.runs.last and not checked.ended and not _pending(probes, checked)
    )


def decide(context: ReconcileContext, container: Container) -> Decision:
    """Return the decision for a running container by its probes: nothing, a wait, or a stop."""
    state, checked = context.state, context.state.runs.probes
    # Once begun a stop is gone through with, though the probe may be another one by now, or none.
    if end_reason := state.runs.ended_by_probes(container.run):
        return _end(context, container, end_reason, "its probes failed")
    if not probe_set(context) or checked is None:
        return Decision(state)
    deadline = context.spec.lifecycle.startup_deadline_seconds if context.spec else None
    reason, message = _broken(context, checked, deadline)
    if reason:
        ending = replace(context, state=replace(state, runs=replace(state.runs, probes=replace(checked, ended=reason))))
        event = context.event("Unhealthy", message, warning=True)
        return replace(_end(ending, container, reason, message), events=(event,))
    reason, message = unready(context, state)
    until = checked.since + deadline if deadline and checked.since else None
    return Decision(state, reason, message, until=until if until and until > context.now else None)


def _is_up(context: ReconcileContext, container: Container) -> bool:
    """Return True if it runs and is meant to. A paused sandbox is not probed: it could not answer.

    One that is to be hibernated runs until it is ready.
    """
    asked_to_run = context.spec is not None and context.spec.run_state in ("Running", "Hibernated")
    return asked_to_run and container.state is State.RUNNING and not context.blind


def _tallies(context: ReconcileContext, run: Run) -> Mapping[str, Tally]:
    """Return the results of the current probes; those of another run, or of a changed probe, do not count."""
    probed = context.probed
    if probed is None or probed.run != run:
        return {}
    by_name = dict(probe_set(context).by_name())
    current = {watch.name for watch in probed.watches if by_name.get(watch.name) == watch.probe}
    return {name: tally for name, tally in probed.tallies.items() if name in current}


def _has_passed(tally: Tally | None, probe: Probe | None) -> bool:
    return tally is not None and probe is not None and tally.successes >= probe.success_threshold


def _has_failed(tally: Tally | None, probe: Probe | None) -> bool:
    return tally is not None and probe is not None and tally.failures >= probe.failure_threshold


def _pending(probes: ProbeSet, checked: ProbeProgress) -> str:
    """Return the probe that has to pass next for readiness, "" if none."""
    if probes.startup is not None and not checked.started:
        return "startup"
    return "readiness" if probes.readiness is not None and not checked.ready else ""


def _due(probes: ProbeSet, checked: ProbeProgress) -> Iterator[tuple[str, Probe]]:
    pending = _pending(probes, checked)
    for name, probe in probes.by_name():
        if name == pending or (name == "liveness" and pending != "startup"):
            yield name, probe


def _broken(context: ReconcileContext, checked: ProbeProgress, deadline: int | None) -> tuple[str, str]:
    """Return the reason and message for which the run has to be stopped; empty ones if it need not."""
    probes, tallies = probe_set(context), _tallies(context, checked.run)
    pending = _pending(probes, checked)
    is_starting = pending == "startup"
    if is_starting and _has_failed(tallies.get("startup"), probes.startup):
        return "StartFailed", f"{_in_a_row('startup', tallies['startup'])}; it is stopped"
    if not is_starting and _has_failed(tallies.get("liveness"), probes.liveness):
        return "Killed", f"{_in_a_row('liveness', tallies['liveness'])}; it is stopped"
    last = tallies.get(pending)
    late = deadline and checked.since and not waits(context.now, checked.since + deadline, deadline)
    if late and last is not None and last.last.outcome == "failure":
        return "StartFailed", f"{_probe_message(pending, last)}, {deadline} s after its start; it is stopped"
    return "", ""


def _end(context: ReconcileContext, container: Container, reason: str, message: str) -> Decision:
    """Stop it gracefully, then by force. Its end is observed in a later pass, and is not recorded as our own stop."""
    condition_reason = _condition_reason(reason)
    waiting = stop(context, container, message, condition_reason)
    if waiting is not None:
        return waiting
    kill = SignalContainer(
        uid=context.obj.uid, name=container.name, container_id=container.id, signal="KILL", why=message
    )
    return Decision(asked_to_stop(context.state, container, context.now), condition_reason, message, (kill,))


def _condition_reason(reason: str) -> str:
    """Return the reason of a death as the reason of a condition, while it is not dead yet."""
    return "Unhealthy" if reason == "Killed" else reason


def _probe_message(name: str, tally: Tally | None) -> str:
    """Return why a probe does not pass yet."""
    if tally is None:
        return f"the {name} probe has not answered yet"
    if tally.last.outcome == "unknown":
        return f"the {name} probe could not be run: {tally.last.message}"
    if tally.last.outcome == "success":
        return f"the {name} probe passed {tally.successes} times in a row, which is not enough yet"
    return f"the {name} probe failed: {tally.last.message}"


def _in_a_row(name: str, tally: Tally) -> str:
    return f"the {name} probe failed {tally.failures} times in a row: {tally.last.message}"
