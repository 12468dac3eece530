"""Volumes of a namespace: each a file system of its own, in a file of its own size that is allocated whole.

    <state folder>/volumes/<namespace>/<name>.img     root's; it stays unless the last sandbox with it says otherwise
                                      <name>.claim   beside one that a sandbox has for itself: that sandbox's name

So a box that fills its volume fills nothing else, and needs no quota of the file system below. On disk everything
belongs to one id that no user of the host has; each box sees it as its own.
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
from controller.engine.kernel.engine_namespace import EngineNamespace, NoWay
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.engine.mounts import volume_growth
from controller.engine.mounts.host_folders import Refused
from controller.kinds.common.quantity import format_bytes
from controller.kinds.runtime.mount import Mount
from controller.kinds.volume import KeptVolume
from controller.ports import VolumeInUse, VolumesUnreachable

_OWNER = Ids(20000, 20000)
_MAKE_SECONDS = 300.0
_TRIES = 10
# The kernel detaches a loop device in its own time, once the last mount of it is gone.
_LETTING_GO_SECONDS, _LOOK_SECONDS = 2.0, 0.02
# ioctls of loop(4), and the flag by which a device goes with its last user
_GET_FREE, _CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4
# where an ext4 file system says who it is, and when it was made
_SUPERBLOCK, _SUPERBLOCK_BYTES, _UUID, _MADE_AT = 1024, 1024, 0x68, 0x108


class Volumes:
    """The volumes in a folder; together those of a namespace hold at most `most_bytes`."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes

    def tree(self, mount: Mount, namespace: str, user: Ids, maps: IdMaps) -> int:
        """A mount, nowhere yet, of the volume; it is made where there is none. Raises Refused, OSError."""
        image = self._image(namespace, mount.source)
        self._ensure(image, mount)
        flags = mount_calls.NO_SUID | mount_calls.NO_DEVICES | (mount_calls.READ_ONLY if mount.read_only else 0)
        with _device(image) as device:
            tree = mount_calls.file_system("ext4", device, flags)
        try:
            mount_calls.change(tree, propagation=mount_calls.PRIVATE, user_namespace=maps.of(_OWNER, user))
        except OSError:
            os.close(tree)
            raise
        return tree

    def resize(self, mount: Mount, namespace: str) -> None:
        """Make a volume that may be in use as large as that. Raises Refused, OSError."""
        self._ensure(self._image(namespace, mount.source), mount)

    def remove(self, namespace: str, name: str, claimed_by: str | None = None) -> None:
        """Take a volume away; where it is mounted still, it stays there until that ends. Gone already is fine.

        One that another sandbox than `claimed_by` has for itself stays (None: it goes, whosever it is).
        """
        image = self._image(namespace, name)
        if claimed_by is not None and _claimed_by(image) not in ("", claimed_by):
            return
        volume_growth.forget(image)
        image.unlink(missing_ok=True)
        _claim_mark(image).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are there
            image.parent.rmdir()

    def remove_unused(self, namespace: str, name: str) -> None:
        """Take a volume away that is mounted nowhere. Raises VolumeInUse."""
        if self.is_attached(namespace, name):
            raise VolumeInUse(f"volume `{name}` is mounted in a container still")
        self.remove(namespace, name)

    def is_attached(self, namespace: str, name: str) -> bool:
        """Whether it is mounted somewhere. Ends a little after the last mount does."""
        return bool(_attached(self._image(namespace, name)))

    def kept(self, namespace: str | None = None) -> Sequence[KeptVolume]:
        """The volumes of a namespace (None: of all), in order, without what is written in them. Raises OSError."""
        images = (each for each in self._folder.glob("*/*.img") if namespace in (None, each.parent.name))
        found = sorted(images, key=lambda each: (each.parent.name, each.stem))
        attached = _backing_files() if found else {}
        return [each for path in found if (each := _kept(path, attached)) is not None]

    def used_bytes(self) -> Mapping[tuple[str, str], int]:
        """What is written in those that are mounted where this thread can see it, by namespace and name."""
        mounted = _mount_points()
        used = {}
        for image, device in _backing_files().items():
            path = Path(image)
            number = device.removeprefix("/dev/loop")
            if path.parent.parent == self._folder.resolve() and (at := mounted.get(f"7:{number}")):
                found = os.statvfs(at)
                used[path.parent.name, path.stem] = (found.f_blocks - found.f_bfree) * found.f_frsize
        return used

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
        found = image.stat().st_size
        if found > mount.size_bytes:
            raise Refused(
                f"the volume `{mount.source}` has {format_bytes(found)}, not {format_bytes(mount.size_bytes)}: none is "
                "ever made smaller; ask for the size that it has or more, or for another volume"
            )
        if found < mount.size_bytes:
            self._check_room(image, mount.size_bytes - found)
            volume_growth.extend(image, mount.size_bytes)
        if volume_growth.unfinished(image):
            with _held(image) as device:
                volume_growth.finish(image, device)

    def _check_room(self, image: Path, more_bytes: int) -> None:
        held = sum(each.stat().st_size for each in image.parent.glob("*.img"))
        if held + more_bytes > self._most_bytes:
            raise Refused(
                f"{format_bytes(more_bytes)} more for the volume `{image.stem}` is too much: those of namespace "
                f"`{image.parent.name}` hold {format_bytes(held)} of {format_bytes(self._most_bytes)} "
                "(volumes_per_namespace_bytes)"
            )


class KeptVolumes:
    """ports.Volumes: the volumes in a folder, as users list and delete them. `volumes` None: this daemon keeps none.

    Deleting goes through the thread that mounts: nothing is mounted between the question and the deed.
    """

    def __init__(self, volumes: Volumes | None, namespace: EngineNamespace) -> None:
        self._volumes, self._namespace = volumes, namespace

    def list(self, namespace: str | None = None) -> Sequence[KeptVolume]:
        if self._volumes is None:
            return ()
        try:
            found = self._volumes.kept(namespace)
        except OSError as error:
            raise VolumesUnreachable(f"the volumes can't be read: {error.strerror or error}") from error
        used: Mapping[tuple[str, str], int] = {}
        with contextlib.suppress(NoWay, OSError):  # then it is not known
            used = self._namespace.run(self._volumes.used_bytes) if any(each.mounted for each in found) else used
        return [replace(each, used_bytes=used.get((each.namespace, each.name))) for each in found]

    def is_mounted(self, namespace: str, name: str) -> bool:
        deadline, pause = time.monotonic() + _LETTING_GO_SECONDS, threading.Event()
        while self._volumes is not None and self._volumes.is_attached(namespace, name):
            if time.monotonic() >= deadline:
                return True
            pause.wait(_LOOK_SECONDS)
        return False

    def remove(self, namespace: str, name: str) -> None:
        if self._volumes is None:
            return
        try:
            self._namespace.run(partial(self._volumes.remove_unused, namespace, name))
        except NoWay as error:
            raise VolumesUnreachable(str(error)) from error
        except OSError as error:
            raise VolumesUnreachable(f"volume `{name}` can't be removed: {error.strerror or error}") from error


def _claim_mark(image: Path) -> Path:
    return image.with_suffix(".claim")


def _claimed_by(image: Path) -> str:
    """The sandbox that has the volume for itself; "" where it belongs to all that name it."""
    with contextlib.suppress(FileNotFoundError):
        return _claim_mark(image).read_text()
    return ""


def _mark_claim(image: Path, sandbox: str) -> None:
    """Written before the volume is there, so that none is ever taken for one that all may have."""
    if sandbox:
        _claim_mark(image).write_text(sandbox)
    else:
        _claim_mark(image).unlink(missing_ok=True)


def _check_claim(image: Path, sandbox: str) -> None:
    """Refuse a sandbox its own volume where it is another's, or one that others share by its name. Raises Refused."""
    other = _claimed_by(image)
    if sandbox and other != sandbox:
        whose = f"is the own one of sandbox `{other}`" if other else "was made by its name, which others share"
        raise Refused(
            f"the volume `{image.stem}` {whose}; rename the volumeClaimTemplate of `{sandbox}`, or delete the volume "
            f"(`paddock delete volume {image.stem} -n {image.parent.name}`)"
        )


def _kept(image: Path, attached: Mapping[str, str]) -> KeptVolume | None:
    """A volume as its file tells of it; None: it went meanwhile."""
    try:
        size_bytes = image.stat().st_size
        with image.open("rb") as file:
            file.seek(_SUPERBLOCK)
            block = file.read(_SUPERBLOCK_BYTES)
    except FileNotFoundError:
        return None
    (made_at,) = struct.unpack_from("<I", block, _MADE_AT)
    return KeptVolume(
        namespace=image.parent.name,
        name=image.stem,
        uid=str(uuid.UUID(bytes=block[_UUID : _UUID + 16])),
        size_bytes=size_bytes,
        made_at=float(made_at),
        claimed_by=_claimed_by(image),
        mounted=str(image.resolve()) in attached,
    )


def _make(image: Path, size_bytes: int) -> None:
    """A new file system in a file; another name until it is whole."""
    program = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise Refused("volumes need mkfs.ext4: install e2fsprogs")
    new = image.with_suffix(".new")
    new.unlink(missing_ok=True)
    try:
        with open(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        options = f"nodiscard,root_owner={_OWNER.uid}:{_OWNER.gid}"
        command = [program, "-q", "-F", "-m", "0", "-E", options, str(new)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_MAKE_SECONDS)
        volume_growth.fill_holes(new)
        new.rename(image)
    except subprocess.SubprocessError as error:
        words = str(getattr(error, "stderr", "") or error).strip()
        raise Refused(f"no file system of {format_bytes(size_bytes)} can be made: {words}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Refused(f"this host's disk has no room for a volume of {format_bytes(size_bytes)}") from error
        raise
    finally:
        new.unlink(missing_ok=True)


@contextlib.contextmanager
def _device(image: Path) -> Iterator[str]:
    """A loop device of the file: the one there is, or a new one, which goes with its last user."""
    with contextlib.ExitStack() as opened:
        found = opened.enter_context(_held(image))
        if found:
            yield found
            return

        def hold(path: Path | str) -> int:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            opened.callback(os.close, fd)
            return fd

        file, control = hold(image), hold("/dev/loop-control")
        for attempt in range(_TRIES):
            path = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
            try:
                fcntl.ioctl(hold(path), _CONFIGURE, _config(file))
                break
            except OSError as error:  # EBUSY: somebody else was faster
                if error.errno != errno.EBUSY or attempt == _TRIES - 1:
                    raise
        yield path


@contextlib.contextmanager
def _held(image: Path) -> Iterator[str]:
    """The device that has the file, "" for none. It is not let go of meanwhile: then it could be another file's."""
    with contextlib.ExitStack() as opened:
        while found := _attached(image):
            opened.callback(os.close, os.open(found, os.O_RDONLY | os.O_CLOEXEC))
            if _attached(image) == found:
                break
        yield found


def _attached(image: Path) -> str:
    """The device that has this very file already; "" for none."""
    return _backing_files().get(str(image.resolve()), "")


def _backing_files() -> dict[str, str]:
    """The loop devices of this host, by their files."""
    found = {}
    for each in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it went meanwhile
            found[each.read_text().strip()] = f"/dev/{each.parents[1].name}"
    return found


def _mount_points() -> dict[str, str]:
    """Somewhere that each device is mounted, by its numbers, as this thread sees it."""
    lines = Path("/proc/thread-self/mountinfo").read_text().splitlines()
    return {device: at for _, _, device, _, at, *_ in (line.split(" ") for line in lines)}


def _config(file: int) -> bytes:
    """struct loop_config of linux/loop.h: the file, and that the device is let go of with its last user."""
    info = struct.pack("5Q4I64s64s32s2Q", *[0] * 5, 0, 0, 0, _AUTOCLEAR, b"paddock", b"", b"", 0, 0)
    return struct.pack("II", file, 0) + info + bytes(64)
