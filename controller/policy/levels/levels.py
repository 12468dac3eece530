"""The security levels and their settings. A spec may narrow its level, never widen it.

Only levels that this version enforces completely are offered; another one is refused with a message. This is the table
of the levels; `paddock describe securityprofile` prints it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from controller.kinds.runtime.container import Limits, Tmpfs, stable_hash
from controller.kinds.runtime.mount import HostRoot
from controller.kinds.runtime.user_ids import LOWEST_FREE_ID, MAPPED_IDS, SHARED_ID, IdRange
from controller.kinds.securityprofile import ProfileGrants
from controller.policy.images import ANY_IMAGE, ImageRules
from controller.policy.levels import seccomp as profiles
from controller.policy.levels.abilities import NO_CONFINEMENTS, Abilities, Confinements

# The default of sandboxes without an id of their own.
SHARED_USER = f"{SHARED_ID}:{SHARED_ID}"
_MIB = 1 << 20
_GIB = 1 << 30
_LIMITS = Limits(cpu_millicores=1000, memory_bytes=512 * _MIB, pids=64)
_LARGER = Limits(cpu_millicores=1000, memory_bytes=4 * _GIB, pids=512)
_UNBOUNDED = Limits(0, 0, 0)
_FOLDERS = (Tmpfs("/tmp", 64 * _MIB), Tmpfs("/workspace", 64 * _MIB, noexec=False))  # noqa: S108 - inside the sandbox
# Without it the engine opens the ports below 1024 to every user in a sandbox, and the capability means nothing.
PORTS = (("net.ipv4.ip_unprivileged_port_start", "1024"),)
_CHANGE_USER = ("CHOWN", "SETGID", "SETUID")


@dataclass(frozen=True, slots=True)
class Level:
    """Settings of a level. A spec may narrow them, never widen them."""

    name: str
    """Name, as in `securityLevel`."""
    offered: bool
    """This version enforces all of it."""
    missing: str = ""
    """Missing parts where it is not offered."""
    network: Literal["none", "sealed", "public"] = "none"
    """none; a sealed bridge with a proxy that allows listed names; or the Internet."""
    allowed_hosts: tuple[str, ...] | None = None
    """The only names that its proxies allow, by default; None: any that a spec lists."""
    peers: bool = False
    """A sandbox may ask to join others of its namespace. Only on sealed networks."""
    default_user: str = SHARED_USER
    """User of sandboxes that name none; empty: the image's own."""
    lowest_uid: int = LOWEST_FREE_ID
    """Lowest uid and gid that a sandbox may run as."""
    read_only_root: bool = True
    """The root file system can't be written."""
    capabilities: tuple[str, ...] = ()
    """Linux capabilities that it keeps, without `CAP_`."""
    seccomp: str = profiles.MINIMAL
    """Name of the seccomp profile."""
    sysctls: tuple[tuple[str, str], ...] = PORTS
    """Kernel settings of its network."""
    limits: Limits = _LIMITS
    """Limits of a sandbox that asks for none."""
    most: Limits = _UNBOUNDED
    """Highest limits that it may ask for; 0: all of the host."""
    tmpfs: tuple[Tmpfs, ...] = _FOLDERS
    """Folders in memory that each of its sandboxes has."""
    home: str = "/workspace"
    """HOME if the spec sets none; empty: the image's."""
    no_new_privileges: bool = True
    """No program gets more privileges than its parent, setuid or not."""
    base: str = ""
    """Built-in level that a profile of the operator's derives from; empty: this one is built in."""
    host_folders: Literal["read-only", "read-write"] = "read-only"
    """Mode of bound host folders."""
    audits_starts: bool = False
    """Each start is first written to the audit log, and does not happen without that."""
    exec_seconds: int = 0
    """Time limit of a command, by default; 0: the daemon's setting (300 s by default)."""
    most_exec_seconds: int = 0
    """Longest time limit of a command; 0: the daemon's setting."""


def _writable(name: str, capabilities: tuple[str, ...], network: Literal["sealed", "public"]) -> Level:
    """Return a level whose sandboxes run as their image's user, and write in its root file system."""
    return Level(
        name=name,
        offered=True,
        network=network,
        peers=network == "sealed",
        default_user="",
        lowest_uid=0,
        read_only_root=False,
        capabilities=tuple(sorted(capabilities)),
        seccomp=profiles.STANDARD,
        sysctls=() if "NET_BIND_SERVICE" in capabilities else PORTS,
        limits=_LARGER,
        most=Limits(0, 8 * _GIB, 0),
        tmpfs=(),
        home="",
        host_folders="read-write",
    )


FULL_ISOLATION = Level(name="full-isolation", offered=True)
_AS_ROOT_EXPECTS = ("DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETPCAP", "SYS_CHROOT")
BUILT_IN: Mapping[str, Level] = MappingProxyType(
    {
        level.name: level
        for level in (
            FULL_ISOLATION,
            _writable("development", _CHANGE_USER, "sealed"),
            # Without the package hosts of a host (policy/levels/package_hosts.py) it reaches nothing.
            replace(_writable("build", (*_CHANGE_USER, "NET_BIND_SERVICE"), "sealed"), allowed_hosts=()),
            replace(_writable("production", (*_CHANGE_USER, *_AS_ROOT_EXPECTS), "public"), audits_starts=True),
        )
    }
)


GuardLost = Literal["pause", "stop", "report"]
Scheduler = Literal["single", "manual", "swarm"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Input of admission and rendering besides the spec."""

    levels: Mapping[str, Level] = field(default_factory=lambda: BUILT_IN)
    """Built-in levels, and the operator's profiles."""
    host_cpus: int = 0
    """CPUs of this host; 0: not known yet."""
    report_only: bool = False
    """Attestation only reports, and stops nothing."""
    images: ImageRules = ANY_IMAGE
    """Images that may be used."""
    network_range: str = "10.213.0.0/16"
    """Range of all subnets of sandboxes (CIDR)."""
    unguarded: str = ""
    """Reason why the API admits nothing with a network now; stored sandboxes wait, with a condition."""
    grants: ProfileGrants = field(default_factory=ProfileGrants)
    """Permissions of profiles beyond their base."""
    host_roots: tuple[HostRoot, ...] = ()
    """Parents of the host folders that may be bound."""
    host: Abilities | None = None
    """Abilities of this host; None: not known yet."""
    confinements: Confinements = NO_CONFINEMENTS
    """Runtimes and profiles that the operator allows."""
    exec_max_seconds: float = 0.0
    """Longest time of any command; 0: unlimited."""
    local_network: bool = False
    """Sandboxes of a level with the Internet may ask for the local network, too."""
    peers: bool = True
    """Sandboxes of a level that allows it may ask to join others of their namespace."""
    guard_lost: GuardLost = "pause"
    """Reaction to a lost firewall for running sandboxes that depend on it."""
    packages_left_out: tuple[str, ...] = ()
    """Hosts of package managers that no sandbox can reach, as messages."""
    provider_hosts: tuple[str, ...] = ()
    """Endpoints (host:port) of providers that need not be public, nor encrypted."""
    models_port: int = 8090
    """Port of the model gateway on this host; 0: none."""
    gpu_devices: tuple[str, ...] = ()
    """GPUs that the operator lists."""
    user_ids: IdRange | None = None
    """Ids of which each new sandbox gets one of its own; None: they share one."""
    scheduler: Scheduler = "single"
    """Choice of a host for a sandbox that names none: single, the only one there is; manual, by a person."""
    elsewhere: bool = False
    """The object is, or may come to be, on another host: what that has and allows is judged by its own daemon."""
    holds_memory: bool = False
    """This host mounts the folders in memory of new containers itself: the engine is on it."""
    upstream_proxy: str = ""
    """Proxy (host:port) by which the proxies of sandboxes reach the Internet; empty: they do directly."""

    def own_ids(self) -> IdRange | None:
        """Return the ids of which each sandbox gets one of its own on this engine; None: they share one."""
        is_mapped = self.user_ids is not None and self.host is not None and self.host.maps_users
        return MAPPED_IDS if is_mapped else self.user_ids

    def version(self) -> str:
        """Return a digest that changes when admission or a rendered config may come out differently."""
        inputs = [self.host_cpus, self.report_only, self.images, self.network_range, self.unguarded]
        inputs.append([host_root.model_dump() for host_root in self.host_roots])
        inputs += [self.host, self.confinements]
        inputs.append(self.exec_max_seconds)
        inputs += [self.local_network, self.peers, self.guard_lost, self.gpu_devices, self.user_ids, self.holds_memory]
        inputs.append(self.upstream_proxy)
        return stable_hash([*inputs, *(self.levels[name] for name in sorted(self.levels))])
