"""Sandbox: one isolated box on this host, kept as its spec says."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from controller.kinds.base import LIVE, Flag, Model, Name, Text, Whole
from controller.kinds.common.quantity import Bytes, BytesQuantity, CpuQuantity
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.kinds.runtime.confinement import ProfileName, RuntimeName, SELinuxOptions
from controller.kinds.runtime.disk import DiskRules
from controller.kinds.runtime.probe import OneSuccessProbe, Probe
from controller.kinds.security import Security

# docker refuses less than 6 MiB; the kernel refuses a CPU quota under 1 ms a period, which is 10m.
MEMORY_MIN_BYTES = 6 << 20
CPU_MIN_MILLICORES = 10
LONGEST_SECONDS = 10 * 366 * 86400  # ten years
FINALIZER = "paddock/container"

AbsolutePath = Annotated[
    Text,
    Field(min_length=2, max_length=4096, pattern=r"^/[^\x00:]*$", description="an absolute path without a colon"),
]
EnvName = Annotated[
    Text,
    Field(
        min_length=1,
        max_length=256,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="letters, digits and `_`, not starting with a digit",
    ),
]
Argument = Annotated[Text, Field(max_length=131072, pattern=r"^[^\x00]*$", description="text without a NUL")]

HostName = Annotated[
    Text,
    Field(
        min_length=3,
        max_length=253,
        pattern=r"^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="a whole host name in lower case, such as git.example.org; `*.` may stand in front; no address",
    ),
]

ImageName = Annotated[
    Text,
    Field(
        min_length=1,
        max_length=512,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$",
        description="an image's name, with its tag or digest, such as paddock/python:1",
    ),
]


class EnvVar(Model):
    """A plain value in PID 1's environment. Secrets do not belong here: they would show in `docker inspect`."""

    name: EnvName
    value: Argument = ""


class TmpfsMount(Model):
    """An in-memory folder. What is written there counts as memory of the sandbox and is gone with the container."""

    mount_path: AbsolutePath
    size: Annotated[BytesQuantity, Field(ge=1 << 12, le=1 << 40)]


class WorkspaceMount(Model):
    """Where the sandbox's workspace is, and how large it is in memory where the sandbox names no folder for it."""

    mount_path: AbsolutePath = "/workspace"
    size: Annotated[BytesQuantity, Field(ge=1 << 12, le=1 << 40)] = Bytes(64 << 20)


class SecretMount(Model):
    """A secret of the operator's for this namespace, as a file in memory that the sandbox's user may read."""

    name: Name
    mount_path: AbsolutePath


class VolumeSource(Model):
    """A volume of the namespace, made where there is none; it stays when sandboxes go, unless told to go with them.

    A larger `size` makes it larger; it never becomes smaller.
    """

    name: Name
    size: Annotated[BytesQuantity, Field(ge=4 << 20, le=1 << 44)]
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"


class VolumeMount(VolumeSource):
    """A volume, and where it appears in the sandbox."""

    mount_path: AbsolutePath
    read_only: Flag = False


class VolumeClaimTemplate(Model):
    """A volume that each sandbox has for itself, named `<name>-<sandbox>` and made when the sandbox is.

    A new sandbox of the same name finds it again, unless it is told to go with the sandbox.
    """

    name: Name
    mount_path: AbsolutePath
    size: Annotated[BytesQuantity, Field(ge=4 << 20, le=1 << 44)]
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"


class WorkspaceSource(Model):
    """A folder of the host, below one of the operator's roots, or a volume.

    What the box writes in a folder is its owner's.
    """

    host_path: AbsolutePath | None = None
    volume: VolumeSource | None = None
    read_only: Flag = False

    @model_validator(mode="after")
    def _one_source(self) -> "WorkspaceSource":
        if (self.host_path is None) == (self.volume is None):
            raise ValueError("needs one of `hostPath:` and `volume:`, and not both")
        return self


class ResourceLimits(Model):
    """Upper bounds, changed in place, but for `gpus`: another number of them makes a new container.

    What is left out is filled in by the security level; no disk is reserved, and no gpus.
    """

    cpu: Annotated[CpuQuantity | None, Field(ge=CPU_MIN_MILLICORES, le=1_024_000)] = None
    memory: Annotated[BytesQuantity | None, Field(ge=MEMORY_MIN_BYTES, le=1 << 46)] = None
    pids: Annotated[Whole | None, Field(ge=1, le=1 << 22)] = None
    disk: Annotated[BytesQuantity | None, Field(ge=0, le=1 << 60)] = None
    gpus: Annotated[Whole | None, Field(ge=0, le=1024)] = None


class Resources(Model):
    limits: ResourceLimits = ResourceLimits()
    disk: DiskRules | None = None
    cpu_shares: Annotated[Whole | None, Field(ge=2, le=262144)] = None


class Template(Model):
    """What a running container cannot change: a new value makes a new container.

    But for what is marked LIVE: `resources` are defaults for the sandbox's own, changed in place; probes are Paddock's,
    and so is the time that a command may take.
    """

    image: ImageName
    command: Annotated[tuple[Argument, ...] | None, Field(min_length=1, max_length=1024)] = None
    user: Annotated[Text | None, Field(pattern=r"^[0-9]{1,10}(:[0-9]{1,10})?$", description="uid or uid:gid")] = None
    working_dir: AbsolutePath | None = None
    env: Annotated[tuple[EnvVar, ...], Field(max_length=512)] = ()
    tmpfs: Annotated[tuple[TmpfsMount, ...], Field(max_length=32)] = ()
    workspace: WorkspaceMount | None = None
    secrets: Annotated[tuple[SecretMount, ...], Field(max_length=32)] = ()
    volumes: Annotated[tuple[VolumeMount, ...], Field(max_length=32)] = ()
    volume_claim_templates: Annotated[tuple[VolumeClaimTemplate, ...], Field(max_length=32)] = ()
    security_level: Annotated[Text, Field(min_length=1, max_length=52)] = "full-isolation"
    security: Security | None = None
    runtime: RuntimeName | None = None
    app_armor_profile: ProfileName | None = None
    se_linux_options: SELinuxOptions | None = None
    resources: Annotated[Resources, LIVE] = Resources()
    startup: Annotated[OneSuccessProbe | None, LIVE] = None
    readiness: Annotated[Probe | None, LIVE] = None
    liveness: Annotated[OneSuccessProbe | None, LIVE] = None
    exec_deadline_seconds: Annotated[Whole | None, LIVE, Field(ge=1, le=LONGEST_SECONDS)] = None


class TemplateRef(Model):
    """A SandboxTemplate of the same namespace."""

    name: Name


class NetworkSpec(Model):
    """What it may reach beyond itself, by name. Left out: what its security level lets through unasked.

    `*.` in front stands for one label or more. Changed while it runs; open connections are cut by that.
    """

    allowed_hosts: Annotated[tuple[HostName, ...] | None, Field(max_length=128)] = None
    local_network: Literal["Blocked", "Allowed"] = "Blocked"
    peers: Literal["Blocked", "Allowed"] = "Blocked"


class Lifecycle(Model):
    """How long things may take. A stored spec without `idleTimeoutSeconds` is older than it, and has none."""

    shutdown_grace_period_seconds: Annotated[Whole, Field(ge=0, le=3600)] = 10
    startup_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=86400)] = None
    active_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    ttl_seconds_after_finished: Annotated[Whole | None, Field(ge=0, le=LONGEST_SECONDS)] = None
    idle_timeout_seconds: Annotated[Whole, Field(ge=1, le=LONGEST_SECONDS)] = 1800
    keep_running: Flag = False
    on_idle: Literal["Suspend", "Delete"] = "Suspend"


class SandboxSpec(Model):
    """One of `template` and `templateRef` says what to run.

    `poolPolicy` says whether a new sandbox takes a ready box of a SandboxPool of its template: where there is one
    (Prefer), never, or Require: it becomes one of the pool's, and waits while the pool is at its maxReplicas.
    """

    template: Template | None = None
    template_ref: TemplateRef | None = None
    security_level: Annotated[Text | None, Field(min_length=1, max_length=52)] = None
    workspace: WorkspaceSource | None = None
    resources: Resources = Resources()
    pool_policy: Literal["Prefer", "Require", "Never"] = "Prefer"
    run_state: Literal["Running", "Suspended", "Paused"] = "Running"
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    lifecycle: Lifecycle = Lifecycle()
    network: NetworkSpec = NetworkSpec()
    priority: Annotated[Whole, Field(ge=-1_000_000, le=1_000_000)] = 0

    @model_validator(mode="after")
    def _one_template(self) -> "SandboxSpec":
        if (self.template is None) == (self.template_ref is None):
            raise ValueError("needs one of `template:` and `templateRef:`, and not both")
        return self

    @model_validator(mode="after")
    def _pools_have_templates_by_name(self) -> "SandboxSpec":
        if self.pool_policy == "Require" and self.template_ref is None:
            raise ValueError("`poolPolicy: Require` needs `templateRef:`; a pool's boxes are of a SandboxTemplate")
        return self


def leveled(spec: SandboxSpec | None, template: Template) -> Template:
    """The template at the security level that the sandbox itself asks for, where it does."""
    if spec is None or spec.security_level is None:
        return template
    return template.model_copy(update={"security_level": spec.security_level})


def idle_timeout_seconds(spec: SandboxSpec | None) -> int | None:
    """After how many seconds without use it is reaped; None: never.

    Specs that were stored before there was a timeout lack it, and go on to mean what they meant: never.
    """
    lifecycle = spec.lifecycle if spec else None
    if lifecycle is None or lifecycle.keep_running or "idle_timeout_seconds" not in lifecycle.model_fields_set:
        return None
    return lifecycle.idle_timeout_seconds


def status_word(obj: StoredObject) -> str:
    """The STATUS column: one word for a person, computed from conditions; never stored."""
    if obj.deleted_at is not None:
        return "Terminating"
    conditions: Mapping[str, Mapping[str, Any]] = {each["type"]: each for each in obj.status.get("conditions", ())}
    for type_, shown in (("Accepted", "False"), ("Finished", "True"), ("Suspended", "True"), ("Degraded", "True")):
        found = conditions.get(type_)
        if found and found["status"] == shown:
            return str(found["reason"])
    ready = conditions.get("Ready")
    if ready is None:
        return "Pending"
    return "Running" if ready["status"] == "True" else str(ready["reason"])


def _ready(obj: StoredObject, _now: float) -> str:
    conditions = obj.status.get("conditions", ())
    return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "Unknown")


def _image(obj: StoredObject) -> str:
    """The image's name, or the template that has it."""
    inline, ref = obj.spec.get("template"), obj.spec.get("templateRef")
    return str(inline["image"]) if inline else f"(template {ref['name']})" if ref else "-"


def _limit(name: str) -> Any:
    def cell(obj: StoredObject, _now: float) -> str:
        held = obj.status.get("resources", {}).get("limits", {})
        return str(held.get(name, "-"))

    return cell


def age(seconds: float) -> str:
    """kubectl's short form of a duration: 45s, 12m, 5h, 3d."""
    whole = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


KIND = Kind(
    name="Sandbox",
    plural="sandboxes",
    short=("sb",),
    spec=SandboxSpec,
    finalizers=(FINALIZER,),
    columns=(
        Column("READY", _ready),
        Column("STATUS", lambda obj, _now: status_word(obj)),
        Column("RESTARTS", lambda obj, _now: str(obj.status.get("restartCount", 0))),
        Column("CPU", _limit("cpu")),
        Column("MEMORY", _limit("memory")),
        Column("PIDS", _limit("pids")),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
        Column("IMAGE", lambda obj, _now: _image(obj), wide=True),
        Column("LAUNCH", lambda obj, _now: str(obj.status.get("launchType", "-")), wide=True),
        Column("CONTAINER", lambda obj, _now: str(obj.status.get("instanceRef", {}).get("name", "-")), wide=True),
    ),
)
