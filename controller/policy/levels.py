"""The security levels and what each of them fixes. A spec may narrow its level, never widen it.

Only levels whose every promise this version enforces are offered; asking for another one is refused in words.
This is the table of the levels; `paddock describe securityprofile` shows it as a person reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from controller.kinds.container import Limits, Tmpfs, stable_hash
from controller.kinds.mount import HostRoot
from controller.policy import seccomp as profiles
from controller.policy.images import ANY_IMAGE, ImageRules

_MIB = 1 << 20
_GIB = 1 << 30
# No user of a host has an id from here up.
LOWEST_FREE_ID = 10_000
_LIMITS = Limits(cpu_millicores=1000, memory_bytes=512 * _MIB, pids=64)
_LARGER = Limits(cpu_millicores=1000, memory_bytes=4 * _GIB, pids=512)
_UNBOUNDED = Limits(0, 0, 0)
_FOLDERS = (Tmpfs("/tmp", 64 * _MIB), Tmpfs("/workspace", 64 * _MIB, noexec=False))  # noqa: S108 - inside the box
# Without it the engine lets everybody in a box take the ports below 1024, and the capability would mean nothing.
_PORTS = (("net.ipv4.ip_unprivileged_port_start", "1024"),)
_CHANGE_USER = ("CHOWN", "SETGID", "SETUID")


@dataclass(frozen=True, slots=True)
class Level:
    """What a level fixes. `lowest_uid` is the smallest uid and gid a sandbox may run as.

    `default_user` "" is the image's own. `limits` are those of a sandbox that asks for none, `most` the highest that it
    may ask for (0: as much as the host has). `home` is HOME where the spec sets none ("": the image's).
    `network`: none at all; a sealed bridge with a proxy that lets listed names through; or the Internet.
    `host_folders` is how folders of the host may be bound.
    """

    name: str
    offered: bool
    missing: str = ""
    network: Literal["none", "sealed", "public"] = "none"
    default_user: str = "20000:20000"
    lowest_uid: int = LOWEST_FREE_ID
    read_only_root: bool = True
    capabilities: tuple[str, ...] = ()
    seccomp: str = profiles.MINIMAL
    sysctls: tuple[tuple[str, str], ...] = _PORTS
    limits: Limits = _LIMITS
    most: Limits = _UNBOUNDED
    tmpfs: tuple[Tmpfs, ...] = _FOLDERS
    home: str = "/workspace"
    host_folders: Literal["read-only", "read-write"] = "read-only"


def _writable(
    name: str, missing: str, capabilities: tuple[str, ...], network: Literal["none", "sealed", "public"] = "none"
) -> Level:
    """A level whose sandboxes run as their image says, and write in its root file system."""
    return Level(
        name=name,
        offered=not missing,
        missing=missing,
        network=network,
        default_user="",
        lowest_uid=0,
        read_only_root=False,
        capabilities=capabilities,
        seccomp=profiles.STANDARD,
        sysctls=() if "NET_BIND_SERVICE" in capabilities else _PORTS,
        limits=_LARGER,
        most=Limits(0, 8 * _GIB, 0),
        tmpfs=(),
        home="",
        host_folders="read-write",
    )


FULL_ISOLATION = Level(name="full-isolation", offered=True)
_NEEDS_PRESET = "it needs the list of package hosts that this host uses, which this version does not read yet"
_NEEDS_GUARD = "it needs the guarded bridge, which this version lacks"
_AS_ROOT_EXPECTS = ("DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETPCAP", "SYS_CHROOT")
BUILT_IN: Mapping[str, Level] = MappingProxyType(
    {
        level.name: level
        for level in (
            FULL_ISOLATION,
            _writable("development", "", _CHANGE_USER, network="sealed"),
            _writable("build", _NEEDS_PRESET, ("CHOWN", "NET_BIND_SERVICE", "SETGID", "SETUID"), network="sealed"),
            _writable("production", _NEEDS_GUARD, tuple(sorted((*_CHANGE_USER, *_AS_ROOT_EXPECTS)))),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Policy:
    """All that admission and rendering are decided by, beside the spec.

    `host_cpus` 0: not known yet. `report_only`: what attestation finds is told, and nothing is stopped for it.
    `network_range` is what the subnets of sandboxes are taken from (CIDR). `unguarded` is why nothing with a network
    is let in by the doors now ("" when it may): what is stored already waits for the guard, and says so. `host_roots`
    are where the folders of the host are that may be bound.
    """

    levels: Mapping[str, Level] = field(default_factory=lambda: BUILT_IN)
    host_cpus: int = 0
    report_only: bool = False
    images: ImageRules = ANY_IMAGE
    network_range: str = "10.213.0.0/16"
    unguarded: str = ""
    host_roots: tuple[HostRoot, ...] = ()

    def version(self) -> str:
        """Moves when admission or a rendered config may come out differently."""
        known = [self.host_cpus, self.report_only, self.images, self.network_range, self.unguarded]
        known.append([each.model_dump() for each in self.host_roots])
        return stable_hash([*known, *(self.levels[name] for name in sorted(self.levels))])
