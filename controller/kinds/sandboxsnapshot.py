"""SandboxSnapshot: all files of a sandbox at one instant: its writable root layer, folders in memory, and volumes.

It outlives its sandbox. Other sandboxes begin from it (`restoreFrom`), as forks and rollbacks do.
"""

from typing import Annotated, Literal

from pydantic import Field

from controller.kinds.base import Flag, Model, Name, Text, Whole
from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.registry import Column, Kind, Reference
from controller.kinds.sandbox import LONGEST_SECONDS, age

CAPTURED = "Captured"
FINALIZER = "paddock/snapshot"
PERIODIC_LABEL = "paddock.snapshots/of"
"""Label of the snapshots that Paddock takes from time to time: the uid of their sandbox."""


class SandboxReference(Model):
    """Reference to a Sandbox of the same namespace."""

    name: Name
    """Name of the Sandbox."""


class SandboxSnapshotSpec(Model):
    """A snapshot to take of a sandbox, once: running, paused or suspended. A running one stands still meanwhile."""

    sandbox_ref: SandboxReference | None = None
    """The sandbox. Required, unless the snapshot is imported."""
    imported: Flag = False
    """True: its files come from an archive (`paddock snapshot import`), and nothing is captured."""
    ttl_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Seconds after the capture at which it is deleted, once nothing begins from it. Left out: never."""
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"
    """Retain: it outlives its sandbox. Delete: it is deleted after its sandbox, once nothing begins from it."""


class SnapshotSize(Model):
    """Sizes of its archives in bytes."""

    root: Whole = 0
    """Root layer."""
    tmpfs: Whole = 0
    """Folders in memory."""
    volumes: Whole = 0
    """Volumes."""


class LeftOut(Model):
    """Something that could not be taken."""

    name: Text
    """Path in the sandbox."""
    reason: Text
    """Reason."""


class SandboxSnapshotStatus(Model):
    """Result of the capture."""

    host: Text = ""
    """Host that has its files."""
    sandbox_uid: Annotated[Text, Field(alias="sandboxUID")] = ""
    """UID of the sandbox that it was taken of."""
    captured_time: Text = ""
    """Time of the capture, RFC 3339 in UTC."""
    frozen_seconds: float = 0.0
    """Seconds that the sandbox stood still."""
    size_bytes: SnapshotSize = SnapshotSize()
    files: Whole = 0
    """Number of files, folders and links."""
    image: Text = ""
    """Image of the sandbox."""
    image_id: Annotated[Text, Field(alias="imageID")] = ""
    """Digest of that image."""
    security_level: Text = ""
    """Security level of the sandbox; only sandboxes of this level begin from it."""
    parent: Text = ""
    """Snapshot that the sandbox itself began from."""
    left: tuple[LeftOut, ...] = ()
    """Files and folders that could not be taken; the first hundred."""
    left_count: Whole = 0
    """Number of files and folders that could not be taken."""


def is_captured(obj: StoredObject) -> bool:
    """Return True if its files are complete."""
    return stored_condition(obj, CAPTURED).get("status") == "True"


def _status(obj: StoredObject, _now: float) -> str:
    if obj.deleted_at is not None:
        return "Terminating"
    condition = stored_condition(obj, CAPTURED)
    if condition.get("status") == "True":
        return CAPTURED
    return str(condition.get("reason", "Pending"))


def total_bytes(obj: StoredObject) -> int:
    """Return the size of all its archives."""
    return sum(obj.status.get("sizeBytes", {}).values())


KIND = Kind(
    name="SandboxSnapshot",
    plural="sandboxsnapshots",
    short_names=("snap", "snapshot", "snapshots"),
    spec=SandboxSnapshotSpec,
    status=SandboxSnapshotStatus,
    finalizers=(FINALIZER,),
    referenced_by=(
        Reference("Sandbox", ("restoreFrom", "snapshotRef", "name")),
        Reference("Sandbox", ("template", "restoreFrom", "snapshotRef", "name")),
        Reference("SandboxTemplate", ("restoreFrom", "snapshotRef", "name")),
    ),
    columns=(
        Column("STATUS", _status),
        Column("SANDBOX", lambda obj, _now: str((obj.spec.get("sandboxRef") or {}).get("name", "-"))),
        Column("SIZE", lambda obj, _now: format_bytes(total_bytes(obj))),
        Column("FILES", lambda obj, _now: str(obj.status.get("files", "-"))),
        Column("FROZEN", lambda obj, _now: f"{obj.status.get('frozenSeconds', 0.0):.2f}s"),
        Column("PARENT", lambda obj, _now: str(obj.status.get("parent") or "-")),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
        Column("IMAGE", lambda obj, _now: str(obj.status.get("image") or "-"), wide=True),
        Column("HOST", lambda obj, _now: str(obj.status.get("host") or "-"), wide=True),
    ),
)
