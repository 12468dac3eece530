"""Decisions on the snapshots of this host: (objects, files on disk, sandboxes, now) -> captures, removals, statuses.

Level-triggered: an object without files is captured, files without an object are removed, and a complete snapshot is
never taken again. The keeper (loop/snapshots.py) carries the steps out.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from controller.kinds.meta import Condition, StoredObject, stored_condition
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.planning.snapshot import DesiredObjects, FleetView, PlanningRules, Sandbox, Snapshot
from controller.kinds.quota import HardQuota
from controller.kinds.runtime.snapshot import SnapshotContent
from controller.kinds.sandbox import Template
from controller.kinds.sandboxsnapshot import CAPTURED, FINALIZER, PERIODIC_LABEL, is_captured
from controller.kinds.workflowrun import moment
from controller.plan.base.backoff import CALL_LONGEST_SECONDS, waits
from controller.plan.sandbox.mounts import as_started, shared_volumes
from controller.plan.sandbox.object_context import context_of
from controller.policy.levels.levels import Policy

_READY = (State.RUNNING, State.PAUSED, State.EXITED)
_BYTES_MAX = 64 << 30
# After its object is stored, an import begins at once. That of another host is seen by its files alone.
_IMPORT_SECONDS, _IMPORT_ELSEWHERE_SECONDS = 60.0, 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Failed:
    """A capture that failed."""

    reason: str
    """One word for programs."""
    message: str
    """The reason in words."""
    retry_at: float | None
    """Time of the next try, Unix seconds; None: not before the object changes."""
    count: int = 1
    """Failures in a row."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Capture a sandbox for an object."""

    obj: StoredObject
    request: CaptureRequest


@dataclass(frozen=True, slots=True)
class Status:
    """New status of an object. `warns`: it is an event, too, though the capture is tried again."""

    obj: StoredObject
    condition: Condition
    fields: Mapping[str, Any]
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """Request the deletion of an object, unless there is a sandbox of the uid `unless` on whatever host."""

    obj: StoredObject
    reason: str
    unless: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """Remove an object's files, then its finalizer."""

    obj: StoredObject


@dataclass(frozen=True, slots=True)
class Create:
    """Create a snapshot of a sandbox, whose time has come, unless its namespace has `most` by now (None: no bound)."""

    sandbox: StoredObject
    name: str
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Postpone:
    """Take no periodic snapshot of a sandbox until then (Unix seconds), as its namespace has all it may have."""

    sandbox: StoredObject
    message: str
    until: float


Step = Capture | Status | Request | Release | Create | Postpone


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Steps to take now, the files that no object has, and when to look again (Unix seconds; None: at a change)."""

    steps: tuple[Step, ...]
    strays: tuple[str, ...]
    next_wake: float | None


@dataclass(frozen=True, slots=True)
class View:
    """All that decides: the stored objects, the files here, failures of captures, captures under way, by uid.

    `importing` are the uids whose archive is being read here, `cut_off` those whose archive was when this host's last
    daemon ended. `postponed` says until when a sandbox gets no periodic snapshot (Unix seconds).
    """

    objects: Mapping[str, StoredObject]
    contents: Mapping[str, SnapshotContent]
    failures: Mapping[str, Failed]
    busy_uids: Collection[str]
    importing: Collection[str] = ()
    cut_off: Collection[str] = ()
    postponed: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


def plan_snapshots(view: View, snapshot: Snapshot, policy: Policy) -> SnapshotPlan:
    """Return the steps for all snapshots that are this host's."""
    steps: list[Step] = []
    wakes: list[float] = []
    sandboxes = {(sandbox.obj.namespace, sandbox.obj.name): sandbox for sandbox in snapshot.desired.sandboxes.values()}
    for obj in view.objects.values():
        if obj.uid in view.busy_uids or not _is_here(obj, view, sandboxes, snapshot.fleet):
            continue
        steps += _steps(obj, view, snapshot, sandboxes=sandboxes, policy=policy, wakes=wakes)
    steps += _periodic(view, snapshot, wakes)
    strays = tuple(uid for uid in view.contents if uid not in view.objects and uid not in view.busy_uids)
    return SnapshotPlan(tuple(steps), strays, min(wakes, default=None))


def _is_here(obj: StoredObject, view: View, sandboxes: Mapping[tuple[str, str], Sandbox], fleet: FleetView) -> bool:
    """Return True if this host decides: it has the files, or the sandbox, or leads where nobody has either."""
    host = obj.status.get("host", "")
    if host:
        return bool(host == fleet.host)
    if obj.spec.get("imported"):
        return obj.uid in view.contents or obj.uid in view.cut_off or fleet.leads
    return obj.uid in view.contents or (obj.namespace, _sandbox_name(obj)) in sandboxes or not fleet.shares_store


def _steps(
    obj: StoredObject,
    view: View,
    snapshot: Snapshot,
    sandboxes: Mapping[tuple[str, str], Sandbox],
    policy: Policy,
    wakes: list[float],
) -> Iterator[Step]:
    """Yield what is due for one snapshot: its release, its status, or its capture. `wakes` gets times to look again."""
    content, failed = view.contents.get(obj.uid), view.failures.get(obj.uid)
    if obj.deleted_at is not None:
        if FINALIZER in obj.finalizers:
            yield Release(obj)
        return
    if content is not None:
        if not is_captured(obj):
            summary = _summary(content, sandboxes.get((obj.namespace, _sandbox_name(obj))))
            yield Status(
                obj, Condition(CAPTURED, "True", CAPTURED, summary), status_fields(content, snapshot.fleet.host)
            )
        yield from _delete_expired(obj, content, snapshot.desired, wakes, now=snapshot.now)
        return
    if is_captured(obj):
        yield from _change_condition(
            obj, Condition(CAPTURED, "False", "FilesMissing", "its files are gone from this host; delete it")
        )
        return
    if failed is not None:
        if failed.retry_at is None:
            yield from _change_condition(obj, Condition(CAPTURED, "False", failed.reason, failed.message))
            return
        if waits(snapshot.now, failed.retry_at, CALL_LONGEST_SECONDS):
            wakes.append(failed.retry_at)
            yield from _change_condition(obj, Condition(CAPTURED, "Unknown", failed.reason, failed.message), warns=True)
            return
    if obj.spec.get("imported"):
        yield from _change_condition(obj, _importing(obj, view, snapshot.fleet, wakes, now=snapshot.now))
        return
    sandbox = sandboxes.get((obj.namespace, _sandbox_name(obj)))
    used_bytes = sum(content.total_bytes for content in view.contents.values() if content.namespace == obj.namespace)
    condition, request = _request(obj, sandbox, snapshot, policy, used_bytes)
    if request is None:
        yield from _change_condition(obj, condition)
        return
    # A try after a failure does not change what is said of it: that would be an event with each try.
    if failed is None or stored_condition(obj, CAPTURED).get("reason") != failed.reason:
        yield from _change_condition(obj, Condition(CAPTURED, "Unknown", "Capturing", "its files are being copied"))
    yield Capture(obj, request)


def _importing(obj: StoredObject, view: View, fleet: FleetView, wakes: list[float], now: float) -> Condition:
    """Return the condition of an import without files: under way, or cut off with its daemon or its request."""
    due = obj.created_at + (_IMPORT_ELSEWHERE_SECONDS if fleet.shares_store else _IMPORT_SECONDS)
    is_late = now >= due and obj.uid not in view.importing
    if is_late or obj.uid in view.cut_off:
        message = "its archive was not read to the end, as the daemon ended meanwhile; delete it, and import it again"
        return Condition(CAPTURED, "False", "ImportCutOff", message)
    wakes.append(max(due, now + 30.0))
    return Condition(CAPTURED, "Unknown", "Importing", "waits for its archive")


def _request(
    obj: StoredObject, sandbox: Sandbox | None, snapshot: Snapshot, policy: Policy, used_bytes: int
) -> tuple[Condition, CaptureRequest | None]:
    """Return what is waited for, and the request once nothing is."""
    name = _sandbox_name(obj)
    if sandbox is None or sandbox.obj.deleted_at is not None:
        message = f"there is no sandbox `{name}` in namespace `{obj.namespace}` on this host; create it, or delete this"
        return Condition(CAPTURED, "False", "SandboxMissing", message), None
    context = context_of(snapshot, sandbox, policy)
    rendered, container = context.rendered, context.container
    if rendered is None or sandbox.spec is None or sandbox.template is None:
        return Condition(CAPTURED, "False", "SandboxRefused", f"sandbox `{name}` is refused; mend its spec"), None
    if context.blind:
        return Condition(CAPTURED, "Unknown", "EngineUnreachable", context.blind), None
    if container is None or container.state not in _READY or _is_starting(container):
        return Condition(CAPTURED, "Unknown", "SandboxStarting", f"waits for sandbox `{name}` to have started"), None
    room = _room(obj, snapshot.rules, used_bytes)
    if room is not None and room <= 0:
        message = "the snapshots of its namespace have all the size that a Quota allows; delete some"
        return Condition(CAPTURED, "False", "QuotaExceeded", message), None
    config, bind = rendered.config, as_started(context, rendered, container, "to capture it")
    slots = {slot.path for slot in bind.slots}
    request = CaptureRequest(
        uid=obj.uid,
        namespace=obj.namespace,
        name=obj.name,
        source_name=name,
        source_uid=sandbox.obj.uid,
        container=container,
        level=rendered.level,
        bind=bind,
        tmpfs=tuple(folder.path for folder in config.tmpfs if folder.path not in slots),
        writable=not config.read_only_root,
        shared=shared_volumes(snapshot.desired, sandbox),
        parent=config.restore_from,
        spec=dict(sandbox.obj.spec),
        template=_plain(sandbox.template),
        bytes_max=_BYTES_MAX if room is None else room,
    )
    return Condition(CAPTURED, "Unknown", "Capturing", ""), request


def _room(obj: StoredObject, rules: PlanningRules, used_bytes: int) -> int | None:
    """Return the bytes that the quotas leave for the files of a snapshot; None: no quota bounds them."""
    limits = [
        quota.spec.hard.snapshot_storage
        for quota in rules.quotas.values()
        if quota.obj.namespace == obj.namespace and quota.spec is not None and isinstance(quota.spec.hard, HardQuota)
    ]
    return min((int(limit) - used_bytes for limit in limits if limit is not None), default=None)


def _is_starting(container: Container) -> bool:
    return not container.started_at


def _delete_expired(
    obj: StoredObject, content: SnapshotContent, desired: DesiredObjects, wakes: list[float], now: float
) -> Iterator[Step]:
    """Yield the deletion of a snapshot whose time is over, or that ends with its sandbox."""
    ttl = obj.spec.get("ttlSeconds")
    if ttl is not None:
        due = content.captured_at + float(ttl)
        if now >= due:
            yield Request(obj, "its ttlSeconds are over")
            wakes.append(now + 30.0)  # while something begins from it
            return
        wakes.append(due)
    if obj.spec.get("reclaimPolicy") == "Delete" and content.source_uid and content.source_uid not in desired.sandboxes:
        yield Request(obj, "its sandbox is gone", unless=content.source_uid)
        wakes.append(now + 30.0)


def _periodic(view: View, snapshot: Snapshot, wakes: list[float]) -> Iterator[Step]:
    """Yield the snapshots that sandboxes ask for from time to time, and the deletions of older ones."""
    for sandbox in snapshot.desired.sandboxes.values():
        rule = sandbox.spec.lifecycle.snapshots if sandbox.spec is not None else None
        if rule is None or sandbox.obj.deleted_at is not None:
            continue
        periodic = sorted(
            (obj for obj in view.objects.values() if obj.labels.get(PERIODIC_LABEL) == sandbox.obj.uid),
            key=lambda obj: obj.created_at,
        )
        for obj in _superseded_snapshots(periodic, rule.keep_last):
            if obj.deleted_at is None:
                yield Request(obj, f"{rule.keep_last} newer ones are kept")
        running = any(
            container.state is State.RUNNING for container in snapshot.observed.containers.get(sandbox.obj.uid, ())
        )
        last = periodic[-1].created_at if periodic else sandbox.obj.created_at
        due = max(last + rule.every_seconds, view.postponed.get(sandbox.obj.uid, 0.0))
        if not running:
            continue
        if snapshot.now >= due:
            due = snapshot.now + rule.every_seconds
            yield from _next(
                sandbox.obj, periodic, rule.keep_last, view=view, rules=snapshot.rules, due=due, now=snapshot.now
            )
        wakes.append(due)


def _next(
    sandbox: StoredObject,
    periodic: Sequence[StoredObject],
    keep_last: int,
    *,
    view: View,
    rules: PlanningRules,
    due: float,
    now: float,
) -> Iterator[Step]:
    """Yield the next snapshot of a sandbox; in a full namespace its oldest one gives way, unless it is the only one."""
    most = _most_snapshots(sandbox, rules)
    stored = [obj for obj in view.objects.values() if obj.namespace == sandbox.namespace]
    count = len(stored)
    if most is None or count < most:
        yield Create(sandbox, f"{sandbox.name[:36]}-{int(now):x}", most)
        return
    if any(obj.deleted_at is not None for obj in stored):
        return  # there is room in a moment
    captured = [obj for obj in periodic if is_captured(obj)]
    if count == most and len(captured) >= max(2, keep_last):
        yield Request(captured[0], f"its namespace may have {most} snapshots, and the next one is due")
        return
    message = f"its periodic snapshot was not taken: its namespace has {count} of at most {most}; delete some"
    yield Postpone(sandbox, message, due)


def _most_snapshots(sandbox: StoredObject, rules: PlanningRules) -> int | None:
    """Return how many snapshots the quotas allow in a sandbox's namespace; None: no quota bounds them."""
    limits = [
        quota.spec.hard.snapshots
        for quota in rules.quotas.values()
        if quota.obj.namespace == sandbox.namespace
        and quota.spec is not None
        and isinstance(quota.spec.hard, HardQuota)
    ]
    return min((int(limit) for limit in limits if limit is not None), default=None)


def _superseded_snapshots(snapshots: Sequence[StoredObject], keep_last: int) -> Iterator[StoredObject]:
    """Yield what newer snapshots replace: only captured ones do, so that failures never push out the last good ones.

    Of those without files the newest stays, as it says why.
    """
    captured = [snapshot for snapshot in snapshots if is_captured(snapshot)]
    current_uids = {snapshot.uid for snapshot in (*captured[-keep_last:], *snapshots[-1:])}
    yield from (snapshot for snapshot in snapshots if snapshot.uid not in current_uids)


def status_fields(content: SnapshotContent, host: str) -> Mapping[str, Any]:
    """Return the status of a captured snapshot, without its conditions."""
    fields = {
        "host": host,
        "sandboxUID": content.source_uid,
        "capturedTime": moment(content.captured_at),
        "frozenSeconds": content.frozen_seconds,
        "sizeBytes": {
            "root": content.size_bytes("root"),
            "tmpfs": content.size_bytes("tmpfs"),
            "volumes": content.size_bytes("volume"),
        },
        "files": sum(piece.entries for piece in content.parts),
        "image": content.image,
        "imageID": content.image_id,
        "securityLevel": content.level,
        "parent": content.parent.partition("@")[0],
        "left": [asdict(omission) for omission in content.omitted],
        "leftCount": content.omitted_count,
    }
    return {name: value for name, value in fields.items() if value not in ("", [], 0) or name == "frozenSeconds"}


def _change_condition(obj: StoredObject, condition: Condition, *, warns: bool = False) -> Iterator[Step]:
    """Yield the status of a snapshot whose condition differs from the stored one."""
    stored = stored_condition(obj, CAPTURED)
    if (stored.get("status"), stored.get("reason"), stored.get("message")) != (
        condition.status,
        condition.reason,
        condition.message,
    ):
        fields = {name: value for name, value in obj.status.items() if name != "conditions"}
        yield Status(obj, condition, fields, warns=warns and stored.get("reason") != condition.reason)


def _summary(content: SnapshotContent, source: Sandbox | None) -> str:
    """Return what was taken, and what was not: files, and no memory of the source's code contexts."""
    stillness = f"for {content.frozen_seconds:.2f} s" if content.frozen_seconds else "already"
    messages = ["its files are those of an archive" if content.imported else f"the sandbox stood still {stillness}"]
    if content.omitted_count:
        messages.append(f"{content.omitted_count} could not be taken (status.left)")
    names = [str(context["name"]) for context in source.obj.status.get("contexts", ())] if source is not None else []
    if names:
        messages.append(f"variables of its code contexts ({', '.join(sorted(names))}) are not in it, their files are")
    return "; ".join(messages)


def _sandbox_name(obj: StoredObject) -> str:
    return str((obj.spec.get("sandboxRef") or {}).get("name", ""))


def _plain(template: Template) -> Mapping[str, Any]:
    return template.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def without(view: View, uids: Iterable[str]) -> View:
    """Return the view with these captures under way, too."""
    return replace(view, busy_uids=frozenset((*view.busy_uids, *uids)))
