"""Instance as a kind: a container that Paddock keeps or is about to make, as its record and the last look show it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from controller.kinds.base import Model, Text, Whole
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.kinds.sandbox import age

InstanceState = Literal[
    "Absent", "Created", "Running", "Paused", "Restarting", "Removing", "Exited", "Dead", "Unknown"
]  # fmt: skip


class Parent(Model):
    """The object that it is for."""

    kind: Text
    """Its kind."""
    name: Text
    """The name."""
    uid: Text
    """Which of all objects that ever had this name."""


class Amounts(Model):
    """Amounts of what a container may use."""

    cpu: Text
    """Processor time, in cores or millicores."""
    memory: Text
    """Memory, with what is written to tmpfs."""
    pids: Whole
    """Processes and threads."""
    disk: Text = ""
    """Disk; left out: none."""
    gpus: Whole = 0
    """GPUs; left out: none."""


class InstanceSpec(Model):
    """A container that Paddock keeps, or is about to make: its record is written before the container is made."""

    parent: Parent
    role: Text
    """What it is for the object, such as sandbox."""
    reserves: Amounts
    """What is set aside for it on this host, whether it runs or not."""


class InstanceEnd(Model):
    """How its last run ended."""

    exit_code: Whole
    """128 and the number of the signal, for one that was killed."""
    reason: Text
    """Completed, Error, OOMKilled, Stopped ..."""
    started_time: Text
    """When that run began, RFC 3339 in UTC."""
    finished_time: Text
    """When it ended, RFC 3339 in UTC."""


class InstanceFailure(Model):
    """The engine call that keeps failing for it."""

    reason: Text
    """One word for programs."""
    message: Text
    """What failed, and what to do."""
    count: Whole
    """How often in a row."""
    retry_time: Text = ""
    """When it is tried again; left out: with a new spec only."""


class InstanceStatus(Model):
    """How it stands."""

    state: InstanceState
    """Absent: no container; Unknown: it could not be looked at."""
    message: Text = ""
    """Why the state is Unknown."""
    container_id: Annotated[Text, Field(alias="containerID")] = ""
    """The engine's id of the container."""
    image_id: Annotated[Text, Field(alias="imageID")] = ""
    """The image that it runs, by digest."""
    start_time: Text = ""
    """When its last run began, RFC 3339 in UTC."""
    limits: Amounts | None = None
    """The limits in force, as read back from the host."""
    restart_count: Whole
    """Restarts and repairs in the life of its object."""
    crash_count: Whole
    """Unasked-for ends in a row; they make the pause before a start."""
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
    short=("inst",),
    spec=InstanceSpec,
    status=InstanceStatus,
    read_only="Paddock keeps one for each container; change or delete the object that it is for (PARENT) instead",
    selectable=("spec.parent.kind", "spec.parent.name", "spec.parent.uid", "spec.role", "status.state"),
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
