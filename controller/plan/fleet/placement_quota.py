"""Admission by quota before placement: what waits for the quota of its namespace holds no place on any host. Pure.

The hosts' own admission stays the rule, with its records. Here is counted what they hold, and beside it what is on its
way to a host: so the scheduler is asked for no more than the quotas allow, in the order in which hosts admit.
"""

from collections.abc import Iterable, Mapping

from controller.kinds.meta import stored_condition
from controller.kinds.observed.observed import HostFacts
from controller.kinds.planning.binding import UNBOUND, host_of
from controller.kinds.planning.snapshot import Pool, Sandbox
from controller.kinds.quota import KIND, Amount, StoredQuota, amount_of
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec, Template, at_own_level
from controller.plan.base.claim import NONE, Claim, Share
from controller.plan.base.ledger import CapacityLedger
from controller.plan.base.members import member_spec
from controller.plan.capacity.waiting import WAITS
from controller.policy.levels.levels import Policy
from controller.policy.levels.narrow import level_of
from controller.policy.network import egress
from controller.policy.sandbox import NO_LIMITS, reserved

BOUND = "Bound"  # reason of Scheduled, until the host's daemon has decided


def bounded_namespaces(quotas: Iterable[StoredQuota]) -> frozenset[str]:
    """Return the namespaces that have a quota."""
    return frozenset(quota.obj.namespace for quota in quotas if quota.obj.kind == KIND.name)


def is_on_its_way(sandbox: Sandbox) -> bool:
    """Return True if its host may not have reserved for it yet."""
    return _reason(sandbox) == BOUND and host_of(sandbox.obj, UNBOUND) != UNBOUND


def is_waiting(sandbox: Sandbox) -> bool:
    """Return True if its host says that it waits for a quota, and so holds nothing."""
    return _reason(sandbox) == WAITS


class PlacementQuota:
    """Quotas of namespaces, what hosts hold of them, and what was admitted in this round."""

    def __init__(
        self,
        quotas: Mapping[str, StoredQuota],
        reserved_by_namespace: Mapping[str, Amount],
        policy: Policy,
        pools: Iterable[Pool] = (),
    ) -> None:
        """Ready warm members of the `pools` give way to sandboxes, and count after them."""
        self._policy = policy
        self._bounded = bounded_namespaces(quotas.values())
        self._warm: dict[str, Amount] = {}
        for pool in pools:  # of one over hosts, its parts have the members
            is_kept = pool.obj.namespace in self._bounded and host_of(pool.obj, UNBOUND) != UNBOUND
            if is_kept and (amount := self._member(pool)) is not None:
                for _ in range(int(pool.obj.status.get("readyReplicas", 0))):
                    self._warm[pool.obj.namespace] = self._warm.get(pool.obj.namespace, Amount()) + amount
        usage = {
            namespace: amount - self._warm.get(namespace, Amount())
            for namespace, amount in reserved_by_namespace.items()
        }
        self._ledger = CapacityLedger(usage, quotas, HostFacts(), host="")

    def admit(self, sandbox: Sandbox) -> str:
        """Count all that the sandbox asks for and return "", or return the shortage as text."""
        spec, template = sandbox.spec, sandbox.template
        if spec is None or template is None or sandbox.obj.namespace not in self._bounded:
            return ""
        return self._ledger.admit(sandbox, self._claim(spec, template))

    def count(self, sandbox: Sandbox) -> None:
        """Count a sandbox that is on its way to a host, whatever the quotas say."""
        if sandbox.spec is not None and sandbox.template is not None and sandbox.obj.namespace in self._bounded:
            claim = self._claim(sandbox.spec, sandbox.template)
            self._ledger.count(sandbox.obj.namespace, amount_of(claim.total, 1) + amount_of(claim.beside.total))

    def count_members(self) -> None:
        """Count the ready warm members of all pools from now on: sandboxes were admitted before them."""
        for namespace, amount in self._warm.items():
            self._ledger.count(namespace, amount)
        self._warm = {}

    def admit_slot(self, pool: Pool, *, is_placed: bool) -> str:
        """Admit a place for a warm member; one that is placed already is counted. Return the shortage as text."""
        amount = self._member(pool) if pool.obj.namespace in self._bounded else None
        if amount is None:
            return ""
        if is_placed:
            self._ledger.count(pool.obj.namespace, amount)
            return ""
        return self._ledger.shortage(pool.obj.namespace, amount)

    def _claim(self, spec: SandboxSpec, template: Template) -> Claim:
        """Return what a sandbox asks for that has no container yet; one that does not run needs its disk alone."""
        limits, beside = self._limits(spec, template)
        if spec.run_state != "Running":
            limits, beside = Limits(0, 0, 0, disk_bytes=limits.disk_bytes), NONE
        return Claim(NO_LIMITS, limits, seated=False, wants_seat=True, beside=beside)

    def _limits(self, spec: SandboxSpec, template: Template) -> tuple[Limits, Share]:
        """Return what it reserves, and what its egress container does."""
        level = level_of(at_own_level(spec, template), self._policy)
        limits = reserved(spec, template, level.limits if level is not None else NO_LIMITS)
        return limits, Share(total=egress.LIMITS) if level is not None and level.network == "sealed" else NONE

    def _member(self, pool: Pool) -> Amount | None:
        spec = member_spec(pool)
        if spec is None or pool.template is None:
            return None
        limits, beside = self._limits(spec, pool.template)
        return amount_of(limits) + amount_of(beside.total)


def _reason(sandbox: Sandbox) -> str:
    return str(stored_condition(sandbox.obj, "Scheduled").get("reason", ""))
