"""Volume: a file system of its own size in a namespace, which outlives the sandboxes that it is bound into.

Sandboxes make volumes, by naming them; here they are listed and deleted.
"""

from dataclasses import dataclass
from typing import Literal

from controller.kinds.base import Model, Text
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.kinds.sandbox import age


@dataclass(frozen=True, slots=True)
class KeptVolume:
    """A volume as it is found on this host. `made_at` is Unix seconds.

    `claimed_by` is the sandbox that has it for itself ("": it belongs to all that name it). `used_bytes` is what is
    written in it (None: not known, as of one that is not mounted).
    """

    namespace: str
    name: str
    uid: str
    size_bytes: int
    made_at: float = 0.0
    claimed_by: str = ""
    mounted: bool = False
    used_bytes: int | None = None


class VolumeSpec(Model):
    """A volume of the namespace, as the specs that name it ask for it."""

    size: Text
    """How much it holds; all of it is allocated on the host's disk."""
    reclaim_policy: Literal["Retain", "Delete"]
    """Delete: it goes with the last sandbox that names it; Retain: until it is deleted."""
    sandbox: Text = ""
    """The sandbox whose own it is (volumeClaimTemplates); left out: it is shared by name."""


class VolumeUser(Model):
    """An object that names it."""

    kind: Text
    """Its kind."""
    name: Text
    """The name."""


class VolumeStatus(Model):
    """How it stands."""

    phase: Literal["Bound", "Released"]
    """Bound: something uses it; Released: nothing does, it is kept."""
    mounted: bool = False
    """Whether a container has it mounted now."""
    used: Text = ""
    """What is written in it; left out: it is not mounted."""
    used_by: tuple[VolumeUser, ...] = ()
    """The sandboxes, templates and pools' warm members that name it."""


def _status(name: str) -> "Column":
    titles = {"phase": "STATUS", "used": "USED"}
    return Column(titles[name], lambda obj, _now: str(obj.status.get(name, "-")))


def _users(obj: StoredObject, _now: float) -> str:
    found = [f"{each['kind'].lower()}/{each['name']}" for each in obj.status.get("usedBy", ())]
    return ",".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "") or "-"


KIND = Kind(
    name="Volume",
    plural="volumes",
    short=("vol",),
    spec=VolumeSpec,
    status=VolumeStatus,
    read_only="a volume is made for the sandbox that names it; change the sandbox or template that does (USED BY), or "
    "`paddock delete` the volume once nothing uses it",
    deletable=True,
    selectable=("spec.sandbox", "spec.reclaimPolicy", "status.phase"),
    columns=(
        _status("phase"),
        Column("SIZE", lambda obj, _now: str(obj.spec["size"])),
        _status("used"),
        Column("POLICY", lambda obj, _now: str(obj.spec["reclaimPolicy"])),
        Column("USED BY", _users),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
