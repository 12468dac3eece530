"""Instance as a kind: a container that Paddock manages or is about to create."""

from typing import Annotated, Any, Literal

from pydantic import Field

from controller.kinds.base import Model, Text, Whole
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind, Origin
from controller.kinds.sandbox import age

ContainerState = Literal[
    "Absent", "Created", "Running", "Paused", "Restarting", "Removing", "Exited", "Dead", "Unknown"
]  # fmt: skip


class Parent(Model):
    """The object that the container belongs to."""

    kind: Text
    """Kind of the object."""
    name: Text
    """Name of the object."""
    uid: Text
    """UID of the object; it tells objects of the same name apart."""


class Amounts(Model):
    """Resource amounts of a container."""

    cpu: Text
    """CPU in cores or millicores."""
    memory: Text
    """Memory, including tmpfs contents."""
    pids: Whole
    """Processes and threads."""
    disk: Text = ""
    """Disk; left out if none."""
    gpus: Whole = 0
    """GPUs; left out if none."""


class InstanceSpec(Model):
    """A container that Paddock manages, or is about to create. Its record is written before the container exists."""

    parent: Parent
    role: Text
    """Role of the container for the object, such as sandbox."""
    reserves: Amounts
    """Resources reserved for it on this host, running or not."""


class InstanceEnd(Model):
    """The end of its last run."""

    exit_code: Whole
    """Exit code; 128 plus the signal's number for a killed container."""
    reason: Text
    """Completed, Error, OOMKilled, Stopped ..."""
    started_time: Text
    """Start of that run, RFC 3339 in UTC."""
    finished_time: Text
    """End of that run, RFC 3339 in UTC."""


class InstanceFailure(Model):
    """The engine call that keeps failing for it."""

    reason: Text
    """One word for programs."""
    message: Text
    """Error, and what to do."""
    count: Whole
    """Failures in a row."""
    retry_time: Text = ""
    """Time of the next try; left out: only after a change of the spec."""


class InstanceStatus(Model):
    """Observed state of the container."""

    host: Text = ""
    """Host that it is on; left out where there is one host."""
    state: ContainerState
    """State of the container. Absent: there is none. Unknown: it could not be inspected."""
    message: Text = ""
    """Reason for the state Unknown."""
    container_id: Annotated[Text, Field(alias="containerID")] = ""
    """ID of the container in the engine."""
    image_id: Annotated[Text, Field(alias="imageID")] = ""
    """Digest of the running image."""
    start_time: Text = ""
    """Start of its last run, RFC 3339 in UTC."""
    limits: Amounts | None = None
    """Limits in force, as read back from the host."""
    restart_count: Whole
    """Restarts and repairs since the object was created."""
    crash_count: Whole
    """Unexpected ends in a row; they set the restart back-off."""
    last_termination: InstanceEnd | None = None
    failure: InstanceFailure | None = None


def _parent(obj: StoredObject, _now: float) -> str:
    parent = obj.spec["parent"]
    return f"{parent['kind'].lower()}/{parent['name']}"


def _reserved(name: str) -> Any:
    return lambda obj, _now: str(obj.spec["reserves"][name])


def _status(name: str) -> Any:
    return lambda obj, _now: str(obj.status.get(name, "-"))


KIND = Kind(
    name="Instance",
    plural="instances",
    short_names=("inst",),
    spec=InstanceSpec,
    status=InstanceStatus,
    origin=Origin.MANAGED,
    read_only="Paddock manages one for each container; change or delete its object (PARENT) instead",
    selectable=("spec.parent.kind", "spec.parent.name", "spec.parent.uid", "spec.role", "status.state", "status.host"),
    columns=(
        Column("PARENT", _parent),
        Column("ROLE", lambda obj, _now: str(obj.spec["role"])),
        Column("STATE", _status("state")),
        Column("RESTARTS", _status("restartCount")),
        Column("CPU", _reserved("cpu")),
        Column("MEMORY", _reserved("memory")),
        Column("PIDS", _reserved("pids")),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
        Column("CONTAINER ID", lambda obj, _now: str(obj.status.get("containerID", "-"))[:12], wide=True),
    ),
)
