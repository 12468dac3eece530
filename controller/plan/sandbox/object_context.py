"""Contexts of objects, made from a snapshot: containers, rendered spec and recorded state of one object."""

from collections.abc import Mapping

from controller.kinds.common.labels import container_name
from controller.kinds.observed.observed import Container, Observation, State
from controller.kinds.observed.usage import NOT_MEASURED, LayerUsage
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.planning.snapshot import Measurements, Sandbox, Snapshot
from controller.kinds.sandbox import SandboxSpec
from controller.plan.base.memo import KnownRender, Memo, RenderedKey
from controller.plan.base.network_context import network_context
from controller.plan.base.reconcile_context import ReconcileContext, replace_if_changed
from controller.plan.base.renames import with_taken_names
from controller.plan.sandbox import drift, gpus, user_ids
from controller.plan.sandbox import mounts as bound
from controller.policy.container import mounts
from controller.policy.levels.levels import Policy
from controller.policy.quota_ledger import HOST, QuotaBound, above_bounds
from controller.policy.refusal import Refusal
from controller.policy.sandbox import Rendered, render

_RANK = {State.RUNNING: 0, State.PAUSED: 1, State.UNKNOWN: 2, State.CREATED: 3, State.EXITED: 4}


def context_of(snapshot: Snapshot, sandbox: Sandbox, policy: Policy) -> ReconcileContext:
    """Return one object's context from a snapshot whose results are stored, for explanations."""
    instance = snapshot.instances.get(sandbox.obj.uid)
    return context_with(snapshot, sandbox, policy, Memo(), instance.state if instance else InstanceState())


def context_with(
    snapshot: Snapshot, sandbox: Sandbox, policy: Policy, memo: Memo, state: InstanceState
) -> ReconcileContext:
    """Return one object's context, with `state` in place of the stored state; `memo` keeps what was rendered."""
    uid = sandbox.obj.uid
    expected = replace_if_changed(
        state,
        security=replace_if_changed(state.security, user_id=state.security.user_id or memo.user_ids.chosen.get(uid, 0)),
    )
    rendered, refusals = rendered_with(sandbox, policy, memo, expected)
    name = rendered.config.name if rendered else container_name(sandbox.obj.name, uid)
    ranked = own_containers(snapshot.observed, uid, name, state)
    if lacking := user_ids.lacks_user_id(sandbox.obj, rendered, state, ranked) and not snapshot.observed.blind:
        state = replace_if_changed(
            state, security=replace_if_changed(state.security, user_id=memo.user_id(snapshot, uid, policy))
        )
    else:
        memo.user_ids.chosen.pop(uid, None)
    if state.security.user_id != expected.security.user_id:
        rendered, refusals = rendered_with(sandbox, policy, memo, state)
    above = _above_weights(memo.weight_bounds(snapshot), sandbox, rendered)
    layer = _layer(snapshot.measured, ranked)
    context = ReconcileContext(
        now=snapshot.now,
        obj=sandbox.obj,
        spec=sandbox.spec,
        rendered=rendered,
        refusals=refusals,
        container=ranked[0] if ranked else None,
        extra=tuple(ranked[1:]),
        state=state,
        was_unguarded=state.security.is_unguarded,
        instance_id=snapshot.instance_id,
        blind=snapshot.observed.blind,
        probed=snapshot.measured.probes.get(uid),
        lost=snapshot.observed.lost,
        ends=snapshot.observed.ends,
        activity=snapshot.measured.activity.get(uid),
        short_of=snapshot.host.pressure.critical,
        written_bytes=layer.used_bytes or 0,
        unmeasured=layer.trouble,
        stale_gpus=gpus.has_stale_devices(
            snapshot.instances, uid, rendered, state, listed=snapshot.observed.facts.gpus
        ),
        lost_runtime=drift.lost_runtime(ranked[0] if ranked else None, snapshot.observed.facts),
        volumes=bound.volumes_to_reclaim(snapshot.desired, sandbox),
        replaced_volumes=bound.replaced_volumes(snapshot.desired, sandbox),
        models=snapshot.models.gateway.sandboxes.get(uid),
        network=network_context(snapshot, sandbox.obj, rendered, state=state, policy=policy, subnets=memo.subnets),
        above_quota=above,
        lacks_user_id=lacking and not state.security.user_id,
        host=snapshot.fleet.host,
        hibernation=snapshot.host.hibernation,
    )
    return with_taken_names(context, snapshot.observed)


def own_containers(observed: Observation, uid: str, name: str, state: InstanceState) -> list[Container]:
    """Return an object's containers, the one that counts first. `name` is the one that its container gets."""
    containers = [container for container in observed.containers.get(uid, ()) if _is_own(container, name, state)]
    return containers if len(containers) < 2 else sorted(containers, key=lambda container: _rank(container, name))


def _above_weights(bounds: Mapping[str, tuple[QuotaBound, ...]], sandbox: Sandbox, rendered: Rendered | None) -> str:
    """Return the weight and the priority beyond a quota's maximum, as text; "" if neither is."""
    spec, namespace = sandbox.spec, sandbox.obj.namespace
    if not bounds or spec is None or rendered is None:
        return ""
    namespace_bounds = (*bounds.get(namespace, ()), *bounds.get(HOST, ()))
    exceeded = above_bounds(namespace_bounds, rendered.config.limits.cpu_shares, spec.priority)
    return "; ".join(f"spec.{path}: {message}" for path, message in exceeded)


def _layer(measured: Measurements, ranked: list[Container]) -> LayerUsage:
    layer = measured.layers.get(ranked[0].id) if ranked else None
    return layer or NOT_MEASURED


def _is_own(container: Container, wanted_name: str, state: InstanceState) -> bool:
    """Return True if a container with the object's labels is its own: by its derived name, or because we created it."""
    return container.name == wanted_name or container.id in (state.container.id, state.runs.last.container_id)


def _rank(container: Container, wanted_name: str) -> tuple[int, bool, str]:
    """Return the sort key of an object's containers: the running one counts first, then the one with the right name."""
    return _RANK.get(container.state, 9), container.name != wanted_name, container.id


def rendered_with(
    sandbox: Sandbox, policy: Policy, memo: Memo, state: InstanceState
) -> tuple[Rendered | None, tuple[Refusal, ...]]:
    """Return the sandbox's whole configuration, or None and the refusals."""
    obj = sandbox.obj
    hostname = state.container.hostname
    user_id = state.security.user_id
    stored = memo.rendered.get(obj.uid)
    spec, template = sandbox.spec, sandbox.template
    if (
        stored is not None
        and stored.key.spec is spec
        and stored.key.template is template
        and stored.key[2:] == (obj.name, hostname, sandbox.broken, user_id)
    ):
        return stored.rendered, stored.refusals
    rendered: Rendered | None = None
    if sandbox.spec is None:
        refusals: tuple[Refusal, ...] = (Refusal("spec", sandbox.broken),)
    elif sandbox.template is None:
        refusals = (_no_template(sandbox.spec, obj.namespace),)
    else:
        shape = memo.shape(sandbox.spec, sandbox.template, policy)
        refusals = (*shape.refusals, *mounts.clashes(sandbox.spec, sandbox.template, obj.name))
        if not refusals:
            rendered = render(
                sandbox.spec,
                sandbox.template,
                name=obj.name,
                uid=obj.uid,
                policy=policy,
                hostname=hostname,
                namespace=obj.namespace,
                shape=shape.shape,
                user_id=user_id,
            )
    key = RenderedKey(spec, template, name=obj.name, hostname=hostname, broken=sandbox.broken, user_id=user_id)
    memo.rendered[obj.uid] = KnownRender(key, rendered, refusals)
    return rendered, refusals


def _no_template(spec: SandboxSpec, namespace: str) -> Refusal:
    name = spec.template_ref.name if spec.template_ref else ""
    place = f"in namespace `{namespace}`"
    message = f"there is no SandboxTemplate `{name}` {place} (or it is being deleted, or can't be read); apply it"
    return Refusal("spec.templateRef.name", message)
