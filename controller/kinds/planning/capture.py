"""Order to capture a sandbox: all that the engine needs to know of the source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.kinds.observed.observed import Container
from controller.kinds.runtime.mount import BindMounts


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """Order to capture a sandbox: all that the engine needs to know of the source."""

    uid: str
    """Uid of the snapshot."""
    namespace: str
    """Namespace of both."""
    name: str
    """Name of the snapshot."""
    source_name: str
    """Name of the sandbox."""
    source_uid: str
    """Uid of the sandbox."""
    container: Container
    """Container to capture."""
    level: str
    """Security level of the sandbox."""
    bind: BindMounts
    """Its mounts."""
    tmpfs: tuple[str, ...]
    """Paths of folders in memory that the engine has mounted."""
    writable: bool
    """Its root file system can be written, and is captured."""
    shared: frozenset[str] = frozenset()
    """Volumes that other sandboxes use, too."""
    parent: str = ""
    """Key of the snapshot that the sandbox itself began from; empty: its image."""
    spec: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Spec of the sandbox, as JSON."""
    template: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Template of the sandbox, as JSON."""
    bytes_max: int = 64 << 30
    """Most bytes of data of files."""
    entries_max: int = 1_000_000
    """Most files, folders and links."""
    seconds_max: float = 120.0
    """Longest time of the capture."""
