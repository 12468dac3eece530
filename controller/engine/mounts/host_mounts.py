"""Mounts of sandboxes: a mount point on this host for each one in a sandbox, which the engine binds into the container.

    <folder>/<instance>/<uid>/<n>     a shared tmpfs of ours; each mount point has an empty, read-only mount

A mount on top of it is visible in the sandbox at once, and in later runs of the container. Mounts inside never
propagate back. A folder in memory whose files are kept stays mounted when its container ends, also for the next daemon;
saved_files.py has them while the sandbox is suspended. `bound.json` beside the mount points records the mounts for the
next daemon. Without it nothing tells which mounts are ours: all of that object is unrecorded until its next start, when
all is mounted again.
"""

import contextlib
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from controller.engine.docker.client import Client
from controller.engine.docker.create_config import tmpfs_files
from controller.engine.images.image_checks import user_with
from controller.engine.kernel import mount_calls
from controller.engine.kernel.engine_namespace import EngineNamespace, NamespaceUnreachable
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.engine.mounts.credentials import CredentialFiles
from controller.engine.mounts.host_folders import Refused, folder_tree
from controller.engine.mounts.inside_mounts import attach_inside, clone
from controller.engine.mounts.saved_files import DamagedArchive, DoesNotFit, SavedFolders
from controller.engine.mounts.secrets import SecretFolder
from controller.engine.mounts.volumes import KeptVolumes, Volumes
from controller.kinds.observed.observed import Container
from controller.kinds.planning.outcome import FILES_NOT_SAVED, FILES_TOO_LARGE, Ok, Outcome, Transient
from controller.kinds.runtime.mount import (
    EMPTY_BYTES,
    BindMounts,
    BoundMount,
    CheckFiles,
    HostRoot,
    Mount,
    RemoveFiles,
    RemoveVolumes,
    SavedFiles,
    SaveFiles,
    Slot,
)
from controller.kinds.runtime.secret import SECRET_MISSING, NoSecret, SecretStamp
from controller.policy.attest.mounted import resized

log = logging.getLogger(__name__)

DEFAULT_FOLDER = Path("/run/paddock/mounts")
_PLAIN = mount_calls.NO_SUID | mount_calls.NO_DEVICES
_SEALED = _PLAIN | mount_calls.READ_ONLY | mount_calls.NO_EXEC
_PUBLIC = "authorities"  # readable for everybody inside
_NOTES, _STAGE = "bound.json", "stage"
_FOLDERS = ("memory", "tmpfs")  # whose files may be kept
FILES_NOT_RESTORED = "FilesNotRestored"
# Overhead of the file system beside a secret; also more than an empty mount point has.
_ROOM_BYTES = 64 << 10
# A mount point without a container may belong to one that is just being created.
_STRAY_SECONDS = 300.0
# A stopped container may be about to start.
_RESTING_SECONDS = 60.0


class _Owner(NamedTuple):
    """The sandbox's user. Without `is_number` its image names one that only the image knows."""

    ids: Ids
    is_number: bool = True


class SnapshotFiles(Protocol):
    """Files of a snapshot, for the mounts of a sandbox that begins from it. Raises Refused, OSError."""

    def is_due(self, action: BindMounts, mount: Mount) -> bool:
        """Tell whether a mount is still to get its files."""
        ...

    def begin(self, action: BindMounts, mount: Mount) -> None:
        """Record that a mount is about to be created, and gets its files whatever ends the first try."""
        ...

    def fill(self, action: BindMounts, mount: Mount, tree: int, user: Ids, *, is_new: bool) -> None:
        """Fill a mount, unless it keeps what it has."""
        ...


class HostMounts:
    """Mounts of all sandboxes. Host folders must be below `roots`. Thread-safe; the constructor does no I/O.

    `snapshot_files` gives new mounts of a sandbox that begins from a snapshot their files.
    """

    def __init__(
        self,
        instance_id: str,
        client: Client,
        secrets: SecretFolder | None = None,
        volumes: Volumes | None = None,
        credentials: CredentialFiles | None = None,
        saved: SavedFolders | None = None,
        snapshot_files: SnapshotFiles | None = None,
        *,
        folder: Path = DEFAULT_FOLDER,
        roots: Sequence[HostRoot] = (),
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `saved`, files in memory outlive a stop, but are never saved."""
        self._client, self._folder, self._roots = client, folder / instance_id, tuple(roots)
        self._snapshot_files = snapshot_files
        self._secrets, self._volumes, self._credentials = secrets or SecretFolder(), volumes, credentials
        self._saved = saved
        self._namespace, self._maps = EngineNamespace(client.base_url), IdMaps()
        self.kept = KeptVolumes(volumes, self._namespace)
        # Replaced by the one mounting thread; read by any.
        self._bound: dict[str, tuple[BoundMount, ...]] | None = None
        self._uids_with_secrets: frozenset[str] = frozenset()  # of `_bound`: they are asked about each second
        self._unrecorded: frozenset[str] = frozenset()  # their records are lost; `_bound` has what was bound since
        self._strays: dict[str, float] = {}
        self._resting: dict[str, float] = {}
        self._created_at: dict[str, float] = {}  # when the mounts of each object were created last, by its uid (ticks)
        self._ticks = ticks

    def close(self) -> None:
        """Release threads and descriptors. Mounts stay."""
        self._namespace.close()
        self._maps.close()

    def sources(self, uid: str, slots: Sequence[Slot]) -> list[dict[str, Any]]:
        """Return the mount points for the engine's create call."""
        return [
            {
                "Type": "bind",
                "Source": str(self._place(uid, number)),
                "Target": slot.path,
                "BindOptions": {"Propagation": "rslave"},
            }
            for number, slot in enumerate(slots)
        ]

    def bound(self, uid: str) -> tuple[BoundMount, ...]:
        """Return the mounts of that object. Never raises."""
        return self._bound_mounts().get(uid, ())

    def is_recorded(self, uid: str) -> bool:
        """Tell whether `bound` has all mounts of that object. Never raises."""
        return uid in self._bound_mounts() and uid not in self._unrecorded

    def renamed(self, uid: str) -> tuple[BoundMount, ...]:
        """Return the mounts of that object with their current origins: a bound folder may have been renamed.

        Never raises.
        """
        with contextlib.suppress(NamespaceUnreachable, OSError):
            self._namespace.run(lambda: self._follow(uid))
        return self.bound(uid)

    def outdated(self) -> frozenset[str]:
        """Return the objects with a file of secrets that were changed or deleted since it was made. Never raises."""
        if not self._uids_with_secrets:
            return frozenset()
        with contextlib.suppress(NamespaceUnreachable, OSError):
            self._namespace.run(self._compare)
        return frozenset(uid for uid in self._uids_with_secrets if any(mount.outdated for mount in self._noted(uid)))

    def bind(self, action: BindMounts) -> Outcome:
        """Create the mount points, and mount there. Raises Fault."""
        trees: dict[str, int] = {}
        try:
            self._bound_mounts()
            user = self._user(action)
            self._fill_volumes(action)
            in_place = self._fill(action, user, trees) if action.keep_files and not action.container_id else ()
            self._begin_folders(action, user, trees)
            outcome = self._namespace.run(lambda: self._bind(action, user, trees, in_place))
            if self._saved is not None and not action.container_id and isinstance(outcome, Ok):
                self._saved.remove(action.uid)  # before the start: so they are never put back over newer ones
            return outcome
        except (DamagedArchive, DoesNotFit) as error:
            return Transient(FILES_NOT_RESTORED, f"{action.name}: {error}")
        except NoSecret as error:
            return Transient(SECRET_MISSING, str(error))
        except (NamespaceUnreachable, Refused) as error:
            return Transient("MountRefused", str(error))
        except OSError as error:
            return Transient("MountFailed", f"{action.name}: {error.strerror or error}")
        finally:
            for tree in trees.values():
                os.close(tree)

    def check_files(self, action: CheckFiles) -> Outcome:
        """Check that the files in memory of a sandbox can be saved."""
        return self._with_folders(action.uid, action.name, FILES_TOO_LARGE, self._check)

    def save_files(self, action: SaveFiles) -> Outcome:
        """Save the files in memory of a stopped sandbox, and free that memory; without `keep` drop them."""

        def save(folders: Mapping[str, int]) -> Outcome:
            assert self._saved is not None
            saved = self._saved.save(action.uid, folders) if folders else self._saved.find(action.uid) or SavedFiles(0)
            self._namespace.run(lambda: self._empty(action.uid))
            return Ok(saved=saved)

        def drop(_folders: Mapping[str, int]) -> Outcome:
            assert self._saved is not None
            self._namespace.run(lambda: self._empty(action.uid))
            self._saved.remove(action.uid)
            return Ok()

        return self._with_folders(action.uid, action.name, FILES_NOT_SAVED, save if action.keep else drop)

    def remove_files(self, action: RemoveFiles) -> Outcome:
        """Remove the files of an object that is deleted, from memory and from disk."""
        self.release(action.uid)
        return Ok()

    def _check(self, folders: Mapping[str, int]) -> Outcome:
        assert self._saved is not None
        self._saved.check(folders)
        return Ok()

    def _with_folders(self, uid: str, name: str, reason: str, call: Callable[[Mapping[str, int]], Outcome]) -> Outcome:
        """Call with the open folders in memory whose files are kept, by path. Its failures get that reason."""
        if self._saved is None:
            return Ok()
        folders: dict[str, int] = {}
        try:
            self._bound_mounts()
            folders = self._namespace.run(lambda: self._open_folders(uid))
            return call(folders)
        except (DoesNotFit, DamagedArchive, NamespaceUnreachable) as error:
            return Transient(reason, f"{name}: {error}")
        except OSError as error:
            return Transient(reason, f"{name}: its files in memory can't be saved: {error.strerror or error}")
        finally:
            for handle in folders.values():
                os.close(handle)

    def _fill(self, action: BindMounts, user: "_Owner", trees: dict[str, int]) -> tuple[str, ...]:
        """Add new folders in memory to `trees` with what was saved of them; return those that stay as they are.

        What is in memory, and can't stay (its folder has another size or place now), is saved first.
        """
        folders = [mount for mount in action.mounts if mount.kind in _FOLDERS]
        in_place: tuple[str, ...] = ()
        other_folders: dict[str, int] = {}
        if self._kept_folders(action.uid):  # a new sandbox has none, and its start waits for each call in there
            in_place, other_folders = self._namespace.run(lambda: self._divide_folders(action))
        try:
            if other_folders and self._saved is not None:
                self._saved.save(action.uid, other_folders)
        finally:
            for handle in other_folders.values():
                os.close(handle)
        for mount in folders:
            if mount.path in in_place:
                continue
            trees[mount.path] = tree = self._tree(action, mount, user)
            opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=tree)
            try:
                if self._saved is not None:
                    self._saved.restore(action.uid, mount.path, opened)
            finally:
                os.close(opened)
        return in_place

    def _is_to_fill(self, action: BindMounts, mount: Mount) -> bool:
        """Return True if a mount is still to be filled from the sandbox's snapshot."""
        if self._snapshot_files is None or not action.restore_from or mount.read_only:
            return False
        return mount.kind in (*_FOLDERS, "volume") and self._snapshot_files.is_due(action, mount)

    def _fill_volumes(self, action: BindMounts) -> None:
        """Give volumes the files of a snapshot, before they are mounted. Raises Refused, OSError."""
        for mount in action.mounts:
            if mount.kind != "volume" or self._volumes is None or not self._is_to_fill(action, mount):
                continue
            assert self._snapshot_files is not None
            is_new = not self._volumes.exists(action.namespace, mount.source)
            if is_new:
                self._snapshot_files.begin(action, mount)
            if not action.container_id:
                self._namespace.run(partial(self._clear_place, action, mount))
            # As it is on disk: the sandbox's own mount maps the id of its user alone, so that root, whose id has none
            # there, could create nothing (EOVERFLOW).
            tree, owner = self._namespace.run(partial(self._volumes.tree_on_disk, mount, action.namespace))
            try:
                self._snapshot_files.fill(action, mount, tree, owner, is_new=is_new)
            finally:
                os.close(tree)

    def _clear_place(self, action: BindMounts, mount: Mount) -> None:
        """Unmount a stopped sandbox's own mount of a volume."""
        number = next(number for number, slot in enumerate(action.slots) if slot.path == mount.path)
        place = self._place(action.uid, number)
        if place.is_dir() and len(_mounted_at(place)) > 1:
            mount_calls.detach(str(place))

    def _begin_folders(self, action: BindMounts, user: "_Owner", trees: dict[str, int]) -> None:
        """Give folders in memory the files of a snapshot, before they are mounted. Raises Refused, OSError."""
        for mount in action.mounts:
            if mount.kind not in _FOLDERS or not self._is_to_fill(action, mount):
                continue
            assert self._snapshot_files is not None
            if mount.path not in trees:
                trees[mount.path] = self._tree(action, mount, user)
            self._snapshot_files.fill(action, mount, trees[mount.path], user.ids, is_new=True)

    def bind_inside(self, action: BindMounts, container: Container, mounts: Collection[Mount]) -> str:
        """Attach what is mounted at these mount points inside a running container, too; return what went wrong."""
        numbers = {slot.path: number for number, slot in enumerate(action.slots)}
        trees: list[tuple[str, int]] = []
        try:
            for mount in mounts:
                place = self._place(action.uid, numbers[mount.path])
                trees.append((mount.path, self._namespace.run(partial(clone, place))))
            attach_inside(container.pid, container.id, trees)
        except (NamespaceUnreachable, OSError) as error:
            return str(getattr(error, "strerror", None) or error)
        finally:
            for _, tree in trees:
                os.close(tree)
        return ""

    def open_mount(self, action: BindMounts, mount: Mount) -> int | None:
        """Open the folder that is bound for a mount, or could be; None if there is none now.

        Raises Fault, Refused, NamespaceUnreachable, OSError.
        """
        self._bound_mounts()
        user = self._user(action)
        return self._namespace.run(lambda: self._open_mount(action, mount, user.ids))

    def user_ids(self, action: BindMounts) -> tuple[int, int]:
        """Return the ids of the sandbox's user on this host; -1 for each that is not known. Raises Fault."""
        try:
            user = self._user(replace(action, mounts=(Mount("/", "memory"),))).ids
        except Refused:
            return -1, -1
        return user.uid, user.gid

    def saved_archive(self, uid: str, path: str) -> int | None:
        """Open the archive of a folder in memory of a suspended sandbox; None if there is none. Raises OSError."""
        return self._saved.open(uid, path) if self._saved is not None else None

    def remove_volumes(self, action: RemoveVolumes) -> Outcome:
        """Delete volumes with their data."""
        if self._volumes is None:
            return Ok()
        remove = self._volumes.remove
        try:
            for volume in action.volumes:
                self._namespace.run(partial(remove, action.namespace, volume, action.claimed_by))
        except (NamespaceUnreachable, OSError) as error:
            return Transient("VolumeStays", f"{action}: {getattr(error, 'strerror', None) or error}")
        return Ok()

    def release(self, uid: str) -> None:
        """Remove all mount points and saved files of an object. Never raises.

        Mounts in use end with their last user.
        """
        if uid in {*self._bound_mounts(), *self._unrecorded}:
            self._release_quietly(uid, self._clear)
        if self._saved is not None:
            self._saved.remove(uid)

    def _release_quietly(self, uid: str, how: Callable[[str], None]) -> None:
        try:
            self._namespace.run(lambda: how(uid))
        except (NamespaceUnreachable, OSError) as error:
            log.warning("mount release failed: %s: %s", uid, error)

    def sweep(self, uids: Collection[str], alive: Collection[str]) -> None:
        """Release the mounts of other objects, and the in-memory mounts of stopped containers. Never raises.

        A grace period protects a container that is about to be created or started. Everything is mounted again then.
        Files that are kept stay in memory until they are saved.
        """
        now, bound_mounts = self._ticks(), self._bound_mounts()
        keeping = {uid for uid, bound in bound_mounts.items() if any(mount.keeps_files for mount in bound)}
        self._strays = {
            uid: self._strays.get(uid, now) for uid in {*bound_mounts, *self._unrecorded} if uid not in uids
        }
        resting = {
            uid for uid, bound in bound_mounts.items() if uid not in alive and any(mount.in_memory for mount in bound)
        }
        resting -= keeping
        self._resting = {uid: self._resting.get(uid, now) for uid in resting}
        for uid, since in list(self._strays.items()):
            if now - since > _STRAY_SECONDS and uid in keeping:  # its object may exist, and get a container again
                self.save_files(SaveFiles(uid, uid, "its container is gone"))
            elif now - since > _STRAY_SECONDS:
                self._release_quietly(uid, self._clear)
        for uid, since in list(self._resting.items()):
            if now - since > _RESTING_SECONDS:
                self._release_quietly(uid, self._empty_unused)

    def _bound_mounts(self) -> Mapping[str, tuple[BoundMount, ...]]:
        """Return all mounts. Not for the mounting thread, which this may wait for."""
        if self._bound is None:
            try:
                self._namespace.run(self._remember)
            except (NamespaceUnreachable, OSError):
                return {}
        return self._bound or {}

    def _note(self, uid: str, bound: tuple[BoundMount, ...] | None) -> None:
        other_objects = {other_uid: noted for other_uid, noted in (self._bound or {}).items() if other_uid != uid}
        self._bound = other_objects if bound is None else {**other_objects, uid: bound}
        with_secrets = {uid} if any(mount.read_from for mount in bound or ()) else set()
        self._uids_with_secrets = self._uids_with_secrets - {uid} | with_secrets

    def _user(self, action: BindMounts) -> "_Owner":
        """Return the ids of the sandbox's user, as this host has them. Raises Fault, Refused."""
        user, root = action.user or self._images_user(action), self._client.first_ids
        uid, _, gid = user.partition(":")
        if user in ("", "0", "root"):
            return _Owner(Ids(*root), is_number=uid.isdigit())
        if uid.isdigit() and gid.isdigit():
            return _Owner(Ids(root[0] + int(uid), root[1] + int(gid)))
        if uid.isdigit() and all(mount.kind in (_PUBLIC, "tmpfs") for mount in action.mounts):
            return _Owner(Ids(root[0] + int(uid), root[1]))
        if all(mount.kind in (_PUBLIC, "tmpfs") for mount in action.mounts):
            return _Owner(Ids(*root), is_number=False)
        raise Refused(f"the sandbox's user `{user}` has no known ids; set spec.template.user to `uid:gid`")

    def _images_user(self, action: BindMounts) -> str:
        data = self._client.image(action.image).get("Config") or {}
        return user_with(data, action.own_id) or str(data.get("User") or "")

    # In the engine's mount namespace

    def _bind(self, action: BindMounts, user: "_Owner", trees: dict[str, int], in_place: Collection[str]) -> Outcome:
        """Mount what is missing of an object's mounts, each noted before the next one."""
        if not action.container_id:
            self._clear(action.uid, in_place)
            self._created_at[action.uid] = self._ticks()
            self._unrecorded -= {action.uid}
        elif action.uid not in (self._bound or {}):
            self._unrecorded |= {action.uid}
        self._make_places(action)
        noted = {noted_mount.path: noted_mount for noted_mount in self._noted(action.uid)}
        for mount in action.mounts:
            if mount.path in noted and resized(noted[mount.path], mount) and self._volumes is not None:
                self._volumes.resize(mount, action.namespace)
                noted[mount.path] = replace(noted[mount.path], mount=str(mount), size_bytes=mount.size_bytes)
                self._write(action.uid, tuple(noted.values()))
                continue
            number = next(n for n, slot in enumerate(action.slots) if slot.path == mount.path)
            if _is_there(self._place(action.uid, number), noted.get(mount.path), mount):
                if noted[mount.path].keeps_files == _keeps(action, mount):
                    continue  # mounted anew, what is only in memory would be lost
                noted[mount.path] = replace(noted[mount.path], keeps_files=_keeps(action, mount))
            else:
                tree = trees.pop(mount.path, -1)
                noted[mount.path] = self._put(action, mount, number, user, tree)
            self._write(action.uid, tuple(noted.values()))
        if not action.container_id and any(noted_mount.keeps_files for noted_mount in noted.values()):
            self._write(action.uid, tuple(self._measured(action, noted_mount) for noted_mount in noted.values()))
        return Ok(action.container_id)

    def _open_mount(self, action: BindMounts, mount: Mount, user: Ids) -> int | None:
        number = next(number for number, slot in enumerate(action.slots) if slot.path == mount.path)
        place = self._place(action.uid, number)
        bound = {noted_mount.path: noted_mount for noted_mount in self._noted(action.uid)}.get(mount.path)
        if place.is_dir() and bound is not None and bound.mount == str(mount) and not _is_empty(place):
            return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if mount.kind != "volume" or self._volumes is None or not self._volumes.exists(action.namespace, mount.source):
            return None
        tree = self._volumes.tree(mount, action.namespace, user, self._maps)
        try:
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=tree)
        finally:
            os.close(tree)

    def _measured(self, action: BindMounts, bound: BoundMount) -> BoundMount:
        """Return the record of a mount with the bytes that are in it before its container starts."""
        if not bound.keeps_files:
            return bound
        number = next(n for n, slot in enumerate(action.slots) if slot.path == bound.path)
        usage = os.statvfs(self._place(action.uid, number))
        return replace(bound, uncharged_bytes=(usage.f_blocks - usage.f_bfree) * usage.f_frsize)

    def _make_places(self, action: BindMounts) -> None:
        """Create the mount points; of a running sandbox those that somebody unmounted."""
        self._make_folder()
        (self._folder / action.uid).mkdir(mode=0o755, exist_ok=True)
        lacking = [n for n in range(len(action.slots)) if not _is_mounted(self._place(action.uid, n))]
        folders = {mount.path for mount in action.mounts if mount.kind in _FOLDERS}
        if not all(action.slots[number].file or action.slots[number].path in folders for number in lacking):
            self._maps.prepare()
        for number in lacking:
            place = self._place(action.uid, number)
            if action.slots[number].file:
                place.touch(mode=0o444)
                _attach(self._file(action.uid, b"", Ids(0, 0), EMPTY_BYTES), place)
                continue
            place.mkdir(mode=0o755, exist_ok=True)
            empty = mount_calls.tmpfs(_SEALED, size=str(EMPTY_BYTES), mode="0555")
            _attach(empty, place)
        if lacking or not action.container_id:
            self._write(action.uid, self._noted(action.uid))

    def _put(self, action: BindMounts, mount: Mount, number: int, user: "_Owner", tree: int) -> BoundMount:
        """Mount at a mount point; an earlier mount is removed first. `tree` is the new one, if there is one (-1)."""
        # Before it is read: what changes meanwhile is noticed.
        read_from = self._credentials.stamps(mount, action.namespace) if self._credentials else ()
        tree = self._tree(action, mount, user) if tree < 0 else tree
        place = self._place(action.uid, number)
        new_mount = replace(_new_bound_mount(mount), read_from=read_from, keeps_files=_keeps(action, mount))
        try:
            while not _is_empty(place) and len(_mounted_at(place)) > 1:
                mount_calls.detach(str(place))
            # Recorded first, so that attestation never finds an unknown mount.
            self._write(
                action.uid,
                (
                    *(noted_mount for noted_mount in self._noted(action.uid) if noted_mount.path != mount.path),
                    new_mount,
                ),
            )
        except OSError:
            os.close(tree)
            raise
        _attach(tree, place)
        return replace(new_mount, origin=_origin(place), identity=_identity(place))

    def _follow(self, uid: str) -> None:
        """Record the current origins of an object's mounts, each identified by its inode."""
        places = [place for place in (self._folder / uid).iterdir() if place.name.isdigit()]
        origins = {_identity(place): _origin(place) for place in places}
        noted = self._noted(uid)
        followed = tuple(
            replace(noted_mount, origin=origins.get(noted_mount.identity, noted_mount.origin)) for noted_mount in noted
        )
        if followed != noted:
            self._write(uid, followed)

    def _compare(self) -> None:
        """Record which files are outdated. Here, as the secrets were read here."""
        for uid in self._uids_with_secrets:
            noted = self._noted(uid)
            compared = tuple(replace(noted_mount, outdated=not self._is_current(noted_mount)) for noted_mount in noted)
            if compared != noted:
                self._write(uid, compared)

    def _is_current(self, bound: BoundMount) -> bool:
        return self._credentials is None or all(map(self._credentials.is_current, bound.read_from))

    def _tree(self, action: BindMounts, mount: Mount, owner: "_Owner") -> int:
        user = owner.ids
        if mount.kind == "host":
            return folder_tree(mount, action.namespace, self._roots, user, self._maps)
        if mount.kind == "volume":
            if self._volumes is None:
                raise Refused("volumes are disabled on this daemon")
            return self._volumes.tree(mount, action.namespace, user, self._maps)
        if mount.kind == "secret":
            value = self._secrets.read(action.namespace, mount.source)
            return self._file(action.uid, value, user, len(value) + _ROOM_BYTES)
        if mount.kind == "text":
            content = mount.source.encode()
            return self._file(action.uid, content, user, len(content) + _ROOM_BYTES, 0o555, executable=True)
        if mount.kind in ("authorities", "headers", "certificate"):
            if self._credentials is None:
                raise Refused("credentials are disabled on this daemon")
            value, mode = self._credentials.content(mount, action.namespace), 0o444 if mount.kind == _PUBLIC else 0o400
            return self._file(action.uid, value, user, len(value) + _ROOM_BYTES, mode)
        open_to_all = mount.sticky or (mount.kind == "tmpfs" and not owner.is_number)
        options = {"size": str(mount.size_bytes), "uid": str(user.uid), "gid": str(user.gid)}
        options["mode"] = "1777" if open_to_all else "0755"
        flags = _PLAIN | (mount_calls.NO_EXEC if mount.noexec else 0)
        return mount_calls.tmpfs(flags, swappable=True, nr_inodes=str(tmpfs_files(mount.size_bytes)), **options)

    def _divide_folders(self, action: BindMounts) -> tuple[tuple[str, ...], dict[str, int]]:
        """Return the folders in memory that stay where they are, and the others that are there, opened."""
        mounts = {mount.path: mount for mount in action.mounts}
        in_place: list[str] = []
        other_folders: dict[str, int] = {}
        for number, slot in enumerate(action.slots):
            bound = next(
                (noted_mount for noted_mount in self._kept_folders(action.uid) if noted_mount.path == slot.path), None
            )
            place, mount = self._place(action.uid, number), mounts.get(slot.path)
            if bound is not None and mount is not None and place.is_dir() and _is_there(place, bound, mount):
                flags = os.statvfs(place).f_flag
                is_same_mount = mount.kind == bound.kind and bool(flags & os.ST_NOEXEC) == mount.noexec
                if is_same_mount and not self._is_to_fill(action, mount):
                    in_place.append(slot.path)
        for path, opened in self._open_folders(action.uid).items():
            if path in in_place:
                os.close(opened)
            else:
                other_folders[path] = opened
        return tuple(in_place), other_folders

    def _kept_folders(self, uid: str) -> tuple[BoundMount, ...]:
        return tuple(
            noted_mount for noted_mount in self._noted(uid) if noted_mount.keeps_files and noted_mount.identity
        )

    def _open_folders(self, uid: str) -> dict[str, int]:
        """Return descriptors of the folders in memory whose files are kept, by path; to be closed by the caller."""
        folder, opened = self._folder / uid, dict[str, int]()
        paths = {noted_mount.identity: noted_mount.path for noted_mount in self._kept_folders(uid)}
        try:
            for place in folder.iterdir() if paths and folder.is_dir() else ():
                if place.name.isdigit() and (path := paths.get(_identity(place))):
                    opened[path] = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            for handle in opened.values():
                os.close(handle)
            raise
        return opened

    def _file(
        self, uid: str, content: bytes, user: Ids, size_bytes: int, mode: int = 0o400, *, executable: bool = False
    ) -> int:
        """Return a detached mount of a single file in a tmpfs, readable for the sandbox's user."""
        folder = self._folder / uid / _STAGE
        folder.mkdir(mode=0o700, exist_ok=True)
        _attach(mount_calls.tmpfs(_PLAIN, size=str(size_bytes), mode="0700"), folder)
        try:
            path = folder / "value"
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, mode)
                os.fchown(handle, user.uid, user.gid)
                file.write(content)
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                tree = mount_calls.tree_of(opened)
            finally:
                os.close(opened)
            flags = _PLAIN | mount_calls.READ_ONLY if executable else _SEALED
            mount_calls.change(tree, flags, propagation=mount_calls.PRIVATE)
            return tree
        finally:
            mount_calls.detach(str(folder))
            folder.rmdir()

    def _clear(self, uid: str, in_place: Collection[str] = ()) -> None:
        """Remove the mounts of an object, but for the folders in memory at these paths."""
        folder = self._folder / uid
        kept_folders = tuple(noted_mount for noted_mount in self._kept_folders(uid) if noted_mount.path in in_place)
        stay = {noted_mount.identity for noted_mount in kept_folders}
        if kept_folders:
            # Noted first: after a crash in the middle, what stays is still known.
            self._write(uid, kept_folders)
        for place in sorted(folder.iterdir()) if folder.is_dir() else ():
            if kept_folders and (place.name == _NOTES or _identity(place) in stay):
                continue
            # Several mounts may lie on one another: one call takes off one of them.
            for _ in _mounted_at(place):
                mount_calls.detach(str(place))
            place.rmdir() if place.is_dir() else place.unlink()
        if kept_folders:
            return
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()
        self._note(uid, None)
        self._unrecorded -= {uid}
        self._created_at.pop(uid, None)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            self._drop_folder()

    def _empty_unused(self, uid: str) -> None:
        """Unmount an object's in-memory mounts, unless they were just created."""
        if self._ticks() - self._created_at.get(uid, -_RESTING_SECONDS) >= _RESTING_SECONDS:
            self._empty(uid)

    def _empty(self, uid: str) -> None:
        """Unmount an object's in-memory mounts."""
        if not (self._folder / uid).is_dir():
            return
        remaining = [noted_mount for noted_mount in self._noted(uid) if not noted_mount.in_memory]
        for place in (self._folder / uid).iterdir():
            origins = _mounted_at(place)
            if len(origins) > 1 and origins[-1] not in {noted_mount.origin for noted_mount in remaining}:
                mount_calls.detach(str(place))
        self._write(uid, tuple(remaining))

    def _drop_folder(self) -> None:
        for _ in _mounted_at(self._folder):
            mount_calls.detach(str(self._folder))
        self._folder.rmdir()

    def _make_folder(self) -> None:
        """Create our tmpfs. Its mounts are shared, or sandboxes would not see them."""
        if _is_mounted(self._folder):
            return
        _refuse_writable(self._folder.parent)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _attach(mount_calls.tmpfs(_PLAIN | mount_calls.NO_EXEC, size="16m", mode="0700"), self._folder)
        opened = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            mount_calls.change(opened, propagation=mount_calls.SHARED)
        finally:
            os.close(opened)

    def _place(self, uid: str, number: int) -> Path:
        if "/" in uid or uid.startswith("."):
            raise Refused(f"{uid} is not a uid")
        return self._folder / uid / str(number)

    def _write(self, uid: str, bound: tuple[BoundMount, ...]) -> None:
        if uid in self._unrecorded:  # the next daemon must not take this for all of it
            self._note(uid, bound)
            return
        notes = self._folder / uid / _NOTES
        new = notes.with_suffix(".new")
        new.write_text(json.dumps([asdict(noted_mount) for noted_mount in bound]))
        new.replace(notes)
        self._note(uid, bound)

    def _noted(self, uid: str) -> tuple[BoundMount, ...]:
        return (self._bound or {}).get(uid, ())

    def _remember(self) -> None:
        """Load the records of the earlier daemon."""
        if self._bound is not None:
            return
        records: dict[str, tuple[BoundMount, ...]] = {}
        lost = set()
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            try:
                noted = tuple(_noted(record) for record in json.loads((folder / _NOTES).read_text()))
                records[folder.name] = _identified(folder, noted)
            except (OSError, ValueError, TypeError):
                lost.add(folder.name)
        self._uids_with_secrets = frozenset(
            uid for uid, noted in records.items() if any(mount.read_from for mount in noted)
        )
        self._bound, self._unrecorded = records, frozenset(lost)


def _noted(stored: dict[str, Any]) -> BoundMount:
    read_from = tuple(SecretStamp(**stamp) for stamp in stored.pop("read_from", ()))
    return BoundMount(**stored, read_from=read_from)


def _identified(folder: Path, noted: tuple[BoundMount, ...]) -> tuple[BoundMount, ...]:
    """Return the records with the identities that an older Paddock did not store."""
    if all(noted_mount.identity or not noted_mount.origin for noted_mount in noted):
        return noted
    identities = {_origin(place): _identity(place) for place in folder.iterdir() if place.name.isdigit()}
    return tuple(
        replace(noted_mount, identity=noted_mount.identity or identities.get(noted_mount.origin, ""))
        for noted_mount in noted
    )


def _is_there(place: Path, bound: BoundMount | None, mount: Mount) -> bool:
    """Tell whether just that mount is on top of a mount point already."""
    if bound is None or bound.mount != str(mount) or not bound.origin or not bound.identity:
        return False
    return not _is_empty(place) and _identity(place) == bound.identity


def _keeps(action: BindMounts, mount: Mount) -> bool:
    """Return True if the files of that mount outlive its container."""
    return action.keep_files and mount.kind in _FOLDERS


def _new_bound_mount(mount: Mount) -> BoundMount:
    size = mount.size_bytes if mount.kind == "volume" else 0
    in_memory = mount.kind not in ("host", "volume")
    return BoundMount(
        mount.path, str(mount), "", mount.read_only, in_memory=in_memory, size_bytes=size, kind=mount.kind
    )


def _attach(mount: int, place: Path) -> None:
    """Attach a mount to a path, and close its descriptor."""
    try:
        target = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mount_calls.attach(mount, target)
        finally:
            os.close(target)
    finally:
        os.close(mount)


def _refuse_writable(folder: Path) -> None:
    """Raise Refused if others than root may write to a folder, or to the one where it is to be made.

    They could change what is mounted into sandboxes. In a sticky one they can't, if it is root's.
    """
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    status = place.stat()
    is_private = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_roots = status.st_uid in (0, os.geteuid())
    if not is_roots or not (is_private or (place != folder and status.st_mode & stat.S_ISVTX)):
        raise Refused(
            f"{folder}: others than root may write to {place}, and so change what is mounted into sandboxes;"
            " set mounts_dir to a folder that is root's alone"
        )


def _is_mounted(place: Path) -> bool:
    """Tell whether anything is mounted at a path, from its device alone, as mountinfo is slow."""
    try:
        return place.stat(follow_symlinks=False).st_dev != place.parent.stat().st_dev
    except FileNotFoundError:
        return False


def _is_empty(place: Path) -> bool:
    """Tell whether a mount point's initial empty mount is on top. Asks statvfs, as mountinfo is slow."""
    opened = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstatvfs(opened)
    finally:
        os.close(opened)
    return bool(status.f_flag & os.ST_RDONLY) and status.f_blocks * status.f_frsize == EMPTY_BYTES


def _origin(place: Path) -> str:
    """Return the origin of the top mount at a path."""
    opened = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return mount_calls.origin_of(opened) or _mounted_at(place)[-1]
    finally:
        os.close(opened)


def _identity(place: Path) -> str:
    """Return the device and inode of the top mount at a path."""
    status = place.stat(follow_symlinks=False)
    return f"{status.st_dev}:{status.st_ino}"


def _mounted_at(place: Path) -> list[str]:
    """Return the origins of the mounts at a path, the lowest first: device numbers and folder."""
    return list(_origins(str(place)))


def _origins(path: str) -> Iterator[str]:
    # This thread's: it may be in another namespace than the process.
    for line in Path("/proc/thread-self/mountinfo").read_text().splitlines():
        _, _, device, root, at = line.split(" ")[:5]
        if at == path:
            yield f"{device} {root}"
