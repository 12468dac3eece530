"""Statuses of quotas, and the change of each quota between two snapshots (for `diff`)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from controller.kinds.meta import Condition
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import FleetView, Snapshot
from controller.kinds.quota import KIND, OBJECTS, RESOURCES, Amount, HardQuota, StoredQuota
from controller.plan.base.ledger import CapacityLedger
from controller.plan.base.status_json import dated
from controller.plan.capacity.reservations import reserved_amounts
from controller.policy.quota_ledger import HOST, QuotaBound, bounds


def quota_statuses(ledger: CapacityLedger, snapshot: Snapshot) -> Iterator[tuple[StoredQuota, dict[str, Any]]]:
    """Yield the status of every quota whose stored status differs."""
    in_force = {bound.uid: bound for namespace_bounds in ledger.bounds.values() for bound in namespace_bounds}
    for uid, quota in snapshot.rules.quotas.items():
        bound = in_force.get(uid)
        if bound is not None and (snapshot.fleet.leads or bound.namespace == HOST):
            stored = snapshot.rules.object_counts.get(bound.namespace, 0) if quota.obj.kind == KIND.name else None
            new_status = _status(quota, bound, Usage(ledger.usage(bound.namespace), stored), snapshot.now)
            if new_status != quota.obj.status:
                yield quota, new_status


class Usage(NamedTuple):
    """Used part of a quota: what sandboxes hold, and the number of stored objects (None: it bounds none)."""

    reserved: Amount
    objects: int | None = None


def _status(quota: StoredQuota, bound: QuotaBound, usage: Usage, now: float) -> dict[str, Any]:
    """Return the status of a quota: its limits, what is used of them, and if that is more."""
    over = exceeded(bound, usage)
    if bound.hard is None:
        condition = Condition("Exceeded", "Unknown", "Unreadable", "this version of Paddock can't read its spec")
    elif over:
        condition = Condition("Exceeded", "True", "HardLowered", f"{over}: nothing is stopped, nothing new is started")
    else:
        condition = Condition("Exceeded", "False", "WithinHard")
    prior = next(iter(quota.obj.status.get("conditions", ())), None)
    usage_texts = {resource.name: resource.text(getattr(usage.reserved, resource.unit)) for resource in RESOURCES}
    most = _most_objects(bound)
    return {
        "observedGeneration": quota.obj.generation,
        "hard": {**usage_text(bound), **({} if most is None else {OBJECTS: str(most)})},
        "used": usage_texts if usage.objects is None else {**usage_texts, OBJECTS: str(usage.objects)},
        "conditions": [dated(condition, prior, quota.obj.generation, now)],
    }


def usage_text(bound: QuotaBound) -> dict[str, str]:
    """Return the limits of a quota in force as texts, without those that it does not set."""
    hard = {resource: getattr(bound.hard, resource.name, None) for resource in RESOURCES}
    return {each.name: each.text(most) for each, most in hard.items() if most is not None}


def _most_objects(bound: QuotaBound) -> int | None:
    return bound.hard.objects if isinstance(bound.hard, HardQuota) else None


def exceeded(bound: QuotaBound, usage: Usage) -> str:
    """Return what is used beyond the quota, as text."""
    amounts = [
        (resource, getattr(usage.reserved, resource.unit), getattr(bound.hard, resource.name, None))
        for resource in RESOURCES
    ]
    over = [
        f"{resource.name} {resource.text(now)} of {resource.text(most)}"
        for resource, now, most in amounts
        if most is not None and now > most
    ]
    most = _most_objects(bound)
    if most is not None and usage.objects is not None and usage.objects > most:
        over.append(f"{OBJECTS} {usage.objects} of {most}")
    return ", ".join(over)


def _over_hosts(instances: Iterable[Instance], fleet: FleetView) -> Mapping[str, Amount]:
    """Return what all hosts hold of each namespace, and this one ("")."""
    reserved, elsewhere = reserved_amounts(instances), fleet.elsewhere
    over_hosts = {namespace: reserved.get(namespace, Amount()) + amount for namespace, amount in elsewhere.items()}
    return {**reserved, **over_hosts}


@dataclass(frozen=True, slots=True)
class Movement:
    """Change of a quota: for each resource it bounds (name, used before, used after, limit), as texts."""

    quota: str
    namespace: str
    resources: tuple[tuple[str, str, str, str], ...]


def movements(before: Snapshot, after: Snapshot) -> Iterator[Movement]:
    """Yield the quotas whose use differs afterwards, with the limits in force then."""
    was = _over_hosts(before.instances.values(), before.fleet)
    will = _over_hosts(after.instances.values(), after.fleet)
    limits = bounds(after.rules.quotas.values(), after.observed.facts, after.fleet.host)
    for namespace, namespace_bounds in sorted(limits.items()):
        old, new = was.get(namespace, Amount()), will.get(namespace, Amount())
        for bound in namespace_bounds if old != new else ():
            most = usage_text(bound)
            measures = [
                (resource.name, resource.text, resource.unit) for resource in RESOURCES if resource.name in most
            ]
            lines = ((name, text(getattr(old, at)), text(getattr(new, at)), most[name]) for name, text, at in measures)
            yield Movement(str(bound), namespace, tuple(lines))
