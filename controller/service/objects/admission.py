"""The one admission that every door asks: the operator's policy, as the host and the profiles are at that moment."""

from collections.abc import Callable
from dataclasses import replace

from controller.kinds.base import Model
from controller.kinds.observed.canary import UNWATCHED, Guarded
from controller.kinds.observed.observed import Observation
from controller.kinds.registry import Kind
from controller.policy.admission import admit
from controller.policy.host.host import fitted
from controller.policy.levels.levels import Policy
from controller.service.objects.apply import Admit
from controller.service.objects.profiles import Profiles, knowing_profiles


def admitting(
    policy: Policy, observe: Callable[[], Observation], guarded: Callable[[], Guarded] = lambda: UNWATCHED
) -> Admit:
    """Admission by the operator's policy. `observe` gives what was seen of the host last, `guarded` by the canary."""
    policy_with = knowing_profiles()

    def admit_now(kind: Kind, spec: Model, _namespace: str, _name: str, profiles: Profiles) -> list[tuple[str, str]]:
        seen = observe()
        own = policy_with(fitted(policy, seen.facts), profiles)
        now = replace(own, unguarded="" if seen.blind else seen.unguarded or guarded().broken)
        return [(each.field, each.message) for each in admit(kind, spec, now)]

    return admit_now
