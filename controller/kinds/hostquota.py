"""HostQuota: how much all sandboxes of this host may hold together. There is one, `host`; it bounds even unwritten.

What it leaves out comes from the host's real size (policy/quota_ledger.py: host_defaults). Bigger numbers over-commit.
"""

from pydantic import ValidationError

from controller.kinds.meta import StoredObject
from controller.kinds.quota import COLUMNS, HardQuota, QuotaSpec, StoredQuota
from controller.kinds.registry import Kind

NAME = "host"


class HostQuotaSpec(QuotaSpec):
    """The fields of a Quota."""

    hard: HardQuota = HardQuota()
    """What all sandboxes of the host may hold together; the rest comes from its real size."""


KIND = Kind(
    name="HostQuota", plural="hostquotas", spec=HostQuotaSpec, namespaced=False, only_name=NAME, columns=COLUMNS
)


def stored_quota(obj: StoredObject) -> StoredQuota:
    """Return the Quota or HostQuota with its spec; one that this version can't read bounds everything."""
    try:
        return StoredQuota(obj, (HostQuotaSpec if obj.kind == KIND.name else QuotaSpec).model_validate(obj.spec))
    except ValidationError:
        return StoredQuota(obj, None)
