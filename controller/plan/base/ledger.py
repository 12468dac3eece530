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
from controller.plan.base.claim import Claim
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
        usage: Mapping[str, Amount],
        quotas: Mapping[str, StoredQuota],
        facts: HostFacts,
        pools: Iterable[Pool] = (),
        host: str = NAME,
    ) -> None:
        """`usage` is by namespace, pool (`pool_scope`) and the host (""), whose name is `host`."""
        self.bounds = bounds(quotas.values(), facts, host)
        self._pool_bounds = pool_quotas(pools)
        self._used = dict(usage)
        self._first: dict[QuotaBound, str] = {}  # the first pending object of each bound
        self._given: set[str] = set()
        # Scopes (a namespace, the host) with pending objects, each with the heaviest one's weight: warm members of
        # pools below this priority give way.
        self.pending_weights: dict[str, float] = {}
        self.shortages: list[Shortage] = []

    def usage(self, namespace: str) -> Amount:
        """Return the amount held in the namespace; "" is the host."""
        return self._used.get(namespace, Amount())

    def count(self, scope: str, amount: Amount) -> None:
        """Count an amount as held."""
        self._used[scope] = self.usage(scope) + amount

    def shortage(self, namespace: str, amount: Amount) -> str:
        """Reserve an amount of a namespace and return "", or return the shortage as text."""
        for bound in self.bounds.get(namespace, ()):
            verdict = judge(bound, self.usage(namespace), amount, NOTHING)
            if not verdict.admitted:
                return f"{bound}: {'; '.join(verdict.reasons)}"
        self.count(namespace, amount)
        return ""

    def admit(self, asking: Asking, claim: Claim, pool: str = "") -> str:
        """Reserve all that is asked for and return "", or return the shortage as text. `pool` is its pool's uid."""
        namespace, of = asking.obj.namespace, pool_scope(pool)
        total = amount_of(claim.total, 1) + amount_of(claim.beside.total)
        base = amount_of(claim.base, int(claim.seated)) + amount_of(claim.beside.base)
        namespace_bounds = self.bounds.get(namespace, ()) if namespace != HOST else ()
        message = []
        lacking = []
        never = not claim.holds_up
        lacking_resources: list[tuple[QuotaBound, str]] = []
        for bound in (*self._pool_bounds.get(of, ()), *namespace_bounds, *self.bounds[HOST]):
            verdict = judge(bound, self.usage(bound.namespace), total, base)
            ahead = f"{self._first[bound]} is ahead of it" if bound in self._first else ""
            if reason := "; ".join(text for text in (*verdict.reasons, ahead) if text):
                message.append(f"{bound}: {reason}")
            if not verdict.admitted:
                lacking.append(bound)
                never = never or verdict.never
                lacking_resources += [(bound, resource) for resource in verdict.lacking]
        self._note(asking, lacking_resources, holds_up=not never)
        if message:
            for bound in () if never else lacking:
                self._first.setdefault(bound, _describe(asking))
                before = self.pending_weights.get(bound.namespace, -math.inf)
                self.pending_weights[bound.namespace] = max(before, _weight(asking))
            return ", and ".join(message)
        for scope in (namespace, HOST):
            self._used[scope] = self.usage(scope) + total - base
            self._given.add(scope)
        if of in self._pool_bounds:
            self._used[of] = self.usage(of) + amount_of(claim.total) - amount_of(claim.base)
            self._given.add(of)
        return ""

    def _note(self, asking: Asking, lacking_resources: Iterable[tuple[QuotaBound, str]], *, holds_up: bool) -> None:
        for bound, resource in lacking_resources if asking.obj.kind == "Sandbox" else ():
            own_scope = "namespace" if bound.namespace == asking.obj.namespace else "pool"
            self.shortages.append(
                Shortage(
                    uid=asking.obj.uid,
                    scope=own_scope if bound.namespace else "host",
                    resource=resource,
                    holds_up=holds_up,
                )
            )

    def ceilings(self, host: str) -> tuple[Ceiling, ...]:
        """Return the amounts assumed where capacity was given: the store must not come to hold more. `host` is ours."""
        host_bound = host_scope(host)
        bounded = [scope for scope in sorted(self._given) if scope in self.bounds or scope in self._pool_bounds]
        return tuple(Ceiling(scope if scope != HOST else host_bound, self.usage(scope)) for scope in bounded)


def _weight(asking: Asking) -> float:
    """Return the weight against warm members: any sandbox outweighs every pool's priority."""
    priority = asking.spec.priority if asking.spec else 0
    return math.inf if asking.obj.kind == "Sandbox" else priority


def admission_order(asking: Asking, *, frozen: bool = False) -> tuple[bool, bool, int, float, str, str, str]:
    """Return the sort key: sandboxes before warm members, hibernated ones before new ones, then by priority and age."""
    obj = asking.obj
    priority = asking.spec.priority if asking.spec else 0
    return obj.kind != "Sandbox", not frozen, -priority, obj.created_at, obj.namespace, obj.name, obj.uid


def _describe(asking: Asking) -> str:
    priority = asking.spec.priority if asking.spec else 0
    return f"{asking.obj.ref} (priority {priority})" if priority else str(asking.obj.ref)
