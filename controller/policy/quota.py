"""What a Quota may say. What fits one is in ledger.py."""

from collections.abc import Iterator

from controller.kinds.quota import RESOURCES, QuotaSpec
from controller.policy.admission import Refusal
from controller.policy.levels import Policy


def admit(spec: QuotaSpec, _policy: Policy) -> tuple[Refusal, ...]:
    """Every reason to refuse a quota: only that it contradicts itself."""
    return tuple(_contradictions(spec))


def _contradictions(spec: QuotaSpec) -> Iterator[Refusal]:
    for each in RESOURCES:
        one, most = getattr(spec.per_sandbox, each.name, None), getattr(spec.hard, each.name)
        if one is not None and most is not None and one > most:
            words = f"{each.text(one)} is more than spec.hard.{each.name} allows for all ({each.text(most)}); lower it"
            yield Refusal(f"spec.perSandbox.{each.name}", words)
