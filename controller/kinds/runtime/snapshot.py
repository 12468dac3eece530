"""Content of a sandbox's snapshot on this host, a request to capture one, and the action that restores a root layer.

A key `NAME` or `NAME@TIME` says what a container begins from: a snapshot of its namespace, restored at that time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from controller.kinds.base import Form, Model, Name, Text

VERSION = 1
IMAGE_REPOSITORY = "paddock-snapshot"  # of the names that keep the images of snapshots from pruning
LAYER_REPOSITORY = "paddock-snapshot-layer"  # of images that last as long as a capture by commit
PartKind = Literal["root", "tmpfs", "volume"]


class SnapshotReference(Model):
    """Reference to a SandboxSnapshot of the same namespace."""

    name: Name
    """Name of the SandboxSnapshot."""


class RestoreFrom(Model):
    """A snapshot that files come from: the root file system at each new container, all else once."""

    snapshot_ref: SnapshotReference
    """The snapshot."""
    at: Annotated[Text | None, Field(min_length=1, max_length=40, pattern=r"^[0-9A-Za-z:.+-]+$"), Form("a time")] = None
    """Time of a rollback. Another time restores again, and replaces the files of the sandbox's own volumes, too."""


def restore_key(source: RestoreFrom | None) -> str:
    """Return the key of what a container begins from; "" for its image alone."""
    if source is None:
        return ""
    return source.snapshot_ref.name + (f"@{source.at}" if source.at else "")


def snapshot_name(key: str) -> str:
    """Return the name of the snapshot in a key."""
    return key.partition("@")[0]


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """One archived folder of a snapshot.

    `path` is its mount point ("/" for the root layer), `source` a volume's name. `data_bytes` are file data without
    holes. `uids` and `gids` are the owners in it.
    """

    kind: PartKind
    path: str
    file: str
    entries: int
    data_bytes: int
    archive_bytes: int
    source: str = ""
    uids: tuple[int, ...] = ()
    gids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Omitted:
    """Something that a capture could not take, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """A captured snapshot as this host stores it, beside its archives."""

    uid: str
    """Uid of the snapshot."""
    namespace: str
    """Namespace of the snapshot."""
    name: str
    """Name of the snapshot."""
    source_name: str
    """Name of the sandbox that it was taken of."""
    source_uid: str
    """Uid of that sandbox."""
    captured_at: float
    """Time of the capture (Unix seconds)."""
    image: str
    """Image of the sandbox by name."""
    image_id: str
    """Image of the sandbox by id."""
    level: str
    """Security level of the sandbox."""
    architecture: str
    """Architecture of the host."""
    parts: tuple[SnapshotPart, ...] = ()
    """Its archived folders."""
    user_id: int = -1
    """Uid of the sandbox's user on this host; -1: unknown."""
    group_id: int = -1
    """Gid of the sandbox's user on this host; -1: unknown."""
    parent: str = ""
    """Key of the snapshot that the sandbox itself began from; empty: its image."""
    frozen_seconds: float = 0.0
    """Seconds that the sandbox stood still."""
    omitted: tuple[Omitted, ...] = ()
    """First files that could not be captured."""
    omitted_count: int = 0
    """Number of files that could not be captured."""
    spec: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Spec of the sandbox, as JSON."""
    template: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Template of the sandbox, as JSON."""
    imported: bool = False
    """It came from an archive, which nobody here wrote."""
    version: int = VERSION
    """Version of this format."""

    def size_bytes(self, kind: PartKind) -> int:
        """Return the size of its archives of that kind."""
        return sum(content_part.archive_bytes for content_part in self.parts if content_part.kind == kind)

    @property
    def total_bytes(self) -> int:
        """Size of all its archives."""
        return sum(content_part.archive_bytes for content_part in self.parts)


@dataclass(frozen=True, slots=True)
class RestoreRoot:
    """Fill the root layer of a created container that was never started, as the snapshot of the key has it."""

    verb: ClassVar[str] = "restore"

    uid: str
    """Uid of the sandbox."""
    name: str
    """Name of its container."""
    namespace: str
    """Namespace of the sandbox."""
    key: str
    """Key of the snapshot."""
    level: str
    """Security level of the sandbox: a snapshot of another one does not fit."""
    image: str
    """Image of the sandbox: likewise."""
    user: str
    """User of the sandbox; empty: the image's."""
    slots: tuple[str, ...]
    """Mount points of its slots, which hold no files of the root layer."""
    why: str
    """Reason of the action."""
    own_id: int = 0
    """User id of the sandbox's own; 0: none."""
    container_id: str = ""
    """Container to fill; empty: the one of that name which the same group has just created."""

    def __str__(self) -> str:
        return f"restore {self.name} from snapshot {snapshot_name(self.key)}"
