"""The stored quotas, kept as the rest of the desired side is: the same mapping as long as none of them changed."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pydantic import ValidationError

from controller.kinds.hostquota import HostQuotaSpec
from controller.kinds.meta import StoredObject
from controller.kinds.quota import QuotaSpec, StoredQuota
from controller.ports import Change, Store

_SPECS: Mapping[str, type[QuotaSpec]] = {"Quota": QuotaSpec, "HostQuota": HostQuotaSpec}


class Quotas:
    """Quota and HostQuota objects by uid."""

    def __init__(self) -> None:
        self.now: Mapping[str, StoredQuota] = MappingProxyType({})

    def relist(self, store: Store) -> None:
        """Read all of them."""
        found = (each for kind in _SPECS for each in store.list(kind)[0])
        self.now = MappingProxyType({each.uid: _read(each) for each in found})

    def take_in(self, changes: Iterable[Change]) -> None:
        """Bring them up to date."""
        mine = [each for each in changes if each.obj.kind in _SPECS]
        if not mine:
            return
        fresh = dict(self.now)
        for each in mine:
            if each.type == "DELETED":
                fresh.pop(each.obj.uid, None)
            else:
                fresh[each.obj.uid] = _read(each.obj)
        self.now = MappingProxyType(fresh)


def _read(obj: StoredObject) -> StoredQuota:
    """The object with its spec. One that this version can't read bounds everything: see policy/ledger.py."""
    try:
        return StoredQuota(obj, _SPECS[obj.kind].model_validate(obj.spec))
    except ValidationError:
        return StoredQuota(obj, None)
