"""Decisions for one Sandbox: nothing, a wait, or a few engine calls. plan/deciders.py has their order.

The lifecycle decider goes on to: a missing container, one that has to be replaced, repairs in place, and last the
desired run state.
"""

from dataclasses import replace

from controller.kinds.common.labels import container_labels
from controller.kinds.meta import Event
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import (
    Action,
    ConnectNetwork,
    CreateContainer,
    DisconnectNetwork,
    PauseContainer,
    PullImage,
    RemoveContainer,
    SignalContainer,
    StartContainer,
    UnpauseContainer,
)
from controller.kinds.planning.instance_state import InstanceState, Termination
from controller.kinds.sandbox import FINALIZER, keeps_files
from controller.plan.base.backoff import (
    CALL_LONGEST_SECONDS,
    CRASH_LONGEST_SECONDS,
    HEALTHY_SECONDS,
    crash_delay_seconds,
    is_backing_off,
    is_start_blocked,
    lacks_image,
    waits,
)
from controller.plan.base.reasons import IMAGE_PULLING
from controller.plan.base.reconcile_context import ALIVE, Decision, ReconcileContext, replace_if_changed
from controller.plan.base.renames import rename_action
from controller.plan.network import networks
from controller.plan.sandbox import (
    attest,
    deaths,
    drift,
    files,
    guard,
    hibernation,
    lifecycle,
    mounts,
    probes,
    snapshots,
    takeover,
)
from controller.plan.sandbox.deaths import was_asked_to_stop
from controller.plan.sandbox.lifecycle import Rest, asked_to_stop, rest_state, stop
from controller.plan.sandbox.log_tail import read_first
from controller.plan.sandbox.resize import resize as reconcile_limits
from controller.policy.images import has_recipe
from controller.policy.sandbox import Rendered

_REMOVING_RETRY_SECONDS = 1.0
_BLOCKED = (
    "the engine died during its start and still holds that start; its container is created again: what it wrote to its "
    "root file system and to memory is lost, volumes and folders of the host stay"
)


def observe(context: ReconcileContext) -> tuple[ReconcileContext, tuple[Event, ...]]:
    """Return the context with this pass's observations in its state, and the events of what was lost or is back.

    A blind or unreadable observation proves nothing about the guard, nor about a hibernated container.
    """
    if context.blind:
        return context, ()
    before = context
    context = replace_if_changed(context, state=_observed_state(context))
    if _is_unreadable(context):
        return context, ()
    events = (guard.change_event(context), hibernation.loss_event(before, context.state))
    context = replace_if_changed(context, state=guard.observe(context))
    return context, tuple(event for event in events if event is not None)


def reconcile_unknown(context: ReconcileContext) -> Decision | None:
    """Decide nothing about a sandbox that cannot be observed."""
    if context.blind:
        return Decision(context.state, "EngineUnreachable", context.blind)
    if _is_unreadable(context):
        return Decision(context.state, "Unreadable", "the engine lists its container but does not report its state")
    return None


def reconcile_deletion(context: ReconcileContext) -> Decision | None:
    """Remove all that a deleted object owns."""
    return (reconcile_failure(context) or _delete(context)) if context.deleting else None


def reconcile_guard(context: ReconcileContext) -> Decision | None:
    """Freeze, stop or resume a sandbox whose network guard was lost or is back. A failed call for it is waited out."""
    decision = guard.decide(context)
    tried_before = context.was_unguarded == context.state.security.is_unguarded
    return (reconcile_failure(context) if decision is not None and tried_before else None) or decision


def reconcile_failure(context: ReconcileContext) -> Decision | None:
    """Wait out the back-off of an engine call that failed for the current generation."""
    failure = context.state.backoff.failure
    if failure is None or not is_backing_off(failure, context.obj.generation, context.deleting):
        return None
    if files.is_of_files(failure.reason):
        return None  # it holds up the stop or the save alone
    if failure.terminal:
        return Decision(context.state, failure.reason, f"{failure.message} (waits for a change of the spec)")
    if waits(context.now, failure.retry_at, CALL_LONGEST_SECONDS):
        return Decision(context.state, failure.reason, failure.message, until=failure.retry_at)
    return None


def reconcile_refusal(context: ReconcileContext) -> Decision | None:
    """Leave a sandbox as it is while its spec is refused."""
    if context.rendered is not None:
        return None
    message = "; ".join(f"{refusal.field}: {refusal.message}" for refusal in context.refusals)
    return Decision(context.state, "Refused", message)


def reconcile_duplicates(context: ReconcileContext) -> Decision | None:
    """Remove all containers of the object but the one that counts."""
    if not context.extra:
        return None
    return Decision(context.state, "Duplicate", "more than one container", tuple(_removals(context, context.extra)))


def reconcile_lifecycle(context: ReconcileContext) -> Decision:
    """Bring the one container into the desired state, within its lifecycle timers. Attestation comes first."""
    return lifecycle.decide_with_timers(context, _keep)


def settle(decision: Decision, events: tuple[Event, ...]) -> Decision:
    """Return the decision with those events. One that needs nothing forgets the failures on the way there."""
    decision = takeover.settle(replace(decision, events=(*events, *decision.events)) if events else decision)
    failure = decision.state.backoff.failure
    if decision.reason or decision.actions or failure is None or files.is_of_files(failure.reason):
        return decision
    return replace(decision, state=replace(decision.state, backoff=replace(decision.state.backoff, failure=None)))


def _is_unreadable(context: ReconcileContext) -> bool:
    return any(container.state is State.UNKNOWN for container in _all(context))


def _keep(context: ReconcileContext) -> Decision:
    """Keep the one container in its desired state."""
    assert context.rendered is not None
    insecure = attest.decide(context)
    if context.container is None:
        return insecure or _decide_absent(context, context.rendered)
    return read_first(context, insecure or _decide_present(context, context.container, context.rendered))


def _all(context: ReconcileContext) -> tuple[Container, ...]:
    return ((context.container,) if context.container else ()) + context.extra


def _observed_state(context: ReconcileContext) -> InstanceState:
    """Return the state with this pass's observations: a new run, a new end, the image that the tag stood for."""
    state, container = context.state, context.container
    state = deaths.observe_removal(context.ends, deaths.observe_generation(context.obj, state, context.now))
    state = hibernation.observe(context, state)
    if container is None:
        return state
    state = deaths.observe_run(
        container, replace_if_changed(state, container=replace_if_changed(state.container, id=container.id))
    )
    state = probes.observe(context, container, state)
    if container.state in deaths.ENDED and container.started_at:
        state = deaths.observe_end(container, state, context.lost)
    made_as_now = context.rendered is not None and container.config_hash == context.rendered.config_hash
    if context.rendered is not None and made_as_now and container.template_hash == context.rendered.template_hash:
        fields, template = context.rendered.template_fields, container.template_hash
        state = replace_if_changed(
            state,
            container=replace_if_changed(
                state.container, image_id=container.image_id, template=template, template_fields=fields
            ),
        )
    return state


def _removals(
    context: ReconcileContext, containers: tuple[Container, ...], why: str = "second container of one object"
) -> list[Action]:
    return [
        RemoveContainer(uid=context.obj.uid, name=container.name, container_id=container.id, why=why)
        for container in containers
    ]


def _delete(context: ReconcileContext) -> Decision:
    """Decide for a sandbox that is being deleted: stop, remove, and let go once all is gone."""
    containers = _all(context)
    if not containers and context.obj.finalizers and FINALIZER not in context.obj.finalizers:
        return Decision(
            context.state, "Terminating", f"its container is gone; held by {', '.join(context.obj.finalizers)}"
        )
    if not containers:
        last = (*files.remove(context), *mounts.reclaim_volumes(context))
        return Decision(
            context.state, "Terminating", "removing its files and volumes" if last else "gone", last, finalize=not last
        )
    first = containers[0]
    why = "retired from its pool" if context.is_pool_member else "deleted"
    if first.state in ALIVE:
        waiting = stop(context, first, why, "Terminating")
        if waiting is not None:
            return waiting
    if all(container.state is State.REMOVING for container in containers):
        until = context.now + _REMOVING_RETRY_SECONDS
        return Decision(context.state, "Terminating", "the engine is removing it", until=until)
    return Decision(context.state, "Terminating", "removing", tuple(_removals(context, containers, why)))


def _decide_absent(context: ReconcileContext, rendered: Rendered) -> Decision:
    """Decide for a sandbox without a container: it rests, has finished, or gets one."""
    end = context.state.runs.last_end
    resting = rest_state(context)
    if resting is not None:
        return Decision(context.state, resting.reason, resting.message, finished=resting.finished)
    if (
        context.spec is not None
        and context.state.runs.finished == rendered.template_hash
        and end is not None
        and not deaths.starts_again(end, context.spec.restart_policy)
    ):
        return _decide_finished(context.state, end)
    missing = bool(context.state.runs.last.container_id) and context.state.container.template == rendered.template_hash
    why = "its container is missing" if missing else "no container yet"
    events = (context.event("ContainerMissing", "found no container, desired one", warning=True),) if missing else ()
    decision = _make(context, rendered, (), why)
    return replace(decision, events=events, drift=("missing",) if missing else ())


def _make(context: ReconcileContext, rendered: Rendered, first: tuple[Action, ...], why: str) -> Decision:
    """Create and start the container as rendered; the image is the one pinned for this template, if any is."""
    state = context.state
    uid = context.obj.uid
    name = rendered.config.name
    is_same_template = state.container.template == rendered.template_hash
    same_image = state.container.template_fields.get("image") == rendered.template_fields.get("image")
    labels = container_labels(
        instance=context.instance_id,
        uid=uid,
        namespace=context.obj.namespace,
        name=context.obj.name,
        role="sandbox",
        generation=context.obj.generation,
        config_hash=rendered.config_hash,
        template_hash=rendered.template_hash,
        revision=context.obj.resource_version,
    )
    actions: list[Action] = list(first)
    failure = state.backoff.failure
    reason = "Creating"
    message = why
    if failure is not None and is_backing_off(failure, context.obj.generation, context.deleting):
        if (failure.reason == "ImageMissing" or failure.absent) and not has_recipe(rendered.config.image):
            actions.append(PullImage(rendered.config.image, "not on this host"))
            reason, message = IMAGE_PULLING, f"{rendered.config.image} is being pulled"
        if lacks_image(failure):  # a retry is no news: who waits is to see why
            reason, message = failure.reason, failure.message
    image_id = state.container.image_id if is_same_template and same_image else ""
    actions += mounts.before_start(context, rendered, image_id or rendered.config.image, why)
    actions.append(CreateContainer(uid=uid, config=rendered.config, labels=labels, why=why, image_id=image_id))
    actions += snapshots.restore_root(context, rendered, "", why)
    actions += networks.connect_peers(context, rendered, "", why)
    actions.append(StartContainer(uid=uid, name=name, why=why))
    if not (is_same_template and same_image):
        state = replace(state, container=replace(state.container, image_id=""))
    if not is_same_template:
        state = replace(
            state,
            runs=replace(state.runs, crashes=0),
            container=replace(state.container, template=rendered.template_hash),
        )
    state = replace(
        state,
        runs=replace(state.runs, finished=""),
        container=replace(state.container, template_fields=rendered.template_fields),
    )
    return Decision(state, reason, message, tuple(actions))


def _decide_present(context: ReconcileContext, container: Container, rendered: Rendered) -> Decision:
    """Decide for a sandbox with its container: keep, repair or replace it."""
    if container.state is State.REMOVING:
        until = context.now + _REMOVING_RETRY_SECONDS
        return Decision(context.state, "Removing", "the engine is removing its container", until=until)
    resting = rest_state(context)
    why = drift.needs_new_container(context, container, rendered)
    why = why or mounts.replacement_reason(context, container, rendered)
    if why and (resting is None or resting.restarts):
        return _replace(context, container, rendered, why)
    if container.state in ALIVE and resting is None and (restart_reason := attest.restart_reason(context))[0]:
        return _restart(context, container, *restart_reason)
    if container.state is State.DEAD and resting is None:
        return _replace(context, container, rendered, "the engine calls its container dead")
    repaired = _repair(context, container, rendered)
    run_state = _run_state(replace_if_changed(context, state=repaired.state), container, rendered)
    return _join(repaired, run_state)


def _replace(context: ReconcileContext, container: Container, rendered: Rendered, why: str) -> Decision:
    """Stop it gracefully, then remove, create and start in one group. Say what stays and what goes."""
    message = why + files.kept_and_lost(context, container, rendered)
    if container.state in ALIVE:
        waiting = stop(context, container, message, "Recreating", "Superseded")
        if waiting is not None:
            events = (context.event("Recreating", message),) if waiting.actions else ()
            return replace(waiting, events=events)
    context = replace(context, state=asked_to_stop(context.state, container, context.now, "Superseded"))
    # With mount points the next container's own mounts follow, and what is not among them goes then.
    keep = keeps_files(context.spec) and bool(rendered.config.mount_points)
    remove = RemoveContainer(
        uid=context.obj.uid, name=container.name, container_id=container.id, why=message, replaced=keep
    )
    return replace(_make(context, rendered, (remove,), why), reason="Recreating")


def _restart(context: ReconcileContext, container: Container, reason: str, why: str) -> Decision:
    """Stop a container that can't be repaired while it runs; it is started again after that.

    It counts as a crash, so that one which a restart does not mend is restarted more and more rarely.
    """
    state = context.state
    healthy = context.now - container.started_at >= HEALTHY_SECONDS
    crashes = 1 if healthy else state.runs.crashes + 1
    due = container.started_at + crash_delay_seconds(crashes)
    if waits(context.now, due, CRASH_LONGEST_SECONDS):
        return Decision(state, reason, why, until=due)
    context = replace(context, state=replace(state, runs=replace(state.runs, crashes=crashes)))
    decision = _suspend(
        context,
        container,
        Rest(reason="Restarting", message=why, stopping="Restarting", end="Superseded", restarts=True),
    )
    return decision.with_event(context.event(reason, f"{why}; restarting it", warning=True))


def _repair(context: ReconcileContext, container: Container, rendered: Rendered) -> Decision:
    """Repair a container in place, running or not: its networks first, then its name, mounts and limits."""
    config, fields = rendered.config, []
    actions = _networks(context, container, rendered)
    if actions:
        fields.append("network")
    if container.name != config.name:
        actions.append(rename_action(context, container, config.name))
        fields.append("name")
    binds = tuple(mounts.repair(context, container, rendered))
    if binds:
        actions += binds
        fields.append("mounts")
    # No limit may shrink below what is in swap, and cgroup v1 counts that: limits wait for the wake.
    frozen = hibernation.is_frozen(context)
    resize, until, differing = ((), None, ()) if frozen else reconcile_limits(context, container, rendered)
    state = (
        context.state
        if differing or frozen
        else replace_if_changed(context.state, backoff=replace_if_changed(context.state.backoff, resize=None))
    )
    return Decision(state, actions=(*actions, *resize), until=until, drift=(*fields, *differing))


def _networks(context: ReconcileContext, container: Container, rendered: Rendered) -> list[Action]:
    """Return the actions that restore a container's networks. One attached out-of-band opens what the level closes."""
    own_network, *shared = desired = networks.names(context, rendered)
    off, on = drift.network_differences(desired, container.networks)
    why = f"networks found {', '.join(container.networks) or 'none at all'}, desired {', '.join(desired)}"
    uid = context.obj.uid
    name = container.name
    id_ = container.id
    actions: list[Action] = [
        DisconnectNetwork(uid=uid, name=name, container_id=id_, network=network, why=why) for network in off
    ]
    if own_network in on:
        actions.append(ConnectNetwork(uid=uid, name=name, container_id=id_, network=own_network, why=why))
    if not set(on).isdisjoint(shared):
        actions += networks.connect_peers(context, rendered, id_, why)
    return [*actions, *networks.rename_peers(context, container, rendered)]


def _run_state(context: ReconcileContext, container: Container, rendered: Rendered) -> Decision:
    """Return the actions that bring a container into the desired run state."""
    uid = context.obj.uid
    name = container.name
    state = context.state
    resting = rest_state(context)
    if resting is not None:
        return _suspend(context, container, resting)
    run_state = context.spec.run_state if context.spec else "Suspended"
    if container.state in (State.CREATED, State.EXITED):
        return _start(context, container, rendered)
    if hibernation.is_to_hibernate(context):
        starting = container.state is State.RUNNING and not probes.are_passed(rendered.probes, state)
        return probes.decide(context, container) if starting else hibernation.hibernate(context, container, rendered)
    if run_state == "Paused" and container.state is State.RUNNING:
        return Decision(
            state,
            "Pausing",
            "",
            (PauseContainer(uid=uid, name=name, container_id=container.id, why="runState is Paused"),),
        )
    if run_state == "Paused":
        return Decision(state, "Paused", "runState is Paused")
    if container.state is State.PAUSED and state.memory.hibernation is not None:
        return hibernation.wake(context, container)
    if container.state is State.PAUSED:
        unpause = UnpauseContainer(
            uid=uid, name=name, container_id=container.id, why="state found paused, desired running"
        )
        return Decision(state, "Unpausing", "", (unpause,), drift=("paused",))
    return probes.decide(context, container) if container.state is State.RUNNING else Decision(state)


def _suspend(context: ReconcileContext, container: Container, resting: Rest) -> Decision:
    """Stop a sandbox that is to rest; its files in memory are saved before they are gone."""
    if container.state not in ALIVE:
        stopped = Decision(context.state, resting.reason, resting.message, finished=resting.finished)
        return files.save(context, container, stopped)
    stays = not resting.restarts and not was_asked_to_stop(container, context.state)
    if stays and (blocked := files.blocked_stop(context)) is not None:
        return blocked
    waiting = stop(context, container, resting.message, resting.stopping, resting.end)
    if waiting is not None:
        return files.with_check(context, container, waiting) if stays else waiting
    kill = SignalContainer(
        uid=context.obj.uid,
        name=container.name,
        container_id=container.id,
        signal="KILL",
        why="its grace period is over",
    )
    actions: tuple[Action, ...] = (kill,)
    if container.state is State.PAUSED:
        actions = (hibernation.thaw(context, container, "to be killed"), kill)
    state = asked_to_stop(hibernation.waking(context), container, context.now, resting.end)
    killed = Decision(state, resting.stopping, "killing", actions)
    return files.with_check(context, container, killed) if stays else killed


def _start(context: ReconcileContext, container: Container, rendered: Rendered) -> Decision:
    """Start a created or ended container, when its restart policy and back-off say so."""
    state, end = context.state, context.state.runs.last_end
    why = "state found created, desired running"
    events = []
    fields = []
    has_ended = container.state is State.EXITED and bool(container.started_at)
    if has_ended and end is not None and context.spec is not None:
        if not deaths.starts_again(end, context.spec.restart_policy):
            state = replace(state, runs=replace(state.runs, finished=rendered.template_hash))
            return files.save(context, container, _decide_finished(state, end))
        due = deaths.start_due(end, state.runs.crashes)
        if waits(context.now, due, CRASH_LONGEST_SECONDS):
            return Decision(state, "CrashLoopBackOff", _end_text(state), until=due)
        why = "resumed" if deaths.is_ours(end) else f"restarted after {_end_text(state)}"
        if not deaths.is_ours(end):
            events.append(context.event("Ended", _end_text(state), warning=True))
            fields.append("exited")
    lasting = drift.lasting(container) or context.stale_gpus or context.lost_runtime
    if is_start_blocked(state.backoff.failure, context.obj.generation):
        events.append(context.event("Recreating", _BLOCKED, warning=True))
        why = "its start is blocked by one that the engine's death cut off"
        decision = _replace(replace(context, state=state), container, rendered, why)
    elif (
        drift.is_outdated(container, rendered)
        or lasting
        or networks.has_other_network(context)
        or files.is_renewed(context, container, rendered)
    ):
        # This start is where an upgrade, a policy or a default that changed meanwhile takes effect.
        decision = _replace(replace(context, state=state), container, rendered, f"{why}; rendered again")
    else:
        bound = mounts.before_start(context, rendered, container.image_id, why, container)
        actions: list[Action] = [*bound]
        if not container.started_at:
            actions += snapshots.restore_root(context, rendered, container.id, why, container.user)
        actions.append(StartContainer(uid=context.obj.uid, name=container.name, why=why, container_id=container.id))
        if context.spec is not None and context.spec.run_state == "Paused":
            actions.append(
                PauseContainer(
                    uid=context.obj.uid, name=container.name, container_id=container.id, why="runState is Paused"
                )
            )
        decision = Decision(replace(state, runs=replace(state.runs, finished="")), "Starting", why, tuple(actions))
    return replace(decision, events=(*decision.events, *events), drift=tuple(fields))


def _decide_finished(state: InstanceState, end: Termination) -> Decision:
    return Decision(state, end.reason, deaths.exit_text(end.exit_code), finished=True)


def _end_text(state: InstanceState) -> str:
    end = state.runs.last_end
    return "" if end is None else f"{end.reason}: {deaths.exit_text(end.exit_code)}"


def _join(repaired: Decision, decision: Decision) -> Decision:
    """Return one decision of an in-place repair and the run state: repairs first, the earlier of two wakes."""
    wakes = [wake for wake in (repaired.until, decision.until) if wake is not None]
    return replace_if_changed(
        decision,
        actions=(*repaired.actions, *decision.actions),
        until=min(wakes, default=None),
        drift=(*repaired.drift, *decision.drift),
    )
