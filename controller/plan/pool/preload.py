"""Image pulls: one pull per image, however many objects wait for it.

A pool has its image on the host before anybody claims from it: its members pull it, or the pool if it keeps none warm.
"""

from collections.abc import Mapping
from dataclasses import replace

from controller.kinds.planning.action import BuildImage, PullImage
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.outcome import Ok, Waiting
from controller.kinds.planning.plan import Group
from controller.kinds.planning.snapshot import PassProgress, Pool
from controller.plan.base.backoff import CALL_LONGEST_SECONDS, call_delay_seconds, lacks_image, waits
from controller.plan.base.events import result_events
from controller.plan.base.members import member_spec
from controller.plan.base.memo import Fetch, Memo
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.base.reasons import IMAGE_PULLING
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.policy.images import has_recipe
from controller.policy.sandbox import admit_with, render

_RETRY_SECONDS = 1.0


def single_flight(builder: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision, or a wait if its image is being pulled for another object already."""
    snapshot = builder.snapshot
    pulls = [action for action in decision.actions if isinstance(action, PullImage)]
    if not pulls or context.rendered is None:
        return decision
    image = context.rendered.template_fields.get("image", "")
    if _has_container(snapshot.instances, image):
        return decision  # it is here by now: another pull only checks it
    if _is_being_fetched(builder, image):
        decision = replace(decision, actions=(), until=snapshot.now + _RETRY_SECONDS)
        if context.state.backoff.failure is not None and lacks_image(context.state.backoff.failure):
            return decision  # it says why the last pull failed
        message = f"{pulls[0].image} is being pulled for another object"
        return replace(decision, reason=IMAGE_PULLING, message=message)
    builder.pulling.add(image)
    return decision


def under_way(progress: PassProgress, memo: Memo) -> set[str]:
    """Return the images that pools are pulling (hashes of their names)."""
    return {fetch.image for uid, fetch in memo.fetches.items() if uid in progress.in_flight}


def pull_for_pool(builder: PlanBuilder, pool: Pool) -> str:
    """Pull the image of a pool that keeps no member warm. Return the message of why it is missing, or ""."""
    snapshot = builder.snapshot
    memo = builder.memo
    uid = pool.obj.uid
    spec = pool.spec
    if spec is None or spec.warm_replicas or pool.template is None or pool.obj.deleted_at is not None:
        memo.fetches.pop(uid, None)
        return ""
    fetch = memo.fetches.get(uid)
    if fetch is None or fetch.template is not pool.template:
        fetch = Fetch(pool.template, "")
    if uid not in snapshot.progress.in_flight:
        fetch = _begin_pull(builder, pool, _after_attempt(builder, pool, fetch))
    memo.fetches[uid] = fetch
    return fetch.message


def _after_attempt(builder: PlanBuilder, pool: Pool, fetch: Fetch) -> Fetch:
    """Return the state of the pull after an attempt that just ended."""
    snapshot = builder.snapshot
    result = snapshot.progress.results.get(pool.obj.uid)
    for _, outcome in result.done if result is not None else ():
        if isinstance(outcome, Ok):
            return replace(fetch, is_here=True, failures=0, message="")
        if isinstance(outcome, Waiting):  # a build goes on
            return replace(fetch, retry_at=snapshot.now + outcome.after_seconds)
        assert result is not None
        builder.events += result_events(pool.obj, result, snapshot.now)
        failures = fetch.failures + 1
        retry_at = snapshot.now + call_delay_seconds(failures)
        return replace(fetch, failures=failures, retry_at=retry_at, message=outcome.message)
    return fetch


def _begin_pull(builder: PlanBuilder, pool: Pool, prior: Fetch) -> Fetch:
    """Return the state of the pull, with its action added to the plan if it is due."""
    snapshot = builder.snapshot
    policy = builder.policy
    spec = member_spec(pool)
    if prior.is_here or spec is None or pool.template is None or admit_with(spec, pool.template, policy):
        return prior  # what a member would be refused for is not pulled either
    if waits(snapshot.now, prior.retry_at, CALL_LONGEST_SECONDS):
        builder.wakes.append(prior.retry_at)
        return prior
    rendered = render(spec, pool.template, name=pool.obj.name, uid=pool.obj.uid, policy=policy)
    prior = replace(prior, image=rendered.template_fields.get("image", ""))
    if _has_container(snapshot.instances, prior.image):
        return replace(prior, is_here=True, message="")
    if _is_being_fetched(builder, prior.image):
        builder.wakes.append(snapshot.now + _RETRY_SECONDS)
        return prior
    builder.pulling.add(prior.image)
    action_type = BuildImage if has_recipe(rendered.config.image) else PullImage
    action = action_type(rendered.config.image, f"for claims from pool {pool.obj.name}")
    builder.groups.append(Group(pool.obj.ref, pool.obj.generation, deleting=False, actions=(action,)))
    return prior


def _has_container(instances: Mapping[str, Instance], image: str) -> bool:
    """Return True if a container of this image exists."""
    return any(instance.state.container.image_id for instance in instances.values() if _is_of_image(instance, image))


def _is_being_fetched(builder: PlanBuilder, image: str) -> bool:
    snapshot, in_flight = builder.snapshot, builder.snapshot.progress.in_flight
    busy_instances = (instance for instance in snapshot.instances.values() if instance.uid in in_flight)
    return image in builder.pulling or any(
        not instance.state.container.id for instance in busy_instances if _is_of_image(instance, image)
    )


def _is_of_image(instance: Instance, image: str) -> bool:
    return instance.state.container.template_fields.get("image") == image
