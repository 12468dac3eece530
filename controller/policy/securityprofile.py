"""Admission of a SecurityProfile: anything tighter than its base, and the operator's grants beyond that."""

from controller.kinds.securityprofile import SecurityProfileSpec
from controller.policy.levels.levels import Policy
from controller.policy.profiles import refusals
from controller.policy.refusal import Refusal


def admit(spec: SecurityProfileSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse a profile."""
    return tuple(Refusal(f"spec.{refusal.field}", refusal.message) for refusal in refusals(spec, policy))
