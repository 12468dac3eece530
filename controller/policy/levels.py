"""The security levels and what each of them fixes. A spec may narrow its level, never widen it.

Only levels whose every promise this version enforces are offered; asking for another one is refused in words.
The full table of the four levels, and the reasons behind it, is the README's "Security" section.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from controller.kinds.container import Limits, Tmpfs, stable_hash

_MIB = 1 << 20
_LIMITS = Limits(cpu_millicores=1000, memory_bytes=512 * _MIB, pids=64)
_FOLDERS = (Tmpfs("/tmp", 64 * _MIB), Tmpfs("/workspace", 64 * _MIB, noexec=False))  # noqa: S108 - inside the box


@dataclass(frozen=True, slots=True)
class Level:
    """What a level fixes. `lowest_uid` is the smallest uid and gid a sandbox may run as.

    `network`: none at all; a sealed bridge with a proxy that lets listed names through; or the Internet.
    """

    name: str
    offered: bool
    missing: str = ""
    network: Literal["none", "sealed", "public"] = "none"
    default_user: str = "20000:20000"
    lowest_uid: int = 10_000
    read_only_root: bool = True
    capabilities: tuple[str, ...] = ()
    limits: Limits = _LIMITS
    tmpfs: tuple[Tmpfs, ...] = _FOLDERS


FULL_ISOLATION = Level(name="full-isolation", offered=True)
_NOT_PROVEN = "it needs the proof that its network holds, which this version does not have yet"
_NEEDS_PRESET = "it needs the list of package hosts that this host uses, which this version does not read yet"
BUILT_IN: Mapping[str, Level] = MappingProxyType(
    {
        level.name: level
        for level in (
            FULL_ISOLATION,
            Level(name="development", offered=False, network="sealed", missing=_NOT_PROVEN),
            Level(name="build", offered=False, network="sealed", missing=_NEEDS_PRESET),
            Level(name="production", offered=False, missing="it needs the guarded bridge, which this version lacks"),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Policy:
    """All that admission and rendering are decided by, beside the spec. `host_cpus` 0: not known yet.

    `network_range` is what the subnets of sandboxes are taken from (CIDR). `unguarded` is why nothing with a network
    is let in by the doors now ("" when it may): what is stored already waits for the guard, and says so.
    """

    levels: Mapping[str, Level] = field(default_factory=lambda: BUILT_IN)
    host_cpus: int = 0
    network_range: str = "10.213.0.0/16"
    unguarded: str = ""

    def version(self) -> str:
        """Moves when admission or a rendered config may come out differently."""
        known = [self.host_cpus, self.network_range, self.unguarded]
        return stable_hash([*known, *(self.levels[name] for name in sorted(self.levels))])
