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
    """Settings of a level.

    `lowest_uid` is the lowest uid and gid a sandbox may run as. `default_user` "" is the image's own. `limits` are
    those of a sandbox that asks for none, `most` the highest that it may ask for (0: all of the host). `home` is HOME
    if the spec sets none ("": the image's). `audits_starts`: each start is logged in the audit log first, and does not
    happen without that. `network`: none; a sealed bridge with a proxy that allows listed names; or the Internet. `base`
    is the built-in level that an operator's profile derives from; empty: this one is built in. `host_folders` is the
    mode of bound host folders. `exec_seconds` is the default time limit of a command, `most_exec_seconds` the maximum
    (0: the daemon's settings, 300 s by default). `allowed_hosts` are the only names that its proxies allow, by default
    (None: any in a spec). `peers`: a sandbox may ask to join others of its namespace; only on sealed networks.
    """

    name: str
    offered: bool
    missing: str = ""
    network: Literal["none", "sealed", "public"] = "none"
    allowed_hosts: tuple[str, ...] | None = None
    peers: bool = False
    default_user: str = SHARED_USER
    lowest_uid: int = LOWEST_FREE_ID
    read_only_root: bool = True
    capabilities: tuple[str, ...] = ()
    seccomp: str = profiles.MINIMAL
    sysctls: tuple[tuple[str, str], ...] = PORTS
    limits: Limits = _LIMITS
    most: Limits = _UNBOUNDED
    tmpfs: tuple[Tmpfs, ...] = _FOLDERS
    home: str = "/workspace"
    no_new_privileges: bool = True
    base: str = ""
    host_folders: Literal["read-only", "read-write"] = "read-only"
    audits_starts: bool = False
    exec_seconds: int = 0
    most_exec_seconds: int = 0


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
    """Input of admission and rendering besides the spec. `host_cpus` 0: not known yet.

    `report_only`: attestation only reports, and stops nothing. `network_range` is the pool of sandboxes' subnets
    (CIDR). `unguarded` says why the API admits nothing with a network now ("": it does); stored sandboxes wait for the
    firewall, with a condition. `levels` are the built-in ones and the operator's profiles (added by
    policy/profiles.py); `grants` are permissions of profiles beyond their base. `host_roots` are the parents of
    host folders that may be bound. `host` are this host's abilities (None: not known yet), `confinements` the
    operator's grants of them. `exec_max_seconds` is the maximum time of any command (0: unlimited). `packages_left_out`
    are hosts of package managers that no sandbox can reach, as messages. `local_network`: sandboxes of a level with the
    Internet may ask for the local network, too. `peers`: sandboxes of a level that allows it may ask to join others of
    their namespace. `guard_lost` is the reaction to a lost firewall for running sandboxes that depend on it.
    `provider_hosts` are the endpoints (host:port) of providers that need not be public, nor encrypted; `models_port` is
    the port of the model gateway on this host (0: none). `gpu_devices` are the GPUs that the operator lists. `user_ids`
    are the setting's ids of which each new sandbox gets one of its own (None: they share one). `scheduler` chooses the
    host of a sandbox that names none: single, the only one there is; manual, a person. `elsewhere`: the object is, or
    may come to be, on another host: what that has, and its operator allows there, is judged by its own daemon.
    `holds_memory`: this host mounts the folders in memory of new containers itself (the engine is on it).
    `upstream_proxy` (host:port) is the proxy by which the proxies of sandboxes reach the Internet ("": directly).
    """

    levels: Mapping[str, Level] = field(default_factory=lambda: BUILT_IN)
    host_cpus: int = 0
    report_only: bool = False
    images: ImageRules = ANY_IMAGE
    network_range: str = "10.213.0.0/16"
    unguarded: str = ""
    grants: ProfileGrants = field(default_factory=ProfileGrants)
    host_roots: tuple[HostRoot, ...] = ()
    host: Abilities | None = None
    confinements: Confinements = NO_CONFINEMENTS
    exec_max_seconds: float = 0.0
    local_network: bool = False
    peers: bool = True
    guard_lost: GuardLost = "pause"
    packages_left_out: tuple[str, ...] = ()
    provider_hosts: tuple[str, ...] = ()
    models_port: int = 8090
    gpu_devices: tuple[str, ...] = ()
    user_ids: IdRange | None = None
    scheduler: Scheduler = "single"
    elsewhere: bool = False
    holds_memory: bool = False
    upstream_proxy: str = ""

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
