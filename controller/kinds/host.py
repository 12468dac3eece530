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

    cpu: Annotated[Text, Field(description="cores")]
    memory: Annotated[Text, Field(description="main memory")]


class EngineInfo(Model):
    """What the engine says of itself."""

    version: Annotated[Text, Field(description="its version")]
    api_version: Annotated[Text, Field(description="the version of its API that is spoken with it")]
    storage_driver: Annotated[Text, Field(description="how it keeps images and the layers of containers")]
    root_dir: Annotated[Text, Field(description="the folder where it keeps them")]
    cgroup_version: Annotated[Text, Field(description="1 or 2")]
    cgroup_driver: Annotated[Text, Field(description="systemd or cgroupfs")]
    default_runtime: Annotated[Text, Field(description="what starts containers, such as runc")]
    security_options: Annotated[tuple[Text, ...], Field(description="what it can enforce, such as name=seccomp")] = ()


class PaddockInfo(Model):
    """What the daemon is."""

    version: Annotated[Text, Field(description="its version")]
    instance_id: Annotated[Text, Field(alias="instanceID", description="the label paddock.instance of its containers")]


class HostCondition(Model):
    """One thing that holds, does not hold, or is not known. Only what is checked is here."""

    type: Annotated[Text, Field(description="what is checked: EngineReachable, NetworkGuard, MemoryPressure ...")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="whether it holds")]
    reason: Annotated[Text, Field(description="one word for programs")]
    message: Annotated[Text, Field(description="details, and what to do")] = ""


class HostStatus(Model):
    """How the machine stands; `capacity` and `engine` are there once the engine has answered."""

    capacity: Capacity | None = None
    engine: EngineInfo | None = None
    paddock: PaddockInfo
    instances: Annotated[Whole | None, Field(description="containers that Paddock keeps or is about to make")] = None
    conditions: Annotated[tuple[HostCondition, ...], Field(description="what was checked at this reading")] = ()


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
