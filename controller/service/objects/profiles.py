"""The operator's own security profiles as a transaction sees them: what is stored, and what it is about to write."""

from collections.abc import Callable, Iterable

from controller.kinds.meta import StoredObject
from controller.kinds.securityprofile import KIND, StoredProfile, stored_profile
from controller.policy.levels.levels import Policy
from controller.policy.levels.profiles import with_profiles
from controller.ports import Transaction

Profiles = tuple[StoredProfile, ...]


def profiles_in(transaction: Transaction, written: Iterable[StoredObject] = ()) -> Profiles:
    """Every profile that is not being deleted, those of `written` as they are there."""
    found = {each.name: each for each in transaction.list(KIND.name, "") if each.deleted_at is None}
    found |= {each.name: each for each in written if each.kind == KIND.name}
    return tuple(stored_profile(found[name]) for name in sorted(found))


def knowing_profiles() -> Callable[[Policy, Profiles], Policy]:
    """`with_profiles` that remembers its last answer: a file of many documents asks for one and the same."""
    last: tuple[Policy, Profiles, Policy] | None = None

    def policy_with(policy: Policy, profiles: Profiles) -> Policy:
        nonlocal last
        known = last
        if known is None or known[1] is not profiles or known[0] != policy:
            last = known = (policy, profiles, with_profiles(policy, profiles))
        return known[2]

    return policy_with
