"""SecurityProfile: what a security level allows a sandbox. Some are built in; an operator's own derive from those.

A changed profile recreates nothing that runs: its sandboxes show `Outdated`, and it takes effect at their next start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from controller.kinds.base import Flag, Model, Name, Text, Whole
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
    memory: Annotated[BytesQuantity | None, Field(ge=MEMORY_MIN_BYTES, le=1 << 46)] = None
    pids: Annotated[Whole | None, Field(ge=1, le=1 << 22)] = None


class ProfileTmpfs(TmpfsMount):
    """A folder in memory that every sandbox of the profile has."""

    noexec: Flag = True


class ProfileNetwork(NetworkReach):
    """What a sandbox of the profile can reach; with `allowedHosts`, those names, unasked, and no others."""

    allowed_hosts: Annotated[tuple[HostName, ...] | None, Field(max_length=1024)] = None
    peers: Flag | None = None


class SecurityProfileSpec(Narrowing):
    """What a sandbox with this `securityLevel` may do. It may tighten all of `base`, and loosen what policy grants.

    What is left out is as in `base`. A spec or a template may narrow its profile further, and never widen it.
    """

    base: Name
    network: ProfileNetwork | None = None
    default_user: Annotated[
        Text | None,
        Field(pattern=r"^([0-9]{1,10}(:[0-9]{1,10})?)?$", description="uid:gid, or empty for the image's own"),
    ] = None
    lowest_user_id: Annotated[Whole | None, Field(alias="lowestUserID", ge=0, lt=1 << 31)] = None
    read_only_host_folders: Flag | None = None
    tmpfs: Annotated[tuple[ProfileTmpfs, ...] | None, Field(max_length=32)] = None
    default_limits: ProfileLimits | None = None
    max_limits: ProfileLimits | None = None
    exec_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    max_exec_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None


class ProfileGrants(Model):
    """What the operator lets profiles have beyond their base: a setting, and never part of an object."""

    capabilities: Annotated[tuple[Capability, ...], Field(max_length=64)] = ()
    seccomp_profile: SeccompName = "minimal"
    network: NetworkMode = "none"
    lowest_user_id: Annotated[Whole | None, Field(alias="lowestUserID", ge=0, lt=1 << 31)] = None
    writable_root: Flag = False
    writable_host_folders: Flag = False
    new_privileges: Flag = False
    limits: ProfileLimits = ProfileLimits()


class EffectiveNetwork(NetworkReach):
    """What it can reach, and what the operator says of that."""

    allowed_hosts: Annotated[
        tuple[Text, ...] | None,
        Field(description="the names that it reaches unasked, and the only ones; left out: those that its spec lists"),
    ] = None
    version: Annotated[Text, Field(description="moves with that list")] = ""
    left_out: Annotated[
        tuple[Text, ...], Field(description="what this host's package managers use and no sandbox can reach, and why")
    ] = ()
    local_network: Annotated[
        Flag | None, Field(description="whether the operator lets a spec ask for the local network, too")
    ] = None
    peers: Annotated[Flag | None, Field(description="whether a spec may ask for others of its namespace, too")] = None


class Effective(Model):
    """All that a sandbox of this profile is made with."""

    capabilities: Annotated[tuple[Text, ...], Field(description="those it has; all others are dropped")]
    no_new_privileges: Annotated[Flag, Field(description="whether setuid programs give it nothing")]
    read_only_root_filesystem: Annotated[Flag, Field(description="whether it can write in tmpfs folders only")]
    default_user: Annotated[Text, Field(description="uid:gid of a sandbox that names no user; empty: the image's")]
    lowest_user_id: Annotated[Whole, Field(alias="lowestUserID", description="the lowest uid and gid to be named")]
    network: EffectiveNetwork
    seccomp_profile: Annotated[Text, Field(description="the list of system calls it may make (images/seccomp)")]
    read_only_host_folders: Annotated[Flag, Field(description="whether the host's folders can only be read")]
    security_options: Annotated[tuple[Text, ...], Field(description="what the engine is told, word for word")]
    sysctls: Annotated[tuple[Text, ...], Field(description="kernel settings of its own, name=value")]
    tmpfs: Annotated[tuple[ProfileTmpfs, ...], Field(description="its folders in memory")]
    shm_size: Annotated[Text, Field(description="shared memory (/dev/shm); it counts as memory")]
    open_files: Annotated[Whole, Field(description="files that a process may have open")]
    oom_score_adjust: Annotated[Whole, Field(description="above 0: killed before the host's own when memory ends")]
    default_limits: Annotated[ProfileLimits, Field(description="limits of a sandbox that asks for none itself")]
    max_limits: Annotated[ProfileLimits, Field(description="the highest it may ask for; the host bounds the others")]
    exec_deadline_seconds: Annotated[
        Whole | None, Field(description="of a command that asks for none; left out: the daemon's own limit")
    ] = None
    max_exec_deadline_seconds: Annotated[
        Whole | None, Field(description="the most that a command may ask for; left out: what the daemon lets it")
    ] = None


class ProfileCondition(HostCondition):
    """Accepted: whether sandboxes may have this profile, by its spec, its base and the operator's grants."""

    observed_generation: Annotated[Whole | None, Field(description="the generation it was found for")] = None
    last_transition_time: Annotated[Text | None, Field(description="when its status changed last")] = None


class SecurityProfileStatus(Model):
    """What the profile comes to; `effective` is there while it is accepted."""

    observed_generation: Annotated[Whole | None, Field(description="the generation that this is the status of")] = None
    conditions: tuple[ProfileCondition, ...] = ()
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
