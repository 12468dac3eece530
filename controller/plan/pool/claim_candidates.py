"""Claims of warm members: which fit a new sandbox, in what order, and the reason if none was claimed.

A member fits if its container is what the sandbox would get, except for what is changed in place (limits, name).
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from controller.kinds.meta import Event, StoredObject
from controller.kinds.observed.observed import Container, Observation
from controller.kinds.planning.instance_record import WARM, Instance
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.planning.snapshot import DesiredObjects, Pool, Sandbox, Snapshot
from controller.kinds.quota import amount_of, pool_scope
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.sandbox import SandboxSpec, Template
from controller.kinds.sandboxpool import whole_uid
from controller.plan.base.instance_index import index_of
from controller.plan.base.members import member_spec
from controller.plan.base.reconcile_context import Decision
from controller.plan.pool.sandboxpool import is_ready, is_used, sharing
from controller.policy.levels.levels import Policy
from controller.policy.quota_ledger import NOTHING, judge, pool_quotas
from controller.policy.sandbox import NO_LIMITS, Rendered, admit_with, render, reserved

_PRIVATE = ("hostname",)  # a claimed container keeps the hostname that it was started with


def claimed_state(state: InstanceState) -> InstanceState:
    """Return the initial state of a sandbox that takes over a member: its container's history, and its pool."""
    fresh = replace(
        state, runs=replace(state.runs, restarts=0, crashes=0, last_end=None), claim=replace(state.claim, ready_key="")
    )
    return replace(fresh, claim=replace(fresh.claim, launch="Warm", launch_reason="", is_pending=True))


def pools_for(desired: DesiredObjects, obj: StoredObject, spec: SandboxSpec) -> list[Pool]:
    """Return the pools of the sandbox's template, those of the highest priority first, then by name."""
    if spec.template_ref is None or spec.pool_policy == "Never":
        return []
    pools = [
        pool
        for pool in desired.pools.values()
        if pool.obj.namespace == obj.namespace and pool.spec and pool.spec.template_ref == spec.template_ref
    ]
    return sorted(pools, key=lambda pool: (-pool.spec.priority if pool.spec else 0, pool.obj.name))


def candidates(snapshot: Snapshot, obj: StoredObject, spec: SandboxSpec) -> list[tuple[Pool, Instance]]:
    """Return the members that it may take over if they fit, oldest first, each with its pool."""
    if spec.run_state != "Running" or snapshot.observed.blind:
        return []
    own_pools = [pool for pool in pools_for(snapshot.desired, obj, spec) if pool.obj.deleted_at is None]
    pools = {pool.obj.uid: pool for pool in own_pools if not sharing([pool])}
    index = index_of(snapshot.instances)
    pool_members = (snapshot.instances[uid] for pool in pools for uid in index.members.get(pool, ()))
    members = [
        candidate
        for candidate in pool_members
        if candidate.role == WARM and candidate.uid not in snapshot.progress.in_flight
    ]
    members.sort(key=lambda member: (member.created_at, member.uid))
    return [(pools[member.parent_uid], member) for member in members]


def fits(observed: Observation, pool: Pool, member: Instance, spec: SandboxSpec, policy: Policy) -> bool:
    """Return True if the sandbox may have this member: it is ready, and what the sandbox asks for."""
    containers = observed.containers.get(member.uid, ())
    own_containers = [container for container in containers if container.id == member.state.container.id]
    if (
        len(own_containers) != 1
        or is_used(member, own_containers, pool)
        or pool.template is None
        or admit_with(spec, pool.template, policy)
    ):
        return False
    rendered = render(
        spec,
        pool.template,
        name=member.state.container.hostname,
        uid=member.uid,
        policy=policy,
        namespace=pool.obj.namespace,
        user_id=member.state.security.user_id,
    )
    is_equal = (own_containers[0].config_hash, own_containers[0].template_hash) == (
        rendered.config_hash,
        rendered.template_hash,
    )
    return is_equal and is_ready(member, own_containers[0], rendered) and _has_mounts(own_containers[0], rendered)


def _has_mounts(container: Container, rendered: Rendered) -> bool:
    """Return True unless something else is bound already: a snapshot's workspace in place of the sandbox's own."""
    desired = {mount.path: str(mount) for mount in rendered.config.mounts}
    return all(desired.get(binding.path, binding.mount) == binding.mount for binding in container.bound)


def ready_key(spec: SandboxSpec, template: Template, namespace: str, policy: Policy) -> str:
    """Return what tells if a member of another host is what a sandbox asks for: equal keys are equal containers.

    It is made alike on each host, of its own settings. Raises nothing for a spec that is admitted. Folders in memory of
    a snapshot's members are bound before a claim.
    """
    rendered = render(spec, template, name="member", uid="", policy=policy, namespace=namespace)
    is_filled = bool(rendered.config.restore_from)
    bound = [str(mount) for mount in rendered.config.mounts if is_filled and mount.kind == "memory"]
    return "; ".join((f"{rendered.config_hash} {rendered.template_hash}", *bound))


def launch_cold(
    desired: DesiredObjects, sandbox: Sandbox, decision: Decision, before: InstanceState, *, policy: Policy, now: float
) -> Decision:
    """Return the decision to create a container, with the reason of the cold start.

    An event tells it if a pool could have served. A pool's own members are not launched for anybody.
    """
    if sandbox.obj.kind != "Sandbox":
        return decision
    why = cold_start_reason(desired, sandbox, policy)
    decision = replace(
        decision, state=replace(decision.state, claim=replace(decision.state.claim, launch="Cold", launch_reason=why))
    )
    if before.claim.launch or not _could_be_warm(desired, sandbox):
        return decision
    return decision.with_event(Event(sandbox.obj.ref, "Normal", "ColdStart", why, now))


def _could_be_warm(desired: DesiredObjects, sandbox: Sandbox) -> bool:
    """Return True if a pool could have served it when it was created: only then are members claimed."""
    if sandbox.spec is None or sandbox.obj.generation != 1:
        return False
    pools = pools_for(desired, sandbox.obj, sandbox.spec)
    return any(pool.obj.created_at <= sandbox.obj.created_at for pool in pools)


def cold_start_reason(desired: DesiredObjects, sandbox: Sandbox, policy: Policy) -> str:
    """Return the reason why a sandbox was started without a pool, for its status."""
    spec = sandbox.spec
    if spec is None or spec.template_ref is None:
        return "its template is its own; pools have members of a SandboxTemplate"
    if spec.pool_policy == "Never":
        return "poolPolicy is Never"
    pools = pools_for(desired, sandbox.obj, spec)
    if not pools:
        return f"there is no SandboxPool of template `{spec.template_ref.name}`"
    message = [f"pool `{pool.obj.name}` {_missing(pool, sandbox, policy)}" for pool in pools]
    return "; ".join(message)


def _missing(pool: Pool, sandbox: Sandbox, policy: Policy) -> str:
    """Return what kept a pool from serving a sandbox when that was created."""
    if pool.obj.deleted_at is not None:
        return "is being deleted"
    if pool.obj.created_at > sandbox.obj.created_at:
        return "was created after it"
    differing = list(pool_differences(pool, sandbox, policy))
    if differing:
        return f"has other members: {', '.join(differing)}"
    if sandbox.spec is not None and pool.template is not None:
        requested = amount_of(reserved(sandbox.spec, pool.template, NO_LIMITS), 1)
        for bound in pool_quotas([pool]).get(pool_scope(whole_uid(pool.obj)), ()):
            verdict = judge(bound, NOTHING, requested, NOTHING)
            if verdict.never:
                return f"has a quota: it can never fit {bound}: {'; '.join(verdict.reasons)}"
    if pool.spec is not None and not pool.spec.warm_replicas:
        return "keeps no member warm (its warmReplicas is 0)"
    return "had no member ready of its template as it is now"


def pool_differences(pool: Pool, sandbox: Sandbox, policy: Policy) -> Iterator[str]:
    """Yield the fields in which the sandbox's container differs from the pool's, other than those changed in place."""
    spec = sandbox.spec
    template = pool.template
    member = member_spec(pool)
    if spec is None or template is None or member is None:
        return
    if admit_with(spec, template, policy) or admit_with(member, template, policy):
        return
    of_sandbox, of_pool = (
        # One name for both: it is no difference between them.
        render(sandbox_spec, template, name="sandbox", uid="", policy=policy).config
        for sandbox_spec in (spec, member)
    )
    for field in fields(ContainerConfig):
        if field.metadata.get("mutable") or field.name in _PRIVATE:
            continue
        sandbox_value, pool_value = getattr(of_sandbox, field.name), getattr(of_pool, field.name)
        if sandbox_value != pool_value:
            yield f"{_camel(field.name)} {_short_text(pool_value)}, desired {_short_text(sandbox_value)}"


def _camel(name: str) -> str:
    first, *later_words = name.split("_")
    return first + "".join(word.capitalize() for word in later_words)


def _short_text(value: Any) -> str:
    """Return a short form of a value; an environment by its names alone: its values may be private."""
    if isinstance(value, tuple):
        return (
            "[" + ", ".join(str(element[0]) if isinstance(element, tuple) else str(element) for element in value) + "]"
        )
    return str(value) or "none"
