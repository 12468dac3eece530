"""Claims: a new Sandbox takes over a ready member of a pool, in the transaction that creates it.

Ready members come from the loop's last snapshot, their membership from the store. Those of other hosts, and of this one
as long as its engine was not seen (after a start), come from the store alone. Two claims of one member write the
same row, and the second sees that it is claimed. Resources beyond those of the member are reserved in the same
transaction. Without quota for them, or behind other pending sandboxes, nothing is claimed: the planner queues it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from pydantic import ValidationError

from controller.kinds.common.labels import container_name
from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.instance_record import WARM, Instance
from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.kinds.quota import amount_of
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec, at_own_level
from controller.kinds.sandboxpool import whole_uid
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.plan.capacity import reservations, shortages
from controller.plan.pool import claim_candidates
from controller.policy.host.host import fitted
from controller.policy.levels.levels import Policy
from controller.policy.profiles import with_profiles
from controller.policy.sandbox import admit_with, reserved
from controller.ports import Clock, Meter, Transaction
from controller.ports.fleet import SINGLE, Fleet
from controller.service.admission import profiles_in
from controller.service.objects.quota import Facts, has_room, has_room_in_namespace, pool_has_room

# Numbers of members read at a time: the first is free unless another process has claimed it, or its claim was undone.
_AT_FIRST, _IN_ONE_GO = 1, 32


class Claims:
    """Claims by the loop's last `snapshot` (None before the first) and the host's `facts`.

    `policy` is the operator's, as the loop has it: a claimed sandbox is one that the loop would start.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot | None],
        meter: Meter,
        facts: Facts,
        clock: Clock,
        policy: Policy | None = None,
        place: Fleet = SINGLE,
    ) -> None:
        self._snapshot, self._meter, self._facts, self._clock = snapshot, meter, facts, clock
        self._policy = policy or Policy()
        self._place = place
        # Members that were handed over here and are still free in the last snapshot. It only says which to read last:
        # a transaction may have been undone after its claim.
        self._handed_over: frozenset[str] = frozenset()

    def claim(self, transaction: Transaction, obj: StoredObject) -> StoredObject:
        """Return the new object with the uid of the member it claims, or unchanged if there is none.

        The caller puts the object in the same transaction.
        """
        last = self._snapshot()
        others_claim = self._place.shares_store
        if obj.kind != "Sandbox" or (not others_claim and (last is None or not last.desired.pools)):
            return obj
        try:
            spec = SandboxSpec.model_validate(obj.spec)
        except ValidationError:
            return obj
        this_host = self._place.host
        was_observed = last is not None and bool(last.observed.at)  # since the daemon's start
        claimed_member = None
        if last is not None and last.desired.pools and not self._place.is_elsewhere(obj):
            claimed_member = self._take(transaction, last, obj, spec)
        if claimed_member is None and others_claim:
            claimed_member = self._take_stored(transaction, obj, spec, self._place.host_of(obj), besides=this_host)
        if claimed_member is None and others_claim and not was_observed and not self._place.is_elsewhere(obj):
            claimed_member = self._take_stored(transaction, obj, spec, this_host)
        self._count(last, obj, spec, claimed_member)
        if claimed_member is None:
            return obj
        member, reserves = claimed_member
        if last is not None and member.uid in last.instances:
            self._handed_over |= {member.uid}
        bound = {**obj.status, **self._place.binding(member.host)}
        claimed = replace(obj, uid=member.uid, status=bound)
        transaction.put_instance(handed_over(member, claimed, reserves))
        message = f"claimed {member.state.container.hostname}, a warm sandbox of pool {member.parent_name}"
        transaction.add_event(Event(claimed.ref, "Normal", "Claimed", message, self._clock.now()))
        return claimed

    def _count(self, last: Snapshot | None, obj: StoredObject, spec: SandboxSpec, claimed_member: object) -> None:
        """Count one claim, or one miss of each pool that matched."""
        if isinstance(claimed_member, tuple):
            self._meter.count("paddock_pool_claims_total", namespace=obj.namespace, pool=claimed_member[0].parent_name)
            return
        for pool in claim_candidates.pools_for(last.desired, obj, spec) if last else ():
            self._meter.count("paddock_pool_claim_misses_total", namespace=obj.namespace, pool=pool.obj.name)

    def _take(
        self, transaction: Transaction, last: Snapshot, obj: StoredObject, spec: SandboxSpec
    ) -> tuple[Instance, Limits] | None:
        """Return the first free member that fits, and its new reservation."""
        facts = self._facts()
        policy = with_profiles(fitted(self._policy, facts), profiles_in(transaction))
        if shortages.waits_behind_shortage(last.progress, last.desired, obj, spec):
            return None
        for pool, member in _still_members(transaction, self._candidates(last, obj, spec)):
            if not claim_candidates.fits(last.observed, pool, member, spec, policy) or pool.template is None:
                continue
            level = policy.levels[at_own_level(spec, pool.template).security_level]
            desired = reserved(spec, pool.template, level.limits)
            reserves = reservations.larger(member.reserves, desired)
            total, counted = amount_of(reserves, 1), amount_of(member.reserves)
            if not pool_has_room(transaction, pool, total, counted):
                continue
            room = has_room(transaction, obj.namespace, facts, total=total, counted=counted, host=self._place.host)
            return (member, reserves) if room else None
        return None

    def _candidates(self, last: Snapshot, obj: StoredObject, spec: SandboxSpec) -> list[tuple[Pool, Instance]]:
        """Return the members that may be taken over, those last that were handed over since the snapshot."""
        members = claim_candidates.candidates(last, obj, spec)
        handed_over = self._handed_over = frozenset(
            uid for uid in self._handed_over if (member := last.instances.get(uid)) is not None and member.role == WARM
        )
        return sorted(members, key=lambda candidate: candidate[1].uid in handed_over) if handed_over else members

    def _take_stored(
        self, transaction: Transaction, obj: StoredObject, spec: SandboxSpec, on: str, besides: str = ""
    ) -> tuple[Instance, Limits] | None:
        """Return the oldest member that is ready by its row, and what the sandbox asks for, and its reservation.

        `on` is the only host that may have it ("": any, except `besides`).

        One that would have to reserve more is left: only its own host's daemon knows what that host has.
        """
        if spec.template_ref is None or spec.pool_policy == "Never" or spec.run_state != "Running":
            return None
        stored_template = transaction.get("SandboxTemplate", obj.namespace, spec.template_ref.name)
        if stored_template is None or stored_template.deleted_at is not None:
            return None
        template = SandboxTemplateSpec.model_validate(stored_template.spec)
        policy = with_profiles(fitted(self._policy, self._facts()), profiles_in(transaction))
        if admit_with(spec, template, policy):
            return None
        key = claim_candidates.ready_key(spec, template, obj.namespace, policy)
        level = policy.levels[at_own_level(spec, template).security_level]
        desired = reserved(spec, template, level.limits)
        for pool in self._pools(transaction, obj, spec, on, besides):
            member = transaction.ready_member(pool, key, besides=besides, on=on)
            if member is None or amount_of(reservations.larger(member.reserves, desired)) != amount_of(member.reserves):
                continue
            counted = amount_of(member.reserves)
            if has_room_in_namespace(transaction, obj.namespace, amount_of(member.reserves, 1), counted):
                return member, replace(member.reserves, cpu_shares=desired.cpu_shares)
        return None

    def _pools(
        self, transaction: Transaction, obj: StoredObject, spec: SandboxSpec, on: str, besides: str
    ) -> Iterable[str]:
        """Return the uids of its template's pools on a host ("": on any, except `besides`)."""
        name = spec.template_ref.name if spec.template_ref else ""
        uids = (
            whole_uid(pool)
            for pool in transaction.list("SandboxPool", obj.namespace)
            if pool.deleted_at is None
            and pool.spec.get("templateRef", {}).get("name") == name
            and on in ("", self._place.host_of(pool))
            and self._place.host_of(pool) not in ("", besides)
        )
        return dict.fromkeys(uids)


def _still_members(
    transaction: Transaction, candidates: list[tuple[Pool, Instance]]
) -> Iterator[tuple[Pool, Instance]]:
    """Yield the stored members that are still free, of pools and templates that did not change since the snapshot."""
    for start in (0, *range(_AT_FIRST, len(candidates), _IN_ONE_GO)):
        some = candidates[start : start + (_IN_ONE_GO if start else _AT_FIRST)]
        stored = transaction.instances_of([member.uid for _, member in some])
        for pool, member in some:
            now = stored.get(member.uid)
            if now is not None and now.role == WARM and _unmoved(transaction, pool):
                yield pool, now


def _unmoved(transaction: Transaction, pool: Pool) -> bool:
    """Return True if the pool and its template are as in the snapshot."""
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
    """Return the member's row, owned by the sandbox."""
    return replace(
        member,
        name=container_name(obj.name, obj.uid),
        parent_uid=obj.uid,
        parent_kind=obj.kind,
        parent_name=obj.name,
        role="sandbox",
        reserves=reserves,
        state=claim_candidates.claimed_state(member.state),
        member_uid="",
    )
