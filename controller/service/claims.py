"""Claims: a new Sandbox takes over a ready member of a pool, in the transaction that creates it.

Which members are ready is read from the loop's last snapshot; whether one still is a member, from the store: two
claims of one member are two writers of one row, and the second sees that it is taken.
"""

from collections.abc import Callable
from dataclasses import replace

from pydantic import ValidationError

from controller.kinds.instance import Instance
from controller.kinds.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.snapshot import Pool, Snapshot
from controller.plan import pool as pools
from controller.policy.levels import Policy
from controller.ports import Meter, Transaction
from controller.service.quota import Facts, has_seat

_IN_ONE_GO = 32


class Claims:
    """`snapshot` gives what the loop planned on last, None while there is nothing yet; `facts` are the host's."""

    def __init__(self, snapshot: Callable[[], Snapshot | None], meter: Meter, facts: Facts) -> None:
        self._snapshot, self._meter, self._facts = snapshot, meter, facts

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
        claimed = replace(obj, uid=found.uid)
        transaction.put_instance(_handed_over(found, claimed))
        return claimed

    def _count(self, last: Snapshot, obj: StoredObject, spec: SandboxSpec, found: Instance | None) -> None:
        """One claim, or one miss of each pool that could have had a member for it."""
        if found is not None:
            self._meter.count("paddock_pool_claims_total", namespace=obj.namespace, pool=found.parent_name)
            return
        for name in pools.names_for(last, obj, spec):
            self._meter.count("paddock_pool_claim_misses_total", namespace=obj.namespace, pool=name)

    def _take(self, transaction: Transaction, last: Snapshot, obj: StoredObject, spec: SandboxSpec) -> Instance | None:
        """The first member that is still there to be taken, and whose pool and template are still those of the look."""
        candidates = list(pools.claimable(last, obj, spec, Policy()))
        if not candidates or not has_seat(transaction, obj.namespace, self._facts()):
            return None
        for start in range(0, len(candidates), _IN_ONE_GO):
            some = candidates[start : start + _IN_ONE_GO]
            stored = transaction.instances_of([member.uid for _, member in some])
            for pool, member in some:
                now = stored.get(member.uid)
                if now is not None and now.role == pools.WARM and _unmoved(transaction, pool):
                    return now
        return None


def _unmoved(transaction: Transaction, pool: Pool) -> bool:
    """Whether the pool and its template are as the last look had them."""
    obj = pool.obj
    stored = transaction.get(obj.kind, obj.namespace, obj.name)
    if stored is None or stored.uid != obj.uid or stored.deleted_at is not None or stored.generation != obj.generation:
        return False
    name = pool.spec.template_ref.name if pool.spec else ""
    template = transaction.get("SandboxTemplate", obj.namespace, name)
    return template is not None and template.generation == pool.template_generation


def _handed_over(member: Instance, obj: StoredObject) -> Instance:
    """The member's row as the sandbox's."""
    return replace(
        member,
        name=container_name(obj.name, obj.uid),
        parent_uid=obj.uid,
        parent_kind=obj.kind,
        parent_name=obj.name,
        role="sandbox",
        memory=pools.claimed_memory(member.memory),
        member_uid="",
    )
