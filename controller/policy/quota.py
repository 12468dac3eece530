"""Admission of a Quota. quota_ledger.py decides if a sandbox fits into one."""

from collections.abc import Iterator

from controller.kinds.quota import RESOURCES, HardLimits, PerSandbox, QuotaSpec
from controller.policy.admission import Refusal
from controller.policy.levels.levels import Policy


def admit(spec: QuotaSpec, _policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse a quota: only contradictions in itself."""
    return tuple(contradictions(spec.hard, spec.per_sandbox, "spec.hard.", "spec."))


def contradictions(all_: HardLimits, per_sandbox: PerSandbox, hard: str, at: str) -> Iterator[Refusal]:
    """Yield the resources of which one sandbox gets more than all; `hard` and `at` are their paths in the document."""
    for each in RESOURCES:
        one, most = getattr(per_sandbox, each.name, None), getattr(all_, each.name)
        if one is not None and most is not None and one > most:
            words = f"{each.text(one)} is more than {hard}{each.name} allows for all ({each.text(most)}); lower it"
            yield Refusal(f"{at}perSandbox.{each.name}", words)
