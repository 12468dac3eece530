"""Volume: a file system of a fixed size in a namespace, which outlives the sandboxes that mount it.

Sandboxes create volumes by naming them; here they are listed and deleted.
"""

from dataclasses import dataclass
from typing import Literal

from controller.kinds.base import Model, Text
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind, Origin
from controller.kinds.sandbox import age

DEFAULT_VOLUME = "1Gi"
"""Size of a new volume for which nobody says one."""
DEFAULT_TMPFS = "64Mi"
"""Size of a folder in memory for which nobody says one."""


@dataclass(frozen=True, slots=True)
class HostVolume:
    """A volume found on this host. `made_at` is Unix seconds.

    `claimed_by` is the sandbox that owns it alone ("": shared). `used_bytes` is None if unknown, as for an unmounted
    one.
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
    """A volume of the namespace, as requested by the specs that name it."""

    size: Text
    """Size of the volume; all of it is allocated on the host's disk."""
    reclaim_policy: Literal["Retain", "Delete"]
    """Delete: deleted with the last sandbox that names it. Retain: kept until it is deleted explicitly."""
    sandbox: Text = ""
    """The sandbox that owns it alone (volumeClaimTemplates); left out: shared by name."""


class VolumeUser(Model):
    """An object that names the volume."""

    kind: Text
    """Kind of the object."""
    name: Text
    """Name of the object."""


class VolumeStatus(Model):
    """Observed state of the volume."""

    host: Text = ""
    """Host that has it; left out where there is one host."""
    phase: Literal["Bound", "Released"]
    """Bound: something uses it. Released: nothing does; it is kept."""
    mounted: bool = False
    """True while a container has it mounted."""
    used: Text = ""
    """Bytes written to it; left out if it is not mounted."""
    used_by: tuple[VolumeUser, ...] = ()
    """Sandboxes, templates and pools' warm members that name it."""


def _status(name: str) -> "Column":
    titles = {"phase": "STATUS", "used": "USED"}
    return Column(titles[name], lambda obj, _now: str(obj.status.get(name, "-")))


def _users(obj: StoredObject, _now: float) -> str:
    users = [f"{user['kind'].lower()}/{user['name']}" for user in obj.status.get("usedBy", ())]
    return ",".join(users[:3]) + (f" and {len(users) - 3} more" if len(users) > 3 else "") or "-"


KIND = Kind(
    name="Volume",
    plural="volumes",
    short_names=("vol",),
    spec=VolumeSpec,
    status=VolumeStatus,
    origin=Origin.ON_HOST,
    read_only="a volume is created for the sandbox that names it; change that sandbox or template (USED BY), or "
    "`paddock delete` the volume once nothing uses it",
    selectable=("spec.sandbox", "spec.reclaimPolicy", "status.phase", "status.host"),
    columns=(
        _status("phase"),
        Column("SIZE", lambda obj, _now: str(obj.spec["size"])),
        _status("used"),
        Column("POLICY", lambda obj, _now: str(obj.spec["reclaimPolicy"])),
        Column("USED BY", _users),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
