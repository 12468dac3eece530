"""The operator's own security profiles as a transaction sees them: what is stored, and what it is about to write."""

from collections.abc import Iterable

from controller.kinds.meta import StoredObject
from controller.kinds.securityprofile import KIND, StoredProfile, stored_profile
from controller.ports import Transaction

Profiles = tuple[StoredProfile, ...]


def profiles_in(transaction: Transaction, written: Iterable[StoredObject] = ()) -> Profiles:
    """Every profile, those of `written` as they are there."""
    found = {each.name: each for each in transaction.list(KIND.name, "")}
    found |= {each.name: each for each in written if each.kind == KIND.name}
    return tuple(stored_profile(found[name]) for name in sorted(found))
