"""Placement keeper: asks the scheduler for hosts, binds sandboxes to them, and tells it about the hosts.

All but `prepare` is done by the daemon that leads the fleet. What was done is in the store and in the scheduler alone:
after a crash between any two steps, the next leader goes on.
"""

import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType

import structlog

from controller.kinds.common.labels import egress_uid
from controller.kinds.common.owner_reference import owner_uids
from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.binding import PENDING, UNBOUND, binding_of, host_of
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.kinds.planning.snapshot import Pool, Sandbox
from controller.kinds.quota import Amount, pool_scope
from controller.kinds.registry import discover
from controller.kinds.sandboxpool import KIND as POOL
from controller.loop.clock import boot_seconds
from controller.loop.desired import Desired
from controller.loop.garbage import GarbageCollector
from controller.plan.fleet import placements as plan
from controller.plan.fleet import spread
from controller.plan.fleet.image_places import selects_images
from controller.plan.fleet.lost_hosts import away
from controller.plan.fleet.placement_quota import PlacementQuota, bounded_namespaces
from controller.policy.levels.levels import Policy
from controller.policy.profiles import with_profiles
from controller.ports import Clock, Store, StoreError
from controller.ports.fleet import Fleet
from controller.ports.scheduler import Pending, PlacedRecord, Scheduler, SchedulerError, SchedulerProblem, StaleBinding
from controller.processes.keeper import Keeper
from controller.version import API_VERSION

PERIOD_SECONDS = 5.0
PENDING_SECONDS = 3.0
IMAGE_SECONDS = 10.0  # a host that has the image is waited for, before others are asked to pull it
REACH_SECONDS = 4.0
# A host freezes what may be started elsewhere HOLD_SECONDS after its last renewal, and its lease expires after
# LEASE_SECONDS. From then on it is away for this long before that is done: 5 s more than it takes the host to freeze.
LOSS_SECONDS = 14.0
_log = structlog.get_logger("paddock.placements")
_NOTHING: Mapping[str, plan.Wait] = MappingProxyType({})


class PlacementKeeper(Keeper):
    """A step at once, at each wake, and every PERIOD_SECONDS. `waits` are read from any thread."""

    name, log_name = "placements", "paddock.placements"
    first_seconds, failed_seconds = 0.0, PERIOD_SECONDS

    def __init__(
        self,
        scheduler: Scheduler,
        store: Store,
        place: Fleet,
        policy: Policy,
        clock: Clock,
        changed: Callable[[], None],
        *,
        step_aside: Callable[[], None] = lambda: None,
        boot: Callable[[], float] = boot_seconds,
    ) -> None:
        """`store` is written as the fleet's leader. `changed` is called when `waits` did."""
        self._scheduler, self._store, self._place = scheduler, store, place
        self._policy, self._clock, self._changed = policy, clock, changed
        self._desired: Desired | None = None
        self._prepared = False
        self._done: object = None  # what the last whole round had read
        self._due = threading.Event()
        self._failure = ""
        self._waits = _NOTHING
        self._boot, self._rest = boot, step_aside
        self._cut_off: float | None = None  # since when this host does not reach the scheduler
        self._away: dict[str, float] = {}  # since when the daemons of hosts are away
        self._pending: dict[str, float] = {}  # since when reservations are pending, by uid
        self._without_room: dict[str, float] = {}  # since when the hosts with an image have no room, by uid
        self._image_free: set[str] = set()  # what may be placed on hosts without its images
        self._settled: plan.Settled = {}
        self._decided_for: object = None  # the profiles that `_settled` is of
        self._refused: dict[str, plan.Wait] = {}  # in this round, by uid of the sandbox or name of the host
        self._known_refusals: dict[str, plan.Wait] = {}  # in the one before
        self._unwatch: Callable[[], None] = lambda: None
        super().__init__()

    def start(self) -> None:
        """Start the thread."""
        self._unwatch = self._scheduler.watch(self._changed_there)
        super().start()

    def stop(self) -> None:
        """End after the step in work."""
        super().stop()
        self._unwatch()

    def _changed_there(self) -> None:
        self._due.set()
        self.wake()

    def waits(self) -> Mapping[str, plan.Wait]:
        """Return why sandboxes have no host, by uid: reason and message."""
        return self._waits

    def look(self, *, is_full: bool = True) -> None:
        """Do all that is due now; unless `is_full`, only if objects changed, or the scheduler says that something did.

        Failures are kept for people, and tried again next time.
        """
        if is_full:
            self._due.set()
        try:
            leads = self._place.leads()
            sandboxes = self._all() if leads else None
            if not self._prepared:
                self._scheduler.prepare()
                self._prepared = True
            if sandboxes is None:
                self._desired = None
                self._publish(_NOTHING)
                self._done = None
            while sandboxes is not None and (self._due.is_set() or not self._is_done(sandboxes)):
                self._due.clear()
                again = self._round(sandboxes)
                self._done = None if again else self._read(sandboxes)
                sandboxes = self._all()
            self._report_failure("")
            self._cut_off = None
        except SchedulerError as error:
            self._done = None
            self._leave_it_to_others(error.problem)
            self._report_failure(str(error))
            self._publish(self._all_wait(error.problem.value, str(error)))
        except StoreError as error:
            self._report_failure(str(error))

    def _leave_it_to_others(self, problem: SchedulerProblem) -> None:
        """Give the lead to another host, if only this one does not reach the scheduler: its own engine is away."""
        if problem not in (SchedulerProblem.UNREACHABLE, SchedulerProblem.NOT_A_MEMBER):
            self._cut_off = None
            return
        now = self._boot()
        self._cut_off = now if self._cut_off is None else self._cut_off
        if now >= self._cut_off + REACH_SECONDS:
            self._cut_off = None
            self._rest()

    def _read(self, sandboxes: Mapping[str, Sandbox]) -> tuple[object, ...]:
        """Return all that a round decides on but for what the scheduler says: each is the same object if unchanged."""
        assert self._desired is not None
        desired = self._desired
        return (sandboxes, desired.pools(), desired.hosts.now, desired.profiles.now, desired.quotas.now)

    def _is_done(self, sandboxes: Mapping[str, Sandbox]) -> bool:
        done = self._done
        return isinstance(done, tuple) and all(a is b for a, b in zip(done, self._read(sandboxes), strict=True))

    def step(self) -> float | None:
        """Do what is due."""
        try:
            self.look(is_full=not self.was_woken)
        except Exception:
            self._desired = None  # it may be half read
            raise
        return PERIOD_SECONDS

    def _all(self) -> Mapping[str, Sandbox]:
        """Return the sandboxes of all hosts, by uid."""
        if self._desired is None:
            garbage = GarbageCollector(self._store, discover())
            self._desired = Desired(self._store, garbage, self._place, everywhere=True)
        return self._desired.refresh()

    def _round(self, sandboxes: Mapping[str, Sandbox]) -> bool:
        """Do what is due. Return True if more is due at once."""
        assert self._desired is not None
        self._tell_hosts(self._desired)
        policy = with_profiles(self._policy, self._desired.profiles.now.values())
        records = {record.placement.uid: record for record in self._scheduler.list()}
        pools = tuple(self._desired.pools().values())
        if self._decided_for is not self._desired.profiles.now:
            self._decided_for, self._settled = self._desired.profiles.now, {}
        losses = self._losses(self._desired)
        quota = self._quota(policy, pools)
        images = plan.image_places(self._desired.hosts.now.values(), self._away, self._anywhere(records))
        placement_plan = plan.placements(
            sandboxes.values(),
            policy,
            records,
            pools=pools,
            losses=losses,
            settled=self._settled,
            quota=quota,
            images=images,
        )
        self._known_refusals, self._refused = self._refused, {}
        refusals = {uid: wait for uid, wait in self._known_refusals.items() if uid in placement_plan.waits}
        self._publish({**placement_plan.waits, **refusals})
        noted = {step.ref.uid for step in placement_plan.steps if isinstance(step, plan.Note)}
        self._pending = {uid: since for uid, since in self._pending.items() if uid in noted}
        bound = False
        for step in placement_plan.steps:
            if self.stopping or not self._place.leads():
                return False
            # After a StaleBinding somebody else was quicker: the next round reads it.
            with suppress(StaleBinding), self._refusals(plan.uid_of(step)):
                bound = self._act(step) or bound
        self._spread(pools, records, sandboxes, placement_plan.shortages)
        return bound

    def _quota(self, policy: Policy, pools: Sequence[Pool]) -> PlacementQuota:
        """Return the quotas of namespaces with what is held of them, read after the objects were.

        What a host reserves meanwhile is counted twice, for a moment, never not at all.
        """
        assert self._desired is not None
        quotas = self._desired.quotas.now
        namespaces = bounded_namespaces(quotas.values())
        return PlacementQuota(quotas, self._store.reservations(*namespaces) if namespaces else {}, policy, pools)

    def _anywhere(self, records: Mapping[str, PlacedRecord]) -> Collection[str]:
        """Return what may be placed on hosts without its images: those with them had no room for too long."""
        now = self._boot()
        pending = {
            uid: self._without_room.get(uid, now)
            for uid, record in records.items()
            if isinstance(record.state, Pending) and selects_images(record.placement.node_selector)
        }
        late = {uid for uid, since in pending.items() if now >= since + IMAGE_SECONDS}
        self._without_room = {uid: since for uid, since in pending.items() if uid not in late}
        self._image_free = (self._image_free & records.keys()) | late
        return self._image_free

    def _spread(
        self,
        pools: Sequence[Pool],
        records: Mapping[str, PlacedRecord],
        sandboxes: Mapping[str, Sandbox],
        shortages: Mapping[str, str],
    ) -> None:
        """Make the parts of the pools that name no host, as their slots are placed, and write their statuses."""
        statuses = []
        spreading = spread.spread_pools(pools)
        requests = spread.required_hosts(sandboxes.values()) if spreading else {}
        for pool in spreading:
            refusal = ""
            for put in spread.put_parts(pool, pools, records, requests):
                refusal = self._put_part(put) or refusal
            parts = spread.parts_of(pool, pools)
            lacking = shortages.get(pool.obj.uid, "")
            status = spread.spread_status(
                pool,
                parts,
                records,
                refusal=refusal,
                usage=self._reserved_amount(pool),
                now=self._clock.now(),
                lacking=lacking,
            )
            if status != pool.obj.status:
                statuses.append(StatusWrite(pool.obj.ref, status))
        if statuses:
            self._store.record(Writes(statuses=tuple(statuses)))

    def _reserved_amount(self, pool: Pool) -> Amount:
        """Return what the members and claimed sandboxes of a pool with a quota reserve over all hosts."""
        scope = pool_scope(pool.obj.uid)
        return (
            self._store.reservations(scope)[scope]
            if pool.spec is not None and pool.spec.quota is not None
            else Amount()
        )

    def _put_part(self, put: spread.PutPart) -> str:
        """Store a pool's part. Return why that can't be, "" if it is done, or no longer due."""
        pool = put.pool
        with self._store.transaction() as transaction:
            now = transaction.get(pool.kind, pool.namespace, pool.name)
            if now is None or now.uid != pool.uid or now.deleted_at is not None:
                return ""
            stored = transaction.get(pool.kind, pool.namespace, put.name)
            if stored is None:
                transaction.put(_new_part(put, self._clock.now()))
            elif pool.uid not in owner_uids(stored):
                return f"sandboxpool {put.name} is not its part on that host; rename one of them"
            elif stored.deleted_at is None:
                transaction.put(replace(stored, spec=dict(put.spec), generation=stored.generation + 1))
        return ""

    def _tell_hosts(self, desired: Desired) -> None:
        lost = away(self._store.leases())
        for setting in plan.host_settings(desired.hosts.now.values(), self._scheduler.hosts(), lost):
            with self._refusals(setting.name):
                self._scheduler.set_host(
                    setting.name, fit=setting.fit, labels=setting.labels, availability=setting.availability
                )
                _log.info(
                    "host told to the scheduler", host=setting.name, fit=setting.fit, use=setting.availability.value
                )

    @contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        """Keep what the scheduler refuses of one sandbox or host from all others; other failures are of all."""
        try:
            yield
        except SchedulerError as error:
            if error.problem is not SchedulerProblem.REFUSED:
                raise
            self._refused[what] = (error.problem.value, str(error))
            if self._known_refusals.get(what) != self._refused[what]:
                _log.warning("refused by the scheduler", of=what, reason=str(error))

    def _act(self, step: plan.Step) -> bool:
        """Do one step. Return True if it made another one due."""
        match step:
            case plan.Place(placement):
                self._scheduler.place(placement)
            case plan.Pin(uid, binding, host):
                self._scheduler.pin(uid, binding, host)
            case plan.Release(uid):
                self._scheduler.release(uid)
            case plan.Bind():
                return self._bind(step)
            case plan.Unbind():
                return self._unbind(step)
            case plan.Note():
                self._note(step)
        return False

    def _bind(self, step: plan.Bind) -> bool:
        """Bind the object, unless it has a host or a later binding meanwhile, or is being deleted."""
        ref = step.ref
        with self._store.transaction() as transaction:
            obj = transaction.get(ref.kind, ref.namespace, ref.name)
            if obj is None or obj.uid != ref.uid or obj.deleted_at is not None:
                return False
            if host_of(obj, UNBOUND) != UNBOUND or binding_of(obj) != step.binding - 1:
                return False
            transaction.put(replace(obj, status=plan.bound_status(obj, step, self._clock.now())))
        _log.info("sandbox bound", sandbox=f"{ref.namespace}/{ref.name}", host=step.host, binding=step.binding)
        return True

    def _unbind(self, step: plan.Unbind) -> bool:
        """Take the object from its lost host, with what is recorded of its containers there."""
        ref = step.ref
        with self._store.transaction() as transaction:
            obj = transaction.get(ref.kind, ref.namespace, ref.name)
            if obj is None or obj.uid != ref.uid or obj.deleted_at is not None:
                return False
            if host_of(obj, UNBOUND) != step.host or binding_of(obj) != step.binding:
                return False
            transaction.retire(transaction.instances_of((ref.uid, egress_uid(ref.uid))).values())
            transaction.put(replace(obj, status=plan.unbound_status(obj, step, self._clock.now())))
            transaction.add_event(
                Event(ref, "Warning", "HostLost", f"{step.why}: started elsewhere", self._clock.now())
            )
        _log.warning("sandbox taken from a lost host", sandbox=f"{ref.namespace}/{ref.name}", host=step.host)
        return True

    def _losses(self, desired: Desired) -> plan.Losses:
        """Return the hosts that are lost. How long a daemon is away is counted here, by the clock that is never set."""
        now, lost = self._boot(), away(self._store.leases())
        self._away = {host: self._away.get(host, now) for host in lost}
        released = {
            host.obj.name for host in desired.hosts.now.values() if host.spec is not None and host.spec.out_of_service
        }
        return plan.Losses(
            away=frozenset(host for host, since in self._away.items() if now >= since + LOSS_SECONDS),
            released=frozenset(released & lost),
        )

    def _note(self, step: plan.Note) -> None:
        """Write why a reservation is pending, once it lasts: each change of one makes it pending for a moment."""
        ref, now = step.ref, self._clock.now()
        since = self._pending.setdefault(ref.uid, now)
        if step.pending and since <= now < since + PENDING_SECONDS:
            return
        del self._pending[ref.uid]
        with self._store.transaction() as transaction:
            obj = transaction.get(ref.kind, ref.namespace, ref.name)
            if obj is not None and obj.uid == ref.uid:
                status = {name: value for name, value in obj.status.items() if name != PENDING}
                transaction.put(replace(obj, status=status | ({PENDING: step.pending} if step.pending else {})))

    def _all_wait(self, reason: str, message: str) -> Mapping[str, plan.Wait]:
        unbound = self._desired.unbound if self._desired is not None else _NOTHING
        return dict.fromkeys(unbound, (reason, message))

    def _publish(self, waits: Mapping[str, plan.Wait]) -> None:
        if dict(waits) != dict(self._waits):
            self._waits = waits
            self._changed()

    def _report_failure(self, failure: str) -> None:
        if failure != self._failure:
            self._failure = failure
            if failure:
                _log.warning("placements not kept; retrying", reason=failure)
            else:
                _log.info("placements kept again")


def _new_part(put: spread.PutPart, now: float) -> StoredObject:
    pool = put.pool
    owner = {"apiVersion": API_VERSION, "kind": pool.kind, "name": pool.name, "uid": pool.uid, "controller": True}
    return StoredObject(
        kind=pool.kind,
        namespace=pool.namespace,
        name=put.name,
        uid=str(uuid.uuid4()),
        spec=dict(put.spec),
        created_at=now,
        finalizers=POOL.finalizers,
        owner_references=(owner,),
    )
