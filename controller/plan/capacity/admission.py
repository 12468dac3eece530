"""Admission order: which pending object gets capacity first, and the ledger of what is held and still available.

Objects are admitted by priority, then age. One that lacks capacity in a quota blocks all later ones in that quota, so
that small ones cannot starve a big one. An object that can never fit, or whose image is unavailable, blocks nobody.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from controller.kinds.host import NAME
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import HostFacts
from controller.kinds.planning.plan import Shortage
from controller.kinds.planning.snapshot import Pool
from controller.kinds.quota import Amount, Ceiling, StoredQuota, amount_of, host_scope, pool_scope
from controller.kinds.sandbox import SandboxSpec
from controller.plan.capacity.reservations import Claim
from controller.policy.quota_ledger import HOST, NOTHING, QuotaBound, bounds, judge, pool_quotas


class Asking(Protocol):
    """An object that asks for capacity."""

    @property
    def obj(self) -> StoredObject: ...
    @property
    def spec(self) -> SandboxSpec | None: ...


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

    def count(self, scope: str, amount: Amount) -> None:
        """Count an amount as held."""
        self._used[scope] = self.used(scope) + amount

    def lacks(self, namespace: str, amount: Amount) -> str:
        """Reserve an amount of a namespace and return "", or return the shortage as text."""
        for bound in self.bounds.get(namespace, ()):
            found = judge(bound, self.used(namespace), amount, NOTHING)
            if not found.admitted:
                return f"{bound}: {'; '.join(found.reasons)}"
        self.count(namespace, amount)
        return ""

    def admit(self, asking: Asking, asked: Claim, pool: str = "") -> str:
        """Reserve all that is asked for and return "", or return the shortage as text. `pool` is its pool's uid."""
        namespace, of = asking.obj.namespace, pool_scope(pool)
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
        self._note(asking, short, holds_up=not never)
        if message:
            for bound in () if never else lacking:
                self._first.setdefault(bound, _named(asking))
                before = self.crowded.get(bound.namespace, -math.inf)
                self.crowded[bound.namespace] = max(before, _weight(asking))
            return ", and ".join(message)
        for each in (namespace, HOST):
            self._used[each] = self.used(each) + whole - base
            self._given.add(each)
        if of in self._of_pools:
            self._used[of] = self.used(of) + amount_of(asked.whole) - amount_of(asked.base)
            self._given.add(of)
        return ""

    def _note(self, asking: Asking, short: Iterable[tuple[QuotaBound, str]], *, holds_up: bool) -> None:
        for bound, resource in short if asking.obj.kind == "Sandbox" else ():
            own = "namespace" if bound.namespace == asking.obj.namespace else "pool"
            self.shortages.append(Shortage(asking.obj.uid, own if bound.namespace else "host", resource, holds_up))

    def ceilings(self, host: str) -> tuple[Ceiling, ...]:
        """Return the amounts assumed where capacity was given: the store must not come to hold more. `host` is ours."""
        own = host_scope(host)
        bounded = [each for each in sorted(self._given) if each in self.bounds or each in self._of_pools]
        return tuple(Ceiling(each if each != HOST else own, self.used(each)) for each in bounded)


def _weight(asking: Asking) -> float:
    """Return the weight against warm members: any sandbox outweighs every pool's priority."""
    priority = asking.spec.priority if asking.spec else 0
    return math.inf if asking.obj.kind == "Sandbox" else priority


def admission_order(asking: Asking, *, frozen: bool = False) -> tuple[bool, bool, int, float, str, str, str]:
    """Return the sort key: sandboxes before warm members, hibernated ones before new ones, then by priority and age."""
    obj = asking.obj
    priority = asking.spec.priority if asking.spec else 0
    return obj.kind != "Sandbox", not frozen, -priority, obj.created_at, obj.namespace, obj.name, obj.uid


def _named(asking: Asking) -> str:
    priority = asking.spec.priority if asking.spec else 0
    return f"{asking.obj.ref} (priority {priority})" if priority else str(asking.obj.ref)
