"""Admission of a Quota. quota_ledger.py decides if a sandbox fits into one."""

from collections.abc import Iterator

from controller.kinds.quota import RESOURCES, HardLimits, PerSandbox, QuotaSpec
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal


def admit(spec: QuotaSpec, _policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse a quota: only contradictions in itself."""
    return tuple(contradictions(spec.hard, spec.per_sandbox, "spec.hard.", "spec."))


def contradictions(all_: HardLimits, per_sandbox: PerSandbox, hard: str, at: str) -> Iterator[Refusal]:
    """Yield the resources of which one sandbox gets more than all; `hard` and `at` are their paths in the document."""
    for resource in RESOURCES:
        single, most = getattr(per_sandbox, resource.name, None), getattr(all_, resource.name)
        if single is not None and most is not None and single > most:
            limit = f"{hard}{resource.name} allows for all ({resource.text(most)})"
            message = f"{resource.text(single)} is more than {limit}; lower it"
            yield Refusal(f"{at}perSandbox.{resource.name}", message)
