"""Preview of all steps to come, if nothing else happens: the planner over an imagined engine.

It plans, applies the actions in memory as an engine would that succeeds in all of them, and plans again, until nothing
is left to do or something has to be waited for. It decides nothing itself: every step is plan/host.py's own.
"""

import itertools
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from controller.kinds.common import labels as own
from controller.kinds.meta import ObjectRef
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import (
    Action,
    BuildImage,
    ConnectNetwork,
    CreateContainer,
    DisconnectNetwork,
    HibernateContainer,
    PauseContainer,
    PullImage,
    ReadTail,
    RemoveContainer,
    RenameContainer,
    SignalContainer,
    StartContainer,
    UnpauseContainer,
    UpdateLimits,
    WakeContainer,
)
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.outcome import Ok
from controller.kinds.planning.plan import Deferral, Plan
from controller.kinds.planning.snapshot import DesiredObjects, PassProgress, Pool, Result, Sandbox, Snapshot
from controller.kinds.runtime.agent import volume_name
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.mount import BindMounts, BoundMount, Mount, SaveFiles
from controller.kinds.runtime.network import EnsureNetwork, Network, RemoveNetwork
from controller.plan.base.memo import Fetch, Memo
from controller.plan.host import plan
from controller.plan.sandbox.files import IN_MEMORY
from controller.policy.levels.levels import Policy

_ROUNDS = 16  # the longest sequence has three: stop, recreate, done
# A pool's members are replaced one after another: a start, a pass, a removal, a pass.
_ROUNDS_A_MEMBER, _MOST_ROUNDS = 4, 1000
_TICK_SECONDS = 0.001
_SIGNALLED = {"TERM": 143, "KILL": 137}


@dataclass(frozen=True, slots=True)
class Forecast:
    """Engine calls to come for one object, in order, and its state after them.

    `reason` and `message` are what it waits for ("" if it is as desired), `wait_seconds` the longest wait (None:
    unknown). `is_removed`: nothing is left of it.
    """

    ref: ObjectRef
    actions: tuple[Action, ...] = ()
    reason: str = ""
    message: str = ""
    wait_seconds: float | None = None
    is_removed: bool = False


def preview(snapshot: Snapshot, uids: Set[str], policy: Policy) -> Mapping[str, Forecast]:
    """Return the forecasts of these objects of the snapshot, by uid. Calls in flight for them are included."""
    return forecast_all(snapshot, uids, policy)[0]


def forecast_all(snapshot: Snapshot, uids: Set[str], policy: Policy) -> tuple[Mapping[str, Forecast], Snapshot]:
    """Return the forecasts, and the snapshot after all of it."""
    pools = {uid: pool for uid, pool in snapshot.desired.pools.items() if uid in uids}
    members = {uid for uid, instance in snapshot.instances.items() if instance.parent_uid in pools}
    world = replace(snapshot, progress=PassProgress(in_flight=snapshot.progress.in_flight - uids - members))
    objects: Mapping[str, Sandbox | Pool] = {**world.desired.sandboxes, **pools}
    forecasts = {uid: Forecast(objects[uid].obj.ref) for uid in uids if uid in objects}
    # Whether a pool's image is on this host, nobody knows here: that it may be fetched is not foretold.
    memo = Memo(fetches={uid: Fetch(pool.template, "", is_here=True) for uid, pool in world.desired.pools.items()})
    version, ids = policy.version(), itertools.count(1)
    rounds = _ROUNDS + _ROUNDS_A_MEMBER * (len(members) + sum(_warm(pool) for pool in pools.values()))
    for _ in range(min(rounds, _MOST_ROUNDS)):
        host_plan = plan(world, policy, version, memo)
        whose = _whose(world.instances, host_plan, forecasts)
        _note(forecasts, host_plan, whose)
        world = _after(world, host_plan, ids)
        moving = any(group.ref.uid in whose for group in host_plan.groups)
        records = (*host_plan.writes.instances, *host_plan.writes.retired)
        if not moving and not any(record.parent_uid in pools for record in records):
            break
    return forecasts, world


def _warm(pool: Pool) -> int:
    return pool.spec.warm_replicas if pool.spec else 0


def _whose(instances: Mapping[str, Instance], host_plan: Plan, forecasts: Mapping[str, Forecast]) -> Mapping[str, str]:
    """Return the uid of the forecast that each uid belongs to: the object's own, and for a member its pool's."""
    rows = (*instances.values(), *host_plan.writes.instances)
    members = {row.uid: row.parent_uid for row in rows if row.parent_uid in forecasts}
    return {**{uid: uid for uid in forecasts}, **members}


def _note(forecasts: dict[str, Forecast], host_plan: Plan, whose: Mapping[str, str]) -> None:
    """Add what a pass decided to the forecasts of those that it is about."""
    for group in host_plan.groups:
        if (forecast := forecasts.get(whose.get(group.ref.uid, ""))) is not None:
            changes = [action for action in group.actions if not isinstance(action, ReadTail)]
            forecasts[forecast.ref.uid] = Forecast(forecast.ref, (*forecast.actions, *changes))
    for deferral in host_plan.deferrals:
        if (forecast := forecasts.get(whose.get(deferral.ref.uid, ""))) is not None:
            forecasts[forecast.ref.uid] = _resting(forecast, deferral, host_plan.now)
    for ref, _ in host_plan.writes.finalized:
        if (forecast := forecasts.get(ref.uid)) is not None:
            forecasts[ref.uid] = replace(forecast, is_removed=True)


def _resting(forecast: Forecast, deferral: Deferral, now: float) -> Forecast:
    wait = None if deferral.until is None else max(0.0, deferral.until - now)
    return replace(forecast, reason=deferral.reason, message=deferral.message, wait_seconds=wait)


def _after(world: Snapshot, host_plan: Plan, ids: Iterator[int]) -> Snapshot:
    """Return the snapshot of the next pass, after all decided actions."""
    now = world.now + _TICK_SECONDS
    containers, results = dict(world.observed.containers), {}
    networks = dict(world.observed.networks)
    for group in host_plan.groups:
        uid, done = group.ref.uid, []
        for action in group.actions:
            if isinstance(action, EnsureNetwork):
                networks[action.name] = _network(action)
            elif isinstance(action, RemoveNetwork):
                networks.pop(action.name, None)
            of = getattr(action, "uid", uid) or uid
            containers[of] = _imagine(containers.get(of, ()), action, now, ids)
            container_id = containers[of][-1].id if isinstance(action, CreateContainer) else ""
            done.append((action, Ok(container_id)))
        results[uid] = Result(uid, group.generation, group.deleting, tuple(done))
    removed = {ref.uid for ref, _ in host_plan.writes.finalized}
    instances = {**world.instances, **{instance.uid: instance for instance in host_plan.writes.instances}}
    removed |= {record.uid for record in host_plan.writes.retired}
    instances = {uid: instance for uid, instance in instances.items() if uid not in removed}
    return replace(
        world,
        now=now,
        desired=DesiredObjects(
            {uid: sandbox for uid, sandbox in world.desired.sandboxes.items() if uid not in removed},
            {uid: pool for uid, pool in world.desired.pools.items() if uid not in removed},
        ),
        observed=replace(
            world.observed, revision=world.observed.revision + 1, containers=containers, networks=networks
        ),
        instances=instances,
        progress=replace(world.progress, results=results),
    )


def _network(action: EnsureNetwork) -> Network:
    """Return the network that an action makes, as the next pass would observe it."""
    labels = action.labels
    return Network(
        id=f"imagined-{action.name}",
        name=action.name,
        uid=action.uid,
        role=labels[own.ROLE],
        config_hash=labels[own.CONFIG_HASH],
        subnet=action.config.subnet,
        namespace=labels[own.NAMESPACE],
    )


def _imagine(
    containers: tuple[Container, ...], action: Action, now: float, ids: Iterator[int]
) -> tuple[Container, ...]:
    """Return one object's containers after a successful action. A process that is sent TERM ends by it."""
    match action:
        case PullImage() | BuildImage() | ReadTail() | EnsureNetwork() | RemoveNetwork():
            return containers
        case CreateContainer():
            return (*containers, _new_container(action, f"imagined-{next(ids)}", now))
        case RemoveContainer():
            return tuple(container for container in containers if container.id != action.container_id)
    return tuple(
        _after_action(container, action, now) if _is_meant(container, action) else container for container in containers
    )


def _is_meant(container: Container, action: Action) -> bool:
    container_id = getattr(action, "container_id", "")
    return bool(container.id == container_id) if container_id else container.name == getattr(action, "name", "")


def _after_action(container: Container, action: Action, now: float) -> Container:
    """Return the container as an action leaves it, if the engine does as it is told."""
    match action:
        case StartContainer():
            return replace(container, state=State.RUNNING, started_at=now, finished_at=0.0, exit_code=0)
        case SignalContainer():
            code = _SIGNALLED.get(action.signal, 143)
            return replace(container, state=State.EXITED, finished_at=now, exit_code=code)
        case PauseContainer() | HibernateContainer():
            return replace(container, state=State.PAUSED)
        case UnpauseContainer() | WakeContainer():
            return replace(container, state=State.RUNNING)
        case RenameContainer():
            return replace(container, name=action.name)
        case ConnectNetwork():
            networks = tuple(sorted({*container.networks, action.network}))
            return replace(container, networks=networks, peer_names=action.peer_names or container.peer_names)
        case DisconnectNetwork():
            networks = tuple(network for network in container.networks if network != action.network)
            return replace(container, networks=networks, peer_names=())
        case UpdateLimits():
            out_of_band = replace(container.out_of_band, swap_bytes=0, restart_policy="no")
            return replace(container, limits=_in_force(action.limits, container.limits), out_of_band=out_of_band)
        case BindMounts():
            other_mounts = [mount for mount in container.bound if mount.path not in {new.path for new in action.mounts}]
            return replace(
                container, bound=(*other_mounts, *_bound_mounts(action.mounts, keeps_files=action.keep_files))
            )
        case SaveFiles():
            return replace(container, bound=tuple(mount for mount in container.bound if mount.kind not in IN_MEMORY))
    return container


def _bound_mounts(mounts: tuple[Mount, ...], *, keeps_files: bool) -> tuple[BoundMount, ...]:
    """Return the mounts as bound, as the next pass would observe them."""
    sizes = {mount.path: mount.size_bytes for mount in mounts if mount.kind == "volume"}
    return tuple(
        BoundMount(
            path=mount.path,
            mount=str(mount),
            origin="imagined",
            read_only=mount.read_only,
            size_bytes=sizes.get(mount.path, 0),
            kind=mount.kind,
            keeps_files=keeps_files and mount.kind in IN_MEMORY,
        )
        for mount in mounts
    )


def _in_force(requested: Limits, before: Limits | None) -> Limits:
    """Return the limits in force after an update; zero shares leave them unchanged."""
    return replace(requested, cpu_shares=requested.cpu_shares or (before.cpu_shares if before else 0))


def _new_container(action: CreateContainer, id_: str, now: float) -> Container:
    """Return the container that an action creates, as the next pass would observe it."""
    labels = action.labels
    return Container(
        id=id_,
        name=action.config.name,
        uid=action.uid,
        state=State.CREATED,
        role=labels[own.ROLE],
        generation=int(labels[own.GENERATION]),
        config_hash=labels[own.CONFIG_HASH],
        template_hash=labels[own.TEMPLATE_HASH],
        image=action.config.image,
        image_id=action.image_id,
        limits=action.config.limits,
        networks=(action.config.network_mode,),
        created_at=now,
        agent=volume_name(action.config.agent),
        slots=tuple(mount_point.path for mount_point in action.config.mount_points),
        # If their files are kept is known of mounts that are there already.
        bound=tuple(
            replace(mount, kind="")
            for mount in _bound_mounts((*action.config.mounts, *action.config.memory_mounts), keeps_files=False)
        ),
    )
