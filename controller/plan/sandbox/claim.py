"""A claimed box on its way to being the sandbox's: it is not Ready before its limits are as asked.

Its name is not waited for: everything goes by ids, and a rename is one more engine call. It is put right after that.
"""

from dataclasses import replace

from controller.kinds.planning.action import RenameContainer
from controller.plan.common.reconcile_context import Decision

REASON = "Claiming"
EXHAUSTED = "PoolExhausted"
SHARED = "SharedVolume"
# Reasons of a sandbox that its pool gives nothing now: it is not started, and looked at again in every pass.
WITHHELD = (EXHAUSTED, SHARED)


def settle(decision: Decision) -> Decision:
    """The decision, held at Claiming while anything but the name is to be done in the container taken over."""
    if not decision.memory.claiming:
        return decision
    first = tuple(each for each in decision.actions if not isinstance(each, RenameContainer))
    if first and not decision.reason:
        drift = tuple(each for each in decision.drift if each != "name")
        words = "taking a warm box over: " + ", ".join(drift)
        return replace(decision, actions=first, drift=drift, reason=REASON, message=words)
    if decision.reason == "EngineUnreachable":
        return decision
    return replace(decision, memory=replace(decision.memory, claiming=False))
