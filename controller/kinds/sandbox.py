"""Sandbox: one isolated container on this host, kept as its spec says."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from controller.kinds.base import LIVE, Flag, Form, Model, Name, Text, Whole
from controller.kinds.common.quantity import Bytes, BytesQuantity, CpuQuantity
from controller.kinds.envelope import LabelKey, LabelValue
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.kinds.runtime.agent import Agent
from controller.kinds.runtime.confinement import ProfileName, RuntimeName, SELinuxOptions
from controller.kinds.runtime.disk import DiskRules
from controller.kinds.runtime.probe import OneSuccessProbe, Probe
from controller.kinds.runtime.snapshot import RestoreFrom
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

HOST_NAME_PATTERN = r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
HostName = Annotated[
    Text,
    Field(min_length=3, max_length=253, pattern=rf"^{HOST_NAME_PATTERN}$"),
    Form("a whole host name in lower case, such as git.example.org; `*.` may stand in front; no address"),
]

ImageName = Annotated[
    Text,
    Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"),
    Form("an image's name, with its tag or digest, such as paddock/python:1"),
]


class EnvVar(Model):
    """A plain environment variable of PID 1. Secrets do not belong here: `docker inspect` shows it."""

    name: EnvName
    """Name of the variable."""
    value: Argument = ""
    """Value of the variable."""


class TmpfsMount(Model):
    """An in-memory folder. Its contents count as memory of the sandbox and are lost with the container."""

    mount_path: AbsolutePath
    """Mount point in the sandbox."""
    size: Annotated[BytesQuantity, Field(ge=1 << 12, le=1 << 40)]
    """Size of the folder."""
    noexec: Flag | None = None
    """True: nothing in it can be executed. Left out: as the level has that folder, such as /tmp; in others it can."""


class WorkspaceMount(Model):
    """The sandbox's workspace: its path, and its size in memory if the sandbox names no folder for it."""

    mount_path: AbsolutePath = "/workspace"
    """Mount point in the sandbox."""
    size: Annotated[BytesQuantity, Field(ge=1 << 12, le=1 << 40)] = Bytes(64 << 20)
    """Size in memory, if the sandbox names no folder for it."""


class SecretMount(Model):
    """An operator's secret for this namespace, as a file in memory that the sandbox's user may read."""

    name: Name
    """Name of the secret, among those for this namespace."""
    mount_path: AbsolutePath
    """Path of the file in the sandbox."""


class VolumeSource(Model):
    """A volume of the namespace, created if missing. It outlives sandboxes, unless `reclaimPolicy` is Delete.

    A larger `size` grows it; it never shrinks.
    """

    name: Name
    """Name of the volume; created if missing."""
    size: Annotated[BytesQuantity, Field(ge=4 << 20, le=1 << 44)]
    """Size of the volume, allocated at once. A larger size grows it; a smaller one is refused."""
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"
    """Retain: keep the volume when sandboxes are deleted. Delete: delete it with the last sandbox that names it."""


class VolumeMount(VolumeSource):
    """A volume and its mount point in the sandbox."""

    mount_path: AbsolutePath
    """Mount point in the sandbox."""
    read_only: Flag = False
    """Mount it read-only."""


class VolumeClaimTemplate(Model):
    """A volume for each sandbox alone, named NAME-SANDBOX and created with the sandbox.

    A new sandbox of the same name gets it again, unless `reclaimPolicy` is Delete.
    """

    name: Name
    """Prefix of the volumes' names."""
    mount_path: AbsolutePath
    """Mount point in the sandbox."""
    size: Annotated[BytesQuantity, Field(ge=4 << 20, le=1 << 44)]
    """Size of each volume, allocated at once. A larger size grows it; a smaller one is refused."""
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"
    """Retain: keep the volume for the next sandbox of that name. Delete: delete it with its sandbox."""


class WorkspaceSource(Model):
    """A folder of the host, below one of the operator's roots, or a volume.

    Files that the sandbox writes in a folder belong to the folder's owner.
    """

    host_path: AbsolutePath | None = None
    """A folder of the host, below one of the operator's host roots.

    Files of its owner belong to the sandbox's user inside; those of others to nobody.
    """
    volume: VolumeSource | None = None
    """A volume of the namespace."""
    read_only: Flag = False
    """Mount it read-only; full-isolation requires that."""

    @model_validator(mode="after")
    def _one_source(self) -> "WorkspaceSource":
        if (self.host_path is None) == (self.volume is None):
            raise ValueError("needs one of `hostPath:` and `volume:`, and not both")
        return self


class HostFolder(Model):
    """A folder of the host, below one of the operator's roots, beside the workspace."""

    host_path: AbsolutePath
    """A folder of the host, below one of the operator's host roots.

    Files of its owner belong to the sandbox's user inside; those of others to nobody.
    """
    mount_path: AbsolutePath
    """Mount point in the sandbox."""
    read_only: Flag = False
    """Mount it read-only; full-isolation requires that."""


class TextFile(Model):
    """A read-only file with a text of the spec, in memory. Whoever may read the spec may read it: no secrets."""

    mount_path: AbsolutePath
    """Path of the file in the sandbox."""
    text: Annotated[Text, Field(max_length=256 << 10)]
    """Contents of the file."""


GpuId = Annotated[
    Text,
    Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9/:._-]*$"),
    Form("a GPU by its index or UUID, as the setting gpu_devices lists it"),
]


class ResourceLimits(Model):
    """Upper bounds, changed in place except for `gpus`: a change of it needs a new container.

    Defaults come from the security level; no disk and no GPUs are reserved by default.
    """

    cpu: Annotated[CpuQuantity | None, Field(ge=CPU_MIN_MILLICORES, le=1_024_000)] = None
    """CPU time."""
    memory: Annotated[BytesQuantity | None, Field(ge=MEMORY_MIN_BYTES, le=1 << 46)] = None
    """Memory, including tmpfs contents."""
    pids: Annotated[Whole | None, Field(ge=1, le=1 << 22)] = None
    """Processes and threads."""
    disk: Annotated[BytesQuantity | None, Field(ge=0, le=1 << 60)] = None
    """Disk reserved for it in the quotas, from its admission until it is gone."""
    gpus: Annotated[Whole | None, Field(ge=0, le=1024)] = None
    """GPUs, as `docker run --gpus` gives them. A change needs a new container."""


class Resources(Model):
    """Limits and CPU weight of a sandbox."""

    limits: ResourceLimits = ResourceLimits()
    """Upper bounds, changed in place except for `gpus`. Defaults come from the template, then from the security level.
    """
    disk: DiskRules | None = None
    cpu_shares: Annotated[Whole | None, Field(ge=2, le=262144)] = None
    """CPU weight against other sandboxes when all of the host's processors are busy. Default: 1024."""
    gpu_device_ids: Annotated[tuple[GpuId, ...] | None, Field(min_length=1, max_length=64)] = None
    """These GPUs and no others, out of the operator's setting `gpu_devices`. Then `limits.gpus` is their number.

    A change needs a new container.
    """


class Template(Model):
    """The fixed part of a container: a change recreates it.

    Fields marked LIVE are the exception: `resources` (defaults for the sandbox's own), probes and the exec deadline are
    changed in place.
    """

    image: ImageName
    """The image. It is pinned to its digest at each change of the spec: a moved tag recreates nothing."""
    command: Annotated[tuple[Argument, ...] | None, Field(min_length=1, max_length=1024)] = None
    """The command and its arguments; the image's own if left out. With an agent and no command the agent alone runs."""
    args: Annotated[tuple[Argument, ...] | None, Field(min_length=1, max_length=1024)] = None
    """Arguments after `command`. Without a command they replace those of the image, after its own entrypoint."""
    agent: Agent | None = None
    user: Annotated[Text | None, Field(pattern=r"^[0-9]{1,10}(:[0-9]{1,10})?$"), Form("uid or uid:gid")] = None
    """Numeric user. Left out: an id of its own, or the image's user where the security level has none."""
    working_dir: AbsolutePath | None = None
    """Working directory; the image's own if left out."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=512)] = ()
    """Environment variables. Anyone who may inspect the container can read them: put no secrets here."""
    tmpfs: Annotated[tuple[TmpfsMount, ...], Field(max_length=32)] = ()
    """In-memory folders, writable by its user and lost with the container. They count as memory."""
    shm_size: Annotated[BytesQuantity | None, Field(ge=1 << 12, le=1 << 40)] = None
    """Size of the shared memory in `/dev/shm`; left out: 16Mi. It counts as memory."""
    workspace: WorkspaceMount | None = None
    """Working folder of the sandbox."""
    secrets: Annotated[tuple[SecretMount, ...], Field(max_length=32)] = ()
    """Files from the operator's secrets folder, as files in memory. Renewed at each start."""
    volumes: Annotated[tuple[VolumeMount, ...], Field(max_length=32)] = ()
    """Volumes of the namespace: file systems of a fixed size that outlive sandboxes."""
    volume_claim_templates: Annotated[tuple[VolumeClaimTemplate, ...], Field(max_length=32)] = ()
    """Volumes for each sandbox alone, named NAME-SANDBOX and created with it."""
    restore_from: RestoreFrom | None = None
    """A SandboxSnapshot that its files come from. A change needs a new container."""
    security_level: Annotated[Text, Field(min_length=1, max_length=52)] = "full-isolation"
    """Isolation of the sandbox, by the name of a SecurityProfile; the strictest is the default."""
    security: Security | None = None
    """Narrows the security level, field by field; anything that would widen it is refused."""
    runtime: RuntimeName | None = None
    app_armor_profile: ProfileName | None = None
    se_linux_options: SELinuxOptions | None = None
    resources: Annotated[Resources, LIVE] = Resources()
    """Resources that it may use."""
    startup: Annotated[OneSuccessProbe | None, LIVE] = None
    """Runs first; the other two wait for its success. A sandbox that fails it too often is stopped."""
    readiness: Annotated[Probe | None, LIVE] = None
    """The sandbox is not Ready before its first success; then it is not run again until the next start."""
    liveness: Annotated[OneSuccessProbe | None, LIVE] = None
    """Runs as long as the sandbox does. A sandbox that fails it too often is stopped, and restarted by restartPolicy.
    """
    exec_deadline_seconds: Annotated[Whole | None, LIVE, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Default and maximum of seconds for a command (exec, shell, run); changed at once.

    Left out: the daemon's own default, and no maximum.
    """


class TemplateRef(Model):
    """Reference to a SandboxTemplate of the same namespace."""

    name: Name
    """Name of the SandboxTemplate."""


PeerName = Annotated[
    Text,
    Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$"),
    Form("letters, digits, `_`, `-` and `.`, such as db"),
]


class NetworkSpec(Model):
    """Network access of the sandbox, by host name. Left out: what its security level allows by default.

    `*.` in front stands for one or more labels. It can be changed while the sandbox runs; that cuts open connections.
    """

    allowed_hosts: Annotated[tuple[HostName, ...] | None, Field(max_length=128)] = None
    """Whole host names that it may reach through its proxy, by HTTP on port 80 and TLS on 443.

    `*.` in front stands for one or more labels. Left out: what its level allows by default.
    """
    local_network: Literal["Blocked", "Allowed"] = "Blocked"
    """Allowed: a sandbox of level production may reach private ranges, too.

    Requires the operator's setting local_network.
    """
    peers: Literal["Blocked", "Allowed"] = "Blocked"
    """Allowed: join the other sandboxes of the namespace that set it, too.

    Each is NAME.peers.internal to the others. Requires the level's permission and the operator's setting `peers`.
    """
    peer_names: Annotated[dict[PeerName, Name], Field(max_length=256)] | None = None
    """Further names of peers, for this sandbox alone: `{db: shop-db}` lets it reach the sandbox shop-db as `db`.

    Requires `peers: Allowed`. It can be changed while the sandbox runs; that cuts open connections to its peers.
    A sandbox with such names that reaches no host has no proxy settings; its first host needs a new container.
    """


class ProviderReference(Model):
    """Reference to a Provider of the same namespace."""

    name: Name
    """Name of the Provider."""


class ModelServerReference(Model):
    """Reference to a ModelServer of the same namespace."""

    name: Name
    """Name of the ModelServer."""


class ModelSource(Model):
    """A source of models: a Provider or a ModelServer."""

    provider_ref: ProviderReference | None = None
    """A model API outside, which the sandbox uses without its key and without a network."""
    model_server_ref: ModelServerReference | None = None
    """A model of this host."""

    @model_validator(mode="after")
    def _one_source(self) -> "ModelSource":
        if (self.provider_ref is None) == (self.model_server_ref is None):
            raise ValueError("needs one of `providerRef:` and `modelServerRef:`, and not both")
        return self


class SecretReference(Model):
    """Reference to a secret of the host."""

    name: Name
    """Name of the secret, as `paddock secret set NAME --for HOST` got it."""


class Credential(Model):
    """A secret of the host that the sandbox's proxy adds to its requests to one host. It is never in the sandbox."""

    host: HostName
    """Whole name of the host, among those that the sandbox may reach. The proxy decrypts TLS to it, and to no other."""
    secret_ref: SecretReference
    """The operator's secret for that host."""
    header: Annotated[
        Text,
        Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9-]+$"),
        Form("the name of a header, such as Authorization"),
    ] = "Authorization"
    """Header that carries it. One of this name that the sandbox sends is dropped."""
    scheme: Literal["Bearer", "Basic", "Raw"] | None = None
    """Form of the header: `Bearer SECRET`, `Basic` of `user:SECRET`, or as it is.

    Left out: Bearer for Authorization, Raw for other headers.
    """
    user: Annotated[
        Text | None,
        Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._@+-]+$"),
        Form("the name of a user, such as x-access-token"),
    ] = None
    """User of the scheme Basic."""


class StartCondition(Model):
    """A sandbox of the namespace that comes before this one."""

    sandbox: Name
    """Name of the other sandbox."""
    condition: Literal["Started", "Ready", "Succeeded"] = "Ready"
    """Started: its container has been started. Ready: it is Ready. Succeeded: it has ended with exit code 0."""


class PeriodicSnapshots(Model):
    """Snapshots that are taken of a running sandbox from time to time."""

    every_seconds: Annotated[Whole, Field(ge=60, le=LONGEST_SECONDS)]
    """Seconds between two snapshots."""
    keep_last: Annotated[Whole, Field(ge=1, le=100)] = 3
    """Number of these snapshots that are kept; older ones are deleted, but for those that a sandbox begins from."""


class Lifecycle(Model):
    """Deadlines, idleness, and what a suspension keeps.

    A stored spec without `idleTimeoutSeconds` predates it, and has none.
    """

    shutdown_grace_period_seconds: Annotated[Whole, Field(ge=0, le=3600)] = 10
    """Seconds from the image's stop signal (else SIGTERM) to SIGKILL when it is stopped."""
    startup_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=86400)] = None
    """Seconds for the startup and readiness probes to succeed.

    After that it is stopped (StartFailed) and started again with back-off. Default: no deadline.
    """
    active_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Seconds after its first start at which it is stopped for good, until its spec changes.

    They run on while it is paused, or suspended as idle. With runState Suspended they end, and begin anew with its next
    start. Those of one from a pool count from its claim. Default: none.
    """
    ttl_seconds_after_finished: Annotated[Whole | None, Field(ge=0, le=LONGEST_SECONDS)] = None
    """Seconds after which a finished sandbox is deleted. Default: never."""
    idle_timeout_seconds: Annotated[Whole, Field(ge=1, le=LONGEST_SECONDS)] = 1800
    """Seconds without use until `onIdle` applies.

    Use is a command, a file operation, a port connection, a followed log, a change of the spec, or CPU time.
    """
    keep_running: Flag = False
    """Never idle: for unattended services."""
    on_idle: Literal["Suspend", "Hibernate", "Delete"] | None = None
    """Suspend: stop it; the next use starts it again. Hibernate: freeze it and move its memory to swap; the next use
    wakes it. Delete: delete the sandbox.

    Left out: Hibernate where its host can, else Suspend.
    """
    suspend_after_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Seconds that it stays hibernated as idle before it is suspended. Left out: a day."""
    on_suspend: Literal["KeepFiles", "Discard"] = "KeepFiles"
    """KeepFiles: a suspension saves its files in memory, and the next start puts them back. Discard: they are lost."""
    snapshots: PeriodicSnapshots | None = None
    """Snapshots from time to time. Left out: none."""


class SandboxSpec(Model):
    """The desired sandbox. One of `template` and `templateRef` is required.

    `poolPolicy` decides if a new sandbox claims a warm one from a SandboxPool of its template. Prefer: if there is one.
    Require: it must come from the pool, and waits while the pool is at its maxReplicas. Never: it does not.
    """

    template: Template | None = None
    """The container to run, inline. One of `template` and `templateRef` is required."""
    template_ref: TemplateRef | None = None
    """The container to run, by the name of a SandboxTemplate of the same namespace."""
    restore_from: RestoreFrom | None = None
    """A SandboxSnapshot that its files come from, instead of the template's. A change needs a new container.

    A new container begins its root file system from it again; volumes and folders in memory get its files once.
    """
    security_level: Annotated[Text | None, Field(min_length=1, max_length=52)] = None
    """Overrides the template's security level.

    If it differs from a pool's, the sandbox starts cold; a change recreates the container.
    """
    workspace: WorkspaceSource | None = None
    """Working folder of the sandbox."""
    host_folders: Annotated[tuple[HostFolder, ...], Field(max_length=32)] = ()
    """Further folders of the host. A change needs a new container."""
    files: Annotated[tuple[TextFile, ...], Field(max_length=64)] = ()
    """Read-only files with texts of this spec. A change needs a new container."""
    resources: Resources = Resources()
    """Resources that it may use."""
    pool_policy: Literal["Prefer", "Require", "Never"] = "Prefer"
    """Claiming a warm sandbox from a SandboxPool of its template.

    Prefer: if there is one. Require: only from the pool; it waits while the pool is at its maximum. Never.
    """
    run_state: Literal["Running", "Suspended", "Paused", "Hibernated"] = "Running"
    """Running. Suspended: stopped, and started when this is Running again. Paused: frozen, memory kept.

    Hibernated: frozen, memory moved to swap; the next use sets this to Running.
    """
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    """Restarts after it ends by itself. Always. OnFailure: not after exit code 0. Never."""
    lifecycle: Lifecycle = Lifecycle()
    """Deadlines and idleness."""
    network: NetworkSpec = NetworkSpec()
    """Network access."""
    models: Annotated[tuple[ModelSource, ...], Field(max_length=32)] = ()
    """Models that it may use at http://127.0.0.1:8090, at any security level. Changed at once, in a running sandbox."""
    credentials: Annotated[tuple[Credential, ...], Field(max_length=16)] = ()
    """Secrets for hosts, added by its proxy (levels development and build). The first one needs a new container."""
    start_after: Annotated[tuple[StartCondition, ...], Field(max_length=64)] = ()
    """Sandboxes of its namespace and host that come first: its first start waits until each is as its condition says.

    Later starts (after an end, or a suspension) wait for nobody.
    """
    priority: Annotated[Whole, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Order in the queue when resources are short: higher first, then older. It stops no running sandbox."""
    host: Name | None = None
    """Host to run on, by its name. Default: the only one there is, or the scheduler's choice. Fixed once it has one."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] | None = None
    """Labels of the host that the scheduler may choose, with their values. Counts until the sandbox has a host."""
    on_host_loss: Literal["Stay", "Recreate"] | None = None
    """Reaction to the loss of its host. Recreate: start anew on another one, once the scheduler knows its host as down.

    Its host freezes it when it can't reach the store for 12 s. Stay, the default: wait for its host.
    """

    @model_validator(mode="after")
    def _one_template(self) -> "SandboxSpec":
        if (self.template is None) == (self.template_ref is None):
            raise ValueError("needs one of `template:` and `templateRef:`, and not both")
        return self

    @model_validator(mode="after")
    def _one_choice_of_host(self) -> "SandboxSpec":
        if self.host is not None and self.node_selector:
            raise ValueError("`nodeSelector:` has no effect beside `host:`, which chooses the host; leave one out")
        return self

    @model_validator(mode="after")
    def _pools_have_templates_by_name(self) -> "SandboxSpec":
        if self.pool_policy == "Require" and self.template_ref is None:
            raise ValueError("`poolPolicy: Require` needs `templateRef:`; a pool's sandboxes are of a SandboxTemplate")
        return self


def at_own_level(spec: SandboxSpec | None, template: Template) -> Template:
    """Return the template at the sandbox's own security level, if it has one."""
    if spec is None or spec.security_level is None:
        return template
    return template.model_copy(update={"security_level": spec.security_level})


def idle_timeout_seconds(spec: SandboxSpec | None) -> int | None:
    """Return the seconds without use after which it is reaped; None: never.

    Specs stored before there was a timeout lack it, and keep their meaning: never.
    """
    lifecycle = spec.lifecycle if spec else None
    if lifecycle is None or lifecycle.keep_running or "idle_timeout_seconds" not in lifecycle.model_fields_set:
        return None
    return lifecycle.idle_timeout_seconds


def keeps_files(spec: SandboxSpec | None) -> bool:
    """Return True if a suspension saves its files in memory."""
    return spec is not None and spec.lifecycle.on_suspend == "KeepFiles"


def restore_source(spec: SandboxSpec, template: Template) -> RestoreFrom | None:
    """Return the snapshot that a sandbox begins from: its own, else its template's."""
    return spec.restore_from or template.restore_from


def status_word(obj: StoredObject) -> str:
    """Return the STATUS column: one word for people, computed from conditions; never stored."""
    if obj.deleted_at is not None:
        return "Terminating"
    conditions: Mapping[str, Mapping[str, Any]] = {
        condition["type"]: condition for condition in obj.status.get("conditions", ())
    }
    for type_, status in (("Accepted", "False"), ("Finished", "True"), ("Suspended", "True"), ("Degraded", "True")):
        condition = conditions.get(type_)
        if condition and condition["status"] == status:
            return str(condition["reason"])
    ready = conditions.get("Ready")
    if ready is None:
        return "Pending"
    return "Running" if ready["status"] == "True" else str(ready["reason"])


def _ready(obj: StoredObject, _now: float) -> str:
    conditions = obj.status.get("conditions", ())
    return next((str(condition["status"]) for condition in conditions if condition["type"] == "Ready"), "Unknown")


def _image(obj: StoredObject) -> str:
    """Return the image's name, or the template that has it."""
    inline, ref = obj.spec.get("template"), obj.spec.get("templateRef")
    return str(inline["image"]) if inline else f"(template {ref['name']})" if ref else "-"


def _limit(name: str) -> Any:
    def cell(obj: StoredObject, _now: float) -> str:
        limits = obj.status.get("resources", {}).get("limits", {})
        return str(limits.get(name, "-"))

    return cell


def age(seconds: float) -> str:
    """Return kubectl's short form of a duration: 45s, 12m, 5h, 3d."""
    total = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if total >= 2 * size:
            return f"{total // size}{unit}"
    return f"{total}s"


KIND = Kind(
    name="Sandbox",
    plural="sandboxes",
    short_names=("sb",),
    spec=SandboxSpec,
    finalizers=(FINALIZER,),
    selectable=("spec.templateRef.name", "status.launchType"),
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
        Column("HOST", lambda obj, _now: str(obj.status.get("host") or obj.spec.get("host") or "-"), wide=True),
        Column("CONTAINER", lambda obj, _now: str(obj.status.get("instanceRef", {}).get("name", "-")), wide=True),
    ),
)
