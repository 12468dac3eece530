"""The last snapshot as a diff's documents would have it: pools, claimed members and security profiles."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from pydantic import ValidationError

from controller.kinds.meta import StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import DesiredObjects, PlanningRules, Pool, Sandbox, Snapshot
from controller.kinds.sandbox import Template, at_own_level
from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.kinds.securityprofile import KIND, StoredProfile, stored_profile
from controller.plan.capacity import reservations, shortages
from controller.plan.pool import claim_candidates
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import reserved
from controller.service.objects.claims import handed_over


def pools_after(
    desired: DesiredObjects, objects: Sequence[StoredObject], find_stored: Callable[[str, str], StoredObject | None]
) -> Iterator[Pool]:
    """Yield the pools among the objects, and the pools of templates among them. `find_stored` finds other templates."""
    changed_pools = {obj.uid: obj for obj in objects if obj.kind == "SandboxPool"}
    changed_templates = {(obj.namespace, obj.name): obj for obj in objects if obj.kind == "SandboxTemplate"}
    for uid, obj in {**{uid: pool.obj for uid, pool in desired.pools.items()}, **changed_pools}.items():
        try:
            spec = SandboxPoolSpec.model_validate(obj.spec)
        except ValidationError:
            continue  # it stays as in the snapshot: see loop/desired.py
        key = (obj.namespace, spec.template_ref.name)
        if uid in changed_pools or key in changed_templates:
            template = changed_templates.get(key) or find_stored(*key)
            yield Pool(obj, spec, template_of(template), template.generation if template else 0)


def template_of(obj: StoredObject | None) -> Template | None:
    """Return a template's spec; None if it is absent, in deletion, or unreadable for this version."""
    try:
        return None if obj is None or obj.deleted_at is not None else SandboxTemplateSpec.model_validate(obj.spec)
    except ValidationError:
        return None


def with_claims(world: Snapshot, desired: Sequence[Sandbox], policy: Policy) -> tuple[Snapshot, Mapping[str, Sandbox]]:
    """Return the snapshot with these new sandboxes, and each of them by its uid in the diff.

    A sandbox claims a ready member, as in the transaction that would create it.
    """
    claims, instances = {}, dict(world.instances)
    for sandbox in desired:
        snapshot = replace(world, instances=MappingProxyType(instances))
        row = _claimed_member(snapshot, sandbox, policy)
        obj = sandbox.obj if row is None else replace(sandbox.obj, uid=row.uid)
        if row is not None:
            instances[row.uid] = row
        claims[sandbox.obj.uid] = replace(sandbox, obj=obj)
    unclaimed = {uid: sandbox for uid, sandbox in world.desired.sandboxes.items() if uid not in claims}
    sandboxes = {**unclaimed, **{sandbox.obj.uid: sandbox for sandbox in claims.values()}}
    return replace(
        world, desired=replace(world.desired, sandboxes=sandboxes), instances=MappingProxyType(instances)
    ), claims


def _claimed_member(world: Snapshot, sandbox: Sandbox, policy: Policy) -> Instance | None:
    """Return the row of the member that it would claim, as it would be then."""
    if sandbox.spec is None or shortages.waits_behind_shortage(
        world.progress, world.desired, sandbox.obj, sandbox.spec
    ):
        return None
    for pool, member in claim_candidates.candidates(world, sandbox.obj, sandbox.spec):
        if pool.template is None or not claim_candidates.fits(world.observed, pool, member, sandbox.spec, policy):
            continue
        level = policy.levels[at_own_level(sandbox.spec, pool.template).security_level]
        desired = reserved(sandbox.spec, pool.template, level.limits)
        reserves = reservations.larger(member.reserves, desired)
        if shortages.admits_growth(world, pool, member, reserves):
            return handed_over(member, replace(sandbox.obj, uid=member.uid), reserves)
    return None


def profiles_after(rules: PlanningRules, objects: Iterable[StoredObject]) -> Mapping[str, StoredProfile]:
    """Return every profile by uid, with those among the objects."""
    changed_by_uid = {obj.uid: stored_profile(obj) for obj in objects if obj.kind == KIND.name}
    profiles = {**rules.profiles, **changed_by_uid}
    return {uid: profile for uid, profile in profiles.items() if profile.obj.deleted_at is None}


def changed_profiles(objects: Iterable[StoredObject]) -> Set[str]:
    """Return the names of the profiles among the objects."""
    return {obj.name for obj in objects if obj.kind == KIND.name}


def sandboxes_of(desired: DesiredObjects, names: Set[str]) -> dict[str, Sandbox]:
    """Return the sandboxes with one of these profiles, by uid."""
    return {uid: sandbox for uid, sandbox in desired.sandboxes.items() if profile_of(sandbox) in names}


def pools_of(desired: DesiredObjects, names: Set[str]) -> dict[str, Pool]:
    """Return the pools whose template names one of these profiles, by uid."""
    return {uid: pool for uid, pool in desired.pools.items() if profile_of(pool) in names}


def profile_of(sandbox: Sandbox | Pool) -> str:
    """Return the security level of a sandbox or its template; empty without a template."""
    if sandbox.template is None:
        return ""
    return at_own_level(sandbox.spec if isinstance(sandbox, Sandbox) else None, sandbox.template).security_level
