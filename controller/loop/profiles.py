"""The operator's own security profiles, kept as the quotas are: the same mapping as long as none of them changed."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from controller.kinds.securityprofile import KIND, StoredProfile, stored_profile
from controller.ports import Change, Store


class Profiles:
    """SecurityProfile objects by uid."""

    def __init__(self) -> None:
        self.now: Mapping[str, StoredProfile] = MappingProxyType({})

    def relist(self, store: Store) -> None:
        """Read all of them."""
        self.now = MappingProxyType({each.uid: stored_profile(each) for each in store.list(KIND.name)[0]})

    def take_in(self, changes: Iterable[Change]) -> None:
        """Bring them up to date."""
        mine = [each for each in changes if each.obj.kind == KIND.name]
        if not mine:
            return
        fresh = dict(self.now)
        for each in mine:
            if each.type == "DELETED":
                fresh.pop(each.obj.uid, None)
            else:
                fresh[each.obj.uid] = stored_profile(each.obj)
        self.now = MappingProxyType(fresh)
