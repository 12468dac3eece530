"""Admission of a SandboxTemplate: as for a sandbox that holds the same template and nothing else."""

from controller.kinds.sandbox import Resources
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal
from controller.policy.sandbox import judge, too_many_cores


def admit(spec: SandboxTemplateSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason why no sandbox could run with this template."""
    return (*judge(spec, Resources(), "spec.", policy), *too_many_cores("spec.", spec.resources.limits.cpu, policy))
