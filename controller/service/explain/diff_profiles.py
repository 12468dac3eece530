"""Security profiles in a plan that is asked for: as they would be, and whose sandboxes and pools that concerns."""

from collections.abc import Iterable, Mapping, Set

from controller.kinds.meta import StoredObject
from controller.kinds.planning.snapshot import Pool, Sandbox, Snapshot
from controller.kinds.sandbox import leveled
from controller.kinds.securityprofile import KIND, StoredProfile, stored_profile


def profiles_as_asked(last: Snapshot, objects: Iterable[StoredObject]) -> Mapping[str, StoredProfile]:
    """Every profile by uid, those among the objects as they would be."""
    asked = {each.uid: stored_profile(each) for each in objects if each.kind == KIND.name}
    found = {**last.profiles, **asked}
    return {uid: each for uid, each in found.items() if each.obj.deleted_at is None}


def changed_profiles(objects: Iterable[StoredObject]) -> Set[str]:
    """The names of the profiles among the objects."""
    return {each.name for each in objects if each.kind == KIND.name}


def boxes_of(last: Snapshot, names: Set[str]) -> dict[str, Sandbox]:
    """The sandboxes with one of these profiles, by uid."""
    return {uid: each for uid, each in last.sandboxes.items() if profile_of(each) in names}


def pools_of(last: Snapshot, names: Set[str]) -> dict[str, Pool]:
    """The pools whose template names one of these profiles, by uid."""
    return {uid: each for uid, each in last.pools.items() if profile_of(each) in names}


def profile_of(box: Sandbox | Pool) -> str:
    """The security level that it or its template names; empty where there is no template."""
    if box.template is None:
        return ""
    return leveled(box.spec if isinstance(box, Sandbox) else None, box.template).security_level
