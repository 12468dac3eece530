"""What is bound into boxes: a place on this host for each place in a box, which the engine binds into the container.

    <folder>/<instance>/<uid>/<n>     a tmpfs of ours, shared; each place holds an empty, read-only mount

What is mounted upon a place here is seen in the box at once, and by whatever run of the container starts later; nothing
mounted inside is seen here. `bound.json` beside the places says what was mounted, for the daemon that comes next.
"""

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.create_config import tmpfs_files
from controller.engine.kernel import mount_calls
from controller.engine.kernel.engine_namespace import EngineNamespace, NoWay
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.engine.mounts.host_folders import Refused, folder_tree
from controller.engine.mounts.secrets import SecretFolder
from controller.engine.mounts.volumes import KeptVolumes, Volumes
from controller.kinds.planning.outcome import Ok, Outcome, Transient
from controller.kinds.runtime.mount import EMPTY_BYTES, BindMounts, Bound, HostRoot, Mount, RemoveVolumes, Slot
from controller.kinds.runtime.secret import NoSecret
from controller.policy.attest.mounted import resized

log = logging.getLogger(__name__)

DEFAULT_FOLDER = Path("/run/paddock/mounts")
_PLAIN = mount_calls.NO_SUID | mount_calls.NO_DEVICES
_SEALED = _PLAIN | mount_calls.READ_ONLY | mount_calls.NO_EXEC
_NOTES, _STAGE = "bound.json", "stage"
# Beside a secret: what the file system itself takes; and more than an empty place has.
_ROOM_BYTES = 64 << 10
# A place without a container may be one whose container is just being made.
_STRAY_SECONDS = 300.0
# One that does not run may be about to be started.
_RESTING_SECONDS = 60.0


class HostMounts:
    """Thread-safe. `roots` are where folders of the host may be bound from. Making one does no work."""

    def __init__(
        self,
        instance_id: str,
        client: Client,
        *,
        folder: Path = DEFAULT_FOLDER,
        roots: Sequence[HostRoot] = (),
        secrets: SecretFolder | None = None,
        volumes: Volumes | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._folder, self._roots = client, folder / instance_id, tuple(roots)
        self._secrets, self._volumes = secrets or SecretFolder(), volumes
        self._namespace, self._maps = EngineNamespace(client.base_url), IdMaps()
        self.kept = KeptVolumes(volumes, self._namespace)
        # Written by the one thread that mounts, whole; read by any.
        self._bound: dict[str, tuple[Bound, ...]] | None = None
        self._strays: dict[str, float] = {}
        self._resting: dict[str, float] = {}
        self._made: dict[str, float] = {}
        self._ticks = ticks

    def close(self) -> None:
        """Let go of threads and descriptors. What is bound stays."""
        self._namespace.close()
        self._maps.close()

    def sources(self, uid: str, slots: Sequence[Slot]) -> list[dict[str, Any]]:
        """The places, as the engine's create call takes them."""
        return [
            {
                "Type": "bind",
                "Source": str(self._place(uid, number)),
                "Target": slot.path,
                "BindOptions": {"Propagation": "rslave"},
            }
            for number, slot in enumerate(slots)
        ]

    def bound(self, uid: str) -> tuple[Bound, ...]:
        """What was bound for that object. Never raises."""
        return self._known().get(uid, ())

    def renamed(self, uid: str) -> tuple[Bound, ...]:
        """What was bound for that object, from where it comes by now: a folder stays the same by another name.

        Never raises.
        """
        with contextlib.suppress(NoWay, OSError):
            self._namespace.run(lambda: self._follow(uid))
        return self.bound(uid)

    def bind(self, action: BindMounts) -> Outcome:
        """Make the places, and bind what is wanted there. Raises Fault."""
        try:
            self._known()
            user = self._user(action)
            return self._namespace.run(lambda: self._bind(action, user))
        except NoSecret as error:
            return Transient("SecretMissing", str(error))
        except (NoWay, Refused) as error:
            return Transient("MountRefused", str(error))
        except OSError as error:
            return Transient("MountFailed", f"{action.name}: {error.strerror or error}")

    def remove_volumes(self, action: RemoveVolumes) -> Outcome:
        """Take volumes away for good."""
        if self._volumes is None:
            return Ok()
        remove = self._volumes.remove
        try:
            for each in action.volumes:
                self._namespace.run(partial(remove, action.namespace, each, action.claimed_by))
        except (NoWay, OSError) as error:
            return Transient("VolumeStays", f"{action}: {getattr(error, 'strerror', None) or error}")
        return Ok()

    def release(self, uid: str) -> None:
        """Take all places of an object away. What is in use there goes when its last user does. Never raises."""
        if uid in self._known():
            self._let_go(uid, self._clear)

    def _let_go(self, uid: str, how: Callable[[str], None]) -> None:
        try:
            self._namespace.run(lambda: how(uid))
        except (NoWay, OSError) as error:
            log.warning("what was bound for %s can't be released: %s", uid, error)

    def sweep(self, uids: Collection[str], alive: Collection[str]) -> None:
        """Release what is of none of these objects, and what is in memory for one that is not alive. Never raises.

        Only what has been so for a while: a container may be about to be made, or started. All is bound anew then.
        """
        now, known = self._ticks(), self._known()
        self._strays = {uid: self._strays.get(uid, now) for uid in known if uid not in uids}
        resting = {uid for uid, bound in known.items() if uid not in alive and any(each.in_memory for each in bound)}
        self._resting = {uid: self._resting.get(uid, now) for uid in resting}
        for uid, since in list(self._strays.items()):
            if now - since > _STRAY_SECONDS:
                self.release(uid)
        for uid, since in list(self._resting.items()):
            if now - since > _RESTING_SECONDS:
                self._let_go(uid, self._empty)

    def _known(self) -> Mapping[str, tuple[Bound, ...]]:
        """All that is bound. Not for the thread that mounts: it may be waited for here."""
        if self._bound is None:
            try:
                self._namespace.run(self._remember)
            except (NoWay, OSError):
                return {}
        return self._bound or {}

    def _note(self, uid: str, bound: tuple[Bound, ...] | None) -> None:
        others = {each: noted for each, noted in (self._bound or {}).items() if each != uid}
        self._bound = others if bound is None else {**others, uid: bound}

    def _user(self, action: BindMounts) -> Ids:
        """The ids of the box's user. Raises Fault, Refused."""
        user = action.user or self._images_user(action.image)
        uid, _, gid = user.partition(":")
        if user in ("", "0", "root"):
            return Ids(0, 0)
        if not action.mounts or (uid.isdigit() and gid.isdigit()):
            return Ids(int(uid or 0), int(gid or 0)) if uid.isdigit() and gid.isdigit() else Ids(0, 0)
        raise Refused(f"whose files are the box's is not known: its user is `{user}`; write `user: uid:gid`")

    def _images_user(self, image: str) -> str:
        data = self._client.call("images.inspect", lambda api: api.inspect_image(image)).get("Config") or {}
        return str(data.get("User") or "")

    # In the engine's namespace

    def _bind(self, action: BindMounts, user: Ids) -> Outcome:
        if not action.container_id:
            self._clear(action.uid)
            self._made[action.uid] = self._ticks()
            self._make_places(action)
        known = {each.path: each for each in self._noted(action.uid)}
        for mount in action.mounts:
            if mount.path in known and resized(known[mount.path], mount) and self._volumes is not None:
                self._volumes.resize(mount, action.namespace)
                known[mount.path] = replace(known[mount.path], mount=str(mount), size_bytes=mount.size_bytes)
                self._write(action.uid, tuple(known.values()))
                continue
            number = next(n for n, slot in enumerate(action.slots) if slot.path == mount.path)
            known[mount.path] = self._put(action, mount, number, user)
            self._write(action.uid, tuple(known.values()))
        return Ok(action.container_id)

    def _make_places(self, action: BindMounts) -> None:
        self._make_folder()
        (self._folder / action.uid).mkdir(mode=0o755)
        if not all(each.file for each in action.slots):
            self._maps.prepare()
        for number, slot in enumerate(action.slots):
            place = self._place(action.uid, number)
            if slot.file:
                place.touch(mode=0o444)
                _attach(self._file(action.uid, b"", Ids(0, 0), EMPTY_BYTES), place)
                continue
            place.mkdir(mode=0o755)
            empty = mount_calls.tmpfs(_SEALED, size=str(EMPTY_BYTES), mode="0555")
            _attach(empty, place)
        self._write(action.uid, ())

    def _put(self, action: BindMounts, mount: Mount, number: int, user: Ids) -> Bound:
        """Mount upon a place; what was mounted there before goes first."""
        tree = self._tree(action, mount, user)
        place, begun = self._place(action.uid, number), _begun(mount)
        try:
            while not _is_empty(place) and len(_mounted_at(place)) > 1:
                mount_calls.detach(str(place))
            # Noted first: whoever looks inside meanwhile finds what is known of.
            self._write(action.uid, (*(each for each in self._noted(action.uid) if each.path != mount.path), begun))
        except OSError:
            os.close(tree)
            raise
        _attach(tree, place)
        return replace(begun, origin=_origin(place), identity=_identity(place))

    def _follow(self, uid: str) -> None:
        """Note where the folders come from now that are bound at the places of an object, each known by its inode."""
        places = [each for each in (self._folder / uid).iterdir() if each.name.isdigit()]
        origins = {_identity(each): _origin(each) for each in places}
        known = self._noted(uid)
        followed = tuple(replace(each, origin=origins.get(each.identity, each.origin)) for each in known)
        if followed != known:
            self._write(uid, followed)

    def _tree(self, action: BindMounts, mount: Mount, user: Ids) -> int:
        if mount.kind == "host":
            return folder_tree(mount, action.namespace, self._roots, user, self._maps)
        if mount.kind == "volume":
            if self._volumes is None:
                raise Refused("this daemon keeps no volumes")
            return self._volumes.tree(mount, action.namespace, user, self._maps)
        if mount.kind == "secret":
            value = self._secrets.read(action.namespace, mount.source)
            return self._file(action.uid, value, user, len(value) + _ROOM_BYTES)
        options = {"size": str(mount.size_bytes), "uid": str(user.uid), "gid": str(user.gid), "mode": "0755"}
        return mount_calls.tmpfs(_PLAIN, nr_inodes=str(tmpfs_files(mount.size_bytes)), **options)

    def _file(self, uid: str, content: bytes, user: Ids, size_bytes: int) -> int:
        """A mount, nowhere yet, of a file that is alone in a tmpfs, and that the box's user may read."""
        folder = self._folder / uid / _STAGE
        folder.mkdir(mode=0o700, exist_ok=True)
        _attach(mount_calls.tmpfs(_PLAIN, size=str(size_bytes), mode="0700"), folder)
        try:
            path = folder / "value"
            written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
            with os.fdopen(written, "wb") as file:
                os.fchown(written, user.uid, user.gid)
                file.write(content)
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                tree = mount_calls.tree_of(opened)
            finally:
                os.close(opened)
            mount_calls.change(tree, _SEALED, propagation=mount_calls.PRIVATE)
            return tree
        finally:
            mount_calls.detach(str(folder))
            folder.rmdir()

    def _clear(self, uid: str) -> None:
        folder = self._folder / uid
        for place in sorted(folder.iterdir()) if folder.is_dir() else ():
            for _ in _mounted_at(place):
                mount_calls.detach(str(place))
            place.rmdir() if place.is_dir() else place.unlink()
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()
        self._note(uid, None)
        self._made.pop(uid, None)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            self._drop_folder()

    def _empty(self, uid: str) -> None:
        """Unmount what an object has in memory, but what was made just now, to be started."""
        if self._ticks() - self._made.get(uid, -_RESTING_SECONDS) < _RESTING_SECONDS:
            return
        kept = [each for each in self._noted(uid) if not each.in_memory]
        for place in (self._folder / uid).iterdir():
            origins = _mounted_at(place)
            if len(origins) > 1 and origins[-1] not in {each.origin for each in kept}:
                mount_calls.detach(str(place))
        self._write(uid, tuple(kept))

    def _drop_folder(self) -> None:
        for _ in _mounted_at(self._folder):
            mount_calls.detach(str(self._folder))
        self._folder.rmdir()

    def _make_folder(self) -> None:
        """The tmpfs of ours. Its mounts are shared, or the boxes would not see them."""
        if _mounted_at(self._folder):
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _attach(mount_calls.tmpfs(_PLAIN | mount_calls.NO_EXEC, size="16m", mode="0700"), self._folder)
        opened = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            mount_calls.change(opened, propagation=mount_calls.SHARED)
        finally:
            os.close(opened)

    def _place(self, uid: str, number: int) -> Path:
        if "/" in uid or uid.startswith("."):
            raise Refused(f"{uid} is no uid")
        return self._folder / uid / str(number)

    def _write(self, uid: str, bound: tuple[Bound, ...]) -> None:
        notes = self._folder / uid / _NOTES
        new = notes.with_suffix(".new")
        new.write_text(json.dumps([asdict(each) for each in bound]))
        new.replace(notes)
        self._note(uid, bound)

    def _noted(self, uid: str) -> tuple[Bound, ...]:
        return (self._bound or {}).get(uid, ())

    def _remember(self) -> None:
        """What a daemon before this one has noted."""
        if self._bound is not None:
            return
        found: dict[str, tuple[Bound, ...]] = {}
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            try:
                noted = tuple(Bound(**each) for each in json.loads((folder / _NOTES).read_text()))
                found[folder.name] = _identified(folder, noted)
            except (OSError, ValueError, TypeError):
                found[folder.name] = ()  # a daemon died while it made them: they are made anew
        self._bound = found


def _identified(folder: Path, noted: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """The same, with the identities that an older Paddock did not note, of all that is where it was then."""
    if all(each.identity or not each.origin for each in noted):
        return noted
    known = {_origin(each): _identity(each) for each in folder.iterdir() if each.name.isdigit()}
    return tuple(replace(each, identity=each.identity or known.get(each.origin, "")) for each in noted)


def _begun(mount: Mount) -> Bound:
    size = mount.size_bytes if mount.kind == "volume" else 0
    in_memory = mount.kind in ("memory", "secret")
    return Bound(mount.path, str(mount), "", mount.read_only, in_memory=in_memory, size_bytes=size)


def _attach(mount: int, place: Path) -> None:
    """Mount there, and let go of the descriptor."""
    try:
        target = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mount_calls.attach(mount, target)
        finally:
            os.close(target)
    finally:
        os.close(mount)


def _is_empty(place: Path) -> bool:
    """Whether what a place was made with is uppermost there. Told by itself: the list of all mounts takes long."""
    opened = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstatvfs(opened)
    finally:
        os.close(opened)
    return bool(found.f_flag & os.ST_RDONLY) and found.f_blocks * found.f_frsize == EMPTY_BYTES


def _origin(place: Path) -> str:
    """Where the uppermost mount at a path comes from."""
    opened = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return mount_calls.origin_of(opened) or _mounted_at(place)[-1]
    finally:
        os.close(opened)


def _identity(place: Path) -> str:
    """The device and inode of what is uppermost at a path."""
    found = place.stat(follow_symlinks=False)
    return f"{found.st_dev}:{found.st_ino}"


def _mounted_at(place: Path) -> list[str]:
    """Where the mounts at a path come from, the lowest first: the device's numbers and the folder there."""
    return list(_origins(str(place)))


def _origins(path: str) -> Iterator[str]:
    # This thread's own: it may be in another namespace than the process.
    for line in Path("/proc/thread-self/mountinfo").read_text().splitlines():
        _, _, device, root, at = line.split(" ")[:5]
        if at == path:
            yield f"{device} {root}"
