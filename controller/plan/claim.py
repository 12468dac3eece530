"""A claimed box on its way to being the sandbox's: it is not Ready before its limits and its name are as asked."""

from dataclasses import replace

from controller.plan.case import Decision

REASON = "Claiming"
EXHAUSTED = "PoolExhausted"


def settle(decision: Decision) -> Decision:
    """The decision, held at Claiming while anything is still to be done in the container that was taken over."""
    if not decision.memory.claiming:
        return decision
    if decision.actions and not decision.reason:
        return replace(decision, reason=REASON, message="taking a warm box over: " + ", ".join(decision.drift))
    if decision.reason == "EngineUnreachable":
        return decision
    return replace(decision, memory=replace(decision.memory, claiming=False))
