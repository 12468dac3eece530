"""SecurityProfile: permissions of a sandbox. Some are built in; an operator's own derive from those.

A change recreates nothing that runs: its sandboxes show `Outdated`, and it takes effect at their next start.
"""

from collections.abc import Collection, Mapping
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
# A second name of each, by what its sandboxes reach; stored is the first.
ALIASES = {
    "none": "full-isolation",
    "listed-hosts": "development",
    "package-hosts": "build",
    "internet": "production",
}
_ALIAS_OF = {name: alias for alias, name in ALIASES.items()}


class ProfileLimits(Model):
    """CPU, memory and processes of one sandbox."""

    cpu: Annotated[CpuQuantity | None, Field(ge=CPU_MIN_MILLICORES, le=1_024_000)] = None
    """CPU time."""
    memory: Annotated[BytesQuantity | None, Field(ge=MEMORY_MIN_BYTES, le=1 << 46)] = None
    """Memory, including tmpfs contents."""
    pids: Annotated[Whole | None, Field(ge=1, le=1 << 22)] = None
    """Processes and threads."""


class ProfileTmpfs(TmpfsMount):
    """An in-memory folder of every sandbox of the profile."""

    noexec: Flag = True
    """True: nothing in it can be executed."""


class ProfileNetwork(NetworkReach):
    """Network access of the profile's sandboxes. With `allowedHosts`, only those names, by default."""

    allowed_hosts: Annotated[tuple[HostName, ...] | None, Field(max_length=1024)] = None
    """The only reachable names, allowed by default through a sealed network's proxy."""
    peers: Flag | None = None
    """True: a sandbox may ask to join others of its namespace."""


class SecurityProfileSpec(Narrowing):
    """Permissions of a sandbox with this `securityLevel`.

    It may tighten all of `base`, and loosen what the operator grants. Fields left out are as in `base`. A spec or a
    template may narrow its profile further, and never widen it.
    """

    base: Name
    """The built-in profile that it derives from. Fields left out are as there."""
    network: ProfileNetwork | None = None
    """Network access."""
    default_user: Annotated[
        Text | None,
        Field(pattern=r"^([0-9]{1,10}(:[0-9]{1,10})?)?$"),
        Form("uid:gid, or empty for the image's own"),
    ] = None
    """User of a sandbox that names none; left out: the base's, which for full-isolation is an id of its own (as
    20000:20000 is here)."""
    lowest_user_id: Annotated[Whole | None, Field(alias="lowestUserID", ge=0, lt=1 << 31)] = None
    """Lowest uid and gid that a sandbox may name."""
    read_only_host_folders: Flag | None = None
    """True: folders of the host are mounted read-only."""
    tmpfs: Annotated[tuple[ProfileTmpfs, ...] | None, Field(max_length=32)] = None
    """In-memory folders of every sandbox of the profile, besides those of `base`."""
    default_limits: ProfileLimits | None = None
    """Limits of a sandbox that asks for none."""
    max_limits: ProfileLimits | None = None
    """Highest limits that a sandbox may ask for. The host and the quotas bound fields left out."""
    exec_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Seconds for a command if neither it nor its template asks for any. Default: the daemon's own limit."""
    max_exec_deadline_seconds: Annotated[Whole | None, Field(ge=1, le=LONGEST_SECONDS)] = None
    """Maximum of seconds for a command or its template. Default: the daemon's own limit."""


class ProfileGrants(Model):
    """Permissions that the operator grants to profiles beyond their base. A setting, never part of an object."""

    capabilities: Annotated[tuple[Capability, ...], Field(max_length=64)] = ()
    """Capabilities that a profile may add."""
    seccomp_profile: SeccompName = "minimal"
    """Least strict seccomp profile."""
    network: NetworkMode = "none"
    """Widest network mode."""
    lowest_user_id: Annotated[Whole | None, Field(alias="lowestUserID", ge=0, lt=1 << 31)] = None
    """Lowest uid and gid that a profile may name."""
    writable_root: Flag = False
    writable_host_folders: Flag = False
    new_privileges: Flag = False
    limits: ProfileLimits = ProfileLimits()


class EffectiveNetwork(NetworkReach):
    """Network access, with the operator's restrictions."""

    allowed_hosts: tuple[Text, ...] | None = None
    """The only reachable names, allowed by default. Left out: the names in a sandbox's spec."""
    version: Text = ""
    """Version of that list."""
    left_out: tuple[Text, ...] = ()
    """Hosts of this host's package managers that no sandbox can reach, and why."""
    local_network: Flag | None = None
    """True: the operator allows specs to ask for the local network."""
    peers: Flag | None = None
    """True: a spec may ask to join others of its namespace."""


class Effective(Model):
    """The effective settings of this profile's sandboxes."""

    capabilities: tuple[Text, ...]
    """Kept capabilities; all others are dropped."""
    no_new_privileges: Flag
    """True: setuid programs gain no privileges."""
    read_only_root_filesystem: Flag
    """True: only tmpfs folders are writable."""
    default_user: Text
    """User (uid:gid) of a sandbox that names none; `own`: an id of its own; empty: the image's, or an id of its own for
    an image that fits any user."""
    lowest_user_id: Annotated[Whole, Field(alias="lowestUserID")]
    """Lowest uid and gid that a sandbox may name."""
    network: EffectiveNetwork
    """Network access, with the operator's restrictions."""
    seccomp_profile: Text
    """The seccomp profile (images/seccomp)."""
    read_only_host_folders: Flag
    """True: folders of the host are mounted read-only."""
    security_options: tuple[Text, ...]
    """Security options, as passed to the engine."""
    sysctls: tuple[Text, ...]
    """Kernel settings of its own, name=value."""
    tmpfs: tuple[ProfileTmpfs, ...]
    """In-memory folders."""
    shm_size: Text
    """Shared memory (/dev/shm); it counts as memory."""
    open_files: Whole
    """Maximum of open files of a process."""
    oom_score_adjust: Whole
    """OOM score; above 0: killed before the host's own processes when memory runs out."""
    default_limits: ProfileLimits
    """Limits of a sandbox that asks for none."""
    max_limits: ProfileLimits
    """Highest limits that a sandbox may ask for; the host bounds the others."""
    exec_deadline_seconds: Whole | None = None
    """Seconds for a command that asks for none. Left out: the daemon's own limit."""
    max_exec_deadline_seconds: Whole | None = None
    """Maximum of seconds for a command. Left out: the daemon's own limit."""


class ProfileCondition(HostCondition):
    """Accepted: True if sandboxes may use this profile, by its spec, its base and the operator's grants."""

    observed_generation: Whole | None = None
    """Generation that was checked."""
    last_transition_time: Text | None = None
    """Time of the last change of its status."""


class SecurityProfileStatus(Model):
    """Observed state of the profile; `effective` is set while it is accepted."""

    observed_generation: Whole | None = None
    """Generation that this status describes."""
    conditions: tuple[ProfileCondition, ...] = ()
    """Accepted: True if sandboxes may use it."""
    effective: Effective | None = None


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """A stored profile with its spec parsed; None if this version can't read it."""

    obj: StoredObject
    spec: SecurityProfileSpec | None


def stored_profile(obj: StoredObject) -> StoredProfile:
    """Return the object with its spec parsed."""
    try:
        return StoredProfile(obj, SecurityProfileSpec.model_validate(obj.spec))
    except ValidationError:
        return StoredProfile(obj, None)


def _effective(obj: StoredObject) -> Mapping[str, Any]:
    settings: Mapping[str, Any] = obj.status.get("effective", {})
    return settings


def _capabilities(obj: StoredObject, _now: float) -> str:
    return ",".join(_effective(obj).get("capabilities", ())) or ("none" if _effective(obj) else "-")


def _limits(obj: StoredObject, _now: float) -> str:
    limits = _effective(obj).get("defaultLimits", {})
    return ",".join(f"{name}={limits[name]}" for name in ("cpu", "memory", "pids") if name in limits) or "-"


def with_first_names(kind: str, spec: Mapping[str, Any], profiles: Collection[str]) -> Mapping[str, Any]:
    """Return a spec whose aliases of levels are their first names. A profile of that name comes before an alias."""
    for path in LEVEL_PATHS.get(kind, ()):
        spec = _renamed(spec, path, profiles)
    return spec


def _renamed(value: Any, path: tuple[str, ...], profiles: Collection[str]) -> Any:
    if not isinstance(value, Mapping) or path[0] not in value:
        return value
    inner = value[path[0]]
    if len(path) > 1:
        changed = _renamed(inner, path[1:], profiles)
    else:
        is_alias = isinstance(inner, str) and inner in ALIASES and inner not in profiles
        changed = ALIASES[inner] if is_alias else inner
    return value if changed is inner else {**value, path[0]: changed}


def _accepted(obj: StoredObject, _now: float) -> str:
    return next((str(condition["status"]) for condition in obj.status.get("conditions", ())), "Unknown")


def _user(obj: StoredObject, _now: float) -> str:
    return str(_effective(obj).get("defaultUser", "-")) or "(image)"


# Fields that name a level, by kind.
LEVEL_PATHS = {
    "Sandbox": (("securityLevel",), ("template", "securityLevel")),
    "SandboxTemplate": (("securityLevel",),),
    "Workflow": (("sandbox", "securityLevel"), ("sandbox", "template", "securityLevel")),
}
KIND = Kind(
    name="SecurityProfile",
    plural="securityprofiles",
    short_names=("sp",),
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
        Column("ALSO CALLED", lambda obj, _now: _ALIAS_OF.get(obj.name, "-")),
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
