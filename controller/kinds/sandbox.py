"""Sandbox: one isolated box on this host, kept as its spec says."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from controller.kinds.base import LIVE, Flag, Form, Model, Name, Text, Whole
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
    Field(min_length=2, max_length=4096, pattern=r"^/[^\x00:]*$"),
    Form("an absolute path without a colon"),
]
EnvName = Annotated[
    Text,
    Field(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"),
    Form("letters, digits and `_`, not starting with a digit"),
]
Argument = Annotated[Text, Field(max_length=131072, pattern=r"^[^\x00]*$"), Form("text without a NUL")]

HostName = Annotated[
    Text,
    Field(
        min_length=3,
        max_length=253,
        pattern=r"^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$",
    ),
    Form("a whole host name in lower case, such as git.example.org; `*.` may stand in front; no address"),
]

ImageName = Annotated[
    Text,
    Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"),
    Form("an image's name, with its tag or digest, such as paddock/python:1"),
]


class EnvVar(Model):
    """A plain value in PID 1's environment. Secrets do not belong here: they would show in `docker inspect`."""

    name: EnvName
    """The variable's name."""
    value: Argument = ""
    """Its value."""


class TmpfsMount(Model):
    """An in-memory folder. What is written there counts as memory of the sandbox and is gone with the container."""

    mount_path: AbsolutePath
    """Where it appears in the sandbox."""
    size: Annotated[BytesQuantity, Field(ge=1 << 12, le=1 << 40)]
    """How much it holds."""


class WorkspaceMount(Model):
    """Where the sandbox's workspace is, and how large it is in memory where the sandbox names no folder for it."""

    mount_path: AbsolutePath = "/workspace"
    """Where it appears in the sandbox."""
    size: Annotated[BytesQuantity, Field(ge=1 << 12, le=1 << 40)] = Bytes(64 << 20)
    """How much it holds in memory, where the sandbox names no folder for it."""


class SecretMount(Model):
    """A secret of the operator's for this namespace, as a file in memory that the sandbox's user may read."""

    name: Name
    """Which one, among those for this namespace."""
    mount_path: AbsolutePath
    """The file that holds it in the sandbox."""


class VolumeSource(Model):
    """A volume of the namespace, made where there is none; it stays when sandboxes go, unless told to go with them.

    A larger `size` makes it larger; it never becomes smaller.
    """

    name: Name
    """Which one; it is made where there is none."""
    size: Annotated[BytesQuantity, Field(ge=4 << 20, le=1 << 44)]
    """How much it holds, allocated at once. More makes it larger; less is refused."""
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"
    """Retain: it stays when sandboxes go; Delete: it goes with the last sandbox that names it."""


class VolumeMount(VolumeSource):
    """A volume, and where it appears in the sandbox."""

    mount_path: AbsolutePath
    """Where it appears in the sandbox."""
    read_only: Flag = False
    """Nothing can be written there."""


class VolumeClaimTemplate(Model):
    """A volume that each sandbox has for itself, named `<name>-<sandbox>` and made when the sandbox is.

    A new sandbox of the same name finds it again, unless it is told to go with the sandbox.
    """

    name: Name
    """What the names of the volumes begin with."""
    mount_path: AbsolutePath
    """Where it appears in the sandbox."""
    size: Annotated[BytesQuantity, Field(ge=4 << 20, le=1 << 44)]
    """How much each holds, allocated at once. More makes it larger; less is refused."""
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"
    """Retain: it stays for the next sandbox of that name; Delete: it goes with its sandbox."""


class WorkspaceSource(Model):
    """A folder of the host, below one of the operator's roots, or a volume.

    What the box writes in a folder is its owner's.
    """

    host_path: AbsolutePath | None = None
    """A folder of the host, below a root that the operator names for that. Its owner's files are the sandbox's own in
    there; those of others are nobody's.
    """
    volume: VolumeSource | None = None
    """A volume of the namespace."""
    read_only: Flag = False
    """Nothing can be written there; full-isolation asks for that."""

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
    """Processor time."""
    memory: Annotated[BytesQuantity | None, Field(ge=MEMORY_MIN_BYTES, le=1 << 46)] = None
    """Memory, with what is written to tmpfs."""
    pids: Annotated[Whole | None, Field(ge=1, le=1 << 22)] = None
    """Processes and threads."""
    disk: Annotated[BytesQuantity | None, Field(ge=0, le=1 << 60)] = None
    """Disk to be reserved for it in the quotas, from its admission until it is gone."""
    gpus: Annotated[Whole | None, Field(ge=0, le=1024)] = None
    """GPUs, as `docker run --gpus` gives them; another number makes a new container."""


class Resources(Model):
    limits: ResourceLimits = ResourceLimits()
    """Upper bounds, changed in place; what is left out is filled in by the template, then by the security level."""
    disk: DiskRules | None = None
    cpu_shares: Annotated[Whole | None, Field(ge=2, le=262144)] = None
    """Weight against other sandboxes when the host's processors are all busy; 1024 is ordinary."""


class Template(Model):
    """What a running container cannot change: a new value makes a new container.

    But for what is marked LIVE: `resources` are defaults for the sandbox's own, changed in place; probes are Paddock's,
    and so is the time that a command may take.
    """

    image: ImageName
    """The image. It is pinned to its digest at each change of the spec: a tag that moves recreates nothing."""
    command: Annotated[tuple[Argument, ...] | None, Field(min_length=1, max_length=1024)] = None
    """The command and its arguments; the image's own if left out."""
    user: Annotated[Text | None, Field(pattern=r"^[0-9]{1,10}(:[0-9]{1,10})?$"), Form("uid or uid:gid")] = None
    """Who it runs as, in numbers; an id that no host user has if left out."""
    working_dir: AbsolutePath | None = None
    """The folder it starts in; the image's own if left out."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=512)] = ()
    """Variables of its environment. Anyone who may look at the container can read them: no secrets here."""
    tmpfs: Annotated[tuple[TmpfsMount, ...], Field(max_length=32)] = ()
    """Folders in memory, writable by its user, gone with the container; they count as memory."""
    workspace: WorkspaceMount | None = None
    """Its folder to work in."""
    secrets: Annotated[tuple[SecretMount, ...], Field(max_length=32)] = ()
    """Files of the operator's secrets folder, as files in memory. Renewed at each start."""
    volumes: Annotated[tuple[VolumeMount, ...], Field(max_length=32)] = ()
    """Volumes of the namespace: file systems of their own size that outlive sandboxes."""
    volume_claim_templates: Annotated[tuple[VolumeClaimTemplate, ...], Field(max_length=32)] = ()
    """Volumes that each sandbox has for itself, named `<name>-<sandbox>` and made for it."""
    security_level: Annotated[Text, Field(min_length=1, max_length=52)] = "full-isolation"
    """What it is kept from, by the name of a SecurityProfile; the strictest is the default."""
    security: Security | None = None
    """Narrows the security level, field by field; what would widen it is refused."""
    runtime: RuntimeName | None = None
    app_armor_profile: ProfileName | None = None
    se_linux_options: SELinuxOptions | None = None
    resources: Annotated[Resources, LIVE] = Resources()
    """What it may use."""
    startup: Annotated[OneSuccessProbe | None, LIVE] = None
    """Asked first; the other two wait until it has passed. What fails it too often is stopped."""
    readiness: Annotated[Probe | None, LIVE] = None
    """Until it has passed the sandbox is not Ready; then it is asked no more until the next start."""
    liveness: Annotated[OneSuccessProbe | None, LIVE] = None
    """Asked for as long as it runs. What fails it too often is stopped, and restarted by restartPolicy."""
    exec_deadline_seconds: Annotated[Whole | None, LIVE, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Seconds that a command (exec, shell, run) may take if it asks for none, and the most that it may ask for; changed
    at once. Left out: the daemon's own limit, and as many as are asked for.
    """


class TemplateRef(Model):
    """A SandboxTemplate of the same namespace."""

    name: Name
    """The SandboxTemplate's name."""


class NetworkSpec(Model):
    """What it may reach beyond itself, by name. Left out: what its security level lets through unasked.

    `*.` in front stands for one label or more. Changed while it runs; open connections are cut by that.
    """

    allowed_hosts: Annotated[tuple[HostName, ...] | None, Field(max_length=128)] = None
    """Whole host names that it may reach by HTTP on port 80 and TLS on 443, through its proxy; `*.` in front stands for
    one label or more. Left out: what its level lets through unasked.
    """
    local_network: Literal["Blocked", "Allowed"] = "Blocked"
    """Whether a sandbox of level production may reach private ranges, too; only where the operator's setting
    local_network allows it.
    """
    peers: Literal["Blocked", "Allowed"] = "Blocked"
    """Whether it is joined with the other sandboxes of its namespace that ask for that, too; each is
    NAME.peers.internal to the others. Only where its level and the operator's setting `peers` allow it.
    """


class Lifecycle(Model):
    """How long things may take. A stored spec without `idleTimeoutSeconds` is older than it, and has none."""

    shutdown_grace_period_seconds: Annotated[Whole, Field(ge=0, le=3600)] = 10
    """Seconds from SIGTERM to SIGKILL when it is stopped."""
    startup_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=86400)] = None
    """Seconds in which the startup and readiness probes must have passed; one that still fails then is stopped
    (StartFailed) and started again with back-off. No deadline if left out.
    """
    active_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Seconds after its first start at which it is stopped for good, until its spec changes; none if left out."""
    ttl_seconds_after_finished: Annotated[Whole | None, Field(ge=0, le=LONGEST_SECONDS)] = None
    """Seconds after which a finished sandbox is deleted; never if left out."""
    idle_timeout_seconds: Annotated[Whole, Field(ge=1, le=LONGEST_SECONDS)] = 1800
    """Seconds without use (exec, followed log, processor time) after which `onIdle` happens."""
    keep_running: Flag = False
    """Never idle: for services that run unattended."""
    on_idle: Literal["Suspend", "Delete"] = "Suspend"
    """Suspend: stopped, and started again by the next exec; Delete: the sandbox is deleted."""


class SandboxSpec(Model):
    """One of `template` and `templateRef` says what to run.

    `poolPolicy` says whether a new sandbox takes a ready box of a SandboxPool of its template: where there is one
    (Prefer), never, or Require: it becomes one of the pool's, and waits while the pool is at its maxReplicas.
    """

    template: Template | None = None
    """What to run, written out here. One of `template` and `templateRef` is needed."""
    template_ref: TemplateRef | None = None
    """What to run, by the name of a SandboxTemplate of the same namespace."""
    security_level: Annotated[Text | None, Field(min_length=1, max_length=52)] = None
    """The security level, in the place of the template's; another one than a pool's boxes have makes a cold start, and
    a changed one a new container.
    """
    workspace: WorkspaceSource | None = None
    """Its folder to work in."""
    resources: Resources = Resources()
    """What it may use."""
    pool_policy: Literal["Prefer", "Require", "Never"] = "Prefer"
    """Whether it takes over a ready box of a SandboxPool of its template: Prefer: where there is one; Require: it is
    one of the pool's, and waits while that is at its maximum; Never.
    """
    run_state: Literal["Running", "Suspended", "Paused"] = "Running"
    """Running; Suspended: stopped, and started when this is Running again; Paused: frozen, memory kept."""
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    """Whether it is started again when it ends by itself: Always; OnFailure: not after exit code 0; Never."""
    lifecycle: Lifecycle = Lifecycle()
    """How long things may take."""
    network: NetworkSpec = NetworkSpec()
    """What it can reach."""
    priority: Annotated[Whole, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Who is first when there is no room for all (higher first, then older); stops nothing."""

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
