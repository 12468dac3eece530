"""Decision of a capture: what of a sandbox is captured and how, and what is not. The engine carries it out."""

from collections.abc import Iterator
from dataclasses import dataclass

from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.runtime.mount import Mount
from controller.kinds.runtime.snapshot import Omitted, PartKind

LOST_MEMORY = "it is in memory, and was lost when the sandbox stopped"
_ELSEWHERE = "its engine is on another machine; capture it by a daemon there"
_CAPTURABLE = (State.RUNNING, State.PAUSED, State.EXITED, State.CREATED)
_CAPTURED_MOUNTS = ("memory", "tmpfs", "volume")


@dataclass(frozen=True, slots=True)
class CaptureRefusal:
    """Reason why a sandbox can't be captured now."""

    reason: str
    """Reason of the condition."""
    message: str
    """The same for people."""
    is_retried: bool = False
    """It may be captured later."""


@dataclass(frozen=True, slots=True)
class CapturedFolder:
    """A folder that becomes a part of the snapshot."""

    kind: PartKind
    """Kind of the part."""
    path: str
    """Path in the sandbox."""
    volume: str = ""
    """Name of its volume; empty: it is in memory."""
    mount: Mount | None = None
    """Mount of ours, which is opened on the host; None: the engine's own, which is opened inside the sandbox."""


@dataclass(frozen=True, slots=True)
class CapturePlan:
    """Parts of a capture, and its omissions."""

    freezes: bool
    """The sandbox runs, and its cgroup is frozen meanwhile. `docker commit` alone pauses one on another machine."""
    captures_root: bool
    """The root layer is captured: from its folder, else by `docker commit`."""
    folders: tuple[CapturedFolder, ...]
    """Further folders, in the order of their parts."""
    omitted: tuple[Omitted, ...]
    """Paths that are not captured, and why."""


def plan_capture(request: CaptureRequest, container: Container, *, is_local: bool) -> CapturePlan | CaptureRefusal:
    """Return how to capture a sandbox as observed now. `is_local`: its engine is on this machine."""
    if not is_local and not request.writable:  # its root layer is all that an engine sends from afar
        return CaptureRefusal("EngineElsewhere", _ELSEWHERE)
    if container.uid != request.source_uid or container.state not in _CAPTURABLE:
        message = f"its container is {container.state.value}; it is retried"
        return CaptureRefusal("NotCapturable", message, is_retried=True)
    return CapturePlan(
        freezes=is_local and container.state is State.RUNNING,
        captures_root=request.writable,
        folders=tuple(_folders(request)) if is_local else (),
        omitted=tuple(_omissions(request) if is_local else _remote_omissions(request)),
    )


def has_moved_on(before: Container, after: Container) -> bool:
    """Return True if one that stood still of itself was started or resumed meanwhile: its files may be torn."""
    return before.state is not State.RUNNING and (after.state, after.started_at) != (before.state, before.started_at)


def _folders(request: CaptureRequest) -> Iterator[CapturedFolder]:
    for path in request.tmpfs:
        yield CapturedFolder("tmpfs", path)
    for mount in request.bind.mounts:
        # What is read-only to it is not its work, and stays where it is.
        if mount.kind in _CAPTURED_MOUNTS and not mount.read_only:
            kind: PartKind = "volume" if mount.kind == "volume" else "tmpfs"
            yield CapturedFolder(kind, mount.path, mount.source, mount)


def _omissions(request: CaptureRequest) -> Iterator[Omitted]:
    for mount in request.bind.mounts:
        if mount.kind == "host":
            yield Omitted(mount.path, "it is a folder of the host")
        elif mount.kind == "volume" and mount.read_only:
            yield Omitted(mount.path, f"the volume {mount.source} is mounted read-only")
        elif mount.kind == "volume" and mount.source in request.shared:
            yield Omitted(mount.path, f"others write in volume {mount.source}, too: theirs may be torn")


def _remote_omissions(request: CaptureRequest) -> Iterator[Omitted]:
    for path in (*request.tmpfs, *(mount.path for mount in request.bind.mounts)):
        yield Omitted(path, _ELSEWHERE)
