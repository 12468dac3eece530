"""HostQuota: how much all sandboxes of this host may hold together. There is one, `host`; it bounds even unwritten.

What it leaves out comes from the host's real size (policy/ledger.py: host_defaults). Bigger numbers over-commit.
"""

from controller.kinds.quota import COLUMNS, QuotaSpec
from controller.kinds.registry import Kind

NAME = "host"


class HostQuotaSpec(QuotaSpec):
    """The fields of a Quota."""


KIND = Kind(
    name="HostQuota", plural="hostquotas", spec=HostQuotaSpec, namespaced=False, only_name=NAME, columns=COLUMNS
)
