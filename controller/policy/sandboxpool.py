"""Admission of a SandboxPool and of its SandboxTemplate."""

from controller.kinds.sandbox import Template
from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.policy.container import mounts
from controller.policy.host import binding
from controller.policy.levels.levels import Policy
from controller.policy.quota import contradictions
from controller.policy.refusal import Refusal


def admit(spec: SandboxPoolSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse a pool: contradictions in its own quota, and its host."""
    placed = binding.refusals(spec.host, policy)
    if spec.quota is None:
        return placed
    return (*placed, *contradictions(spec.quota.hard, spec.quota.per_sandbox, "spec.quota.", "spec.quota."))


def shares_volumes(template: Template | None) -> str:
    """Return why no pool may use this template; "" if one may."""
    shared = mounts.shared_volumes(template) if template is not None else ()
    if not shared:
        return ""
    names = ", ".join(f"`{volume}`" for volume in shared)
    return (
        f"its `volumes:` ({names}) would be shared by all sandboxes of a pool; use `volumeClaimTemplates`, which give "
        "each one of its own, or write `readOnly: true`"
    )
