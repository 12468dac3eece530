"""Host: the machine and its engine, like a Kubernetes Node. There is one, and its name is `host`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from controller.kinds.base import Model, Text, Whole
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind

NAME = "host"
_NEEDED = ("EngineReachable", "StoreWritable")  # without these nothing is kept as specs say


class HostSpec(Model):
    """This machine and its container engine, as they are: nothing of it can be asked for."""


class Capacity(Model):
    """What the machine has."""

    cpu: Text
    """Cores."""
    memory: Text
    """Main memory."""


class EngineInfo(Model):
    """What the engine says of itself."""

    version: Text
    """Its version."""
    api_version: Text
    """The version of its API that is spoken with it."""
    storage_driver: Text
    """How it keeps images and the layers of containers."""
    root_dir: Text
    """The folder where it keeps them."""
    cgroup_version: Text
    """1 or 2."""
    cgroup_driver: Text
    """Systemd or cgroupfs."""
    default_runtime: Text
    """What starts containers, such as runc."""
    security_options: tuple[Text, ...] = ()
    """What it can enforce, such as name=seccomp."""


class PaddockInfo(Model):
    """What the daemon is."""

    version: Text
    """Its version."""
    instance_id: Annotated[Text, Field(alias="instanceID")]
    """The label paddock.instance of its containers."""


class HostCondition(Model):
    """One thing that holds, does not hold, or is not known. Only what is checked is here."""

    type: Text
    """What is checked: EngineReachable, NetworkGuard, MemoryPressure ..."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Text
    """One word for programs."""
    message: Text = ""
    """Details, and what to do."""


class HostStatus(Model):
    """How the machine stands; `capacity` and `engine` are there once the engine has answered."""

    capacity: Capacity | None = None
    engine: EngineInfo | None = None
    paddock: PaddockInfo
    instances: Whole | None = None
    """Containers that Paddock keeps or is about to make."""
    conditions: tuple[HostCondition, ...] = ()
    """What was checked at this reading."""


def _of(*path: str) -> Any:
    def cell(obj: StoredObject, _now: float) -> str:
        found: object = obj.status
        for step in path:
            found = found.get(step) if isinstance(found, Mapping) else None
        return "-" if found in (None, "") else str(found)

    return cell


def status_word(obj: StoredObject, _now: float) -> str:
    """Ready, or what of the needed conditions is not True, as kubectl shows nodes."""
    holding = [each["type"] for each in obj.status["conditions"] if each["status"] == "True"]
    failing = [each for each in _NEEDED if each not in holding]
    return f"NotReady ({', '.join(failing)})" if failing else "Ready"


KIND = Kind(
    name="Host",
    plural="hosts",
    namespaced=False,
    spec=HostSpec,
    status=HostStatus,
    read_only="it shows this machine as it is; the daemon's settings file says how it is used",
    columns=(
        Column("STATUS", status_word),
        Column("CPU", _of("capacity", "cpu")),
        Column("MEMORY", _of("capacity", "memory")),
        Column("INSTANCES", _of("instances")),
        Column("ENGINE", _of("engine", "version")),
        Column("VERSION", _of("paddock", "version")),
        Column("STORAGE", _of("engine", "storageDriver"), wide=True),
        Column("CGROUP", _of("engine", "cgroupVersion"), wide=True),
        Column("RUNTIME", _of("engine", "defaultRuntime"), wide=True),
    ),
)
