"""Host: a machine and its engine, like a Kubernetes Node. Its name is `host`, unless the store has many of them.

With one host its spec, labels and annotations are stored once somebody changes them, and its status is computed at each
read. Each of many hosts is stored by its own daemon, with its status; that of the daemon that is asked is computed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from controller.kinds.base import Model, Text, Whole
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind, Origin
from controller.kinds.sandbox import age

NAME = "host"
_NEEDED = ("EngineReachable", "StoreWritable")  # without these nothing is reconciled
HOLDING = (*_NEEDED, "NetworkGuard")  # conditions that are True on a host where sandboxes can start
ENGINE = "paddock.dev/engine"  # annotation of one of many hosts: the id of the one engine that acts for it
REACHABLE = "DaemonReachable"  # of many hosts: its daemon holds the host's lease
STOPPED = "LeaseReleased"  # its daemon was stopped; any other reason: it is away


_DEFAULT_LEASE, _LEASES = "daemon", "host/"
LEADING = "fleet"  # the lease of the host that decides for what belongs to no host


def lease_of(name: str) -> str:
    """Return the stored name of a host's lease; the default host's is that of the only one there was."""
    return _DEFAULT_LEASE if name == NAME else f"{_LEASES}{name}"


def host_of_lease(lease: str) -> str:
    """Return the host whose lease has that stored name; "": it is no host's."""
    return NAME if lease == _DEFAULT_LEASE else lease.removeprefix(_LEASES) if lease.startswith(_LEASES) else ""


class HostSpec(Model):
    """This machine and its container engine."""

    schedulable: bool = True
    """False: nothing new starts here (`paddock host cordon`). What runs goes on, and is restarted as its spec says."""
    out_of_service: bool = False
    """True: the host is off for good, says a person (`paddock host release`): its sandboxes are started elsewhere."""
    drained: bool = False
    """True: the host is being emptied (`paddock host drain`): nothing new starts here, and it has no warm sandboxes."""


class Capacity(Model):
    """Size of the machine."""

    cpu: Text
    """Number of cores."""
    memory: Text
    """Main memory."""
    gpus: Whole | None = None
    """Number of GPUs that the operator lists for sandboxes (setting `gpu_devices`); left out if none are."""


class Reserved(Model):
    """Limits of what runs on the host, together, with warm sandboxes and egress proxies: what its HostQuota counts."""

    cpu: Text
    """Cores; up to 16 times as many as the machine has may be reserved."""
    memory: Text
    """Main memory."""
    disk: Text | None = None
    """Disk; left out if none is."""
    gpus: Whole | None = None
    """Number of GPUs; left out if none is."""


class EngineInfo(Model):
    """The container engine's answers about itself."""

    id: Text | None = None
    """ID of the engine, made when it was installed; left out if it tells none."""
    version: Text
    """Version of the engine."""
    api_version: Text
    """Version of the engine's API that Paddock uses."""
    storage_driver: Text
    """Storage driver of images and container layers."""
    root_dir: Text
    """Data folder of the engine."""
    cgroup_version: Text
    """Cgroup version, 1 or 2."""
    cgroup_driver: Text
    """Cgroup driver, systemd or cgroupfs."""
    default_runtime: Text
    """Runtime that starts containers, such as runc."""
    sandbox_runtime: Text | None = None
    """Runtime of new sandboxes whose spec names none; the condition DefaultRuntime says why. Left out at first.
    """
    runtimes: tuple[Text, ...] = ()
    """Runtimes that a template may name here."""
    security_options: tuple[Text, ...] = ()
    """Security features that the engine can enforce, such as name=seccomp."""


class PaddockInfo(Model):
    """The daemon."""

    version: Text
    """Version of the daemon."""
    build: Text | None = None
    """Hash of its code: it tells builds of one version apart. Left out by earlier versions."""
    instance_id: Annotated[Text, Field(alias="instanceID")]
    """Value of the label paddock.instance on its containers."""


class HostCondition(Model):
    """One checked property of the host, which is True, False or Unknown. Only checked ones are listed."""

    type: Text
    """Name of the check: EngineReachable, NetworkGuard, MemoryPressure ..."""
    status: Literal["True", "False", "Unknown"]
    """True if the property holds."""
    reason: Text
    """One word for programs."""
    message: Text = ""
    """Details, and what to do."""


class HostStatus(Model):
    """Observed state of the machine. `capacity` and `engine` are set once the engine has answered."""

    capacity: Capacity | None = None
    engine: EngineInfo | None = None
    paddock: PaddockInfo
    address: Text | None = None
    """Address (host:port) at which the daemons of other hosts reach this one's; left out if none do."""
    metrics_url: Annotated[Text | None, Field(alias="metricsURL")] = None
    """URL of its metrics, as Prometheus on another machine reads them; left out if only the host itself can."""
    last_seen: Text | None = None
    """Time when the host's daemon last held its lease; left out on a single host, or if it is unknown."""
    instances: Whole | None = None
    """Number of containers that Paddock manages or is about to create."""
    sandboxes: Whole | None = None
    """Number of sandboxes on the host, as its HostQuota counts them."""
    reserved: Reserved | None = None
    """Reserved part of its capacity."""
    images: tuple[Text, ...] = ()
    """Names of images on it, among many hosts, 200 at most: a scheduler chooses a host that has a sandbox's."""
    conditions: tuple[HostCondition, ...] = ()
    """Checks made for this answer."""


def _of(*path: str) -> Any:
    def cell(obj: StoredObject, _now: float) -> str:
        node: object = obj.status
        for step in path:
            node = node.get(step) if isinstance(node, Mapping) else None
        return "-" if node in (None, "") else str(node)

    return cell


def _runtime(obj: StoredObject, now: float) -> str:
    """Return the runtime of new sandboxes, or the engine's own before the choice, and of a host of an older version."""
    chosen = _of("engine", "sandboxRuntime")(obj, now)
    return str(_of("engine", "defaultRuntime")(obj, now) if chosen == "-" else chosen)


def _of_capacity(name: str) -> Any:
    """Return the cell of a resource: `reserved/capacity`."""
    reserved, capacity = _of("reserved", name), _of("capacity", name)
    return lambda obj, now: f"{reserved(obj, now)}/{capacity(obj, now)}"


def build_of(status: Mapping[str, Any]) -> str:
    """Return the version and the build of a host's daemon, VERSION+BUILD; "" if it tells none."""
    daemon = status.get("paddock") or {}
    return "+".join(str(daemon[name]) for name in ("version", "build") if daemon.get(name))


def status_word(obj: StoredObject, _now: float) -> str:
    """Return Ready, or the required conditions that are not True, as kubectl shows nodes; and whether it is closed."""
    conditions = {condition["type"]: condition for condition in obj.status.get("conditions", ())}
    failing = [type_ for type_ in _NEEDED if type_ not in conditions or conditions[type_]["status"] != "True"]
    ready = f"NotReady ({', '.join(failing)})" if failing else "Ready"
    if REACHABLE in conditions and conditions[REACHABLE]["status"] != "True":
        ready = f"Unknown ({_away(obj, conditions[REACHABLE])})"
    if obj.spec.get("outOfService") is True:
        return f"{ready},OutOfService"
    if obj.spec.get("drained") is True:
        count = obj.status.get("sandboxes")
        return f"{ready},Drained" if count == 0 else f"{ready},Draining ({'?' if count is None else count} left)"
    return f"{ready},SchedulingDisabled" if obj.spec.get("schedulable") is False else ready


def _away(obj: StoredObject, reachable: Mapping[str, Any]) -> str:
    if reachable["reason"] == STOPPED:
        return "daemon stopped"
    since = obj.status.get("lastSeen")
    return f"daemon away since {since}" if since else "daemon away"


def _last_seen(obj: StoredObject, now: float) -> str:
    seen_at = obj.status.get("lastSeen")
    return age(now - datetime.fromisoformat(seen_at).timestamp()) if seen_at else "-"


@dataclass(frozen=True, slots=True)
class StoredHost:
    """A stored Host with its spec parsed; None if this version can't read it."""

    obj: StoredObject
    spec: HostSpec | None


def stored_host(obj: StoredObject) -> StoredHost:
    """Return the object with its spec parsed."""
    try:
        return StoredHost(obj, HostSpec.model_validate(obj.spec))
    except ValidationError:
        return StoredHost(obj, None)


def other_engine(hosts: Iterable[StoredObject], name: str, engine_id: str) -> str:
    """Return why this engine may not act for host `name`, one of many; "" if it may.

    The sandboxes of a host that is another engine's are there; and an engine that is another host's has the sandboxes
    of that host.
    """
    of = {host.name: engine for host in hosts if (engine := host.annotations.get(ENGINE, ""))}
    engine = of.get(name, "")
    if engine_id and engine not in ("", engine_id):
        return (
            f"host {name}: it may be another machine's: its engine is {engine}, this one is {engine_id}. Set another "
            "host_name here; or, if this is its machine and Docker has a new id (installed anew, or upgraded), or the "
            f"other one is gone for good with all its containers, run `paddock annotate host {name} {ENGINE}-`"
        )
    other_host = next((host for host, engine in of.items() if engine == engine_id and host != name), "")
    if engine_id and other_host:
        return (
            f"host {name}: its engine {engine_id} is that of host {other_host}, whose sandboxes are there. Set another "
            f'docker_host or `host_name = "{other_host}"` here; or, if {other_host} is gone for good with all its '
            f"sandboxes, run `paddock host remove {other_host}`"
        )
    return ""


KIND = Kind(
    name="Host",
    plural="hosts",
    namespaced=False,
    spec=HostSpec,
    status=HostStatus,
    origin=Origin.MACHINE,
    read_only="it shows the state of a machine; cordon, label or patch it, or change its daemon's settings file",
    columns=(
        Column("STATUS", status_word),
        Column("CPU", _of_capacity("cpu")),
        Column("MEMORY", _of_capacity("memory")),
        Column("INSTANCES", _of("instances")),
        Column("ENGINE", _of("engine", "version")),
        Column("VERSION", lambda obj, _now: build_of(obj.status) or "-"),
        Column("STORAGE", _of("engine", "storageDriver"), wide=True),
        Column("CGROUP", _of("engine", "cgroupVersion"), wide=True),
        Column("RUNTIME", _runtime, wide=True),
        Column("SANDBOXES", _of("sandboxes"), wide=True),
        Column("ADDRESS", _of("address"), wide=True),
        Column("LAST SEEN", _last_seen, wide=True),
    ),
)
