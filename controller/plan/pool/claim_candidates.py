"""Claims of warm members: which fit a new sandbox, in what order, and the reason if none was claimed.

A member fits if its container is what the sandbox would get, except for what is changed in place (limits, name).
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.action import RenameContainer
from controller.kinds.planning.instance_record import WARM, Instance, InstanceState
from controller.kinds.planning.snapshot import Pool, Sandbox, Snapshot
from controller.kinds.quota import amount_of, pool_scope
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.sandbox import SandboxSpec, Template
from controller.kinds.sandboxpool import whole_uid
from controller.plan.common.instance_index import index_of
from controller.plan.common.reconcile_context import Decision
from controller.plan.pool.sandboxpool import SHARED, is_ready, is_used, member_spec, sharing
from controller.policy.levels.levels import Policy
from controller.policy.quota_ledger import NOTHING, judge, pool_quotas
from controller.policy.sandbox import NO_LIMITS, admit_with, render, reserved

CLAIMING = "Claiming"
EXHAUSTED = "PoolExhausted"
# Reasons of a sandbox that its pool gives nothing now: it is not started, and decided again in every pass.
WITHHELD = (EXHAUSTED, SHARED)
_PRIVATE = ("hostname",)  # a claimed container keeps the hostname that it was started with


def claimed_state(memory: InstanceState) -> InstanceState:
    """Return the initial state of a sandbox that takes over a member: its container's history, and its pool."""
    fresh = replace(memory, restarts=0, crashes=0, last_end=None, ready_key="")
    return replace(fresh, launch="Warm", launch_reason="", claiming=True)


def pools_for(snapshot: Snapshot, obj: StoredObject, spec: SandboxSpec) -> list[Pool]:
    """Return the pools of the sandbox's template, those of the highest priority first, then by name."""
    if spec.template_ref is None or spec.pool_policy == "Never":
        return []
    found = [
        each
        for each in snapshot.pools.values()
        if each.obj.namespace == obj.namespace and each.spec and each.spec.template_ref == spec.template_ref
    ]
    return sorted(found, key=lambda each: (-each.spec.priority if each.spec else 0, each.obj.name))


def candidates(snapshot: Snapshot, obj: StoredObject, spec: SandboxSpec) -> list[tuple[Pool, Instance]]:
    """Return the members that it may take over if they fit, oldest first, each with its pool."""
    if spec.run_state != "Running" or snapshot.observed.blind:
        return []
    found = [each for each in pools_for(snapshot, obj, spec) if each.obj.deleted_at is None]
    pools = {each.obj.uid: each for each in found if not sharing([each])}
    index = index_of(snapshot.instances)
    own = (snapshot.instances[uid] for pool in pools for uid in index.members.get(pool, ()))
    members = [each for each in own if each.role == WARM and each.uid not in snapshot.in_flight]
    members.sort(key=lambda each: (each.created_at, each.uid))
    return [(pools[each.parent_uid], each) for each in members]


def fits(snapshot: Snapshot, pool: Pool, member: Instance, spec: SandboxSpec, policy: Policy) -> bool:
    """Return True if the sandbox may have this member: it is ready, and what the sandbox asks for."""
    seen = snapshot.observed.containers.get(member.uid, ())
    own = [each for each in seen if each.id == member.memory.container]
    if len(own) != 1 or is_used(member, own) or pool.template is None or admit_with(spec, pool.template, policy):
        return False
    wanted = render(
        spec,
        pool.template,
        name=member.memory.hostname,
        uid=member.uid,
        policy=policy,
        namespace=pool.obj.namespace,
        user_id=member.memory.user_id,
    )
    same = (own[0].config_hash, own[0].template_hash) == (wanted.config_hash, wanted.template_hash)
    return same and is_ready(member, own[0], wanted)


def ready_key(spec: SandboxSpec, template: Template, namespace: str, policy: Policy) -> str:
    """Return what tells if a member of another host is what a sandbox asks for: equal keys are equal containers.

    It is made alike on each host, of its own settings. Raises nothing for a spec that is admitted.
    """
    made = render(spec, template, name="member", uid="", policy=policy, namespace=namespace)
    return f"{made.config_hash} {made.template_hash}"


def launched_cold(
    snapshot: Snapshot, sandbox: Sandbox, decision: Decision, before: InstanceState, policy: Policy
) -> Decision:
    """Return the decision to create a container.

    With the reason of the cold start, and an event if a pool could have served.

    A pool's own members are not launched for anybody.
    """
    if sandbox.obj.kind != "Sandbox":
        return decision
    why = cold(snapshot, sandbox, policy)
    decision = replace(decision, memory=replace(decision.memory, launch="Cold", launch_reason=why))
    if before.launch or not _could_be_warm(snapshot, sandbox):
        return decision
    return decision.with_event(Event(sandbox.obj.ref, "Normal", "ColdStart", why, snapshot.now))


def _could_be_warm(snapshot: Snapshot, sandbox: Sandbox) -> bool:
    """Return True if a pool could have served it when it was created: only then are members claimed."""
    if sandbox.spec is None or sandbox.obj.generation != 1:
        return False
    pools = pools_for(snapshot, sandbox.obj, sandbox.spec)
    return any(each.obj.created_at <= sandbox.obj.created_at for each in pools)


def cold(snapshot: Snapshot, sandbox: Sandbox, policy: Policy) -> str:
    """Return the reason why a sandbox was started without a pool, for its status."""
    spec = sandbox.spec
    if spec is None or spec.template_ref is None:
        return "its template is its own; pools have members of a SandboxTemplate"
    if spec.pool_policy == "Never":
        return "poolPolicy is Never"
    found = pools_for(snapshot, sandbox.obj, spec)
    if not found:
        return f"there is no SandboxPool of template `{spec.template_ref.name}`"
    message = [f"pool `{each.obj.name}` {_missing(each, sandbox, policy)}" for each in found]
    return "; ".join(message)


def _missing(pool: Pool, sandbox: Sandbox, policy: Policy) -> str:
    if pool.obj.deleted_at is not None:
        return "is being deleted"
    if pool.obj.created_at > sandbox.obj.created_at:
        return "was created after it"
    differing = list(differences(pool, sandbox, policy))
    if differing:
        return f"has other members: {', '.join(differing)}"
    if sandbox.spec is not None and pool.template is not None:
        asked = amount_of(reserved(sandbox.spec, pool.template, NO_LIMITS), 1)
        for bound in pool_quotas([pool]).get(pool_scope(whole_uid(pool.obj)), ()):
            found = judge(bound, NOTHING, asked, NOTHING)
            if found.never:
                return f"has a quota: it can never fit {bound}: {'; '.join(found.reasons)}"
    if pool.spec is not None and not pool.spec.warm_replicas:
        return "keeps no member warm (its warmReplicas is 0)"
    return "had no member ready of its template as it is now"


def differences(pool: Pool, sandbox: Sandbox, policy: Policy) -> Iterator[str]:
    """Yield the fields in which the sandbox's container differs from the pool's, other than those changed in place."""
    spec, template, member = sandbox.spec, pool.template, member_spec(pool)
    if spec is None or template is None or member is None:
        return
    if admit_with(spec, template, policy) or admit_with(member, template, policy):
        return
    ours, theirs = (render(each, template, name="box", uid="", policy=policy).config for each in (spec, member))
    for each in fields(ContainerConfig):
        if each.metadata.get("mutable") or each.name in _PRIVATE:
            continue
        wanted, found = getattr(ours, each.name), getattr(theirs, each.name)
        if wanted != found:
            yield f"{_camel(each.name)} {_short(found)}, desired {_short(wanted)}"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _short(value: Any) -> str:
    """Return a short form of a value; an environment by its names alone: its values may be private."""
    if isinstance(value, tuple):
        return "[" + ", ".join(str(each[0]) if isinstance(each, tuple) else str(each) for each in value) + "]"
    return str(value) or "none"


def settle(decision: Decision) -> Decision:
    """Return the decision, held at Claiming while anything but the name differs in the container taken over.

    The name does not delay Ready: everything goes by ids, and a rename is one more engine call.
    """
    if not decision.memory.claiming:
        return decision
    first = tuple(each for each in decision.actions if not isinstance(each, RenameContainer))
    if first and not decision.reason:
        drift = tuple(each for each in decision.drift if each != "name")
        message = "taking over a warm member: " + ", ".join(drift)
        return replace(decision, actions=first, drift=drift, reason=CLAIMING, message=message)
    if decision.reason in ("EngineUnreachable", "Waking"):
        return decision
    return replace(decision, memory=replace(decision.memory, claiming=False))
