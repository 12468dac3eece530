"""Bind mounts of a sandbox: slots, which a container has for life, and the mounts put there while it runs.

A `Slot` is part of the container's hash. The mount in it is not, so that a warm sandbox can be given it.
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from controller.kinds.base import Flag, Model, Text
from controller.kinds.common.quantity import stored_bytes
from controller.kinds.runtime.credential import HostCredential
from controller.kinds.runtime.secret import SecretStamp

PLAIN_PATH = r"^(/[^/\x00:]+)+$"
# Content of an unused slot: an empty, read-only tmpfs of one page.
EMPTY_BYTES = 4096


class HostRoot(Model):
    """A folder of this host below which folders may be bound into sandboxes of these namespaces (`*` as in shells)."""

    path: Annotated[Text, Field(min_length=2, max_length=4096, pattern=PLAIN_PATH)]
    namespaces: Annotated[tuple[Text, ...], Field(max_length=64)] = ("*",)
    read_only: Flag = False


@dataclass(frozen=True, slots=True)
class Slot:
    """A mount point in a sandbox; `file`: for a single file."""

    path: str
    file: bool = False

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Mount:
    """Mount at a path in a sandbox."""

    path: str
    """Mount point in the sandbox."""
    kind: Literal["host", "memory", "secret", "volume", "authorities", "headers", "certificate", "tmpfs", "text"]
    """host: a folder of this host. memory: an empty folder in memory. tmpfs: a folder in memory as a template or a
    level has it. secret: a secret, as a file. volume: a volume of the namespace. authorities: certificates of
    authorities. headers, certificate: files of an egress proxy. text: a file.
    """
    source: str = ""
    """The folder of the host, the name of the secret or volume, whose authorities they are, or the text itself."""
    read_only: bool = False
    """It can't be written."""
    size_bytes: int = 0
    """Size of a volume or of a folder in memory."""
    is_reclaimed: bool = False
    """The volume is deleted with the last sandbox that names it."""
    claimed_by: str = ""
    """Sandbox whose own volume it is; empty: it is shared."""
    credentials: tuple[HostCredential, ...] = ()
    """Credentials in the files of an egress proxy."""
    noexec: bool = False
    """Nothing in the folder in memory can be executed."""
    sticky: bool = False
    """The folder in memory is writable for everybody, as /tmp."""

    def __str__(self) -> str:
        """Return the text by which this host records a mount and compares it with what is there: it never changes."""
        how = "read-only" if self.read_only else "read-write"
        match self.kind:  # not a table of all: every decision about a sandbox compares its mounts
            case "host":
                content = f"host folder {self.source} {how}"
            case "memory" | "tmpfs":
                content = f"{self.kind} {stored_bytes(self.size_bytes)}"
            case "secret":
                content = f"secret {self.source}"
            case "volume":
                content = f"volume {self.source} of {stored_bytes(self.size_bytes)} {how}"
            case "authorities":
                content = f"authorities of {self.source}"
            case "headers":
                content = f"headers for {self._hosts()}"
            case "certificate":
                content = f"certificate of {self._hosts()}"
            case "text":
                content = f"text {hashlib.sha256(self.source.encode()).hexdigest()[:16]}"
        return f"{self.path} from {content}"

    def _hosts(self) -> str:
        return ", ".join(dict.fromkeys(credential.host for credential in self.credentials))


@dataclass(frozen=True, slots=True)
class BoundMount:
    """A mount that this host has made in a sandbox."""

    path: str
    """Mount point in the sandbox."""
    mount: str
    """The fields of its Mount, as text."""
    origin: str = ""
    """Its source for the kernel: device and folder there."""
    read_only: bool = False
    """It can't be written."""
    in_memory: bool = False
    """It uses memory as long as it is mounted."""
    size_bytes: int = 0
    """Size of a volume."""
    identity: str = ""
    """Device and inode of the folder, which stay when it is renamed; empty: an older Paddock noted none."""
    read_from: tuple[SecretStamp, ...] = ()
    """Secrets in an egress proxy's headers, as they were."""
    outdated: bool = False
    """One of them was changed or deleted since."""
    kind: str = ""
    """Kind of its Mount; empty: an older Paddock noted none."""
    keeps_files: bool = False
    """Its files in memory outlive the container's stop."""
    uncharged_bytes: int = 0
    """Bytes that were in it before the container started, and are in nobody's memory limit."""


@dataclass(frozen=True, slots=True)
class SavedFiles:
    """Files in memory of a suspended sandbox, as they are on this host's disk.

    `file_count` are entries of all its folders, `omitted` those that can't be saved (sockets, devices). `at` is the
    time of the save (Unix seconds).
    """

    size_bytes: int
    file_count: int = 0
    omitted: int = 0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class BindMounts:
    """Create the sandbox's slots, and bind `mounts` there."""

    verb: ClassVar[str] = "bind"

    uid: str
    """Uid of the sandbox."""
    name: str
    """Name of its container."""
    namespace: str
    """Namespace of the sandbox."""
    image: str
    """Image of the container."""
    user: str
    """User of the sandbox; empty: that of `image`, or `own_id` if the image fits any user. Files of a folder's owner
    belong to it inside.
    """
    slots: tuple[Slot, ...]
    """Places in the container for files that come and go."""
    mounts: tuple[Mount, ...]
    """Files and folders to bind there."""
    why: str
    """Reason of the action."""
    container_id: str = ""
    """Running container; empty: all is created anew, before it starts."""
    own_id: int = 0
    """User id of the sandbox's own; 0: none."""
    keep_files: bool = False
    """Keep what the sandbox has in memory, and put back what was saved of it before it starts."""
    restore_from: str = ""
    """Key of the snapshot that volumes and folders in memory get their files from, once; empty: none."""
    replaces: tuple[str, ...] = ()
    """Volumes whose files that snapshot replaces; others that have files keep them."""

    def __str__(self) -> str:
        return f"bind {self.name}: " + (", ".join(map(str, self.mounts)) or "nothing yet")


@dataclass(frozen=True, slots=True)
class CheckFiles:
    """Check that all files in memory can be saved, before a sandbox is stopped."""

    verb: ClassVar[str] = "check-files"
    uid: str
    name: str
    container_id: str
    why: str

    def __str__(self) -> str:
        return f"check-files {self.name}"


@dataclass(frozen=True, slots=True)
class SaveFiles:
    """Save the files in memory of a stopped sandbox, then free that memory. Saved already is a success.

    Without `keep` they are dropped.
    """

    verb: ClassVar[str] = "save-files"
    uid: str
    name: str
    why: str
    keep: bool = True

    def __str__(self) -> str:
        return f"{'save-files' if self.keep else 'drop-files'} {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Remove the saved files of an object that is deleted. Removed already is a success."""

    verb: ClassVar[str] = "remove-files"
    uid: str
    name: str
    why: str

    def __str__(self) -> str:
        return f"remove-files {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveVolumes:
    """Delete volumes of a namespace with all contents. A missing volume is a success.

    A volume that belongs to another sandbox than `claimed_by` stays.
    """

    verb: ClassVar[str] = "remove"

    uid: str
    name: str
    namespace: str
    volumes: tuple[str, ...]
    why: str
    claimed_by: str = ""

    def __str__(self) -> str:
        return f"remove volumes {', '.join(self.volumes)} of namespace {self.namespace}"
