"""What is bound into a box: places for it, which a container has for life, and what is put there while it runs.

A place (`Slot`) is part of the container's hash; what is bound there is not, so that a warm box can be given it.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from controller.kinds.base import Flag, Model, Text
from controller.kinds.common.quantity import format_bytes

PLAIN_PATH = r"^(/[^/\x00:]+)+$"
# What is in a place as long as nothing is bound there: an empty, read-only tmpfs of one page.
EMPTY_BYTES = 4096


class HostRoot(Model):
    """A folder of this host below which folders may be bound into sandboxes of these namespaces (`*` as in shells)."""

    path: Annotated[Text, Field(min_length=2, max_length=4096, pattern=PLAIN_PATH)]
    namespaces: Annotated[tuple[Text, ...], Field(max_length=64)] = ("*",)
    read_only: Flag = False


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a box where something can be bound; `file`: a single file."""

    path: str
    file: bool = False

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Mount:
    """What is to be at `path` in a box.

    `kind` host: the folder `source` of this host; memory: an empty folder of `size_bytes` in memory; secret: the secret
    of the name `source`, as a file; volume: the namespace's volume of the name `source`, of `size_bytes`;
    `passing`: it goes with the last sandbox that names it. `claimed_by`: the sandbox whose own volume it is ("": it
    belongs to all that name it).
    """

    path: str
    kind: Literal["host", "memory", "secret", "volume"]
    source: str = ""
    read_only: bool = False
    size_bytes: int = 0
    passing: bool = False
    claimed_by: str = ""

    def __str__(self) -> str:
        how = "read-only" if self.read_only else "read-write"
        what = {
            "host": f"host folder {self.source} {how}",
            "memory": f"memory {format_bytes(self.size_bytes)}",
            "secret": f"secret {self.source}",
            "volume": f"volume {self.source} of {format_bytes(self.size_bytes)} {how}",
        }
        return f"{self.path} from {what[self.kind]}"


@dataclass(frozen=True, slots=True)
class Bound:
    """What was bound at `path`: the words of the Mount, and where the kernel has it from (device and folder there).

    `in_memory`: it holds memory as long as it is mounted. `size_bytes` is a volume's then. `identity` is the folder's
    own (device and inode), which stays when it is renamed ("": bound by a Paddock that did not note it).
    """

    path: str
    mount: str
    origin: str = ""
    read_only: bool = False
    in_memory: bool = False
    size_bytes: int = 0
    identity: str = ""


@dataclass(frozen=True, slots=True)
class BindMounts:
    """Make the box's places, and bind `mounts` there. Without `container_id`: all anew, before it starts.

    `user` is the box's ("": the one of `image`), whose files those of a folder's owner are in there.
    """

    uid: str
    name: str
    namespace: str
    image: str
    user: str
    slots: tuple[Slot, ...]
    mounts: tuple[Mount, ...]
    why: str
    container_id: str = ""

    def __str__(self) -> str:
        return f"bind {self.name}: " + (", ".join(map(str, self.mounts)) or "nothing yet")


@dataclass(frozen=True, slots=True)
class RemoveVolumes:
    """Take volumes of a namespace away, with all that is in them. Gone already is success.

    One that another sandbox than `claimed_by` has for itself stays.
    """

    uid: str
    name: str
    namespace: str
    volumes: tuple[str, ...]
    why: str
    claimed_by: str = ""

    def __str__(self) -> str:
        return f"remove volumes {', '.join(self.volumes)} of namespace {self.namespace}"
