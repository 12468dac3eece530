"""Order to capture a sandbox: all that the engine needs to know of the source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.kinds.observed.observed import Container
from controller.kinds.runtime.mount import BindMounts


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """Everything that a capture needs of the source. `container` is the one to capture.

    `bind` has its mounts, `tmpfs` are the paths of folders in memory that the engine has mounted. `writable`: its root
    file system is. `shared` are the volumes that other sandboxes use, too. `bytes_max` bounds the data of files.
    """

    uid: str
    namespace: str
    name: str
    source_name: str
    source_uid: str
    container: Container
    level: str
    bind: BindMounts
    tmpfs: tuple[str, ...]
    writable: bool
    shared: frozenset[str] = frozenset()
    parent: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict, hash=False)
    template: Mapping[str, Any] = field(default_factory=dict, hash=False)
    bytes_max: int = 64 << 30
    entries_max: int = 1_000_000
    seconds_max: float = 120.0
