"""Volumes of a namespace: each a file system in a fully allocated file.

    <state folder>/volumes/<namespace>/<name>.img     owned by root; retained unless reclaimPolicy is Delete
                                      <name>.claim   the sandbox that owns a volume of a volumeClaimTemplate

So a sandbox that fills its volume fills nothing else, and needs no quota of the file system below. On disk everything
belongs to one id that no user of the host has; each sandbox sees it as its own.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from controller.engine.kernel import mount_calls
from controller.engine.kernel.engine_namespace import EngineNamespace, NamespaceUnreachable
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.engine.mounts import volume_growth
from controller.engine.mounts.host_folders import Refused
from controller.kinds.common.quantity import format_bytes
from controller.kinds.runtime.mount import Mount
from controller.kinds.runtime.user_ids import SHARED_ID
from controller.kinds.volume import HostVolume
from controller.ports import VolumeInUse, VolumesUnreachable

_OWNER = Ids(SHARED_ID, SHARED_ID)
_MAKE_SECONDS = 300.0
_TRIES = 10
# The kernel detaches a loop device some time after its last mount is gone.
_LETTING_GO_SECONDS, _POLL_SECONDS = 2.0, 0.02
_LOOP_CONTROL = "/dev/loop-control"
# ioctls of loop(4), and the flag that detaches a device with its last user
_GET_FREE, _CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4
# offsets of an ext4 superblock: its UUID and time of creation
_SUPERBLOCK, _SUPERBLOCK_BYTES, _UUID, _MADE_AT = 1024, 1024, 0x68, 0x108


class Volumes:
    """Volumes in a folder, limited to `most_bytes` for each namespace."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes

    def tree(self, mount: Mount, namespace: str, user: Ids, maps: IdMaps) -> int:
        """Return a detached mount of the volume, created if missing. Raises Refused, OSError."""
        tree = self._tree(mount, namespace)
        try:
            # Servers that begin as root give their folder to a user of their own. A volume has no files of the host's.
            namespace_of_ids = maps.of(_OWNER, user, others=True)
            mount_calls.change(tree, propagation=mount_calls.PRIVATE, user_namespace=namespace_of_ids)
        except OSError:
            os.close(tree)
            raise
        return tree

    def tree_on_disk(self, mount: Mount, namespace: str) -> tuple[int, Ids]:
        """Return a detached mount of the volume as it is on disk, where all is of the returned ids.

        Root may write there in any sandbox's name. Raises Refused, OSError.
        """
        return self._tree(mount, namespace), _OWNER

    def _tree(self, mount: Mount, namespace: str) -> int:
        image = self._image(namespace, mount.source)
        self._ensure(image, mount)
        flags = mount_calls.NO_SUID | mount_calls.NO_DEVICES | (mount_calls.READ_ONLY if mount.read_only else 0)
        with _device(image) as device:
            tree = mount_calls.file_system("ext4", device, flags)
        # Empty, and of the host's root: nobody in a sandbox could copy the volume as a whole with it.
        with contextlib.suppress(OSError):  # a read-only one keeps it, as does one that a repair put files in
            os.rmdir("lost+found", dir_fd=tree)
        return tree

    def exists(self, namespace: str, name: str) -> bool:
        """Tell whether there is a volume of that name."""
        return self._image(namespace, name).exists()

    def resize(self, mount: Mount, namespace: str) -> None:
        """Grow a volume, maybe in use, to the mount's size. Raises Refused, OSError."""
        self._ensure(self._image(namespace, mount.source), mount)

    def remove(self, namespace: str, name: str, claimed_by: str | None = None) -> None:
        """Delete a volume, idempotently; existing mounts of it stay usable.

        A volume owned by another sandbox than `claimed_by` stays (None: delete it whoever owns it).
        """
        image = self._image(namespace, name)
        if claimed_by is not None and _claimed_by(image) not in ("", claimed_by):
            return
        volume_growth.forget(image)
        image.unlink(missing_ok=True)
        _claim_mark(image).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty
            image.parent.rmdir()

    def remove_unused(self, namespace: str, name: str) -> None:
        """Delete a volume that is not mounted. Raises VolumeInUse."""
        if self.is_attached(namespace, name):
            raise VolumeInUse(f"volume `{name}` is still mounted in a container")
        self.remove(namespace, name)

    def is_attached(self, namespace: str, name: str) -> bool:
        """Tell whether it is mounted. Stays true for a moment after the last unmount."""
        return bool(_attached(self._image(namespace, name)))

    def list_volumes(self, namespace: str | None = None) -> Sequence[HostVolume]:
        """Return the volumes of a namespace (None: of all), sorted, without their usage. Raises OSError."""
        images = (image for image in self._folder.glob("*/*.img") if namespace in (None, image.parent.name))
        sorted_images = sorted(images, key=lambda image: (image.parent.name, image.stem))
        attached = _backing_files() if sorted_images else {}
        return [volume for path in sorted_images if (volume := _volume_of(path, attached)) is not None]

    def used_bytes(self) -> Mapping[tuple[str, str], int]:
        """Return the used bytes of the mounted volumes that this thread can see, by namespace and name."""
        mounted = _mount_points()
        sizes = {}
        for image, device in _backing_files().items():
            path = Path(image)
            number = device.removeprefix("/dev/loop")
            if path.parent.parent == self._folder.resolve() and (at := mounted.get(f"7:{number}")):
                usage = os.statvfs(at)
                sizes[path.parent.name, path.stem] = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
        return sizes

    def _image(self, namespace: str, name: str) -> Path:
        return self._folder / namespace / f"{name}.img"

    def _ensure(self, image: Path, mount: Mount) -> None:
        if not image.exists():
            image.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_room(image, mount.size_bytes)
            _mark_claim(image, mount.claimed_by)
            _make(image, mount.size_bytes)
            return
        _check_claim(image, mount.claimed_by)
        current_bytes = image.stat().st_size
        if current_bytes > mount.size_bytes:
            raise Refused(
                f"volume `{mount.source}`: has {format_bytes(current_bytes)}, more than "
                f"{format_bytes(mount.size_bytes)}, and volumes never shrink; request its size or more, or another "
                "volume"
            )
        if current_bytes < mount.size_bytes:
            self._check_room(image, mount.size_bytes - current_bytes)
            volume_growth.extend(image, mount.size_bytes)
        if volume_growth.unfinished(image):
            with _loop_device(image) as device:
                volume_growth.finish(image, device)

    def _check_room(self, image: Path, more_bytes: int) -> None:
        used_bytes = sum(image_file.stat().st_size for image_file in image.parent.glob("*.img"))
        if used_bytes + more_bytes > self._most_bytes:
            raise Refused(
                f"volume `{image.stem}`: {format_bytes(more_bytes)} more exceed the limit; the volumes of namespace "
                f"`{image.parent.name}` use {format_bytes(used_bytes)} of {format_bytes(self._most_bytes)} "
                "(volumes_per_namespace_bytes)"
            )


class KeptVolumes:
    """ports.Volumes: list and delete the volumes in a folder. `volumes` None: volumes are disabled.

    Deletes run in the mounting thread, so that nothing is mounted between the check and the delete.
    """

    def __init__(self, volumes: Volumes | None, namespace: EngineNamespace) -> None:
        self._volumes, self._namespace = volumes, namespace

    def list(self, namespace: str | None = None) -> Sequence[HostVolume]:
        if self._volumes is None:
            return ()
        try:
            volumes = self._volumes.list_volumes(namespace)
        except OSError as error:
            raise VolumesUnreachable(f"the volumes can't be read: {error.strerror or error}") from error
        sizes: Mapping[tuple[str, str], int] = {}
        with contextlib.suppress(NamespaceUnreachable, OSError):  # unknown then
            sizes = (
                self._namespace.run(self._volumes.used_bytes) if any(volume.mounted for volume in volumes) else sizes
            )
        return [replace(volume, used_bytes=sizes.get((volume.namespace, volume.name))) for volume in volumes]

    def is_mounted(self, namespace: str, name: str) -> bool:
        deadline, pause = time.monotonic() + _LETTING_GO_SECONDS, threading.Event()
        while self._volumes is not None and self._volumes.is_attached(namespace, name):
            if time.monotonic() >= deadline:
                return True
            pause.wait(_POLL_SECONDS)
        return False

    def remove(self, namespace: str, name: str) -> None:
        if self._volumes is None:
            return
        try:
            self._namespace.run(partial(self._volumes.remove_unused, namespace, name))
        except NamespaceUnreachable as error:
            raise VolumesUnreachable(str(error)) from error
        except OSError as error:
            raise VolumesUnreachable(f"volume `{name}` can't be removed: {error.strerror or error}") from error


def _claim_mark(image: Path) -> Path:
    return image.with_suffix(".claim")


def _claimed_by(image: Path) -> str:
    """Return the sandbox that owns the volume; "" for a shared one."""
    with contextlib.suppress(FileNotFoundError):
        return _claim_mark(image).read_text()
    return ""


def _mark_claim(image: Path, sandbox: str) -> None:
    """Record the owner. Done before the volume exists, so that it never looks shared."""
    if sandbox:
        _claim_mark(image).write_text(sandbox)
    else:
        _claim_mark(image).unlink(missing_ok=True)


def _check_claim(image: Path, sandbox: str) -> None:
    """Refuse a claim on a volume of another sandbox, or on a shared one. Raises Refused."""
    claimant = _claimed_by(image)
    if sandbox and claimant != sandbox:
        whose = f"belongs to sandbox `{claimant}`" if claimant else "is a shared volume"
        raise Refused(
            f"volume `{image.stem}` {whose}; rename the volumeClaimTemplate of `{sandbox}`, or delete the volume "
            f"(`paddock delete volume {image.stem} -n {image.parent.name}`)"
        )


def _volume_of(image: Path, attached: Mapping[str, str]) -> HostVolume | None:
    """Read a volume's data from its file; None if it is gone."""
    try:
        size_bytes = image.stat().st_size
        with image.open("rb") as file:
            file.seek(_SUPERBLOCK)
            block = file.read(_SUPERBLOCK_BYTES)
    except FileNotFoundError:
        return None
    (made_at,) = struct.unpack_from("<I", block, _MADE_AT)
    return HostVolume(
        namespace=image.parent.name,
        name=image.stem,
        uid=str(uuid.UUID(bytes=block[_UUID : _UUID + 16])),
        size_bytes=size_bytes,
        made_at=float(made_at),
        claimed_by=_claimed_by(image),
        mounted=str(image.resolve()) in attached,
    )


def _make(image: Path, size_bytes: int) -> None:
    """Create a file system in a file, under a temporary name until it is complete."""
    program = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise Refused("mkfs.ext4 is missing, which volumes need; install e2fsprogs")
    new = image.with_suffix(".new")
    new.unlink(missing_ok=True)
    try:
        with open(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        # Inode tables that the kernel would zero later become holes of the file.
        options = f"nodiscard,lazy_itable_init=0,root_owner={_OWNER.uid}:{_OWNER.gid}"
        command = [program, "-q", "-F", "-m", "0", "-E", options, str(new)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_MAKE_SECONDS)
        volume_growth.fill_holes(new)
        new.rename(image)
    except subprocess.SubprocessError as error:
        output = str(getattr(error, "stderr", "") or error).strip()
        raise Refused(f"a file system of {format_bytes(size_bytes)} can't be created: {output}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Refused(
                f"no space on this host's disk for a volume of {format_bytes(size_bytes)}; free some"
            ) from error
        raise
    finally:
        new.unlink(missing_ok=True)


@contextlib.contextmanager
def _device(image: Path) -> Iterator[str]:
    """Yield a loop device of the file: its present one, or a new one, which is detached with its last user."""
    with contextlib.ExitStack() as opened:
        loop_device = opened.enter_context(_loop_device(image))
        if loop_device:
            yield loop_device
            return

        def hold(path: Path | str) -> int:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            opened.callback(os.close, fd)
            return fd

        file = hold(image)
        try:
            control = hold(_LOOP_CONTROL)
        except FileNotFoundError as error:
            raise Refused("this host has no loop devices, which volumes need; `modprobe loop` there") from error
        for attempt in range(_TRIES):
            path = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
            try:
                fcntl.ioctl(hold(path), _CONFIGURE, _config(file))
                break
            except OSError as error:  # EBUSY: another process was faster
                if error.errno != errno.EBUSY or attempt == _TRIES - 1:
                    raise
        yield path


@contextlib.contextmanager
def _loop_device(image: Path) -> Iterator[str]:
    """Yield the file's loop device, "" for none. It is held open, so that it is not reused for another file."""
    with contextlib.ExitStack() as opened:
        while loop_device := _attached(image):
            opened.callback(os.close, os.open(loop_device, os.O_RDONLY | os.O_CLOEXEC))
            if _attached(image) == loop_device:
                break
        yield loop_device


def _attached(image: Path) -> str:
    """Return the loop device of this file; "" for none."""
    return _backing_files().get(str(image.resolve()), "")


def _backing_files() -> dict[str, str]:
    """Return the loop devices of this host, by their files."""
    devices = {}
    for backing_file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # gone meanwhile
            devices[backing_file.read_text().strip()] = f"/dev/{backing_file.parents[1].name}"
    return devices


def _mount_points() -> dict[str, str]:
    """Return one mount point of each device, by its numbers, as seen by this thread."""
    lines = Path("/proc/thread-self/mountinfo").read_text().splitlines()
    return {device: at for _, _, device, _, at, *_ in (line.split(" ") for line in lines)}


def _config(file: int) -> bytes:
    """Pack struct loop_config of linux/loop.h: the file, and autoclear."""
    info = struct.pack("5Q4I64s64s32s2Q", *[0] * 5, 0, 0, 0, _AUTOCLEAR, b"paddock", b"", b"", 0, 0)
    return struct.pack("II", file, 0) + info + bytes(64)
