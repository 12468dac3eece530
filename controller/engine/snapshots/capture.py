"""Capture of a sandbox: all its files at one instant.

Recorded first, so that the next daemon thaws what this one froze; then the sandbox is frozen by its cgroup, which the
engine does not notice: commands that begin meanwhile wait. A sandbox that is paused or stopped stays so.
Where the folder of its root layer can't be opened, `docker commit` copies that layer; of an engine on another machine,
which pauses the sandbox meanwhile, nothing else is captured.
"""

import contextlib
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controller.archive.names import Unsafe
from controller.archive.state.bounds import BoundExceeded
from controller.archive.state.restore import verify
from controller.archive.tar import TarError
from controller.engine.archiver.run import WorkFailed, close_all, run_worker
from controller.engine.archiver.worker import NotFrozen, freeze, is_frozen
from controller.engine.docker.errors import Fault
from controller.engine.files.sandbox_root import NotAFile, open_folder
from controller.engine.kernel.cgroups import Cgroups
from controller.engine.kernel.engine_namespace import NamespaceUnreachable
from controller.engine.kernel.sentinel import freezer
from controller.engine.mounts.host_folders import Refused
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.mounts.saved_files import DamagedArchive
from controller.engine.observe.observer import Foreign, Observer
from controller.engine.snapshots.commit import CommittedLayer, Committer
from controller.engine.snapshots.folder import RESERVE_BYTES, SnapshotFolder
from controller.engine.snapshots.layers import LayerUnknown, RootLayers
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.capture import CaptureRequest
from controller.kinds.runtime.snapshot import Omitted, PartKind, SnapshotContent, SnapshotPart
from controller.policy.container.capture import LOST_MEMORY, CapturePlan, CaptureRefusal, has_moved_on, plan_capture
from controller.ports.snapshots import SnapshotError

# Created by the engine in each container; what is mounted there is not in the layer.
_ENGINE_PATHS = ("dev", "proc", "sys", "etc/hosts", "etc/hostname", "etc/resolv.conf", ".dockerenv", "sbin/docker-init")
_OMITTED = 100
_PIECE_BYTES = 1 << 20

Freezer = tuple[str, str, str]  # file that freezes a cgroup, and what freezes and what thaws it


@dataclass(frozen=True, slots=True)
class _Source:
    """An open folder that becomes a part."""

    kind: PartKind
    path: str
    volume: str
    descriptor: int


@dataclass(slots=True)
class _Material:
    """Open files of one capture. Its parts are numbered in this order: sources, archives, a committed layer."""

    omitted: list[Omitted]
    """Paths that are not captured, and why."""
    sources: list[_Source] = field(default_factory=list)
    """Folders to archive."""
    outputs: list[int] = field(default_factory=list)
    """Archives to write, one for each source."""
    archives: dict[str, int] = field(default_factory=dict)
    """Archives, by path, of folders in memory that were saved when the sandbox stopped."""

    def open_outputs(self, folder: Path) -> None:
        """Create the archive of each source. Raises OSError."""
        for number in range(len(self.sources)):
            path = folder / f"{number}.tar"
            self.outputs.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def close(self) -> None:
        """Close all of them."""
        close_all([*(source.descriptor for source in self.sources), *self.archives.values(), *self.outputs])


class Capturer:
    """Captures sandboxes of one engine. Any thread may use it; one capture of a container at a time."""

    def __init__(
        self,
        observer: Observer,
        mounts: HostMounts,
        cgroups: Cgroups,
        now: Callable[[], float],
        layers: RootLayers,
        *,
        committer: Committer,
        is_local: bool,
    ) -> None:
        self._layers, self.committer = layers, committer
        self._observer, self._mounts, self._cgroups = observer, mounts, cgroups
        self._now, self._is_local = now, is_local
        self._lock = threading.Lock()
        self._busy: set[str] = set()

    def is_capturing(self, container_id: str) -> bool:
        """Tell whether that container is captured now: nobody pauses or resumes it meanwhile."""
        return container_id in self._busy

    def capture(self, request: CaptureRequest, folder: SnapshotFolder) -> SnapshotContent:
        """Capture a sandbox into the folder. Raises SnapshotError; then nothing of it stays."""
        container_id = request.container.id
        with self._lock:
            if container_id in self._busy:
                raise SnapshotError("BeingCaptured", "another capture of it is under way; it is retried", retry=True)
            self._busy.add(container_id)
        try:
            return self._capture(request, folder)
        except SnapshotError:
            folder.abandon(request.uid)
            raise
        except WorkFailed as error:
            folder.abandon(request.uid)
            message = _with_advice(error.reason, str(error))
            raise SnapshotError(error.reason, message, retry=error.reason == "Thawed") from error
        except NotFrozen as error:
            folder.abandon(request.uid)
            raise SnapshotError("NotFrozen", str(error)) from error
        except (Refused, NamespaceUnreachable, NotAFile, Foreign, DamagedArchive) as error:
            folder.abandon(request.uid)
            raise SnapshotError("Failed", str(error)) from error
        except Fault as fault:
            folder.abandon(request.uid)
            raise SnapshotError("EngineFailed", f"{fault.message}; it is tried again", retry=True) from fault
        except OSError as error:
            folder.abandon(request.uid)
            raise SnapshotError("Failed", f"{error.filename or 'its files'}: {error.strerror or error}") from error
        finally:
            self._busy.discard(container_id)

    def _capture(self, request: CaptureRequest, files: SnapshotFolder) -> SnapshotContent:
        """Capture into a new folder, which is removed if anything fails. Raises SnapshotError."""
        container = self._observer.read(request.container.id).container
        capture_plan = plan_capture(request, container, is_local=self._is_local)
        if isinstance(capture_plan, CaptureRefusal):
            raise SnapshotError(capture_plan.reason, capture_plan.message, retry=capture_plan.is_retried)
        stops = self._freezer(container) if capture_plan.freezes else None
        folder = files.begin(request.uid, stops)
        room = max(0, shutil.disk_usage(folder).free - RESERVE_BYTES)
        request = replace(request, container=container, bytes_max=min(request.bytes_max, room))
        material = _Material(list(capture_plan.omitted))
        try:
            parts, still_seconds = self._parts(request, capture_plan, stops, folder, material)
        finally:
            material.close()
        content = self._content(request, parts, material.omitted, still_seconds)
        files.finish(content)
        return content

    def _parts(
        self,
        request: CaptureRequest,
        capture_plan: CapturePlan,
        stops: Freezer | None,
        folder: Path,
        material: _Material,
    ) -> tuple[tuple[SnapshotPart, ...], float]:
        """Write the parts of a plan; return them, and the seconds that the sandbox stood still.

        Raises Fault, WorkFailed, SnapshotError, NotFrozen, OSError.
        """
        commits = capture_plan.captures_root and not self._opens_root(request.container, material)
        self._open_folders(request, capture_plan, material)
        material.open_outputs(folder)
        layer, still_seconds = self._commit(request, stops) if commits else (None, 0.0)
        try:
            # A commit leaves it frozen: all parts are of one instant.
            parts, frozen_seconds = self._save(request, stops, material, stands_still=commits)
            self._check_still(request.container)
            for output in material.outputs:
                os.fsync(output)
            parts += _copied(material.archives, folder, len(parts), _room(request, parts))
            if layer is not None and layer.is_changed:
                bounded = replace(request, bytes_max=max(0, _room(request, parts)))
                parts += (self._committed_part(bounded, layer, folder, len(parts), material.omitted),)
        finally:
            if layer is not None:
                self.committer.release(request.uid)
        return parts, frozen_seconds + still_seconds

    def _freezer(self, container: Container) -> Freezer:
        """Return how to freeze a running sandbox. Raises SnapshotError."""
        stops = freezer(self._cgroups, container.id, container.pid)
        if not stops[0]:
            raise SnapshotError("NotFrozen", "its cgroup can't be frozen on this host; suspend it, and capture it then")
        return stops

    def _save(
        self, request: CaptureRequest, stops: Freezer | None, material: _Material, *, stands_still: bool
    ) -> tuple[tuple[SnapshotPart, ...], float]:
        """Have a process write the archives while the sandbox stands still; return the parts and for how long."""
        sources, outputs = material.sources, material.outputs
        if not sources and stops is None:
            return (), 0.0
        points = _mount_points(request)
        ask: dict[str, Any] = {
            "operation": "save",
            "freezer": stops,
            "is_frozen": stands_still,
            "bounds": {"entries": request.entries_max, "bytes": request.bytes_max, "seconds": request.seconds_max},
            "parts": [
                {
                    "folder": source.descriptor,
                    "output": output,
                    "deletions": source.kind == "root",
                    "mount_points": points if source.kind == "root" else [],
                }
                for source, output in zip(sources, outputs, strict=True)
            ],
        }
        try:
            result = run_worker(ask, [*(source.descriptor for source in sources), *outputs])
        finally:
            if stops is not None:
                self._after_thaw(request.container, stops)
        parts = []
        for number, (source, report) in enumerate(zip(sources, result["reports"], strict=True)):
            base = source.path.rstrip("/")
            material.omitted += [Omitted(f"{base}/{name}", reason) for name, reason in report["omissions"]]
            counts = (report["entries"], report["bytes"], report["archive_bytes"])
            parts.append(
                SnapshotPart(
                    *(source.kind, source.path, f"{number}.tar", *counts),
                    source=source.volume,
                    uids=tuple(report["uids"]),
                    gids=tuple(report["gids"]),
                )
            )
        return tuple(parts), float(result["frozen"])

    def _check_still(self, before: Container) -> None:
        """Refuse a capture of one that stood still of itself, and was started or resumed meanwhile.

        Raises SnapshotError, Fault.
        """
        after = self._observer.read(before.id).container
        if has_moved_on(before, after):
            raise SnapshotError("Thawed", "it was started or resumed during the capture; it is retried", retry=True)

    def _after_thaw(self, container: Container, stops: Freezer) -> None:
        """Thaw it if the worker could not; freeze it again if somebody paused it meanwhile."""
        with contextlib.suppress(OSError):
            Path(stops[0]).write_text(stops[2])
        with contextlib.suppress(Fault, Foreign, NotFrozen, OSError):
            if self._observer.read(container.id).container.state is State.PAUSED:
                freeze(stops)

    def _open_folders(self, request: CaptureRequest, capture_plan: CapturePlan, material: _Material) -> None:
        """Open the folders of a plan, or what was saved of them. Raises SnapshotError, OSError."""
        for folder in capture_plan.folders:
            mount = folder.mount
            if mount is None:
                opened = _open_inside(request.container, folder.path)
            else:
                opened = self._mounts.open_mount(request.bind, mount)
            if opened is not None:
                material.sources.append(_Source(folder.kind, folder.path, folder.volume, opened))
            elif folder.kind == "tmpfs":
                archive = self._mounts.saved_archive(request.source_uid, folder.path) if mount is not None else None
                if archive is not None:
                    material.archives[folder.path] = archive
                else:
                    material.omitted.append(Omitted(folder.path, LOST_MEMORY))

    def _opens_root(self, container: Container, material: _Material) -> bool:
        """Open the folder of its root layer as a source; False, with the reason, where it can't be. Raises OSError."""
        try:
            material.sources.append(_Source("root", "/", "", self._layers.open(container)))
        except LayerUnknown as error:
            loss = "without access lists, and holes of files are zeros"
            material.omitted.append(Omitted("/", f"its root layer was taken by `docker commit`, {loss}: {error}"))
            return False
        return True

    def _commit(self, request: CaptureRequest, stops: Freezer | None) -> tuple[CommittedLayer, float]:
        """Commit its root layer; return it, and the seconds that it stood still. Frozen, it stays so until its thaw.

        Raises Fault, WorkFailed, SnapshotError, NotFrozen, OSError.
        """
        self.committer.sweep()
        container, begun = request.container, time.monotonic()
        is_running = container.state is State.RUNNING
        paused = self.committer.paused(container.id) if is_running and stops is None else None
        with contextlib.ExitStack() as undo:
            undo.callback(self.committer.release, request.uid)  # after the thaw: it may take long
            if stops is not None:
                undo.callback(self._after_thaw, container, stops)
                freeze(stops)
            with paused or contextlib.nullcontext():
                layer = self.committer.commit(request, begun + request.seconds_max)
                is_still = stops is None or is_frozen(stops)
                if paused is not None:
                    is_still = self._observer.read(container.id).container.state is State.PAUSED
                if not is_still:
                    raise SnapshotError("Thawed", "somebody thawed it during the capture; it is retried", retry=True)
            undo.pop_all()
        return layer, time.monotonic() - begun if is_running else 0.0

    def _committed_part(
        self, request: CaptureRequest, layer: CommittedLayer, folder: Path, number: int, omitted: list[Omitted]
    ) -> SnapshotPart:
        """Write a committed layer as a part. Raises Fault, WorkFailed, SnapshotError, OSError."""
        output = os.open(folder / f"{number}.tar", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            points = _mount_points(request)
            report = self.committer.save(request, layer, folder, output=output, mount_points=points)
            os.fsync(output)
        finally:
            os.close(output)
        omitted += [Omitted(f"/{name}", reason) for name, reason in report["omissions"]]
        counts = (report["entries"], report["bytes"], report["archive_bytes"])
        uids, gids = tuple(report["uids"]), tuple(report["gids"])
        return SnapshotPart("root", "/", f"{number}.tar", *counts, uids=uids, gids=gids)

    def _content(
        self,
        request: CaptureRequest,
        parts: tuple[SnapshotPart, ...],
        omitted: list[Omitted],
        still_seconds: float,
    ) -> SnapshotContent:
        """Return the content of the snapshot as it is noted beside its files."""
        uid, gid = self._mounts.user_ids(request.bind)
        return SnapshotContent(
            uid=request.uid,
            namespace=request.namespace,
            name=request.name,
            source_name=request.source_name,
            source_uid=request.source_uid,
            captured_at=self._now(),
            image=request.container.image,
            image_id=request.container.image_id,
            level=request.level,
            architecture=platform.machine(),
            parts=parts,
            user_id=uid,
            group_id=gid,
            parent=request.parent,
            frozen_seconds=round(still_seconds, 4),
            omitted=tuple(omitted[:_OMITTED]),
            omitted_count=len(omitted),
            spec=request.spec,
            template=request.template,
        )


def _room(request: CaptureRequest, parts: tuple[SnapshotPart, ...]) -> int:
    """Return the bytes that further parts may have; negative: there are too many already."""
    return request.bytes_max - sum(part.archive_bytes for part in parts)


def _mount_points(request: CaptureRequest) -> list[str]:
    """Return the paths in the root layer where something else is mounted."""
    points = [*_ENGINE_PATHS, *(slot.path.lstrip("/") for slot in request.bind.slots)]
    return [*points, *(path.lstrip("/") for path in request.tmpfs)]


def _copied(archives: Mapping[str, int], folder: Path, number: int, room: int) -> tuple[SnapshotPart, ...]:
    """Copy archives of folders in memory, at most `room` bytes, into a snapshot; return the parts.

    Raises OSError, WorkFailed.
    """
    if sum(os.fstat(archive).st_size for archive in archives.values()) > room:
        raise WorkFailed("TooLarge", f"its saved files have more than the {max(0, room)} bytes that are left")
    parts = []
    for number_, (path, source) in enumerate(archives.items(), number):
        target = folder / f"{number_}.tar"
        opened = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "r+b", buffering=0) as file:
            while piece := os.read(source, _PIECE_BYTES):
                file.write(piece)
            os.fsync(opened)
            file.seek(0)
            try:
                report = verify(file.read)
            except (Unsafe, TarError, BoundExceeded) as error:
                raise WorkFailed("Damaged", f"the saved files of {path}: {error}") from error
        counts = (report.entries, report.bytes, target.stat().st_size)
        uids, gids = tuple(sorted(report.uids)), tuple(sorted(report.gids))
        parts.append(SnapshotPart("tmpfs", path, target.name, *counts, uids=uids, gids=gids))
    return tuple(parts)


def _open_inside(container: Container, path: str) -> int | None:
    """Open an in-memory folder of the engine's in a running sandbox; None for a stopped one. Raises OSError, NotAFile.

    It must be the file system that is mounted there, whatever links the sandbox has made.
    """
    if container.state not in (State.RUNNING, State.PAUSED) or container.pid <= 1:
        return None
    root = os.open(f"/proc/{container.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        opened = open_folder(root, path.encode())
    finally:
        os.close(root)
    status = os.fstat(opened)
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    for line in Path(f"/proc/{container.pid}/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[4] == path and fields[2] == device and " - tmpfs " in line:
            return opened
    os.close(opened)
    raise NotAFile("NotAFile", f"{path} is not the in-memory folder that was mounted there")


def _with_advice(reason: str, message: str) -> str:
    if reason == "TooLarge":
        return f"{message}; delete files in it, or raise the limits of snapshots"
    return message
