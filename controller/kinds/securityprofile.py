"""SecurityProfile: what a security level allows a sandbox. Some are built in; an operator's own derive from those.

A changed profile recreates nothing that runs: its sandboxes show `Outdated`, and it takes effect at their next start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from controller.kinds.base import Flag, Form, Model, Name, Text, Whole
from controller.kinds.common.quantity import BytesQuantity, CpuQuantity
from controller.kinds.host import HostCondition
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind, Reference
from controller.kinds.sandbox import CPU_MIN_MILLICORES, LONGEST_SECONDS, MEMORY_MIN_BYTES, HostName, TmpfsMount
from controller.kinds.security import Capability, Narrowing, NetworkMode, NetworkReach, SeccompName

BUILT_IN_NAMES = ("full-isolation", "development", "build", "production")


class ProfileLimits(Model):
    """CPU, memory and processes of one sandbox."""

    cpu: Annotated[CpuQuantity | None, Field(ge=CPU_MIN_MILLICORES, le=1_024_000)] = None
    """Processor time."""
    memory: Annotated[BytesQuantity | None, Field(ge=MEMORY_MIN_BYTES, le=1 << 46)] = None
    """Memory, with what is written to tmpfs."""
    pids: Annotated[Whole | None, Field(ge=1, le=1 << 22)] = None
    """Processes and threads."""


class ProfileTmpfs(TmpfsMount):
    """A folder in memory that every sandbox of the profile has."""

    noexec: Flag = True
    """Whether nothing in it can be executed."""


class ProfileNetwork(NetworkReach):
    """What a sandbox of the profile can reach; with `allowedHosts`, those names, unasked, and no others."""

    allowed_hosts: Annotated[tuple[HostName, ...] | None, Field(max_length=1024)] = None
    """Names that it reaches unasked, by a sealed network's proxy, and the only ones."""
    peers: Flag | None = None
    """Whether a sandbox may ask to be joined with others of its namespace."""


class SecurityProfileSpec(Narrowing):
    """What a sandbox with this `securityLevel` may do. It may tighten all of `base`, and loosen what policy grants.

    What is left out is as in `base`. A spec or a template may narrow its profile further, and never widen it.
    """

    base: Name
    """The built-in profile that it derives from; what is left out is as there."""
    network: ProfileNetwork | None = None
    """What it can reach."""
    default_user: Annotated[
        Text | None,
        Field(pattern=r"^([0-9]{1,10}(:[0-9]{1,10})?)?$"),
        Form("uid:gid, or empty for the image's own"),
    ] = None
    """The user of a sandbox that names none."""
    lowest_user_id: Annotated[Whole | None, Field(alias="lowestUserID", ge=0, lt=1 << 31)] = None
    """The lowest uid and gid that a sandbox may name."""
    read_only_host_folders: Flag | None = None
    """Whether folders of the host, where the operator lets them be bound, can only be read."""
    tmpfs: Annotated[tuple[ProfileTmpfs, ...] | None, Field(max_length=32)] = None
    """Folders in memory of every sandbox of the profile, beside those of `base`."""
    default_limits: ProfileLimits | None = None
    """Limits of a sandbox that asks for none itself."""
    max_limits: ProfileLimits | None = None
    """The highest limits that a sandbox may ask for; the host and the quotas bound what is left out."""
    exec_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Seconds that a command may take where neither it nor its template asks for any. Left out: the daemon's own limit.
    """
    max_exec_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Seconds that a command may ask for at most, and a template for it. Left out: as many as the daemon lets it."""


class ProfileGrants(Model):
    """What the operator lets profiles have beyond their base: a setting, and never part of an object."""

    capabilities: Annotated[tuple[Capability, ...], Field(max_length=64)] = ()
    """Those of the level that it keeps; an empty list: none."""
    seccomp_profile: SeccompName = "minimal"
    """The list of system calls that it may make, of Paddock's own."""
    network: NetworkMode = "none"
    """What it can reach."""
    lowest_user_id: Annotated[Whole | None, Field(alias="lowestUserID", ge=0, lt=1 << 31)] = None
    """The lowest uid and gid that a sandbox may name."""
    writable_root: Flag = False
    writable_host_folders: Flag = False
    new_privileges: Flag = False
    limits: ProfileLimits = ProfileLimits()


class EffectiveNetwork(NetworkReach):
    """What it can reach, and what the operator says of that."""

    allowed_hosts: tuple[Text, ...] | None = None
    """The names that it reaches unasked, and the only ones; left out: those that its spec lists."""
    version: Text = ""
    """Moves with that list."""
    left_out: tuple[Text, ...] = ()
    """What this host's package managers use and no sandbox can reach, and why."""
    local_network: Flag | None = None
    """Whether the operator lets a spec ask for the local network, too."""
    peers: Flag | None = None
    """Whether a spec may ask for others of its namespace, too."""


class Effective(Model):
    """All that a sandbox of this profile is made with."""

    capabilities: tuple[Text, ...]
    """Those it has; all others are dropped."""
    no_new_privileges: Flag
    """Whether setuid programs give it nothing."""
    read_only_root_filesystem: Flag
    """Whether it can write in tmpfs folders only."""
    default_user: Text
    """Uid:gid of a sandbox that names no user; empty: the image's."""
    lowest_user_id: Annotated[Whole, Field(alias="lowestUserID")]
    """The lowest uid and gid to be named."""
    network: EffectiveNetwork
    """What it can reach, and what the operator says of that."""
    seccomp_profile: Text
    """The list of system calls it may make (images/seccomp)"""
    read_only_host_folders: Flag
    """Whether the host's folders can only be read."""
    security_options: tuple[Text, ...]
    """What the engine is told, word for word."""
    sysctls: tuple[Text, ...]
    """Kernel settings of its own, name=value."""
    tmpfs: tuple[ProfileTmpfs, ...]
    """Its folders in memory."""
    shm_size: Text
    """Shared memory (/dev/shm); it counts as memory."""
    open_files: Whole
    """Files that a process may have open."""
    oom_score_adjust: Whole
    """Above 0: killed before the host's own when memory ends."""
    default_limits: ProfileLimits
    """Limits of a sandbox that asks for none itself."""
    max_limits: ProfileLimits
    """The highest it may ask for; the host bounds the others."""
    exec_deadline_seconds: Whole | None = None
    """Of a command that asks for none; left out: the daemon's own limit."""
    max_exec_deadline_seconds: Whole | None = None
    """The most that a command may ask for; left out: what the daemon lets it."""


class ProfileCondition(HostCondition):
    """Accepted: whether sandboxes may have this profile, by its spec, its base and the operator's grants."""

    observed_generation: Whole | None = None
    """The generation it was found for."""
    last_transition_time: Text | None = None
    """When its status changed last."""


class SecurityProfileStatus(Model):
    """What the profile comes to; `effective` is there while it is accepted."""

    observed_generation: Whole | None = None
    """The generation that this is the status of."""
    conditions: tuple[ProfileCondition, ...] = ()
    """Accepted: whether sandboxes may have it."""
    effective: Effective | None = None


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """A stored profile with its spec; None: this version can't read it."""

    obj: StoredObject
    spec: SecurityProfileSpec | None


def stored_profile(obj: StoredObject) -> StoredProfile:
    """The object with its spec parsed."""
    try:
        return StoredProfile(obj, SecurityProfileSpec.model_validate(obj.spec))
    except ValidationError:
        return StoredProfile(obj, None)


def _effective(obj: StoredObject) -> Mapping[str, Any]:
    found: Mapping[str, Any] = obj.status.get("effective", {})
    return found


def _capabilities(obj: StoredObject, _now: float) -> str:
    return ",".join(_effective(obj).get("capabilities", ())) or ("none" if _effective(obj) else "-")


def _limits(obj: StoredObject, _now: float) -> str:
    limits = _effective(obj).get("defaultLimits", {})
    return ",".join(f"{name}={limits[name]}" for name in ("cpu", "memory", "pids") if name in limits) or "-"


def _accepted(obj: StoredObject, _now: float) -> str:
    return next((str(each["status"]) for each in obj.status.get("conditions", ())), "Unknown")


def _user(obj: StoredObject, _now: float) -> str:
    return str(_effective(obj).get("defaultUser", "-")) or "(image)"


KIND = Kind(
    name="SecurityProfile",
    plural="securityprofiles",
    short=("sp",),
    namespaced=False,
    spec=SecurityProfileSpec,
    status=SecurityProfileStatus,
    built_in=BUILT_IN_NAMES,
    referenced_by=(
        Reference("Sandbox", ("template", "securityLevel")),
        Reference("Sandbox", ("securityLevel",)),
        Reference("SandboxTemplate", ("securityLevel",)),
    ),
    columns=(
        Column("BASE", lambda obj, _now: str(obj.spec.get("base", "-"))),
        Column("ACCEPTED", _accepted),
        Column("CAPABILITIES", _capabilities),
        Column("NETWORK", lambda obj, _now: str(_effective(obj).get("network", {}).get("mode", "-"))),
        Column("SECCOMP", lambda obj, _now: str(_effective(obj).get("seccompProfile", "-"))),
        Column("READ-ONLY ROOT", lambda obj, _now: str(_effective(obj).get("readOnlyRootFilesystem", "-")).lower()),
        Column("DEFAULT USER", _user),
        Column("DEFAULT LIMITS", _limits),
    ),
)
