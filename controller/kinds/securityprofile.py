"""SecurityProfile: what a security level allows a sandbox. The profiles are built in, and read off the levels."""

from typing import Annotated

from pydantic import Field

from controller.kinds.base import Flag, Model, Text, Whole
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind


class ProfileLimits(Model):
    """Limits of a sandbox that asks for none itself."""

    cpu: Annotated[Text, Field(description="processor time")]
    memory: Annotated[Text, Field(description="memory, with what is written to tmpfs; there is never any swap")]
    pids: Annotated[Whole, Field(description="processes and threads")]


class ProfileMost(Model):
    """The highest limits that may be asked for; what is left out is bounded by the host and the quotas alone."""

    cpu: Annotated[Text | None, Field(description="processor time")] = None
    memory: Annotated[Text | None, Field(description="memory")] = None
    pids: Annotated[Whole | None, Field(description="processes and threads")] = None


class ProfileTmpfs(Model):
    """A folder in memory."""

    mount_path: Annotated[Text, Field(description="where it appears in the sandbox")]
    size: Annotated[Text, Field(description="how much it holds")]
    noexec: Annotated[Flag, Field(description="whether nothing in it can be executed")]


class ProfileNetwork(Model):
    """What it can reach."""

    mode: Annotated[
        Text, Field(description="none: only itself; sealed: listed names, by its own proxy; public: the Internet")
    ]
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


class SecurityProfileSpec(Model):
    """What a sandbox with this `securityLevel` is made with. A spec may narrow it, never widen it."""

    capabilities: Annotated[tuple[Text, ...], Field(description="those it has; all others are dropped")]
    no_new_privileges: Annotated[Flag, Field(description="whether setuid programs give it nothing")]
    read_only_root_filesystem: Annotated[Flag, Field(description="whether it can write in tmpfs folders only")]
    default_user: Annotated[Text, Field(description="uid:gid of a sandbox that names no user; empty: the image's")]
    lowest_user_id: Annotated[Whole, Field(alias="lowestUserID", description="the lowest uid and gid to be named")]
    network: ProfileNetwork
    seccomp: Annotated[Text, Field(description="the list of system calls that it may make (images/seccomp)")]
    security_options: Annotated[tuple[Text, ...], Field(description="what the engine is told, word for word")]
    sysctls: Annotated[tuple[Text, ...], Field(description="kernel settings of its own, name=value")] = ()
    tmpfs: tuple[ProfileTmpfs, ...]
    shm_size: Annotated[Text, Field(description="shared memory (/dev/shm); it counts as memory")]
    open_files: Annotated[Whole, Field(description="files that a process may have open")]
    oom_score_adjust: Annotated[Whole, Field(description="above 0: killed before the host's own when memory ends")]
    default_limits: ProfileLimits
    max_limits: Annotated[ProfileMost, Field(description="the highest it may ask for")] = ProfileMost()


def _capabilities(obj: StoredObject, _now: float) -> str:
    return ",".join(obj.spec["capabilities"]) or "none"


def _limits(obj: StoredObject, _now: float) -> str:
    limits = obj.spec["defaultLimits"]
    return ",".join(f"{name}={limits[name]}" for name in ("cpu", "memory", "pids"))


KIND = Kind(
    name="SecurityProfile",
    plural="securityprofiles",
    short=("sp",),
    namespaced=False,
    spec=SecurityProfileSpec,
    read_only="the profiles are built in, and this version takes none of an operator's own; "
    "name one of `paddock get securityprofiles` in a template's securityLevel",
    columns=(
        Column("CAPABILITIES", _capabilities),
        Column("NETWORK", lambda obj, _now: str(obj.spec["network"]["mode"])),
        Column("SECCOMP", lambda obj, _now: str(obj.spec["seccomp"])),
        Column("READ-ONLY ROOT", lambda obj, _now: str(obj.spec["readOnlyRootFilesystem"]).lower()),
        Column("DEFAULT USER", lambda obj, _now: str(obj.spec["defaultUser"]) or "(image)"),
        Column("DEFAULT LIMITS", _limits),
    ),
)
