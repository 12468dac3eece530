"""Bridges of our own: what one is to be, and what was seen of it. A bridge is never changed, only made and removed."""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.kinds.runtime.container import stable_hash


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """A bridge as the engine is to make it. `name` is the kernel's name for it too: at most 15 characters.

    `subnet` is its range of addresses (CIDR), `handed_out` the part of it from which containers get theirs unasked
    ("": all of it). `sealed`: no way in or out, and the host has no address on it. Containers on one that is not sealed
    reach what is outside, but not each other.
    """

    name: str
    subnet: str
    handed_out: str = ""
    sealed: bool = True

    def hash(self) -> str:
        return stable_hash(self)


@dataclass(frozen=True, slots=True)
class Guard:
    """The host's guard of networks as it was read. `words` are why nothing may rely on it ("": it is in force).

    `lost`: it was read, and is not there or not whole. Otherwise words mean that it could not be read.
    """

    words: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Network:
    """One bridge of ours as the engine has it. `uid` is the object's it was made for ("": it serves many)."""

    id: str
    name: str
    uid: str
    role: str
    config_hash: str
    subnet: str
    namespace: str = ""
    object_name: str = ""


@dataclass(frozen=True, slots=True)
class EnsureNetwork:
    """Make the bridge, unless it is there as it is to be. One of ours that differs is made anew if it is empty."""

    uid: str
    config: NetworkConfig
    labels: Mapping[str, str]
    why: str

    @property
    def name(self) -> str:
        return self.config.name

    def __str__(self) -> str:
        kind = "sealed" if self.config.sealed else "guarded"
        return f"make-network {self.config.name} {kind} {self.config.subnet}"


@dataclass(frozen=True, slots=True)
class RemoveNetwork:
    """Remove a bridge that nothing is on any more. Gone already is success."""

    uid: str
    name: str
    why: str

    def __str__(self) -> str:
        return f"remove-network {self.name}"
