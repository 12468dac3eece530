"""An image that is not on this host is fetched once, however many wait for it: the others wait for the first."""

from dataclasses import replace

from controller.kinds.action import PullImage
from controller.kinds.snapshot import Snapshot
from controller.plan.case import Case, Decision
from controller.plan.draft import Draft

REASON = "ImagePulling"
_LOOK_SECONDS = 1.0


def single_flight(draft: Draft, snapshot: Snapshot, case: Case, decision: Decision) -> Decision:
    """The decision; or to wait, where it would fetch what is being fetched for another object already."""
    pulls = [each for each in decision.actions if isinstance(each, PullImage)]
    if not pulls or case.rendered is None:
        return decision
    image = case.rendered.template_fields.get("image", "")
    others = [each for each in snapshot.instances.values() if each.memory.made_from.get("image") == image]
    if any(each.memory.image_id for each in others):
        return decision  # somebody runs it: it is here by now, and fetching it again is a look
    busy = any(each.uid in snapshot.in_flight and not each.memory.container for each in others)
    if busy or image in draft.pulling:
        words = f"{pulls[0].image} is being fetched for another one"
        return replace(decision, actions=(), reason=REASON, message=words, until=snapshot.now + _LOOK_SECONDS)
    draft.pulling.add(image)
    return decision
