"""Snapshots of this host: kept as plan/sandboxsnapshot.py wants them, beside the reconcile passes.

Captures run on a few threads; everything else is done by the keeper's own. Where nobody has a snapshot it does nothing.
"""

import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import structlog

from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.snapshot import SnapshotContent
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandboxsnapshot import FINALIZER, KIND, PERIODIC_LABEL
from controller.plan.base.backoff import call_delay_seconds
from controller.plan.base.status_json import dated
from controller.plan.sandboxsnapshot import (
    Capture,
    Create,
    Failed,
    Postpone,
    Release,
    Request,
    SnapshotPlan,
    Status,
    Step,
    View,
    plan_snapshots,
)
from controller.policy.levels.levels import Policy
from controller.policy.profiles import as_seen
from controller.ports import Clock, Conflict, Meter, NullMeter, Store, StoreError
from controller.ports.snapshots import SnapshotError, Snapshots
from controller.processes.keeper import Keeper

Objects = Mapping[str, StoredObject]
_THREADS = 2
_log = structlog.get_logger("paddock.snapshots")


class SnapshotKeeper(Keeper):
    """Keeps the snapshots. `passed` is called after each reconcile pass, and only notifies."""

    name, log_name, failed_seconds = "snapshots", "paddock.snapshots", 5.0
    postponing = (StoreError, Conflict, SnapshotError)

    def __init__(
        self,
        store: Store,
        snapshots: Snapshots,
        policy: Policy,
        clock: Clock,
        *,
        may_act: Callable[[], bool] = lambda: True,
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter or NullMeter()
        self._store, self._snapshots, self._policy, self._clock = store, snapshots, policy, clock
        super().__init__(may_act)
        self._lock = threading.Lock()
        self._objects: Objects = MappingProxyType({})
        self._snapshot: Snapshot | None = None
        self._is_periodic = False  # for snapshots from time to time
        self._failures: dict[str, tuple[int, Failed]] = {}  # with the generation of the object
        self._busy: set[str] = set()
        self._cut_off: frozenset[str] = frozenset()  # imports that the last daemon did not finish
        self._postponed: dict[str, float] = {}  # by sandbox, until when it gets no periodic snapshot
        self._captures: list[Future[None]] = []
        self._known: frozenset[str] | None = None  # sandboxes, at the last sweep
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="captures")

    def start(self) -> None:
        """Start the thread, after the first figures."""
        self._publish({})
        super().start()

    def prepare(self) -> None:
        """Thaw what an earlier daemon froze, and end what it left undone."""
        self._cut_off = frozenset(self._snapshots.recover())

    def stop(self) -> None:
        """Begin nothing new, and wait for captures."""
        super().stop()
        self._pool.shutdown(wait=True)

    def passed(self, objects: Objects, snapshot: Snapshot) -> None:
        """Take in what a reconcile pass has seen."""
        with self._lock:
            changed = objects is not self._objects
            if self._snapshot is None or snapshot.desired.sandboxes is not self._snapshot.desired.sandboxes:
                self._is_periodic = _asks(snapshot)
            self._objects, self._snapshot = objects, snapshot
        if changed or objects or self._is_periodic:
            self.wake()

    def wait(self) -> None:
        """Wait for the captures under way."""
        wait(self._captures)

    def step(self) -> float | None:
        """Take the steps that are due; return the seconds until the next one. Raises StoreError."""
        with self._lock:
            objects, snapshot, objects_in_work = self._objects, self._snapshot, frozenset(self._busy)
        if snapshot is None:
            return None
        now = self._clock.now()
        failures = {uid: failed for uid, (_, failed) in self._failures.items()}
        for uid, (generation, _) in list(self._failures.items()):
            if uid not in objects or objects[uid].generation != generation:
                self._failures.pop(uid)
                failures.pop(uid)
        importing = self._snapshots.importing()  # before their files are looked for
        contents = self._snapshots.contents()
        self._publish(contents)
        view = View(
            *(objects, contents, failures, objects_in_work),
            importing=importing,
            cut_off=self._cut_off,
            postponed=self._postponed,
        )
        plan = plan_snapshots(view, replace(snapshot, now=now), as_seen(self._policy, snapshot))
        self._carry_out(plan, now)
        self._sweep(snapshot)
        return None if plan.next_wake is None else max(0.0, plan.next_wake - now)

    def _publish(self, contents: Mapping[str, SnapshotContent]) -> None:
        self._meter.gauge("paddock_snapshots", len(contents))
        total_bytes = sum(content.total_bytes for content in contents.values())
        self._meter.gauge("paddock_snapshot_storage_bytes", total_bytes)

    def _carry_out(self, plan: SnapshotPlan, now: float) -> None:
        for uid in self._confirmed(plan.strays):
            self._snapshots.remove(uid)
        for step in plan.steps:
            self._do(step, now)

    def _confirmed(self, strays: Collection[str]) -> list[str]:
        """Return those that the store has no object of, either: an import may be newer than the last pass."""
        if not strays:
            return []
        uids = {obj.uid for obj in self._store.list(KIND.name, lean=True)[0]}
        return [uid for uid in strays if uid not in uids]

    def _do(self, step: Step, now: float) -> None:
        match step:
            case Status():
                self._write_status(step, now)
            case Capture(obj, _):
                self._captures = [capture for capture in self._captures if not capture.done()]
                with self._lock:  # the capture's end waits for it; without a thread, it is planned again
                    self._captures.append(self._pool.submit(self._capture, step))
                    self._busy.add(obj.uid)
            case Release(obj):
                self._snapshots.remove(obj.uid)
                self._store.record(Writes(finalized=((obj.ref, FINALIZER),)))
            case Request():
                self._request_deletion(step, now)
            case Create():
                self._create(step, now)
            case Postpone(sandbox, message, until):
                self._postponed[sandbox.uid] = until
                event = Event(sandbox.ref, "Warning", "QuotaExceeded", message, now)
                self._store.record(Writes(events=(event,)))

    def _capture(self, step: Capture) -> None:
        obj, begun = step.obj, time.perf_counter()
        generation, prior = self._failures.get(obj.uid, (obj.generation, None))
        count = 1 + (prior.count if prior is not None and generation == obj.generation else 0)
        try:
            content = self._snapshots.capture(step.request)
            self._count(content, time.perf_counter() - begun)
            _log.info("snapshot captured", snapshot=obj.name, namespace=obj.namespace, frozen=content.frozen_seconds)
        except SnapshotError as error:
            retry_at = self._clock.now() + call_delay_seconds(count) if error.retry else None
            self._failures[obj.uid] = obj.generation, Failed(error.reason, str(error), retry_at, count)
            self._meter.count("paddock_snapshot_capture_failures_total", reason=error.reason)
            _log.warning("snapshot failed", snapshot=obj.name, namespace=obj.namespace, reason=error.reason)
        except Exception:  # a bug must not leave the object waiting for ever
            _log.exception("capture raised")
            failed = Failed("Failed", "an error of Paddock; see its log", None)
            self._failures[obj.uid] = obj.generation, failed
            self._meter.count("paddock_snapshot_capture_failures_total", reason=failed.reason)
        finally:
            with self._lock:
                self._busy.discard(obj.uid)
            self.wake()

    def _count(self, content: SnapshotContent, seconds: float) -> None:
        self._meter.observe("paddock_snapshot_capture_seconds", seconds)
        self._meter.gauge("paddock_snapshot_last_capture_timestamp_seconds", content.captured_at)
        if content.frozen_seconds:
            self._meter.observe("paddock_snapshot_frozen_seconds", content.frozen_seconds)

    def _request_deletion(self, request: Request, now: float) -> None:
        """Request the deletion of a snapshot, unless something begins from it, also as of this moment."""
        obj, reason = request.obj, request.reason
        with self._store.transaction() as transaction:
            sandboxes = transaction.list(SANDBOX.name, obj.namespace)
            if request.unless and any(sandbox.uid == request.unless for sandbox in sandboxes):
                return
            for reference in KIND.referenced_by:
                users = transaction.list(reference.kind, obj.namespace)
                if any(reference.names(user) == obj.name for user in users):
                    return
            current = transaction.get(KIND.name, obj.namespace, obj.name)
            if current is None or current.uid != obj.uid or current.deleted_at is not None:
                return
            transaction.put(replace(current, deleted_at=now))
        _log.info("snapshot to be deleted", snapshot=obj.name, namespace=obj.namespace, reason=reason)

    def _create(self, create: Create, now: float) -> None:
        sandbox = create.sandbox
        obj = StoredObject(
            kind=KIND.name,
            namespace=sandbox.namespace,
            name=create.name,
            uid=str(uuid.uuid4()),
            spec={"sandboxRef": {"name": sandbox.name}},
            created_at=now,
            labels={PERIODIC_LABEL: sandbox.uid},
            finalizers=KIND.finalizers,
        )
        with self._store.transaction() as transaction:
            if create.most is not None and len(transaction.list(KIND.name, obj.namespace)) >= create.most:
                return
            if transaction.get(KIND.name, obj.namespace, obj.name) is None:
                transaction.put(obj)

    def _write_status(self, step: Status, now: float) -> None:
        obj, condition, fields = step.obj, step.condition, step.fields
        prior: Mapping[str, Any] = {stored["type"]: stored for stored in obj.status.get("conditions", ())}
        status = {**fields, "conditions": [dated(condition, prior.get(condition.type), obj.generation, now)]}
        if status == obj.status:
            return
        events: tuple[Event, ...] = ()
        if condition.status != "Unknown" or step.warns:
            event = Event(obj.ref, "Warning", condition.reason, condition.message, now)
            events = (replace(event, type="Normal") if condition.status == "True" else event,)
        self._store.record(Writes(statuses=(StatusWrite(obj.ref, status),), events=events))

    def _sweep(self, snapshot: Snapshot) -> None:
        uids = frozenset((*snapshot.desired.sandboxes, *snapshot.instances))
        if self._known is None or not self._known <= uids:
            stored = (sandbox.uid for sandbox in self._store.list(SANDBOX.name, lean=True)[0])  # of other hosts, too
            self._snapshots.sweep(uids.union(stored))
        self._known = uids
        self._postponed = {uid: until for uid, until in self._postponed.items() if uid in uids}


def _asks(snapshot: Snapshot) -> bool:
    """Return True if a sandbox asks for snapshots from time to time."""
    return any(
        sandbox.spec is not None and sandbox.spec.lifecycle.snapshots is not None
        for sandbox in snapshot.desired.sandboxes.values()
    )
