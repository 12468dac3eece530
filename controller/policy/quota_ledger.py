"""Quota arithmetic: reserved, requested and allowed amounts, with reasons in words. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.kinds.common.quantity import Bytes, Millicores, parse_bytes, parse_cpu
from controller.kinds.host import NAME
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import HostFacts
from controller.kinds.planning.snapshot import Pool
from controller.kinds.quota import (
    RESOURCES,
    Amount,
    HardLimits,
    PerSandbox,
    Resource,
    SandboxBounds,
    StoredQuota,
    pool_scope,
)
from controller.kinds.sandboxpool import whole_key

# Over-commit of the host's processors: a shortage of CPU only slows sandboxes down, and most of them idle most of the
# time. A shortage of memory kills, so memory is reserved once. Processes and
# threads, and the number of sandboxes, are not bounded by default: each sandbox's own limit bounds the first.
CPU_OVERCOMMIT = 16
HOST = ""
NOTHING = Amount()
_ANY = PerSandbox()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a quota check, with every reason. `never`: it does not fit even an unused quota.

    `lacking` are the short resources, by name.
    """

    reasons: tuple[str, ...] = ()
    never: bool = False
    lacking: tuple[str, ...] = ()

    @property
    def admitted(self) -> bool:
        return not self.reasons


@dataclass(frozen=True, slots=True)
class QuotaBound:
    """One quota in force, of a namespace or of the host (""). Without limits it can't be read: nothing new fits it."""

    name: str
    namespace: str
    uid: str = ""
    hard: HardLimits | None = None
    per_sandbox: PerSandbox = _ANY

    def __str__(self) -> str:
        if self.namespace == pool_scope(self.uid):
            return f"the quota of pool {self.name}"
        return f"quota {self.namespace}/{self.name}" if self.namespace else f"hostquota {self.name}"


def admit(used: Amount, ask: Amount, hard: HardLimits, per_sandbox: PerSandbox, reserved: Amount = NOTHING) -> Verdict:
    """Check if one sandbox may reserve `ask` in all, of which `reserved` is part of `used` already.

    Only growth is checked: a lowered quota takes nothing away from a sandbox.
    """
    reasons: list[str] = []
    lacking: dict[str, None] = {}
    never = False
    for resource in RESOURCES:
        requested, growth = getattr(ask, resource.unit), getattr(ask, resource.unit) - getattr(reserved, resource.unit)
        if growth <= 0:
            continue
        single, most, now = (
            getattr(per_sandbox, resource.name, None),
            getattr(hard, resource.name),
            getattr(used, resource.unit),
        )
        if single is not None and requested > single:
            reasons.append(
                f"{resource.name}: {resource.text(requested)} requested, "
                f"{resource.text(single)} is the maximum for one sandbox"
            )
            lacking[resource.name] = None
            never = True
        if most is not None and now + growth > most:
            reasons.append(_full(resource, growth, now, most))
            lacking[resource.name] = None
            never = never or requested > most
    return Verdict(tuple(reasons), never, tuple(lacking))


def _full(resource: Resource, growth: int, now: int, most: int) -> str:
    return f"{resource.name}: {resource.text(growth)} requested, {resource.text(now)} of {resource.text(most)} used"


def host_defaults(facts: HostFacts) -> HardLimits:
    """Return the maxima of all sandboxes without a HostQuota. Unknown sizes of the host are no bound."""
    cpu = Millicores(facts.cpus * 1000 * CPU_OVERCOMMIT) if facts.cpus else None
    return HardLimits(cpu=cpu, memory=Bytes(facts.memory_bytes) or None, gpus=len(facts.gpus) or None)


def reported_facts(host: StoredObject | None) -> HostFacts:
    """Return the size of a host as its stored status reports it; unknown without one."""
    capacity = host.status.get("capacity") if host is not None else None
    if not capacity:
        return HostFacts()
    gpus = tuple(f"gpu-{number}" for number in range(capacity.get("gpus") or 0))
    return HostFacts(cpus=parse_cpu(capacity["cpu"]) // 1000, memory_bytes=parse_bytes(capacity["memory"]), gpus=gpus)


def bounds(quotas: Iterable[StoredQuota], facts: HostFacts, host: str = NAME) -> Mapping[str, tuple[QuotaBound, ...]]:
    """Return the quotas in force on a host by namespace, its own under ""; each in the order of its names.

    The HostQuota of a host has its name; `facts` are of that host, too.
    """
    by_namespace: dict[str, list[QuotaBound]] = defaultdict(list)
    standard = host_defaults(facts)
    by_namespace[HOST].append(QuotaBound(host, HOST, "", standard))
    for quota in sorted(quotas, key=lambda quota: (quota.obj.namespace, quota.obj.name)):
        obj, spec = quota.obj, quota.spec
        if obj.kind == "HostQuota":
            if obj.name != host:
                continue
            hard = None if spec is None else _fill(spec.hard, standard)
            by_namespace[HOST] = [QuotaBound(obj.name, HOST, obj.uid, hard, spec.per_sandbox if spec else _ANY)]
        else:
            hard, single = (spec.hard, spec.per_sandbox) if spec else (None, PerSandbox())
            by_namespace[obj.namespace].append(QuotaBound(obj.name, obj.namespace, obj.uid, hard, single))
    return {namespace: tuple(entries) for namespace, entries in by_namespace.items()}


def pool_quotas(pools: Iterable[Pool]) -> Mapping[str, tuple[QuotaBound, ...]]:
    """Return the quotas of pools, by `pool_scope`: of a part, that of its whole pool. An unreadable one blocks all."""
    by_scope = {}
    for pool in pools:
        uid, pool_name = whole_key(pool.obj)
        key, name = pool_scope(uid), f"{pool.obj.namespace}/{pool_name}"
        if pool.spec is None:
            by_scope[key] = (QuotaBound(name, key, uid),)
        elif (quota := pool.spec.quota) is not None:
            by_scope[key] = (QuotaBound(name, key, uid, quota.hard, quota.per_sandbox),)
    return by_scope


def _fill(limits: HardLimits, standard: HardLimits) -> HardLimits:
    """Return the written limits, completed by the host's own."""
    return standard.model_copy(
        update={name: getattr(limits, name) for name in limits.model_fields_set & HardLimits.model_fields.keys()}
    )


def judge(bound: QuotaBound, used: Amount, ask: Amount, reserved: Amount) -> Verdict:
    """Apply `admit` to a quota that may be unreadable."""
    if bound.hard is None:
        return Verdict(("this version of Paddock can't read its spec; apply it again",))
    return admit(used, ask, bound.hard, bound.per_sandbox, reserved)


def above_bounds(bounds_: Iterable[QuotaBound], cpu_shares: int, priority: int) -> Iterator[tuple[str, str]]:
    """Yield the field and a message for each weight and priority above a quota's maximum for one sandbox."""
    requested = (("resources.cpuShares", "cpu_shares", cpu_shares), ("priority", "priority", priority))
    for bound in bounds_:
        for path, name, value in requested:
            most = getattr(bound.per_sandbox, name, None)
            if most is not None and value > most:
                yield path, f"{value} is more than {bound} allows one sandbox ({most}); lower it"


def weight_bounds(
    quotas: Iterable[StoredQuota], facts: HostFacts, host: str = NAME
) -> Mapping[str, tuple[QuotaBound, ...]]:
    """Return the quotas that bound the weight or the priority of one sandbox, by namespace, the host's under ""."""
    by_namespace = {
        namespace: tuple(filter(_has_weights, entries)) for namespace, entries in bounds(quotas, facts, host).items()
    }
    return {namespace: entries for namespace, entries in by_namespace.items() if entries}


def _has_weights(bound: QuotaBound) -> bool:
    single = bound.per_sandbox
    return isinstance(single, SandboxBounds) and (single.cpu_shares is not None or single.priority is not None)


def never_fits(bounds_: Iterable[QuotaBound], ask: Amount) -> Iterator[str]:
    """Return a message for each quota that could not hold `ask` even if it were unused."""
    for bound in bounds_:
        verdict = judge(bound, NOTHING, ask, NOTHING)
        if verdict.never:
            yield f"can never fit {bound}: {'; '.join(verdict.reasons)}"
