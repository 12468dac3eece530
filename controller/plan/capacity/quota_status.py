"""Statuses of quotas, and the change of each quota between two snapshots (for `diff`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from controller.kinds.meta import Condition
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.quota import KIND, OBJECTS, RESOURCES, Amount, HardQuota, StoredQuota
from controller.plan.capacity.admission import CapacityLedger
from controller.plan.capacity.reservations import held
from controller.plan.common.status_json import dated
from controller.policy.quota_ledger import HOST, QuotaBound, bounds


def quota_statuses(ledger: CapacityLedger, snapshot: Snapshot) -> Iterator[tuple[StoredQuota, dict[str, Any]]]:
    """Yield the status of every quota whose stored status differs."""
    in_force = {bound.uid: bound for each in ledger.bounds.values() for bound in each}
    for uid, quota in snapshot.quotas.items():
        bound = in_force.get(uid)
        if bound is not None and (snapshot.leads or bound.namespace == HOST):
            stored = snapshot.objects.get(bound.namespace, 0) if quota.obj.kind == KIND.name else None
            made = _status(quota, bound, Usage(ledger.used(bound.namespace), stored), snapshot.now)
            if made != quota.obj.status:
                yield quota, made


class Usage(NamedTuple):
    """Used part of a quota: what sandboxes hold, and the number of stored objects (None: it bounds none)."""

    held: Amount
    objects: int | None = None


def _status(quota: StoredQuota, bound: QuotaBound, usage: Usage, now: float) -> dict[str, Any]:
    over = exceeded(bound, usage)
    if bound.hard is None:
        found = Condition("Exceeded", "Unknown", "Unreadable", "this version of Paddock can't read its spec")
    elif over:
        found = Condition("Exceeded", "True", "HardLowered", f"{over}: nothing is stopped, nothing new is started")
    else:
        found = Condition("Exceeded", "False", "WithinHard")
    prior = next(iter(quota.obj.status.get("conditions", ())), None)
    used = {each.name: each.text(getattr(usage.held, each.unit)) for each in RESOURCES}
    most = _most_objects(bound)
    return {
        "observedGeneration": quota.obj.generation,
        "hard": {**shown(bound), **({} if most is None else {OBJECTS: str(most)})},
        "used": used if usage.objects is None else {**used, OBJECTS: str(usage.objects)},
        "conditions": [dated(found, prior, quota.obj.generation, now)],
    }


def shown(bound: QuotaBound) -> dict[str, str]:
    """Return the limits of a quota in force as texts, without those that it does not set."""
    hard = {each: getattr(bound.hard, each.name, None) for each in RESOURCES}
    return {each.name: each.text(most) for each, most in hard.items() if most is not None}


def _most_objects(bound: QuotaBound) -> int | None:
    return bound.hard.objects if isinstance(bound.hard, HardQuota) else None


def exceeded(bound: QuotaBound, usage: Usage) -> str:
    """Return what is used beyond the quota, as text."""
    found = [(each, getattr(usage.held, each.unit), getattr(bound.hard, each.name, None)) for each in RESOURCES]
    over = [
        f"{each.name} {each.text(now)} of {each.text(most)}"
        for each, now, most in found
        if most is not None and now > most
    ]
    most = _most_objects(bound)
    if most is not None and usage.objects is not None and usage.objects > most:
        over.append(f"{OBJECTS} {usage.objects} of {most}")
    return ", ".join(over)


def _over_hosts(snapshot: Snapshot) -> Mapping[str, Amount]:
    """Return what all hosts hold of each namespace, and this one ("")."""
    own = held(snapshot.instances.values())
    return {**own, **{each: own.get(each, Amount()) + more for each, more in snapshot.elsewhere.items()}}


@dataclass(frozen=True, slots=True)
class Movement:
    """Change of a quota: for each resource it bounds (name, used before, used after, limit), as texts."""

    quota: str
    namespace: str
    resources: tuple[tuple[str, str, str, str], ...]


def movements(before: Snapshot, after: Snapshot) -> Iterator[Movement]:
    """Yield the quotas whose use differs afterwards, with the limits in force then."""
    was, will = _over_hosts(before), _over_hosts(after)
    for namespace, each in sorted(bounds(after.quotas.values(), after.observed.facts, after.host).items()):
        old, new = was.get(namespace, Amount()), will.get(namespace, Amount())
        for bound in each if old != new else ():
            most = shown(bound)
            told = [(one.name, one.text, one.unit) for one in RESOURCES if one.name in most]
            lines = ((name, text(getattr(old, at)), text(getattr(new, at)), most[name]) for name, text, at in told)
            yield Movement(str(bound), namespace, tuple(lines))
