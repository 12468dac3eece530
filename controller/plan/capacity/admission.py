"""Admission order: which pending object gets capacity first, and the ledger of what is held and still available.

Objects are admitted by priority, then age. One that lacks capacity in a quota blocks all later ones in that quota, so
that small ones cannot starve a big one. An object that can never fit, or whose image is unavailable, blocks nobody.
"""

import math
from collections.abc import Iterable, Mapping

from controller.kinds.host import NAME
from controller.kinds.observed.observed import HostFacts
from controller.kinds.planning.plan import Shortage
from controller.kinds.planning.snapshot import Pool
from controller.kinds.quota import Amount, Ceiling, StoredQuota, amount_of, host_scope, pool_scope
from controller.plan.capacity.reservations import Claim
from controller.plan.common.reconcile_context import ReconcileContext
from controller.policy.quota_ledger import HOST, QuotaBound, bounds, judge, pool_quotas


class CapacityLedger:
    """Capacity held, and its bounds, for every namespace, pool and the host."""

    def __init__(
        self,
        used: Mapping[str, Amount],
        quotas: Mapping[str, StoredQuota],
        facts: HostFacts,
        pools: Iterable[Pool] = (),
        host: str = NAME,
    ) -> None:
        """`used` is held by namespace, pool (`pool_scope`) and the host (""), whose name is `host`."""
        self.bounds = bounds(quotas.values(), facts, host)
        self._of_pools = pool_quotas(pools)
        self._used = dict(used)
        self._first: dict[QuotaBound, str] = {}  # the first pending object of each bound
        self._given: set[str] = set()
        # Scopes (a namespace, the host) with pending objects: warm members of pools below this priority give way.
        self.crowded: dict[str, float] = {}
        self.shortages: list[Shortage] = []

    def used(self, namespace: str) -> Amount:
        """Return the amount held in the namespace; "" is the host."""
        return self._used.get(namespace, Amount())

    def admit(self, context: ReconcileContext, asked: Claim, pool: str = "") -> str:
        """Reserve all that is asked for and return "", or return the shortage as text. `pool` is its pool's uid."""
        namespace, of = context.obj.namespace, pool_scope(pool)
        whole = amount_of(asked.whole, 1) + amount_of(asked.beside.whole)
        base = amount_of(asked.base, int(asked.seated)) + amount_of(asked.beside.base)
        own = self.bounds.get(namespace, ()) if namespace != HOST else ()
        message, lacking, never = [], [], not asked.holds_up
        short: list[tuple[QuotaBound, str]] = []
        for bound in (*self._of_pools.get(of, ()), *own, *self.bounds[HOST]):
            found = judge(bound, self.used(bound.namespace), whole, base)
            ahead = f"{self._first[bound]} is ahead of it" if bound in self._first else ""
            if said := "; ".join(each for each in (*found.reasons, ahead) if each):
                message.append(f"{bound}: {said}")
            if not found.admitted:
                lacking.append(bound)
                never = never or found.never
                short += [(bound, each) for each in found.lacking]
        self._note(context, short, holds_up=not never)
        if message:
            for bound in () if never else lacking:
                self._first.setdefault(bound, _named(context))
                before = self.crowded.get(bound.namespace, -math.inf)
                self.crowded[bound.namespace] = max(before, _weight(context))
            return ", and ".join(message)
        for each in (namespace, HOST):
            self._used[each] = self.used(each) + whole - base
            self._given.add(each)
        if of in self._of_pools:
            self._used[of] = self.used(of) + amount_of(asked.whole) - amount_of(asked.base)
            self._given.add(of)
        return ""

    def _note(self, context: ReconcileContext, short: Iterable[tuple[QuotaBound, str]], *, holds_up: bool) -> None:
        for bound, resource in short if context.obj.kind == "Sandbox" else ():
            own = "namespace" if bound.namespace == context.obj.namespace else "pool"
            self.shortages.append(Shortage(context.obj.uid, own if bound.namespace else "host", resource, holds_up))

    def ceilings(self, host: str) -> tuple[Ceiling, ...]:
        """Return the amounts assumed where capacity was given: the store must not come to hold more. `host` is ours."""
        own = host_scope(host)
        bounded = [each for each in sorted(self._given) if each in self.bounds or each in self._of_pools]
        return tuple(Ceiling(each if each != HOST else own, self.used(each)) for each in bounded)


def _weight(context: ReconcileContext) -> float:
    """Return the weight against warm members: any sandbox outweighs every pool's priority."""
    priority = context.spec.priority if context.spec else 0
    return math.inf if context.obj.kind == "Sandbox" else priority


def admission_order(context: ReconcileContext) -> tuple[bool, int, float, str, str, str]:
    """Return the sort key: sandboxes before warm members, the highest priority first, then the oldest."""
    obj = context.obj
    priority = context.spec.priority if context.spec else 0
    return obj.kind != "Sandbox", -priority, obj.created_at, obj.namespace, obj.name, obj.uid


def _named(context: ReconcileContext) -> str:
    priority = context.spec.priority if context.spec else 0
    return f"{context.obj.ref} (priority {priority})" if priority else str(context.obj.ref)
