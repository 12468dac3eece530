"""Volumes of a namespace: each a file system of its own, in a file of its own size that is allocated whole.

    <state folder>/volumes/<namespace>/<name>.img     root's; it stays unless the last sandbox with it says otherwise

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
from collections.abc import Iterator
from pathlib import Path

from controller.engine.kernel import mount_calls
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.engine.mounts import volume_growth
from controller.engine.mounts.host_folders import Refused
from controller.kinds.common.quantity import format_bytes
from controller.kinds.runtime.mount import Mount

_OWNER = Ids(20000, 20000)
_MAKE_SECONDS = 300.0
_TRIES = 10
# ioctls of loop(4), and the flag by which a device goes with its last user
_GET_FREE, _CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4


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

    def remove(self, namespace: str, name: str) -> None:
        """Take a volume away; where it is mounted still, it stays there until that ends. Gone already is fine."""
        image = self._image(namespace, name)
        volume_growth.forget(image)
        image.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are there
            image.parent.rmdir()

    def _image(self, namespace: str, name: str) -> Path:
        return self._folder / namespace / f"{name}.img"

    def _ensure(self, image: Path, mount: Mount) -> None:
        if not image.exists():
            image.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_room(image, mount.size_bytes)
            _make(image, mount.size_bytes)
            return
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
    for each in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if each.read_text().strip() == str(image.resolve()):
                return f"/dev/{each.parents[1].name}"
    return ""


def _config(file: int) -> bytes:
    """struct loop_config of linux/loop.h: the file, and that the device is let go of with its last user."""
    info = struct.pack("5Q4I64s64s32s2Q", *[0] * 5, 0, 0, 0, _AUTOCLEAR, b"paddock", b"", b"", 0, 0)
    return struct.pack("II", file, 0) + info + bytes(64)
