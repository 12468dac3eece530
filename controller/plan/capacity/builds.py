"""Builds of Paddock's own images: one that is missing and has a recipe is built before the containers that need it."""

from dataclasses import replace

from controller.kinds.planning.action import BuildImage, CreateContainer
from controller.plan.base.backoff import IMAGE_BUILDING, is_backing_off, lacks_image
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.policy.images import has_recipe

_WHY = "not on this host"


def build_missing(_: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision, or the build of the image that was missing at the last try in place of its actions.

    The image is the sandbox's own, that of its agent, or that of its egress container.
    """
    failure = context.state.backoff.failure
    creates = any(isinstance(action, CreateContainer) for action in decision.actions)
    if failure is None or not creates or not is_backing_off(failure, context.obj.generation, context.deleting):
        return decision
    if not has_recipe(failure.image):
        return decision
    decision = replace(decision, actions=(BuildImage(failure.image, _WHY),))
    if lacks_image(failure):  # a retry is no news: who waits is to see why
        return decision
    if failure.reason == IMAGE_BUILDING:
        return replace(decision, reason=IMAGE_BUILDING, message=failure.message)
    message = f"{failure.image} is not on this host; its build begins"
    build_event = context.event(IMAGE_BUILDING, message)
    return replace(decision, reason=IMAGE_BUILDING, message=message).with_event(build_event)
