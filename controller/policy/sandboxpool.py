"""What a SandboxPool may say."""

from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.policy.admission import Refusal
from controller.policy.levels.levels import Policy
from controller.policy.quota import contradictions


def admit(spec: SandboxPoolSpec, _policy: Policy) -> tuple[Refusal, ...]:
    """Every reason to refuse a pool: a quota of its own that contradicts itself."""
    if spec.quota is None:
        return ()
    return tuple(contradictions(spec.quota.hard, spec.quota.per_sandbox, "spec.quota.", "spec.quota."))
