"""Placements: what the scheduler is asked for each sandbox, and which host a sandbox is bound to by its answers. Pure.

The scheduler chooses; here its choice is taken over. Nobody is asked for who waits for a quota. A sandbox without a
host is asked for under the next binding, and bound once it is placed. One with a host keeps its placement there:
pinned, with the reservation that it needs now.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from controller.kinds.host import StoredHost
from controller.kinds.meta import Condition, ObjectRef, StoredObject, stored_condition
from controller.kinds.planning.binding import IMAGE_NEEDED, UNBOUND, binding_of, host_of, pending_words
from controller.kinds.planning.snapshot import Pool, Sandbox
from controller.kinds.sandbox import SandboxSpec, Template, at_own_level
from controller.plan.base.members import member_spec
from controller.plan.base.status_json import dated
from controller.plan.capacity.waiting import WAITS
from controller.plan.fleet import spread
from controller.plan.fleet.image_places import ImagePlaces, has_listed_images, image_labels, images_of, keeping_images
from controller.plan.fleet.placement_quota import BOUND, PlacementQuota, is_on_its_way, is_waiting
from controller.policy.container import mounts
from controller.policy.levels.levels import Level, Policy
from controller.policy.levels.narrow import level_of
from controller.policy.quota_ledger import CPU_OVERCOMMIT
from controller.policy.sandbox import NO_LIMITS, reserved
from controller.policy.sandboxpool import shares_volumes
from controller.ports.scheduler import (
    Availability,
    Liveness,
    Lost,
    Pending,
    Placed,
    PlacedRecord,
    Placement,
    SchedulerHost,
)

# Labels of hosts by what they can enforce, beside those that people gave them.
GUARD, RUNTIME = "paddock.dev/network-guard", "runtime.paddock.dev/"
PENDING = "Unschedulable"  # reason of a sandbox without a host: the scheduler's words follow
ASKED = (PENDING, "the scheduler is asked for a host")
NO_TEMPLATE = ("TemplateNotFound", "its template is not there, and so nobody knows what it needs; create the template")
# Conditions by which a host gets no new sandboxes. What is not known yet is no reason: the host waits for it.
_UNFIT = (
    *(("EngineReachable", "False"), ("StoreWritable", "False")),
    *((f"{resource}Pressure", "True") for resource in ("Memory", "Disk", "PID")),
)
NO_IMAGES = ImagePlaces()
Wait = tuple[str, str]  # reason and message


@dataclass(frozen=True, slots=True)
class Place:
    """Ask for this placement, or change it."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the object of this uid to the host, if it has none and its last binding was the one before."""

    ref: ObjectRef
    host: str
    binding: int


@dataclass(frozen=True, slots=True)
class Pin:
    """Have the placement stay on its host."""

    uid: str
    binding: int
    host: str


@dataclass(frozen=True, slots=True)
class Release:
    """Forget the placement: its sandbox is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class Note:
    """Write into the object's status why its reservation is pending on its host; "": it is not."""

    ref: ObjectRef
    pending: str


@dataclass(frozen=True, slots=True)
class Unbind:
    """Take the object from its host, which is lost, if it is still bound to it by this binding."""

    ref: ObjectRef
    host: str
    binding: int
    why: str


Step = Place | Bind | Pin | Release | Note | Unbind


def uid_of(step: Step) -> str:
    """Return the uid of the object that a step is for."""
    match step:
        case Place(placement):
            return placement.uid
        case Bind(ref) | Note(ref) | Unbind(ref):
            return ref.uid
        case Pin(uid) | Release(uid):
            return uid


@dataclass(frozen=True, slots=True)
class Placements:
    """Due steps, why sandboxes have no host, by uid, and what pools lack for more warm members, by the pool's."""

    steps: tuple[Step, ...]
    waits: Mapping[str, Wait]
    shortages: Mapping[str, str]


def unbound_status(obj: StoredObject, step: Unbind, now: float) -> Mapping[str, Any]:
    """Return the status of an object that this step takes from its host.

    The binding is another one: what the host still writes about the object is written for an earlier one.
    """
    waits = [
        Condition(type_, "False", "HostLost", f"{step.why}; started elsewhere") for type_ in ("Ready", "Scheduled")
    ]
    return {
        "observedGeneration": obj.generation,
        "conditions": [dated(condition, None, obj.generation, now) for condition in waits],
        "host": UNBOUND,
        "binding": step.binding + 1,
    }


def bound_status(obj: StoredObject, step: Bind, now: float) -> Mapping[str, Any]:
    """Return the status of an object that is bound by this step."""
    bound = dated(Condition("Scheduled", "True", BOUND, f"to host {step.host}"), None, obj.generation, now)
    other_conditions = [stored for stored in obj.status.get("conditions", ()) if stored["type"] != "Scheduled"]
    other_fields = {name: value for name, value in obj.status.items() if name != IMAGE_NEEDED}
    return {**other_fields, "host": step.host, "binding": step.binding, "conditions": [*other_conditions, bound]}


@dataclass(frozen=True, slots=True)
class HostSetting:
    """Facts about a host for the scheduler."""

    name: str
    fit: bool
    labels: Mapping[str, str]
    availability: Availability


@dataclass(frozen=True, slots=True)
class Losses:
    """Names of lost hosts. `away`: their daemon has been away for so long that it froze what may be started elsewhere.

    `released`: a person says that they are off for good, and their daemon is away.
    """

    away: Collection[str] = ()
    released: Collection[str] = ()


# The sandboxes for which nothing is due, and their placements.
Settled = dict[str, tuple[Sandbox, PlacedRecord | None]]


def placements(
    sandboxes: Iterable[Sandbox],
    policy: Policy,
    had: Mapping[str, PlacedRecord],
    pools: Iterable[Pool] = (),
    losses: Losses | None = None,
    settled: Settled | None = None,
    quota: PlacementQuota | None = None,
    images: ImagePlaces = NO_IMAGES,
) -> Placements:
    """Return what is to be done next. `sandboxes` and `pools` are all that are stored.

    `had` are all placements that the scheduler has, by uid. `settled` is kept by the caller from one call to the next
    of the same policy: what is bound and placed as it was then is not decided anew. `quota` admits what is placed,
    `images` are those of the hosts.
    """
    pools = tuple(pools)
    quota = quota or PlacementQuota({}, {}, policy)
    losses = losses or Losses()
    settled = {} if settled is None else settled
    steps: list[Step] = []
    waits: dict[str, Wait] = {}
    sandboxes_by_uid = {sandbox.obj.uid: sandbox for sandbox in sandboxes}
    if losses.away or losses.released or not settled.keys() <= sandboxes_by_uid.keys():
        settled.clear()
    unsettled = sorted(_unsettled_sandboxes(sandboxes_by_uid, had, settled), key=_order)
    for sandbox in filter(is_on_its_way, unsettled):
        quota.count(sandbox)
    for sandbox in unsettled:
        record = had.get(sandbox.obj.uid)
        settled.pop(sandbox.obj.uid, None)
        if host_of(sandbox.obj, UNBOUND) != UNBOUND:
            due = (*(_steps_from_lost_host(sandbox, record, losses) or _steps_for_scheduler(sandbox, policy, record)),)
            steps += due
            if is_waiting(sandbox) and sandbox.obj.deleted_at is None:
                quota.admit(sandbox)  # what is younger waits behind it
            elif not due and not is_on_its_way(sandbox):
                settled[sandbox.obj.uid] = (sandbox, record)
        elif sandbox.obj.deleted_at is None:
            steps += _steps_to_bind(sandbox, policy, record, waits=waits, quota=quota, images=images)
    quota.count_members()
    slots, shortages = set[str](), dict[str, str]()
    for slot in _admitted_slots(pools, policy, had, quota=quota, shortages=shortages, images=images):
        slots.add(slot.uid)
        record = had.get(slot.uid)
        if record is None or replace(record.placement, labels=slot.labels) != slot:
            steps.append(Place(slot))
    steps += [Release(uid) for uid in sorted(uid for uid in had if uid not in sandboxes_by_uid and uid not in slots)]
    return Placements(tuple(steps), MappingProxyType(waits), MappingProxyType(shortages))


def _unsettled_sandboxes(
    sandboxes: Mapping[str, Sandbox], had: Mapping[str, PlacedRecord], settled: Settled
) -> list[Sandbox]:
    """Return the sandboxes that are not settled. There may be 100,000: what is the same Python object costs nothing."""
    return [
        sandbox
        for uid, sandbox in sandboxes.items()
        if (prior := settled.get(uid)) is None
        or prior[0] is not sandbox
        or (prior[1] is not (record := had.get(uid)) and prior[1] != record)
    ]


def _order(sandbox: Sandbox) -> tuple[int, float, str]:
    """Return the sort key: the highest priority first, then the oldest."""
    return -(sandbox.spec.priority if sandbox.spec else 0), sandbox.obj.created_at, sandbox.obj.uid


def _steps_to_bind(
    sandbox: Sandbox,
    policy: Policy,
    record: PlacedRecord | None,
    waits: dict[str, Wait],
    quota: PlacementQuota,
    images: ImagePlaces,
) -> Iterator[Step]:
    """Yield the step that brings a sandbox without a host nearer to one; `waits` gets what it waits for."""
    obj = sandbox.obj
    desired = _placement_of(sandbox, policy, binding_of(obj) + 1, UNBOUND, images)
    if desired is None:
        waits[obj.uid] = ("InvalidSpec", sandbox.broken) if sandbox.broken else NO_TEMPLATE
        return
    if message := _needs_its_host(sandbox):
        waits[obj.uid] = ("HostNeeded", message)
        return
    if lacking := quota.admit(sandbox):
        waits[obj.uid] = (WAITS, lacking)
        if record is not None:
            yield Release(obj.uid)
        return
    requested = record.placement if record is not None else None
    if record is None or requested is None or replace(requested, host="", labels=desired.labels) != desired:
        waits[obj.uid] = ASKED
        yield Place(desired)
    elif isinstance(record.state, Placed):
        yield Bind(obj.ref, record.state.host, desired.binding)
    else:
        waits[obj.uid] = (PENDING, record.state.message) if isinstance(record.state, Pending) else ASKED


def _needs_its_host(sandbox: Sandbox) -> str:
    """Return why only a person can say where the sandbox runs; "" if the scheduler can."""
    assert sandbox.spec is not None
    assert sandbox.template is not None
    of_one = mounts.of_one_host(sandbox.spec, sandbox.template, sandbox.obj.name)
    host_bound = (*of_one, *(("its peers' network",) if sandbox.spec.network.peers == "Allowed" else ()))
    if not host_bound:
        return ""
    return f"it needs what is on one host ({', '.join(host_bound)}), which the scheduler does not know: write `host:`"


def _steps_from_lost_host(sandbox: Sandbox, record: PlacedRecord | None, losses: Losses) -> tuple[Step, ...]:
    """Return the step that takes a sandbox from its lost host; none if it stays."""
    obj, host = sandbox.obj, host_of(sandbox.obj, UNBOUND)
    if sandbox.spec is None or sandbox.spec.host is not None or obj.deleted_at is not None:
        return ()
    if host in losses.released:
        return (
            Unbind(ref=obj.ref, host=host, binding=binding_of(obj), why=f"host {host} is off for good, says its spec"),
        )
    down = record is not None and isinstance(record.state, Lost)
    if sandbox.spec.on_host_loss == "Recreate" and host in losses.away and down:
        return (
            Unbind(ref=obj.ref, host=host, binding=binding_of(obj), why=f"host {host} is down, and its daemon is away"),
        )
    return ()


def _steps_for_scheduler(sandbox: Sandbox, policy: Policy, record: PlacedRecord | None) -> Iterator[Step]:
    """Yield the step that gives the scheduler what it does not know yet of a sandbox that has a host."""
    obj = sandbox.obj
    host = host_of(obj, UNBOUND)
    desired = _placement_of(sandbox, policy, binding_of(obj), host)
    if desired is None:  # it keeps what it has
        return
    placement = record.placement if record is not None else None
    if placement is None or placement.binding < desired.binding:
        yield Place(desired)
    elif placement.binding == desired.binding and placement.host != host:
        yield Pin(uid=obj.uid, binding=desired.binding, host=host)
    elif (
        placement.binding == desired.binding and replace(placement, node_selector={}, labels=desired.labels) != desired
    ):
        yield Place(desired)
    elif placement.binding == desired.binding and record is not None:
        pending = record.state.message if isinstance(record.state, Pending) else ""
        if pending != pending_words(obj):
            yield Note(obj.ref, pending)


def _placement_of(
    sandbox: Sandbox, policy: Policy, binding: int, host: str, images: ImagePlaces = NO_IMAGES
) -> Placement | None:
    """Return the placement that the sandbox needs; None if that can't be told."""
    spec = sandbox.spec
    template = sandbox.template
    obj = sandbox.obj
    if spec is None or template is None:
        return None
    running = not host or not _rests(sandbox)
    return _placement(
        obj, obj.uid, spec, template=template, policy=policy, images=images, binding=binding, host=host, running=running
    )


def _admitted_slots(
    pools: tuple[Pool, ...],
    policy: Policy,
    had: Mapping[str, PlacedRecord],
    quota: PlacementQuota,
    shortages: dict[str, str],
    images: ImagePlaces,
) -> Iterator[Placement]:
    """Yield the placements of warm sandboxes that the quotas have room for; `shortages` gets what the others lack."""
    for pool in spread.spread_pools(pools):
        slots = list(_slots(pool, pools, policy, had, images))
        placed = [slot for slot in slots if spread.host_of_slot(had.get(slot.uid))]
        ready = sum(int(host_part.obj.status.get("readyReplicas", 0)) for host_part in spread.parts_of(pool, pools))
        for _ in placed[ready:]:
            quota.admit_slot(pool, is_placed=True)
        imageless = spread.hosts_without_image(pool, pools)
        elsewhere = _slots(pool, pools, policy, had, replace(images, anywhere=frozenset())) if imageless else ()
        selectors = {slot.uid: slot.node_selector for slot in elsewhere}
        for slot in placed:
            selector = keeping_images(slot.node_selector, had[slot.uid].placement.node_selector)
            moves = spread.host_of_slot(had.get(slot.uid)) in imageless
            yield replace(slot, node_selector=selectors.get(slot.uid, selector) if moves else selector)
        for slot in slots:
            if spread.host_of_slot(had.get(slot.uid)):
                continue
            if lacking := quota.admit_slot(pool, is_placed=False):
                shortages[pool.obj.uid] = lacking
                break
            yield slot


def _slots(
    pool: Pool, pools: Iterable[Pool], policy: Policy, had: Mapping[str, PlacedRecord], images: ImagePlaces
) -> Iterator[Placement]:
    """Yield the placements of a pool's warm sandboxes. None without its template: nobody knows what they need."""
    spec = member_spec(pool)
    if spec is None or pool.template is None or shares_volumes(pool.template):
        return
    for uid in spread.slot_uids(pool, spread.parts_of(pool, pools), had):
        yield _placement(
            pool.obj,
            uid,
            spec,
            template=pool.template,
            policy=policy,
            images=images,
            binding=1,
            host=UNBOUND,
            running=True,
        )


def _placement(
    obj: StoredObject,
    uid: str,
    spec: SandboxSpec,
    template: Template,
    policy: Policy,
    images: ImagePlaces,
    *,
    binding: int,
    host: str,
    running: bool,
) -> Placement:
    """Return the placement of a sandbox or slot: what it reserves, and the labels of hosts that come into question."""
    level = level_of(at_own_level(spec, template), policy)
    limits = reserved(spec, template, level.limits if level is not None else NO_LIMITS)
    return Placement(
        uid=uid,
        binding=binding,
        memory_bytes=limits.memory_bytes,
        cpu_millicores=-(-limits.cpu_millicores // CPU_OVERCOMMIT),
        node_selector={}
        if host
        else {**_selector(spec, template, level), **images.selector(obj, uid, template, level)},
        host=host,
        running=running,
        labels={"paddock.namespace": obj.namespace, "paddock.name": obj.name},
    )


def _selector(spec: SandboxSpec, template: Template, level: Level | None) -> dict[str, str]:
    """Return the labels of a host that can enforce what the sandbox asks for, and has what its spec selects."""
    labels = dict(spec.node_selector or {})
    if level is not None and level.network != "none":
        labels[GUARD] = "true"
    if template.runtime is not None:
        labels[f"{RUNTIME}{template.runtime}"] = "true"
    return labels


def _rests(sandbox: Sandbox) -> bool:
    """Return True if its container has stopped and is not to be started, or waits for a quota."""
    stopped = (stored_condition(sandbox.obj, type_).get("status") == "True" for type_ in ("Suspended", "Finished"))
    return is_waiting(sandbox) or any(stopped)


def host_settings(
    hosts: Iterable[StoredHost], members: Iterable[SchedulerHost], away: Iterable[str]
) -> tuple[HostSetting, ...]:
    """Return what the scheduler does not know yet of its members. `away` are hosts whose daemon is not there.

    A host gets new sandboxes while its daemon is there, reports nothing against it, and it is not cordoned.
    """
    member_by_name = {member.name: member for member in members if member.liveness is not Liveness.DOWN}
    missing = set(away)
    settings = []
    for host in hosts:
        member = member_by_name.get(host.obj.name)
        if member is None:
            continue
        setting = _setting(host, is_away=host.obj.name in missing)
        if (setting.fit, dict(setting.labels), setting.availability) != (
            member.fit,
            dict(member.labels),
            member.availability,
        ):
            settings.append(setting)
    return tuple(settings)


def image_places(hosts: Iterable[StoredHost], away: Iterable[str], anywhere: Collection[str]) -> ImagePlaces:
    """Return the images of the hosts that get new sandboxes. `anywhere` are uids that any host may have."""
    missing = set(away)
    able = [host.obj for host in hosts if _setting(host, is_away=host.obj.name in missing).fit]
    return ImagePlaces(tuple(map(images_of, able)), frozenset(anywhere), all(map(has_listed_images, able)))


def _setting(host: StoredHost, *, is_away: bool) -> HostSetting:
    """Return a host as the scheduler is to know it: able or not, with its labels."""
    obj, spec = host.obj, host.spec
    conditions = {condition["type"]: condition["status"] for condition in obj.status.get("conditions", ())}
    # A host without conditions has never reported: nobody knows what it can do.
    able = bool(conditions) and not any(conditions.get(type_) == status for type_, status in _UNFIT)
    schedulable = spec is not None and spec.schedulable and not spec.drained and not spec.out_of_service
    availability = Availability.ACTIVE if schedulable else Availability.PAUSED
    if spec is not None and spec.drained:
        availability = Availability.DRAINED
    labels = {**obj.labels, **_abilities(obj), **image_labels(obj)}
    return HostSetting(
        name=obj.name, fit=able and schedulable and not is_away, labels=labels, availability=availability
    )


def _abilities(obj: StoredObject) -> dict[str, str]:
    """Return the labels of what a host can enforce."""
    guarded = {GUARD: "true"} if stored_condition(obj, "NetworkGuard").get("status") == "True" else {}
    return guarded | {f"{RUNTIME}{runtime}": "true" for runtime in obj.status.get("engine", {}).get("runtimes", ())}
