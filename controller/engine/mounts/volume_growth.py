"""Making a volume larger where it stands: first its file, then the file system in it.

A file beside it, `<name>.growing`, says that the second is still to come: whatever happens in between is made good when
the volume is asked for next. Nothing here ever makes one smaller.
"""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

from controller.engine.kernel import mount_calls
from controller.engine.mounts.host_folders import Refused
from controller.kinds.common.quantity import format_bytes

_SECONDS = 300.0
_SET_CAPACITY = 0x4C07  # of loop(4)
_RESIZE_FS = 0x40086610  # EXT4_IOC_RESIZE_FS
_SUPERBLOCK, _LOG_BLOCK_SIZE = 1024, 24
_CLEAN = (0, 1)  # of e2fsck(8): nothing was wrong; something was, and is no more


def unfinished(image: Path) -> bool:
    """Whether a volume's file is larger than the file system in it."""
    return _mark(image).exists()


def extend(image: Path, size_bytes: int) -> None:
    """Allocate the rest of the file. Raises Refused where the disk has no room for it; the file is as it was then."""
    before = image.stat().st_size
    _mark(image).touch(mode=0o600)
    try:
        with image.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), before, size_bytes - before)
            except OSError:
                file.truncate(before)
                raise
    except OSError as error:
        _mark(image).unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            more = format_bytes(size_bytes - before)
            raise Refused(f"this host's disk has no room for {more} more of the volume `{image.stem}`") from error
        raise


def finish(image: Path, device: str) -> None:
    """Make the file system as large as its file; `device` is the one that has it mounted somewhere ("": none has).

    Raises Refused.
    """
    if device:
        _online(image, device)
    else:
        _offline(image)
    fill_holes(image)
    _mark(image).unlink(missing_ok=True)


def fill_holes(image: Path) -> None:
    """Have all of the file on the disk: e2fsprogs writes zeros as holes where it can (seen: 1.47.2 on a tmpfs)."""
    try:
        with image.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, image.stat().st_size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused(f"this host's disk has no room for all of the volume `{image.stem}`") from error
        raise


def forget(image: Path) -> None:
    """The volume goes."""
    _mark(image).unlink(missing_ok=True)


def _mark(image: Path) -> Path:
    return image.with_suffix(".growing")


def _offline(image: Path) -> None:
    _run("e2fsck", "-f", "-p", str(image), fine=_CLEAN)
    _run("resize2fs", str(image))


def _run(name: str, *arguments: str, fine: tuple[int, ...] = (0,)) -> None:
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise Refused(f"a volume grows by {name}: install e2fsprogs")
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Refused(f"{name} took longer than {_SECONDS:g} s; it is tried again") from error
    if done.returncode not in fine:
        words = " ".join((done.stderr or done.stdout).split())
        raise Refused(f"the volume can't be made larger: {name}: {words}")


def _online(image: Path, device: str) -> None:
    """While it is mounted. The kernel lets only those do that who may exceed limits (CAP_SYS_RESOURCE)."""
    try:
        with open(device, "rb") as opened:
            fcntl.ioctl(opened.fileno(), _SET_CAPACITY)
        tree = mount_calls.file_system("ext4", device, mount_calls.NO_SUID | mount_calls.NO_DEVICES)
        try:
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=tree)
            try:
                fcntl.ioctl(folder, _RESIZE_FS, struct.pack("Q", image.stat().st_size // _block_bytes(image)))
            finally:
                os.close(folder)
        finally:
            os.close(tree)
    except OSError as error:
        raise Refused(
            f"the volume `{image.stem}` is in use, and this host can't make it larger meanwhile ({error.strerror}): "
            "suspend the sandboxes that use it, and it grows at their next start"
        ) from error


def _block_bytes(image: Path) -> int:
    with image.open("rb") as file:
        file.seek(_SUPERBLOCK + _LOG_BLOCK_SIZE)
        return 1024 << int(struct.unpack("<I", file.read(4))[0])
