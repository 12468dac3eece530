"""What a SecurityProfile may say: anything tighter than its base, and what the operator grants beyond that."""

from controller.kinds.securityprofile import SecurityProfileSpec
from controller.policy.admission import Refusal
from controller.policy.levels.levels import Policy
from controller.policy.levels.profiles import refusals


def admit(spec: SecurityProfileSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Every reason to refuse a profile."""
    return tuple(Refusal(f"spec.{each.field}", each.message) for each in refusals(spec, policy))
