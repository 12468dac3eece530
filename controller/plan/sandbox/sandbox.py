"""What one Sandbox needs now: nothing, a wait, or a few engine calls. Called by plan/host.py for each object.

Order of the questions: deletion, a blind look, what can't be run at all, failed calls that wait, a missing
container, one that has to be replaced, small repairs in place, and last the asked run state.
"""

from dataclasses import replace

from controller.kinds.common.labels import container_labels
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import (
    Action,
    ConnectNetwork,
    CreateContainer,
    DisconnectNetwork,
    PauseContainer,
    PullImage,
    RemoveContainer,
    RenameContainer,
    SignalContainer,
    StartContainer,
    UnpauseContainer,
    UpdateLimits,
)
from controller.kinds.planning.instance_record import Memory
from controller.kinds.sandbox import FINALIZER
from controller.plan.common.altered import altered
from controller.plan.common.backoff import CALL_LONGEST_SECONDS, CRASH_LONGEST_SECONDS, held, waits
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.network import bridge, guard, peers
from controller.plan.sandbox import attest, claim, deaths, drift, lifecycle, mounts, out_of_band, probes
from controller.plan.sandbox.log_tail import read_first
from controller.plan.sandbox.rest import Rest, rest
from controller.plan.sandbox.stopping import ALIVE, asked_to_stop, stop
from controller.policy.sandbox import Rendered

_REMOVING_LOOK_SECONDS = 1.0


def decide(case: Case) -> Decision:
    """The decision for one object. One that needs nothing forgets the failures on the way there."""
    decision = claim.settle(_decide(case))
    if decision.reason or decision.actions or decision.memory.failure is None:
        return decision
    return replace(decision, memory=replace(decision.memory, failure=None))


def _decide(case: Case) -> Decision:
    if case.blind:
        return Decision(case.memory, "EngineUnreachable", case.blind)
    case = altered(case, memory=_noticed(case))
    if any(each.state is State.UNKNOWN for each in _all(case)):
        return Decision(case.memory, "Unreadable", "the engine lists its container but does not tell its state")
    before, event = case.memory, guard.told(case)
    case = altered(case, memory=guard.notice(case))
    made = _guarded(case, before) or _seen(case)
    return made if event is None else made.telling(event)


def _guarded(case: Case, before: Memory) -> Decision | None:
    """What a guard that was lost, or is back, asks for before all else; a call for it that failed is waited for."""
    if case.deleting:
        return None
    made = guard.decide(case, before=before)
    tried_before = before.unguarded == case.memory.unguarded
    return (_failed_call(case) if made is not None and tried_before else None) or made


def _seen(case: Case) -> Decision:
    waiting = _failed_call(case)
    if waiting is not None:
        return waiting
    if case.deleting:
        return _delete(case)
    if case.rendered is None:
        words = "; ".join(f"{each.field}: {each.message}" for each in case.refusals)
        return Decision(case.memory, "Refused", words)
    if case.extra:
        return Decision(case.memory, "Duplicate", "more than one container", tuple(_removals(case, case.extra)))
    return lifecycle.timed(case, _kept)


def _kept(case: Case) -> Decision:
    """What keeps the one container as it is to be."""
    assert case.rendered is not None
    insecure = attest.decide(case)
    if case.container is None:
        return insecure or _absent(case, case.rendered)
    return read_first(case, insecure or _present(case, case.container, case.rendered))


def _all(case: Case) -> tuple[Container, ...]:
    return ((case.container,) if case.container else ()) + case.extra


def _noticed(case: Case) -> Memory:
    """The memory with what this look shows in it: a new run, a new end, the image that the tag stood for."""
    memory, container = case.memory, case.container
    memory = deaths.notice_removed(case.ends, deaths.notice_change(case.obj, memory, case.now))
    if container is None:
        return memory
    memory = deaths.notice_run(container, altered(memory, container=container.id))
    memory = probes.notice(case, container, memory)
    if container.state in deaths.ENDED and container.started_at:
        memory = deaths.notice(container, memory, case.lost)
    made_as_now = case.rendered is not None and container.config_hash == case.rendered.config_hash
    if case.rendered is not None and made_as_now and container.template_hash == case.rendered.template_hash:
        fields, template = case.rendered.template_fields, container.template_hash
        memory = altered(memory, image_id=container.image_id, template=template, made_from=fields)
    return memory


def _failed_call(case: Case) -> Decision | None:
    """Wait out the back-off of an engine call that failed for what is still wanted."""
    failure = case.memory.failure
    if failure is None or not held(failure, case.obj.generation, case.deleting):
        return None
    if failure.terminal:
        return Decision(case.memory, failure.reason, f"{failure.message} (waits for a change of the spec)")
    if waits(case.now, failure.retry_at, CALL_LONGEST_SECONDS):
        return Decision(case.memory, failure.reason, failure.message, until=failure.retry_at)
    return None


def _removals(
    case: Case, containers: tuple[Container, ...], why: str = "second container of one object"
) -> list[Action]:
    return [RemoveContainer(case.obj.uid, each.name, each.id, why) for each in containers]


def _delete(case: Case) -> Decision:
    containers = _all(case)
    if not containers and case.obj.finalizers and FINALIZER not in case.obj.finalizers:
        return Decision(case.memory, "Terminating", f"its container is gone; held by {', '.join(case.obj.finalizers)}")
    if not containers:
        last = tuple(mounts.with_it(case))
        return Decision(case.memory, "Terminating", "removing its volumes" if last else "gone", last, finalize=not last)
    first = containers[0]
    why = "deleted" if case.obj.kind == "Sandbox" else "retired from its pool"
    if first.state in ALIVE:
        waiting = stop(case, first, why, "Terminating")
        if waiting is not None:
            return waiting
    if all(each.state is State.REMOVING for each in containers):
        until = case.now + _REMOVING_LOOK_SECONDS
        return Decision(case.memory, "Terminating", "the engine is removing it", until=until)
    return Decision(case.memory, "Terminating", "removing", tuple(_removals(case, containers, why)))


def _absent(case: Case, rendered: Rendered) -> Decision:
    end = case.memory.last_end
    resting = rest(case)
    if resting is not None:
        return Decision(case.memory, resting.reason, resting.message, finished=resting.finished)
    if (
        case.spec is not None
        and case.memory.finished == rendered.template_hash
        and end is not None
        and not deaths.starts_again(end, case.spec.restart_policy)
    ):
        return Decision(case.memory, end.reason, _ended(case.memory), finished=True)
    missing = bool(case.memory.run[0]) and case.memory.template == rendered.template_hash
    why = "its container is missing" if missing else "no container yet"
    events = (case.event("ContainerMissing", "found no container, wanted one", warning=True),) if missing else ()
    made = _make(case, rendered, (), why)
    return replace(made, events=events, drift=("missing",) if missing else ())


def _make(case: Case, rendered: Rendered, first: tuple[Action, ...], why: str) -> Decision:
    """Create and start the container as rendered; the image is the one pinned for this template, if any is."""
    memory, uid, name = case.memory, case.obj.uid, rendered.config.name
    same = memory.template == rendered.template_hash
    same_image = memory.made_from.get("image") == rendered.template_fields.get("image")
    labels = container_labels(
        instance=case.instance_id,
        uid=uid,
        namespace=case.obj.namespace,
        name=case.obj.name,
        role="sandbox",
        generation=case.obj.generation,
        config_hash=rendered.config_hash,
        template_hash=rendered.template_hash,
        revision=case.obj.resource_version,
    )
    actions: list[Action] = list(first)
    failure = memory.failure
    if failure and failure.reason == "ImageMissing" and held(failure, case.obj.generation, case.deleting):
        actions.append(PullImage(rendered.config.image, "found none on this host"))
    image_id = memory.image_id if same and same_image else ""
    actions += mounts.before_start(case, rendered, image_id or rendered.config.image, why)
    actions.append(CreateContainer(uid, rendered.config, labels, why, image_id))
    actions += peers.joining(case, rendered, "", why)
    actions.append(StartContainer(uid, name, why))
    if not (same and same_image):
        memory = replace(memory, image_id="")
    if not same:
        memory = replace(memory, crashes=0, template=rendered.template_hash)
    memory = replace(memory, finished="", made_from=rendered.template_fields)
    return Decision(memory, "Creating", why, tuple(actions))


def _present(case: Case, container: Container, rendered: Rendered) -> Decision:
    if container.state is State.REMOVING:
        until = case.now + _REMOVING_LOOK_SECONDS
        return Decision(case.memory, "Removing", "the engine is removing its container", until=until)
    resting = rest(case)
    why = drift.needs_new_container(case, container, rendered) or mounts.changed(case, container, rendered)
    if why and (resting is None or resting.half):
        return _replace(case, container, rendered, why)
    if container.state is State.DEAD and resting is None:
        return _replace(case, container, rendered, "the engine calls its container dead")
    repaired = _repair(case, container, rendered)
    asked = _run_state(altered(case, memory=repaired.memory), container, rendered)
    return _joined(repaired, asked)


def _replace(case: Case, container: Container, rendered: Rendered, why: str) -> Decision:
    """Stop it in its own time, then remove, create and start in one go."""
    if container.state in ALIVE:
        waiting = stop(case, container, why, "Recreating", "Superseded")
        if waiting is not None:
            events = (case.event("Recreating", why),) if waiting.actions else ()
            return replace(waiting, events=events)
    case = replace(case, memory=asked_to_stop(case.memory, container, case.now, "Superseded"))
    remove = RemoveContainer(case.obj.uid, container.name, container.id, why)
    return replace(_make(case, rendered, (remove,), why), reason="Recreating")


def _repair(case: Case, container: Container, rendered: Rendered) -> Decision:
    """What is changed in a container as it stands, running or not: its networks first, its name, its limits."""
    uid, wanted, fields = case.obj.uid, rendered.config, []
    actions = _networks(case, container, rendered)
    if actions:
        fields.append("network")
    if container.name != wanted.name:
        why = f"name found {container.name}, wanted {wanted.name}"
        actions.append(RenameContainer(uid, wanted.name, container.id, container.name, why))
        fields.append("name")
    binds = tuple(mounts.repair(case, container, rendered))
    if binds:
        actions += binds
        fields.append("mounts")
    resize, until, differing = _resize(case, container, rendered)
    memory = case.memory if differing else altered(case.memory, resize=None)
    return Decision(memory, actions=(*actions, *resize), until=until, drift=(*fields, *differing))


def _networks(case: Case, container: Container, rendered: Rendered) -> list[Action]:
    """What brings a container back to its network. One attached by hand opens at once what the level closes."""
    own, *shared = wanted = peers.networks(case, rendered)
    off, on = drift.network_differences(wanted, container.networks)
    why = f"networks found {', '.join(container.networks) or 'none at all'}, wanted {', '.join(wanted)}"
    uid, name, id_ = case.obj.uid, container.name, container.id
    actions: list[Action] = [DisconnectNetwork(uid, name, id_, each, why) for each in off]
    if own in on:
        actions.append(ConnectNetwork(uid, name, id_, own, why))
    if not set(on).isdisjoint(shared):
        actions += peers.joining(case, rendered, id_, why)
    return actions


def _resize(
    case: Case, container: Container, rendered: Rendered
) -> tuple[tuple[Action, ...], float | None, tuple[str, ...]]:
    """The update that brings the limits into force, or until when it waits; and the limits that differ."""
    if container.limits is None:
        return (), None, ()
    wanted = rendered.config.limits
    differences = tuple(drift.differences(wanted, container))
    fields = tuple(field for field, _, _ in differences)
    failure = case.memory.resize
    if failure is not None and held(failure, case.obj.generation, case.deleting):
        if failure.terminal:
            return (), None, fields
        if waits(case.now, failure.retry_at, CALL_LONGEST_SECONDS):
            return (), failure.retry_at if differences else None, fields
    if not differences:
        return (), None, ()
    why = ", ".join(f"{field} found {found}, wanted {want}" for field, found, want in differences)
    if "cpuShares" in fields and not wanted.cpu_shares:
        wanted = replace(wanted, cpu_shares=out_of_band.DEFAULT_SHARES)
    return (UpdateLimits(case.obj.uid, rendered.config.name, container.id, wanted, why),), None, fields


def _run_state(case: Case, container: Container, rendered: Rendered) -> Decision:
    """The actions that bring a container into the asked run state."""
    uid, name, memory = case.obj.uid, container.name, case.memory
    resting = rest(case)
    if resting is not None:
        return _suspend(case, container, resting)
    asked = case.spec.run_state if case.spec else "Suspended"
    if container.state in (State.CREATED, State.EXITED):
        return _start(case, container, rendered)
    if asked == "Paused" and container.state is State.RUNNING:
        return Decision(memory, "Pausing", "", (PauseContainer(uid, name, container.id, "runState is Paused"),))
    if asked == "Paused":
        return Decision(memory, "Paused", "runState is Paused")
    if container.state is State.PAUSED:
        found = UnpauseContainer(uid, name, container.id, "state found paused, wanted running")
        return Decision(memory, "Unpausing", "", (found,), drift=("paused",))
    return probes.decide(case, container) if container.state is State.RUNNING else Decision(memory)


def _suspend(case: Case, container: Container, resting: Rest) -> Decision:
    if container.state not in ALIVE:
        return Decision(case.memory, resting.reason, resting.message, finished=resting.finished)
    waiting = stop(case, container, resting.message, resting.stopping, resting.end)
    if waiting is not None:
        return waiting
    kill = SignalContainer(case.obj.uid, container.name, container.id, "KILL", "its grace period is over")
    actions: tuple[Action, ...] = (kill,)
    if container.state is State.PAUSED:
        actions = (UnpauseContainer(case.obj.uid, container.name, container.id, "to be killed"), kill)
    memory = asked_to_stop(case.memory, container, case.now, resting.end)
    return Decision(memory, resting.stopping, "killing", actions)


def _start(case: Case, container: Container, rendered: Rendered) -> Decision:
    """Start a created or ended container, when its restart policy and back-off say so."""
    memory, end = case.memory, case.memory.last_end
    why, events, fields = "state found created, wanted running", [], []
    ended = container.state is State.EXITED and bool(container.started_at)
    if ended and end is not None and case.spec is not None:
        if not deaths.starts_again(end, case.spec.restart_policy):
            memory = replace(memory, finished=rendered.template_hash)
            return Decision(memory, end.reason, _ended(memory), finished=True)
        due = deaths.start_due(end, memory.crashes)
        if waits(case.now, due, CRASH_LONGEST_SECONDS):
            return Decision(memory, "CrashLoopBackOff", _ended(memory), until=due)
        why = "resumed" if deaths.is_ours(end) else f"restarted after {_ended(memory)}"
        if not deaths.is_ours(end):
            events.append(case.event("Ended", _ended(memory), warning=True))
            fields.append("exited")
    lasting = out_of_band.lasting(container) or case.stale_gpus
    if drift.outdated(container, rendered) or lasting or bridge.unplugged(case) or peers.unplugged(case):
        # This start is where an upgrade, a policy or a default that changed meanwhile takes effect.
        made = _replace(replace(case, memory=memory), container, rendered, f"{why}; rendered anew")
    else:
        actions: list[Action] = [*mounts.before_start(case, rendered, container.image_id, why)]
        actions.append(StartContainer(case.obj.uid, container.name, why, container.id))
        if case.spec is not None and case.spec.run_state == "Paused":
            actions.append(PauseContainer(case.obj.uid, container.name, container.id, "runState is Paused"))
        made = Decision(replace(memory, finished=""), "Starting", why, tuple(actions))
    return replace(made, events=(*made.events, *events), drift=tuple(fields))


def _ended(memory: Memory) -> str:
    end = memory.last_end
    return "" if end is None else f"{end.reason}: exit code {end.exit_code}"


def _joined(repaired: Decision, asked: Decision) -> Decision:
    """One decision of a repair in place and of the run state: repairs first, the earlier of two wakes."""
    wakes = [each for each in (repaired.until, asked.until) if each is not None]
    return altered(
        asked,
        actions=(*repaired.actions, *asked.actions),
        until=min(wakes, default=None),
        drift=(*repaired.drift, *asked.drift),
    )
