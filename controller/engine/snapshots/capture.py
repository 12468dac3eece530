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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
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
from controller.ports.snapshots import SnapshotError

_CAPTURED = (State.RUNNING, State.PAUSED, State.EXITED, State.CREATED)
# Created by the engine in each container; what is mounted there is not in the layer.
_ENGINE_PATHS = ("dev", "proc", "sys", "etc/hosts", "etc/hostname", "etc/resolv.conf", ".dockerenv", "sbin/docker-init")
_OMITTED = 100
_PIECE_BYTES = 1 << 20


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
        if not self._is_local and not request.writable:
            raise SnapshotError("EngineElsewhere", "its engine is on another machine; capture it by a daemon there")
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
        if container.uid != request.source_uid or container.state not in _CAPTURED:
            raise SnapshotError("NotCapturable", f"its container is {container.state.value}; it is retried", retry=True)
        stops = self._freezer(container) if self._is_local else None
        folder = files.begin(request.uid, stops)
        room = max(0, shutil.disk_usage(folder).free - RESERVE_BYTES)
        request = replace(request, bytes_max=min(request.bytes_max, room))
        sources: list[tuple[PartKind, str, str, int]] = []
        omitted = list(self._omitted(request))
        outputs: list[int] = []
        archives: dict[str, int] = {}  # of folders in memory that were saved when the sandbox stopped
        layer, still_seconds = None, 0.0
        try:
            commits = request.writable and not self._opens_root(container, sources, omitted)
            sources += self._sources(request, container, archives, omitted) if self._is_local else ()
            for number in range(len(sources)):
                path = folder / f"{number}.tar"
                outputs.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            if commits:
                layer, still_seconds = self._commit(replace(request, container=container), stops)
            parts, frozen_seconds = self._save(
                request, container, stops, sources=sources, outputs=outputs, omitted=omitted, stood_still=commits
            )
            self._check_still(container)
            for output in outputs:
                os.fsync(output)
            room = request.bytes_max - sum(part.archive_bytes for part in parts)
            parts += _copied(archives, folder, len(sources), room)
            if layer is not None and layer.is_changed:
                room = max(0, request.bytes_max - sum(part.archive_bytes for part in parts))
                parts += (self._committed_part(replace(request, bytes_max=room), layer, folder, len(parts), omitted),)
        finally:
            if layer is not None:
                self.committer.release(request.uid)
            close_all([*(source[3] for source in sources), *archives.values()])
            close_all(outputs)
        content = self._content(request, container, parts, omitted, frozen_seconds + still_seconds)
        files.finish(content)
        return content

    def _freezer(self, container: Container) -> tuple[str, str, str] | None:
        """Return how to freeze a running sandbox; None for one that stands still. Raises SnapshotError."""
        if container.state is not State.RUNNING:
            return None
        stops = freezer(self._cgroups, container.id, container.pid)
        if not stops[0]:
            raise SnapshotError("NotFrozen", "its cgroup can't be frozen on this host; suspend it, and capture it then")
        return stops

    def _save(
        self,
        request: CaptureRequest,
        container: Container,
        stops: tuple[str, str, str] | None,
        sources: list[tuple[PartKind, str, str, int]],
        outputs: list[int],
        omitted: list[Omitted],
        *,
        stood_still: bool,
    ) -> tuple[tuple[SnapshotPart, ...], float]:
        """Have a process write the archives while the sandbox stands still; return the parts and for how long."""
        if not sources and stops is None:
            return (), 0.0
        points = _mount_points(request)
        ask: dict[str, Any] = {
            "operation": "save",
            "freezer": stops,
            "is_frozen": stood_still,
            "bounds": {"entries": request.entries_max, "bytes": request.bytes_max, "seconds": request.seconds_max},
            "parts": [
                {
                    "folder": folder,
                    "output": output,
                    "deletions": kind == "root",
                    "mount_points": points if kind == "root" else [],
                }
                for (kind, _, _, folder), output in zip(sources, outputs, strict=True)
            ],
        }
        try:
            result = run_worker(ask, [*(source[3] for source in sources), *outputs])
        finally:
            if stops is not None:
                self._after_thaw(container, stops)
        parts = []
        for number, ((kind, path, name, _), report) in enumerate(zip(sources, result["reports"], strict=True)):
            omitted += [Omitted(f"{path.rstrip('/')}/{name_}", reason) for name_, reason in report["omissions"]]
            parts.append(
                SnapshotPart(
                    *(kind, path, f"{number}.tar", report["entries"], report["bytes"], report["archive_bytes"]),
                    source=name,
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
        if before.state is not State.RUNNING and (after.state, after.started_at) != (before.state, before.started_at):
            raise SnapshotError("Thawed", "it was started or resumed during the capture; it is retried", retry=True)

    def _after_thaw(self, container: Container, stops: tuple[str, str, str]) -> None:
        """Thaw it if the worker could not; freeze it again if somebody paused it meanwhile."""
        with contextlib.suppress(OSError):
            Path(stops[0]).write_text(stops[2])
        with contextlib.suppress(Fault, Foreign, NotFrozen, OSError):
            if self._observer.read(container.id).container.state is State.PAUSED:
                freeze(stops)

    def _sources(
        self, request: CaptureRequest, container: Container, archives: dict[str, int], omitted: list[Omitted]
    ) -> Iterator[tuple[PartKind, str, str, int]]:
        """Yield kind, path, volume and open folder of each part; open archives by path go into `archives`.

        Raises SnapshotError, OSError.
        """
        for path in request.tmpfs:
            opened = _open_inside(container, path)
            if opened is None:
                omitted.append(Omitted(path, "it is in memory, and was lost when the sandbox stopped"))
            else:
                yield "tmpfs", path, "", opened
        for mount in request.bind.mounts:
            if mount.kind not in ("memory", "tmpfs", "volume") or mount.read_only:
                continue
            opened = self._mounts.open_mount(request.bind, mount)
            if opened is not None:
                yield ("volume" if mount.kind == "volume" else "tmpfs"), mount.path, mount.source, opened
            elif mount.kind != "volume":
                archive = self._mounts.saved_archive(request.source_uid, mount.path)
                if archive is not None:
                    archives[mount.path] = archive
                else:
                    omitted.append(Omitted(mount.path, "it is in memory, and was lost when the sandbox stopped"))

    def _opens_root(
        self, container: Container, sources: list[tuple[PartKind, str, str, int]], omitted: list[Omitted]
    ) -> bool:
        """Open the folder of its root layer as a source; False, with the reason, where it can't be. Raises OSError."""
        try:
            sources.append(("root", "/", "", self._layers.open(container)))
        except LayerUnknown as error:
            loss = "without access lists, and holes of files are zeros"
            omitted.append(Omitted("/", f"its root layer was taken by `docker commit`, {loss}: {error}"))
            return False
        return True

    def _commit(self, request: CaptureRequest, stops: tuple[str, str, str] | None) -> tuple[CommittedLayer, float]:
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

    def _omitted(self, request: CaptureRequest) -> Iterator[Omitted]:
        if not self._is_local:
            for path in (*request.tmpfs, *(mount.path for mount in request.bind.mounts)):
                yield Omitted(path, "its engine is on another machine; capture it by a daemon there")
            return
        for mount in request.bind.mounts:
            if mount.kind == "host":
                yield Omitted(mount.path, "it is a folder of the host")
            elif mount.kind == "volume" and mount.read_only:
                yield Omitted(mount.path, f"the volume {mount.source} is mounted read-only")
            elif mount.kind == "volume" and mount.source in request.shared:
                yield Omitted(mount.path, f"others write in volume {mount.source}, too: theirs may be torn")

    def _content(
        self,
        request: CaptureRequest,
        container: Container,
        parts: tuple[SnapshotPart, ...],
        omitted: list[Omitted],
        frozen_seconds: float,
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
            image=container.image,
            image_id=container.image_id,
            level=request.level,
            architecture=platform.machine(),
            parts=parts,
            user_id=uid,
            group_id=gid,
            parent=request.parent,
            frozen_seconds=round(frozen_seconds, 4),
            omitted=tuple(omitted[:_OMITTED]),
            omitted_count=len(omitted),
            spec=request.spec,
            template=request.template,
        )


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
