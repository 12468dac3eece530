"""Claims: a new Sandbox takes over a ready member of a pool, in the transaction that creates it.

Which members are ready is read from the loop's last snapshot; whether one still is a member, from the store: two
claims of one member are two writers of one row, and the second sees that it is taken. What the sandbox wants beyond
what the member holds is reserved in the same transaction; without room for it, or behind others that wait for room,
nothing is claimed: the planner lets it wait in its turn.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from pydantic import ValidationError

from controller.kinds.common.labels import container_name
from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.kinds.quota import amount_of
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec, leveled
from controller.plan.capacity import quota
from controller.plan.pool import sandboxpool as pools
from controller.plan.pool import warm
from controller.policy.host.host import fitted
from controller.policy.levels.levels import Policy
from controller.policy.levels.profiles import with_profiles
from controller.policy.sandbox import reserved
from controller.ports import Clock, Meter, Transaction
from controller.service.objects.admission import profiles_in
from controller.service.objects.quota import Facts, has_room, pool_has_room

# The oldest are free, but in a burst of claims.
_AT_FIRST, _IN_ONE_GO = 4, 32


class Claims:
    """`snapshot` gives what the loop planned on last, None while there is nothing yet; `facts` are the host's.

    `policy` is the operator's: the loop's own, so that no box is handed out that the loop would not start.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot | None],
        meter: Meter,
        facts: Facts,
        clock: Clock,
        policy: Policy | None = None,
    ) -> None:
        self._snapshot, self._meter, self._facts, self._clock = snapshot, meter, facts, clock
        self._policy = policy or Policy()

    def claim(self, transaction: Transaction, obj: StoredObject) -> StoredObject:
        """The new object, with the uid of the member it takes over; the object as it is where there is none to take.

        The object has to be put in this same transaction.
        """
        last = self._snapshot()
        if obj.kind != "Sandbox" or last is None or not last.pools:
            return obj
        try:
            spec = SandboxSpec.model_validate(obj.spec)
        except ValidationError:
            return obj
        found = self._take(transaction, last, obj, spec)
        self._count(last, obj, spec, found)
        if found is None:
            return obj
        member, reserves = found
        claimed = replace(obj, uid=member.uid)
        transaction.put_instance(handed_over(member, claimed, reserves))
        words = f"took over {member.memory.hostname}, a warm box of pool {member.parent_name}"
        transaction.add_event(Event(claimed.ref, "Normal", "Claimed", words, self._clock.now()))
        return claimed

    def _count(self, last: Snapshot, obj: StoredObject, spec: SandboxSpec, found: object) -> None:
        """One claim, or one miss of each pool that could have had a member for it."""
        if isinstance(found, tuple):
            self._meter.count("paddock_pool_claims_total", namespace=obj.namespace, pool=found[0].parent_name)
            return
        for pool in warm.pools_for(last, obj, spec):
            self._meter.count("paddock_pool_claim_misses_total", namespace=obj.namespace, pool=pool.obj.name)

    def _take(
        self, transaction: Transaction, last: Snapshot, obj: StoredObject, spec: SandboxSpec
    ) -> tuple[Instance, Limits] | None:
        """The first member that is still there to be taken and fits, and what it is to reserve from now on."""
        facts = self._facts()
        policy = with_profiles(fitted(self._policy, facts), profiles_in(transaction))
        if quota.is_behind(last, obj, spec):
            return None
        for pool, member in _still_members(transaction, warm.candidates(last, obj, spec)):
            if not warm.fits(last, pool, member, spec, policy) or pool.template is None:
                continue
            level = policy.levels[leveled(spec, pool.template).security_level]
            wanted = reserved(spec, pool.template, level.limits)
            reserves = quota.larger(member.reserves, wanted)
            whole, held = amount_of(reserves, 1), amount_of(member.reserves)
            if not pool_has_room(transaction, pool, whole, held):
                continue
            return (member, reserves) if has_room(transaction, obj.namespace, facts, whole, held) else None
        return None


def _still_members(
    transaction: Transaction, candidates: list[tuple[Pool, Instance]]
) -> Iterator[tuple[Pool, Instance]]:
    """Those that nobody has taken since the look, as they are stored, of pools and templates that did not change."""
    for start in (0, *range(_AT_FIRST, len(candidates), _IN_ONE_GO)):
        some = candidates[start : start + (_IN_ONE_GO if start else _AT_FIRST)]
        stored = transaction.instances_of([member.uid for _, member in some])
        for pool, member in some:
            now = stored.get(member.uid)
            if now is not None and now.role == pools.WARM and _unmoved(transaction, pool):
                yield pool, now


def _unmoved(transaction: Transaction, pool: Pool) -> bool:
    """Whether the pool and its template are as the last look had them."""
    obj = pool.obj
    stored = transaction.get(obj.kind, obj.namespace, obj.name)
    if stored is None or stored.uid != obj.uid or stored.deleted_at is not None or stored.generation != obj.generation:
        return False
    name = pool.spec.template_ref.name if pool.spec else ""
    template = transaction.get("SandboxTemplate", obj.namespace, name)
    if template is None or template.deleted_at is not None:
        return False
    return template.generation == pool.template_generation


def handed_over(member: Instance, obj: StoredObject, reserves: Limits) -> Instance:
    """The member's row as the sandbox's."""
    return replace(
        member,
        name=container_name(obj.name, obj.uid),
        parent_uid=obj.uid,
        parent_kind=obj.kind,
        parent_name=obj.name,
        role="sandbox",
        reserves=reserves,
        memory=warm.claimed_memory(member.memory),
        member_uid="",
    )
