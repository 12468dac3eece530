"""What a SandboxPool may say, and what its SandboxTemplate may have in it."""

from controller.kinds.sandbox import Template
from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.policy import mounts
from controller.policy.admission import Refusal
from controller.policy.levels.levels import Policy
from controller.policy.quota import contradictions


def admit(spec: SandboxPoolSpec, _policy: Policy) -> tuple[Refusal, ...]:
    """Every reason to refuse a pool: a quota of its own that contradicts itself."""
    if spec.quota is None:
        return ()
    return tuple(contradictions(spec.quota.hard, spec.quota.per_sandbox, "spec.quota.", "spec.quota."))


def shares_volumes(template: Template | None) -> str:
    """Return why no pool may hand out sandboxes of this template; "" when one may."""
    shared = mounts.shared(template) if template is not None else ()
    if not shared:
        return ""
    names = ", ".join(f"`{each}`" for each in shared)
    return (
        f"its `volumes:` ({names}) would be shared by all sandboxes of a pool; use `volumeClaimTemplates`, which give "
        "each one of its own, or write `readOnly: true`"
    )
