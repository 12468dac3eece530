"""Orphans: containers of ours without a stored object. Removed late, a few at a time, and only with proof.

The copy of a sandbox that was started on another host, while this one was lost, is removed at once. A container whose
sandbox is another host's, and never was this one's, is kept: two hosts have one engine, or this one was renamed.

An orphan bears our instance id, but no object or instance with its uid is stored: somebody deleted the row, or an older
database was restored. A container with our labels is not always ours: `docker commit` copies them to an image, and to
everything that runs from it. The proof that Paddock created a container is its name, which follows from its own labels.
A container without that proof is counted and never removed.

A new store finds no orphans, since it has a new instance id. Removal is by force: nobody is there to ask for grace.
Networks are plan/network/stray_networks.py's; volumes are user data, and never removed.
"""

from collections.abc import Iterator

from controller.kinds.common.labels import is_container_name
from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.observed import Container, Observation, State
from controller.kinds.planning.action import PauseContainer, RemoveContainer
from controller.kinds.planning.outcome import Ok
from controller.kinds.planning.plan import Deferral, Group
from controller.kinds.planning.snapshot import PassProgress, Snapshot, SweepRules
from controller.plan.base.backoff import waits
from controller.plan.base.sightings import Sightings, Sweep

_UNREADABLE = (State.UNKNOWN, State.REMOVING)
_NO_OBJECT = "no object is stored for it"
_MOVED = "its sandbox was started on another host while this one was lost"
_UNMOVED = (
    "its sandbox is another host's and never was here; kept: is this that host's engine, or was host_name changed?"
)
_EMPTY = "the store holds no sandbox at all: if that is right, remove it manually (`docker rm -f`)"


def sweep(snapshot: Snapshot, sightings: Sightings) -> Sweep:
    """Decide about every container without an object. A blind view says nothing, and ends every grace."""
    decisions = Sweep()
    _take_in_results(decisions, snapshot.progress, sightings, snapshot.now)
    if snapshot.observed.blind:
        sightings.since = {}
        return decisions
    strays = list(_strays(snapshot))
    orphans = [stray for stray in strays if is_proven(stray) and stray.state not in _UNREADABLE]
    decisions.stray_count = len(strays)
    sightings.note(orphans, snapshot.now)
    waiting = [orphan for orphan in orphans if orphan.uid not in snapshot.progress.in_flight]
    if waiting:
        _decide(decisions, snapshot, sightings, waiting)
    return decisions


def is_proven(container: Container) -> bool:
    """Return True if Paddock itself created it: its name follows from its uid (a claimed one was renamed since)."""
    return bool(container.uid and container.object_name) and is_container_name(container.name, container.uid)


def _strays(snapshot: Snapshot) -> Iterator[Container]:
    """Yield the containers whose uid and name no object or record has."""
    observed = snapshot.observed.containers
    instances = snapshot.instances
    sandboxes = snapshot.desired.sandboxes
    unknown = [uid for uid in observed if uid not in sandboxes and uid not in instances]
    if not unknown:
        return
    recorded = {instance.name for instance in instances.values()}
    for uid in sorted(unknown):
        yield from (container for container in observed[uid] if container.name not in recorded)


def _decide(decisions: Sweep, snapshot: Snapshot, sightings: Sightings, orphans: list[Container]) -> None:
    """Remove the orphans whose grace is over, the oldest first, and say of all others why they are kept for now.

    One sweep removes a share of the host's containers at most: a store that lost its objects must not empty the host.
    """
    now = snapshot.now
    rules = snapshot.rules.sweep
    withheld = rules.withheld or ("" if snapshot.desired.sandboxes else _EMPTY)
    room = _most_at_once(snapshot.observed, rules)
    next_sweep = sightings.swept_at + rules.grace_seconds
    resting = waits(now, next_sweep, rules.grace_seconds)
    for orphan in sorted(orphans, key=lambda orphan: (sightings.since[orphan.id], orphan.id)):
        grace_ends = sightings.since[orphan.id] + rules.grace_seconds
        if orphan.uid in snapshot.fleet.unmoved_uids and not rules.withheld:
            _wait(decisions, orphan, "OrphanKept", _UNMOVED, None)
        elif orphan.uid in snapshot.fleet.moved_uids and not rules.withheld:
            _remove(decisions, sightings, orphan, _MOVED, now)
        elif orphan.uid in snapshot.fleet.moved_uids and orphan.state is State.RUNNING:
            _freeze(decisions, orphan)
        elif withheld:
            _wait(decisions, orphan, "OrphanKept", f"{_NO_OBJECT}; kept: {withheld}", None)
        elif now < grace_ends:
            _wait(decisions, orphan, "Orphaned", f"{_NO_OBJECT}; removed if that is still so by then", grace_ends)
        elif resting:
            _wait(decisions, orphan, "Orphaned", f"{_NO_OBJECT}; the last sweep was a moment ago", next_sweep)
        elif len(decisions.groups) >= room:
            _wait(
                decisions, orphan, "Orphaned", f"{_NO_OBJECT}; {room} at most go at a time", now + rules.grace_seconds
            )
        else:
            sightings.swept_at = now
            _remove(decisions, sightings, orphan, f"{_NO_OBJECT} for {rules.grace_seconds:g} s", now)


def _most_at_once(observed: Observation, rules: SweepRules) -> int:
    """Return the number of containers that one sweep may remove."""
    count = sum(len(containers) for containers in observed.containers.values())
    return max(1, int(count * rules.share))


def _wait(decisions: Sweep, container: Container, reason: str, message: str, until: float | None) -> None:
    decisions.deferrals.append(Deferral(ref=_ref(container), reason=reason, message=message, until=until))


def _remove(decisions: Sweep, sightings: Sightings, container: Container, why: str, now: float) -> None:
    """Remove one orphan. The event is stored with the plan, before the removal, so that it always leaves a trace."""
    ref = _ref(container)
    action = RemoveContainer(uid=container.uid, name=container.name, container_id=container.id, why=why)
    decisions.groups.append(Group(ref, container.generation, deleting=True, actions=(action,)))
    decisions.events.append(Event(ref, "Warning", "Orphaned", f"{action} ({why})", now))
    sightings.removing[container.uid] = ref


def _freeze(decisions: Sweep, container: Container) -> None:
    """Pause a second copy in a restored store: which of the two is the right one, a person decides."""
    why = "its sandbox is on another host, says a store that was restored"
    pause = PauseContainer(uid=container.uid, name=container.name, container_id=container.id, why=why)
    decisions.groups.append(Group(_ref(container), container.generation, deleting=True, actions=(pause,)))


def _take_in_results(decisions: Sweep, progress: PassProgress, sightings: Sightings, now: float) -> None:
    """Add the results of removals; a result stays in the snapshot until a pass that reported it was stored."""
    pending = progress.results.keys() | progress.in_flight
    sightings.removing = {uid: ref for uid, ref in sightings.removing.items() if uid in pending}
    for uid, ref in sightings.removing.items():
        result = progress.results.get(uid)
        for action, outcome in result.done if result is not None else ():
            if isinstance(outcome, Ok):
                decisions.removed += 1
            else:
                message = f"{action}: {outcome.message}"
                decisions.events.append(Event(ref, "Warning", outcome.reason, message, now))


def _ref(container: Container) -> ObjectRef:
    return ObjectRef(kind="Sandbox", namespace=container.namespace, name=container.object_name, uid=container.uid)
