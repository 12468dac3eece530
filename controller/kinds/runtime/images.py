"""Images on a host, and work on them: pulls, builds, pushes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from controller.kinds.runtime.container import stable_hash

# The label of what Paddock's own recipes (images/) and builds made; an image without it is never removed.
OURS = "paddock.dev/recipe"
# Names of the images that hold installed packages begin so: they are of Paddock's own, which no registry may fill.
PACKAGES = "paddock/mcp/"
BUILD_PIDS = 2048
"""Processes of all image builds of an engine together."""


def reference(name: str) -> str:
    """Return an image's name with its tag or digest, as engines list it; "" for an id: it names none elsewhere."""
    plain = name.removeprefix("docker.io/").removeprefix("library/")
    tagged_name, _, digest = plain.partition("@")
    repository, colon, tag = tagged_name.rpartition(":")
    tagged = bool(colon) and "/" not in tag
    if repository == "sha256":
        return ""
    if digest:
        return f"{repository if tagged else tagged_name}@{digest}"
    return tagged_name if tagged else f"{tagged_name}:latest"


def owner_mark(instance_id: str) -> str:
    """Return the end of the tags of one Paddock's images of packages: another one on this engine leaves them alone."""
    return f"-{stable_hash([instance_id])[:8]}"


@dataclass(frozen=True, slots=True)
class HostImage:
    """One image. Without `names` it is superseded: a newer build took its name.

    `created_at` is Unix seconds. `triggers`: it has ONBUILD instructions, which a build on top of it would carry out.
    `volumes` are its VOLUMEs: folders that the engine makes writable without a limit, unless a mount covers them.
    These, and what it runs (`entrypoint`, `command`, `working_dir`), are known of an image asked for by name alone.
    """

    id: str
    names: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    size_bytes: int = field(default=0, compare=False)
    created_at: float = field(default=0.0, compare=False)
    triggers: bool = field(default=False, compare=False)
    entrypoint: tuple[str, ...] = field(default=(), compare=False)
    command: tuple[str, ...] = field(default=(), compare=False)
    working_dir: str = field(default="", compare=False)
    volumes: tuple[str, ...] = field(default=(), compare=False)

    def program(self, args: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the command line that it runs; `args` replace its own after the entrypoint. Empty: none."""
        return (*self.entrypoint, *(args or self.command))


@dataclass(frozen=True, slots=True)
class ImageProgress:
    """One step of a pull, build or push. `layer` tells layers apart; bytes are 0 if unknown.

    `text` may be the output of a build's commands: untrusted.
    """

    text: str
    layer: str = ""
    current_bytes: int = 0
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ImagePull:
    """A pull in progress that sandboxes wait for. Bytes are of the layers whose size is known yet."""

    image: str
    current_bytes: int = 0
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """A build that policy has admitted. `context` is a tar archive, in which `dockerfile` is a file's name.

    A context may come in pieces; it can be built once then.

    Commands (RUN) have no network, and these limits; all builds together have BUILD_PIDS processes.
    """

    tag: str
    context: bytes | Iterator[bytes] = field(repr=False)
    dockerfile: str
    arguments: Mapping[str, str] = field(default_factory=dict, repr=False)
    memory_bytes: int = 1 << 30
    cpu_millicores: int = 1000
    seconds: float = 600.0
