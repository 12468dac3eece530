"""HostQuota: upper bound for all sandboxes of one host together. It has the host's name; defaults apply without it.

Fields left out come from the host's real size (policy/quota_ledger.py: host_defaults). Larger numbers over-commit.
"""

from pydantic import ValidationError

from controller.kinds.meta import StoredObject
from controller.kinds.quota import COLUMNS, HardQuota, QuotaSpec, StoredQuota
from controller.kinds.registry import Kind


class HostQuotaSpec(QuotaSpec):
    """The fields of a Quota."""

    hard: HardQuota = HardQuota()
    """Maxima of all sandboxes of the host together. Fields left out come from the host's real size."""


KIND = Kind(name="HostQuota", plural="hostquotas", spec=HostQuotaSpec, namespaced=False, columns=COLUMNS)


def stored_quota(obj: StoredObject) -> StoredQuota:
    """Return the Quota or HostQuota with its spec parsed. One that this version can't read blocks everything."""
    try:
        return StoredQuota(obj, (HostQuotaSpec if obj.kind == KIND.name else QuotaSpec).model_validate(obj.spec))
    except ValidationError:
        return StoredQuota(obj, None)
