"""Restore of a snapshot: into the root layer of a container before its start, and into mounts before they are bound.

What a mount got is recorded for each sandbox, key and kind of mount: it gets its files once, and none over newer data.
"""

import os
import platform
from collections.abc import Sequence
from typing import Any

from controller.archive.names import Unsafe
from controller.archive.state.bounds import BoundExceeded, Bounds, Report
from controller.archive.state.restore import Rules, packed
from controller.archive.tar import TarError
from controller.engine.archiver.run import WorkFailed, restore_folder
from controller.engine.archiver.worker import Owners
from controller.engine.docker.client import Client
from controller.engine.kernel.idmap import Ids
from controller.engine.mounts.host_folders import Refused
from controller.engine.snapshots.folder import RESERVE_BYTES, SnapshotFolder
from controller.engine.snapshots.layers import LayerUnknown, RootLayers
from controller.kinds.observed.observed import Container
from controller.kinds.planning.outcome import Ok, Outcome, Terminal, Transient
from controller.kinds.runtime.mount import BindMounts, Mount
from controller.kinds.runtime.snapshot import (
    PartKind,
    RestoreRoot,
    SnapshotContent,
    SnapshotPart,
    snapshot_name,
)

SNAPSHOT_MISSING, SNAPSHOT_DIFFERS, RESTORE_FAILED = "SnapshotMissing", "SnapshotDiffers", "RestoreFailed"
_SECONDS = 600.0
_BYTES = 1 << 44
_ALL_MODES, _NO_SETUID = 0o7777, 0o1777
_BEGUN, _DONE = "Begun", "Done"


class Restorer:
    """Restores snapshots of this host. Any thread may use it."""

    def __init__(self, folder: SnapshotFolder, client: Client, layers: RootLayers) -> None:
        self.folder, self.layers, self._client = folder, layers, client

    def content(self, namespace: str, key: str) -> SnapshotContent | None:
        """Return the snapshot of a key; None if it is not on this host. Raises OSError."""
        return self.folder.by_name(namespace, snapshot_name(key))

    def image_of(self, namespace: str, key: str) -> str | None:
        """Return the id of the image that a snapshot's root layer belongs to; None without the snapshot."""
        content = self.content(namespace, key)
        return content.image_id if content is not None else None

    def restore_root(self, action: RestoreRoot, container: Container, user: tuple[int, int]) -> Outcome:
        """Fill the root layer of a container that was never started. Raises nothing but OSError."""
        content = self.content(action.namespace, action.key)
        if content is None:
            return Transient(SNAPSHOT_MISSING, missing_message(action.key))
        if differing := _differing(content, action):
            return Terminal(SNAPSHOT_DIFFERS, f"snapshot `{content.name}` does not fit: {differing}")
        if container.started_at:
            return Ok(container.id)  # its root layer has newer files
        part = next((candidate for candidate in content.parts if candidate.kind == "root"), None)
        if part is None:
            return Ok(container.id)
        points = [path.lstrip("/") for path in action.slots]
        try:
            target = self.layers.open(container)
        except LayerUnknown as error:
            return self._put(content, part, container, user=user, points=points, why=str(error))
        try:
            self._restore(content, part, target, user, points)
        except WorkFailed as error:
            return Transient(RESTORE_FAILED, f"snapshot `{content.name}`: {error}")
        finally:
            os.close(target)
        return Ok(container.id, notes=_notes(content))

    def is_due(self, action: BindMounts, mount: Mount) -> bool:
        """Tell whether a mount is still to get its files. Raises OSError."""
        return self._state(action, mount) != _DONE

    def begin(self, action: BindMounts, mount: Mount) -> None:
        """Record a mount before it is created: after a failure it exists, and still gets its files. Raises OSError."""
        self._mark(action, mount, _BEGUN)

    def fill(self, action: BindMounts, mount: Mount, tree: int, user: Ids, *, is_new: bool) -> None:
        """Fill a mount before it is bound. Raises Refused, OSError.

        `is_new`: it was just created. Another volume keeps its files, unless the action replaces them.
        """
        kind, state = _part_kind(mount), self._state(action, mount)
        content = self.content(action.namespace, action.restore_from)
        if content is None:
            raise Refused(missing_message(action.restore_from))
        part = next(
            (candidate for candidate in content.parts if (candidate.kind, candidate.path) == (kind, mount.path)), None
        )
        replaces = is_new or state == _BEGUN or kind == "tmpfs" or mount.source in action.replaces
        if part is None or not replaces:
            self._mark(action, mount, _DONE)
            return
        self._mark(action, mount, _BEGUN)
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=tree)
        try:
            remove_content(folder)
            self._restore(content, part, folder, (user.uid, user.gid), [])
        except WorkFailed as error:
            raise Refused(f"snapshot `{content.name}`: {mount.path}: {error}") from error
        finally:
            os.close(folder)
        self._mark(action, mount, _DONE)

    def _state(self, action: BindMounts, mount: Mount) -> str:
        return self.folder.mark_of(action.uid, action.restore_from, mount.path, _part_kind(mount))

    def _mark(self, action: BindMounts, mount: Mount, state: str) -> None:
        self.folder.mark(action.uid, action.restore_from, mount.path, _part_kind(mount), state)

    def _put(
        self,
        content: SnapshotContent,
        part: SnapshotPart,
        container: Container,
        *,
        user: tuple[int, int],
        points: Sequence[str],
        why: str,
    ) -> Outcome:
        """Have the engine unpack a root layer over the image: what was deleted there is back. Raises Fault, OSError."""
        is_own, report = not content.imported, Report()
        rules = Rules(
            owner=Owners(self._owners(content, part, user)).of,
            deletions=True,
            modes=_ALL_MODES if is_own else _NO_SETUID,
            mount_points=frozenset(os.fsencode(path) for path in points),
        )
        most = max(Bounds().bytes, part.data_bytes)  # with holes as zeros
        free = self.layers.free_bytes(self._client.call("info", lambda api: api.info()))
        bounds = Bounds(seconds=_SECONDS, bytes=most if free is None else min(most, max(0, free - RESERVE_BYTES)))
        with (self.folder.path(content.uid) / part.file).open("rb", buffering=0) as file:
            try:
                for _ in packed(file.read, Report(), bounds, rules):
                    pass  # the engine gets nothing of an archive that is refused further on
                file.seek(0)
                pieces = packed(file.read, report, bounds, rules)
                self._client.call(
                    "containers.put_archive",
                    lambda api: api.put_archive(container.id, "/", pieces),
                    container=container.id,
                )
            except (Unsafe, TarError, BoundExceeded) as error:
                return Transient(RESTORE_FAILED, f"snapshot `{content.name}`: {error}")
        notes = _notes(content)
        if report.omission_count:
            first = ", ".join(f"/{omission.name}" for omission in report.omissions[:3])
            notes += (f"{report.omission_count} deletions of snapshot `{content.name}` are lost ({first}): {why}",)
        return Ok(container.id, notes=notes)

    def _owners(self, content: SnapshotContent, part: SnapshotPart, user: tuple[int, int]) -> dict[str, Any]:
        """Return the fields of the archiver's Owners: its user's files become this sandbox's user's."""
        is_own = not content.imported
        return {
            "from_uid": content.user_id if user[0] >= 0 else -1,
            "to_uid": user[0],
            "from_gid": content.group_id if user[1] >= 0 else -1,
            "to_gid": user[1],
            "base": self._client.first_ids[0],
            "uids": part.uids if is_own else (),
            "gids": part.gids if is_own else (),
        }

    def _restore(
        self, content: SnapshotContent, part: SnapshotPart, target: int, user: tuple[int, int], points: Sequence[str]
    ) -> None:
        source = os.open(self.folder.path(content.uid) / part.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        is_own = not content.imported
        try:
            restore_folder(
                target,
                source,
                Bounds(seconds=_SECONDS, bytes=_BYTES),
                owners=self._owners(content, part, user),
                modes=_ALL_MODES if is_own else _NO_SETUID,
                deletions=part.kind == "root",
                mount_points=points,
            )
        finally:
            os.close(source)


def _part_kind(mount: Mount) -> PartKind:
    return "volume" if mount.kind == "volume" else "tmpfs"


def missing_message(key: str) -> str:
    """Return what is wrong without the snapshot of a key."""
    message = "is not on this host, or not captured yet"
    return f"snapshot `{snapshot_name(key)}` {message}; wait for it, import it, or change spec.restoreFrom"


def remove_content(folder: int) -> None:
    """Remove all below an open folder; links are not followed. Raises OSError."""
    for name in os.listdir(folder):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (status.st_mode & 0o170000) != 0o040000:
            os.unlink(name, dir_fd=folder)
            continue
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            remove_content(below)
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=folder)


def _differing(content: SnapshotContent, action: RestoreRoot) -> str:
    """Return in what a snapshot does not fit a sandbox; "" if it does."""
    if content.level != action.level:
        return f"it was taken at level {content.level}, and this sandbox is of {action.level}; use that level"
    if content.architecture != platform.machine():
        return f"it was taken on {content.architecture}, and this host is {platform.machine()}"
    if content.image != action.image:
        return f"it was taken of image {content.image}, and this sandbox has {action.image}; use that image"
    return ""


def _notes(content: SnapshotContent) -> tuple[str, ...]:
    if not content.omitted_count:
        return ()
    return (f"snapshot `{content.name}` lacks {content.omitted_count} files or folders; see its status.left",)
