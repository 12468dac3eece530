"""Admission by the operator's policy, with the host and the security profiles as they are at that moment."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from controller.kinds.base import Model
from controller.kinds.meta import StoredObject
from controller.kinds.observed.canary import UNWATCHED, CanaryResult
from controller.kinds.observed.observed import Observation
from controller.kinds.registry import Kind
from controller.kinds.securityprofile import KIND, StoredProfile, stored_profile
from controller.policy.admission import admit
from controller.policy.host.host import elsewhere, fitted
from controller.policy.levels.levels import Policy
from controller.policy.profiles import with_profiles
from controller.ports import Transaction
from controller.ports.fleet import SINGLE, Fleet

Profiles = tuple[StoredProfile, ...]
# Admission of a spec: (field path such as `spec.template.user`, message) for every reason to refuse it.
Admit = Callable[[Kind, Model, str, str, Profiles], Iterable[tuple[str, str]]]


def admitting(
    policy: Policy,
    observe: Callable[[], Observation],
    canary: Callable[[], CanaryResult] = lambda: UNWATCHED,
    place: Fleet = SINGLE,
) -> Admit:
    """Return admission by the operator's policy.

    `observe` gives the last observation of the host, `canary` the canary's last result. Beside other hosts, only what
    names this one is judged by them: any other object is judged by its own host's daemon, too, once it has one.
    """
    policy_with, elsewhere_with, of_others = cached_policy(), cached_policy(), elsewhere(policy)

    def admit_now(kind: Kind, spec: Model, _namespace: str, name: str, profiles: Profiles) -> list[tuple[str, str]]:
        if place.judges(getattr(spec, "host", None)):
            observation = observe()
            effective = policy_with(fitted(policy, observation.facts), profiles)
            now = replace(effective, unguarded="" if observation.blind else observation.unguarded or canary().broken)
        else:
            now = elsewhere_with(of_others, profiles)
        return [(refusal.field, refusal.message) for refusal in admit(kind, spec, now, name)]

    return admit_now


def profiles_in(transaction: Transaction, new_objects: Iterable[StoredObject] = ()) -> Profiles:
    """Return every security profile that is not being deleted; those among `new_objects` replace the stored ones."""
    profiles = {profile.name: profile for profile in transaction.list(KIND.name, "") if profile.deleted_at is None}
    profiles |= {obj.name: obj for obj in new_objects if obj.kind == KIND.name}
    return tuple(stored_profile(profiles[name]) for name in sorted(profiles))


def cached_policy() -> Callable[[Policy, Profiles], Policy]:
    """Return `with_profiles` with a cache of its last result: all documents of a request ask for the same one."""
    last: tuple[Policy, Profiles, Policy] | None = None

    def policy_with(policy: Policy, profiles: Profiles) -> Policy:
        nonlocal last
        known = last
        if known is None or known[1] is not profiles or known[0] != policy:
            last = known = (policy, profiles, with_profiles(policy, profiles))
        return known[2]

    return policy_with
