"""Refusals of writes that can never be satisfied.

These are requests above a quota's limits, objects above a namespace's limit, and a SandboxPool whose sandboxes would
share their template's volumes. A sandbox that only has to wait for free quota is accepted: the planner queues it. The
check sees the stored objects and those of the same transaction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from controller.kinds.base import Model
from controller.kinds.common.quantity import format_bytes
from controller.kinds.envelope import annotation_bytes
from controller.kinds.host import NAME
from controller.kinds.hostquota import stored_quota
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import HostFacts
from controller.kinds.planning.snapshot import Pool
from controller.kinds.quota import Amount, HardQuota, StoredQuota, amount_of, host_scope, pool_scope
from controller.kinds.sandbox import SandboxSpec, Template, TemplateRef, at_own_level
from controller.kinds.sandboxpool import SandboxPoolSpec, whole_uid
from controller.kinds.sandboxsnapshot import KIND as SNAPSHOT
from controller.kinds.sandboxsnapshot import total_bytes
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.policy.profiles import default_limits
from controller.policy.quota_ledger import (
    HOST,
    QuotaBound,
    above_bounds,
    bounds,
    judge,
    never_fits,
    pool_quotas,
    reported_facts,
)
from controller.policy.sandbox import NO_LIMITS, reserved
from controller.policy.sandboxpool import shares_volumes
from controller.ports import Transaction
from controller.ports.fleet import SINGLE, Fleet, SingleHost
from controller.service.admission import Profiles, profiles_in

Facts = Callable[[], HostFacts]
_FIELD = "spec.resources.limits"
_SMALL_ANNOTATIONS = 4 << 10  # of one object: ordinary ones cost no sum of all
_M = TypeVar("_M", bound=Model)


@dataclass(frozen=True, slots=True)
class Most:
    """Bounds of a namespace whose quotas give none. 0: no bound."""

    objects: int = 0
    annotation_bytes: int = 0


class Fitting:
    """The check for one transaction. `pending_objects` are all objects that it is about to write.

    `facts` are those of this host, which is at `place` among those of the store. `most` bounds a namespace whose quotas
    give no bound.
    """

    def __init__(
        self,
        transaction: Transaction,
        pending_objects: Sequence[StoredObject],
        facts: HostFacts,
        most: Most = Most(),
        place: Fleet = SINGLE,
    ) -> None:
        self._transaction, self._facts, self._most = transaction, facts, most
        self._place = place
        self._annotation_bytes: dict[str, int] = {}
        self._places: dict[str, tuple[int, Mapping[str, int]]] = {}
        self._written = {(obj.kind, obj.namespace, obj.name): obj for obj in pending_objects}
        self._bounds: dict[tuple[str, str], tuple[QuotaBound, ...]] = {}
        self._profiles: Profiles | None = None

    def refusals(self, obj: StoredObject) -> Iterator[tuple[str, str]]:
        """Yield (field, reason) for each quota that can never hold this object, and for shared volumes of a pool."""
        yield from self._too_many(obj)
        yield from self._too_much_annotated(obj)
        yield from self._too_many_snapshots(obj)
        if self._is_new(obj):
            yield from self._shared(obj)
        if obj.kind == "SandboxPool" and self._is_new(obj):
            pool = _read(SandboxPoolSpec, obj)
            for path, message in above_bounds(self._of(obj), 0, pool.priority if pool else 0):
                yield f"spec.{path}", message
        spec = _read(SandboxSpec, obj) if obj.kind == "Sandbox" else None
        if spec is None or not self._is_new(obj):
            return
        template = spec.template or self._template(obj.namespace, spec.template_ref)
        if template is None:
            return
        if self._profiles is None:
            self._profiles = profiles_in(self._transaction, self._written.values())
        otherwise = default_limits(at_own_level(spec, template).security_level, self._profiles) or NO_LIMITS
        limits = reserved(spec, template, otherwise)
        for message in never_fits(self._of(obj), amount_of(limits, 1)):
            yield _FIELD, message
        for path, message in above_bounds(self._of(obj), limits.cpu_shares, spec.priority):
            yield f"spec.{path}", message

    def _too_many(self, obj: StoredObject) -> Iterator[tuple[str, str]]:
        """Yield a refusal of a new object in a full namespace. A Quota is always accepted: it may raise the limit."""
        namespace = obj.namespace
        if not namespace or obj.kind == "Quota" or self._transaction.get(obj.kind, namespace, obj.name) is not None:
            return
        limits = [
            (bound.hard.objects, str(bound))
            for bound in self.of(namespace, self._place.host)
            if isinstance(bound.hard, HardQuota)
        ]
        bounds_ = [(most, message) for most, message in limits if most is not None]
        if not bounds_ and not self._most.objects:
            return
        most, message = min(bounds_, default=(self._most.objects, "objects_per_namespace in the daemon's settings"))
        if namespace not in self._places:
            keys = [key for key in self._written if key[1] == namespace and self._transaction.get(*key) is None]
            place = {self._written[key].uid: number for number, key in enumerate(keys, 1)}
            self._places[namespace] = self._transaction.count(namespace), place
        count, places = self._places[namespace]
        if count + places[obj.uid] > most:
            advice = "delete some, or have an admin raise `hard.objects` of its Quota"
            full = f"namespace `{namespace}` is full: it has {count} of at most {most} objects ({message}); {advice}"
            yield "metadata.namespace", full

    def _too_many_snapshots(self, obj: StoredObject) -> Iterator[tuple[str, str]]:
        """Yield a refusal of a new snapshot in a namespace that has all it may have."""
        namespace = obj.namespace
        if obj.kind != SNAPSHOT.name or self._transaction.get(obj.kind, namespace, obj.name) is not None:
            return
        stored = self._transaction.list(SNAPSHOT.name, namespace)
        size = sum(map(total_bytes, stored))
        for bound in self.of(namespace, self._place.host):
            hard = bound.hard
            if not isinstance(hard, HardQuota):
                continue
            advice = f"({bound}); delete some, or have an admin raise it"
            if hard.snapshots is not None and len(stored) >= hard.snapshots:
                yield "metadata.namespace", f"it has {len(stored)} of at most {hard.snapshots} snapshots {advice}"
            if hard.snapshot_storage is not None and size >= hard.snapshot_storage:
                most = format_bytes(hard.snapshot_storage)
                yield "metadata.namespace", f"its snapshots have {format_bytes(size)} of at most {most} {advice}"

    def _too_much_annotated(self, obj: StoredObject) -> Iterator[tuple[str, str]]:
        """Yield a refusal of annotations that grow in a namespace which has too many. Small ones are never refused."""
        namespace = obj.namespace
        size = annotation_bytes(obj.annotations)
        if not namespace or size <= _SMALL_ANNOTATIONS or self._growth(obj) <= 0:
            return
        limits = [
            (bound.hard.annotations, str(bound))
            for bound in self.of(namespace, self._place.host)
            if isinstance(bound.hard, HardQuota) and bound.hard.annotations is not None
        ]
        if not limits and not self._most.annotation_bytes:
            return
        setting = "annotations_per_namespace_bytes in the daemon's settings"
        most, message = min(limits, default=(self._most.annotation_bytes, setting))
        if namespace not in self._annotation_bytes:
            growth = sum(self._growth(obj) for obj in self._written.values() if obj.namespace == namespace)
            self._annotation_bytes[namespace] = self._transaction.annotation_bytes(namespace) + growth
        if self._annotation_bytes[namespace] > most:
            total = format_bytes(self._annotation_bytes[namespace])
            full = f"the annotations of namespace `{namespace}` would have {total} of at most {format_bytes(most)}"
            advice = "store large data elsewhere, or have an admin raise `hard.annotations` of its Quota"
            yield "metadata.annotations", f"{full} ({message}); {advice}"

    def _growth(self, obj: StoredObject) -> int:
        """Return how many bytes of annotations the write of an object adds."""
        stored = self._transaction.get(obj.kind, obj.namespace, obj.name)
        return annotation_bytes(obj.annotations) - (0 if stored is None else annotation_bytes(stored.annotations))

    def _shared(self, obj: StoredObject) -> Iterator[tuple[str, str]]:
        """Yield refusals of a pool whose sandboxes would share volumes, or of its template when that is written."""
        if obj.kind == "SandboxPool":
            pool = _read(SandboxPoolSpec, obj)
            template = self._template(obj.namespace, pool.template_ref) if pool else None
            if pool and (message := shares_volumes(template)):
                yield "spec.templateRef.name", f"SandboxTemplate `{pool.template_ref.name}`: {message}"
        elif obj.kind == "SandboxTemplate":
            spec = _read(SandboxTemplateSpec, obj)
            message = shares_volumes(spec)
            pools = self._pools_of(obj) if message else ""
            for number, volume in enumerate(spec.volumes) if spec and pools else ():
                if not volume.read_only:
                    yield f"spec.volumes[{number}]", f"SandboxPool {pools} has this template: {message}"

    def _pools_of(self, template: StoredObject) -> str:
        """Return the names of a template's pools, as they will be, for a message."""
        pools = {pool.name: pool for pool in self._transaction.list("SandboxPool", template.namespace)}
        pools |= {key[2]: pool for key, pool in self._written.items() if key[:2] == ("SandboxPool", template.namespace)}
        pool_names = [
            f"`{name}`"
            for name, pool in sorted(pools.items())
            if pool.deleted_at is None and pool.spec.get("templateRef", {}).get("name") == template.name
        ]
        return ", ".join(pool_names)

    def _is_new(self, obj: StoredObject) -> bool:
        """Return True if the spec differs from the stored one: an older object is not refused for a newer quota."""
        stored = self._transaction.get(obj.kind, obj.namespace, obj.name)
        return stored is None or stored.generation != obj.generation

    def _template(self, namespace: str, ref: TemplateRef | None) -> Template | None:
        key = ("SandboxTemplate", namespace, ref.name if ref else "")
        template = self._written.get(key) or self._transaction.get(*key)
        return None if template is None else _read(SandboxTemplateSpec, template)

    def _of(self, obj: StoredObject) -> tuple[QuotaBound, ...]:
        return self.of(obj.namespace, self._place.host_of(obj))

    def of(self, namespace: str, host: str) -> tuple[QuotaBound, ...]:
        """Return the quotas of a namespace, and of the host of that name ("": no host's)."""
        key = namespace, host
        if key not in self._bounds:
            bounds_by_scope = bounds(self._quotas(namespace, host), self._facts_of(host), host)
            self._bounds[key] = (*bounds_by_scope.get(namespace, ()), *(bounds_by_scope[HOST] if host else ()))
        return self._bounds[key]

    def _facts_of(self, host: str) -> HostFacts:
        """Return the facts of a host; another one's are as its daemon reported them."""
        if host == self._place.host:
            return self._facts
        return reported_facts(self._transaction.get("Host", "", host) if host else None)

    def _quotas(self, namespace: str, host: str) -> Iterable[StoredQuota]:
        of_host = self._transaction.get("HostQuota", HOST, host) if host else None
        stored = [*self._transaction.list("Quota", namespace), of_host]
        by_key = {(quota.kind, quota.namespace, quota.name): quota for quota in stored if quota is not None}
        by_key |= {
            key: quota for key, quota in self._written.items() if key[:2] in (("Quota", namespace), ("HostQuota", HOST))
        }
        return map(stored_quota, by_key.values())


def _read(model: type[_M], obj: StoredObject) -> _M | None:
    try:
        return model.model_validate(obj.spec)
    except ValidationError:
        return None


def has_room(
    transaction: Transaction, namespace: str, facts: HostFacts, total: Amount, counted: Amount, host: str = NAME
) -> bool:
    """Return True if every quota lets one sandbox of the namespace hold `total`, of which `counted` is in the sums.

    It is on the host of that name, which has these facts.
    """
    of_host = host_scope(host)
    reservations = transaction.reservations(namespace, of_host)
    limits = Fitting(transaction, (), facts, place=SingleHost(host)).of(namespace, host)
    return all(
        judge(bound, reservations.get(bound.namespace or of_host, Amount()), total, counted).admitted
        for bound in limits
    )


def rooms(
    transaction: Transaction, namespace: str, facts: HostFacts, total: Amount, count: int, host: str = NAME
) -> tuple[int, tuple[str, ...]]:
    """Return for how many of `count` new sandboxes that hold `total` each every quota has room, and why for no more."""
    of_host = host_scope(host)
    reservations = dict(transaction.reservations(namespace, of_host))
    limits = Fitting(transaction, (), facts, place=SingleHost(host)).of(namespace, host)
    for number in range(count):
        verdicts = [
            (bound, judge(bound, reservations.get(bound.namespace or of_host, Amount()), total, Amount()))
            for bound in limits
        ]
        reasons = tuple(f"{bound}: {reason}" for bound, verdict in verdicts for reason in verdict.reasons)
        if reasons:
            return number, reasons
        for scope in (namespace, of_host):
            reservations[scope] = reservations.get(scope, Amount()) + total
    return count, ()


def has_room_in_namespace(transaction: Transaction, namespace: str, total: Amount, counted: Amount) -> bool:
    """Return True if the namespace's quotas let one of its sandboxes hold `total`, with `counted` in the sums."""
    reservations = transaction.reservations(namespace)
    limits = Fitting(transaction, (), HostFacts()).of(namespace, "")
    return all(judge(bound, reservations.get(namespace, Amount()), total, counted).admitted for bound in limits)


def pool_has_room(transaction: Transaction, pool: Pool, total: Amount, counted: Amount) -> bool:
    """Return True if the pool's own quota lets one of its sandboxes hold `total`, of which `counted` is in the sums."""
    scope = pool_scope(whole_uid(pool.obj))
    limits = pool_quotas([pool]).get(scope, ())
    return all(judge(bound, transaction.reservations(scope)[scope], total, counted).admitted for bound in limits)
