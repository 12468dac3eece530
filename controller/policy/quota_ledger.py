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
from controller.kinds.sandboxpool import whole

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


def admit(used: Amount, ask: Amount, hard: HardLimits, per_sandbox: PerSandbox, held: Amount = NOTHING) -> Verdict:
    """Check if one sandbox may reserve `ask` in all, of which `held` is part of `used` already.

    Only growth is checked: a lowered quota takes nothing away from a sandbox.
    """
    reasons: list[str] = []
    lacking: dict[str, None] = {}
    never = False
    for each in RESOURCES:
        asked, more = getattr(ask, each.unit), getattr(ask, each.unit) - getattr(held, each.unit)
        if more <= 0:
            continue
        one, most, now = getattr(per_sandbox, each.name, None), getattr(hard, each.name), getattr(used, each.unit)
        if one is not None and asked > one:
            reasons.append(
                f"{each.name}: {each.text(asked)} requested, {each.text(one)} is the maximum for one sandbox"
            )
            lacking[each.name] = None
            never = True
        if most is not None and now + more > most:
            reasons.append(_full(each, more, now, most))
            lacking[each.name] = None
            never = never or asked > most
    return Verdict(tuple(reasons), never, tuple(lacking))


def _full(each: Resource, more: int, now: int, most: int) -> str:
    return f"{each.name}: {each.text(more)} requested, {each.text(now)} of {each.text(most)} used"


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
    found: dict[str, list[QuotaBound]] = defaultdict(list)
    standard = host_defaults(facts)
    found[HOST].append(QuotaBound(host, HOST, "", standard))
    for each in sorted(quotas, key=lambda each: (each.obj.namespace, each.obj.name)):
        obj, spec = each.obj, each.spec
        if obj.kind == "HostQuota":
            if obj.name != host:
                continue
            hard = None if spec is None else _filled(spec.hard, standard)
            found[HOST] = [QuotaBound(obj.name, HOST, obj.uid, hard, spec.per_sandbox if spec else _ANY)]
        else:
            hard, one = (spec.hard, spec.per_sandbox) if spec else (None, PerSandbox())
            found[obj.namespace].append(QuotaBound(obj.name, obj.namespace, obj.uid, hard, one))
    return {namespace: tuple(each) for namespace, each in found.items()}


def pool_quotas(pools: Iterable[Pool]) -> Mapping[str, tuple[QuotaBound, ...]]:
    """Return the quotas of pools, by `pool_scope`: of a part, that of its whole pool. An unreadable one blocks all."""
    found = {}
    for each in pools:
        uid, own = whole(each.obj)
        key, name = pool_scope(uid), f"{each.obj.namespace}/{own}"
        if each.spec is None:
            found[key] = (QuotaBound(name, key, uid),)
        elif (quota := each.spec.quota) is not None:
            found[key] = (QuotaBound(name, key, uid, quota.hard, quota.per_sandbox),)
    return found


def _filled(said: HardLimits, standard: HardLimits) -> HardLimits:
    """Return the written limits, completed by the host's own."""
    return standard.model_copy(
        update={name: getattr(said, name) for name in said.model_fields_set & HardLimits.model_fields.keys()}
    )


def judge(bound: QuotaBound, used: Amount, ask: Amount, held: Amount) -> Verdict:
    """Apply `admit` to a quota that may be unreadable."""
    if bound.hard is None:
        return Verdict(("this version of Paddock can't read its spec; apply it again",))
    return admit(used, ask, bound.hard, bound.per_sandbox, held)


def above_bounds(bounds_: Iterable[QuotaBound], cpu_shares: int, priority: int) -> Iterator[tuple[str, str]]:
    """Yield the field and a message for each weight and priority above a quota's maximum for one sandbox."""
    asked = (("resources.cpuShares", "cpu_shares", cpu_shares), ("priority", "priority", priority))
    for bound in bounds_:
        for path, name, value in asked:
            most = getattr(bound.per_sandbox, name, None)
            if most is not None and value > most:
                yield path, f"{value} is more than {bound} allows one sandbox ({most}); lower it"


def weight_bounds(
    quotas: Iterable[StoredQuota], facts: HostFacts, host: str = NAME
) -> Mapping[str, tuple[QuotaBound, ...]]:
    """Return the quotas that bound the weight or the priority of one sandbox, by namespace, the host's under ""."""
    found = {namespace: tuple(filter(_has_weights, each)) for namespace, each in bounds(quotas, facts, host).items()}
    return {namespace: each for namespace, each in found.items() if each}


def _has_weights(bound: QuotaBound) -> bool:
    one = bound.per_sandbox
    return isinstance(one, SandboxBounds) and (one.cpu_shares is not None or one.priority is not None)


def never_fits(bounds_: Iterable[QuotaBound], ask: Amount) -> Iterator[str]:
    """Return a message for each quota that could not hold `ask` even if it were unused."""
    for bound in bounds_:
        found = judge(bound, NOTHING, ask, NOTHING)
        if found.never:
            yield f"can never fit {bound}: {'; '.join(found.reasons)}"
