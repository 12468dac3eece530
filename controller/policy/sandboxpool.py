"""What a SandboxPool may say."""

from controller.kinds.quota import HardLimits, QuotaSpec
from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.policy.admission import Refusal
from controller.policy.levels.levels import Policy
from controller.policy.quota import contradictions


def admit(spec: SandboxPoolSpec, _policy: Policy) -> tuple[Refusal, ...]:
    """Every reason to refuse a pool: a quota of its own that contradicts itself."""
    if spec.quota is None:
        return ()
    hard = HardLimits(cpu=spec.quota.cpu, memory=spec.quota.memory, pids=spec.quota.pids)
    return tuple(contradictions(QuotaSpec(hard=hard, per_sandbox=spec.quota.per_sandbox), "spec.quota.", "spec.quota."))
