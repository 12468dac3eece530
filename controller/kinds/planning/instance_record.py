"""Instance: the stored record of one container that we own or are about to create. Written before the container exists.

It also holds the planner's state of an object (instance_state.py). `version` is the store's compare-and-set counter.
"""

from dataclasses import dataclass, field

from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.runtime.container import Limits

SANDBOX, REFUSED, WARM, RETIRED = "sandbox", "refused", "warm", "retired"


@dataclass(frozen=True, slots=True)
class Instance:
    """One row of the table of instances: a container that we own, or are about to create.

    A claim makes a pool's member the sandbox that claims it; no label of its container has to change.
    """

    name: str
    """Name of its container."""
    parent_uid: str
    """Uid of its sandbox; of a pool's member, that of the pool; of an egress container, that of the instance it serves.
    """
    parent_kind: str
    """Kind of the parent."""
    namespace: str
    """Namespace of the parent."""
    parent_name: str
    """Name of the parent."""
    role: str
    """`sandbox`; of a pool's member `warm` (it may be claimed) or `retired` (it is being removed); `refused`: a sandbox
    that can't start as it is, of which only the reason is kept, and which reserves nothing.
    """
    reserves: Limits
    """Limits that it counts for in quotas and on its host."""
    created_at: float
    """When the row was written (Unix seconds)."""
    state: InstanceState = field(default_factory=InstanceState)
    """State of the planner about it."""
    version: int = 0
    """Counter of the store's compare-and-set."""
    member_uid: str = ""
    """Uid in its container's label, of a member of a pool; empty: the parent's."""
    host: str = "host"
    """Name of the host of its container."""

    @property
    def uid(self) -> str:
        """Return the `paddock.uid` label of its container; unique among instances."""
        return self.member_uid or self.parent_uid
