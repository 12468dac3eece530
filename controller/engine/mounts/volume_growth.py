"""Growth of a volume in place: first its file, then the file system in it.

A marker file, `<name>.growing`, says that the second step is pending: an interrupted growth is finished at the next use
of the volume. Volumes never shrink.
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
_CLEAN = (0, 1)  # of e2fsck(8): no errors; errors corrected


def unfinished(image: Path) -> bool:
    """Tell whether a volume's file is larger than the file system in it."""
    return _mark(image).exists()


def extend(image: Path, size_bytes: int) -> None:
    """Extend the file, fully allocated. Raises Refused if the disk is full; the file is unchanged then."""
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
            growth = format_bytes(size_bytes - before)
            raise Refused(
                f"volume `{image.stem}`: no space on this host's disk for {growth} more; free some, or use a smaller"
                " size"
            ) from error
        raise


def finish(image: Path, device: str) -> None:
    """Grow the file system to the size of its file; `device` is its loop device while mounted ("": not mounted).

    Raises Refused.
    """
    if device:
        _online(image, device)
    else:
        _offline(image)
    fill_holes(image)
    _mark(image).unlink(missing_ok=True)


def fill_holes(image: Path) -> None:
    """Allocate the holes of the file: e2fsprogs writes zeros as holes where it can (seen: 1.47.2 on a tmpfs)."""
    try:
        with image.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, image.stat().st_size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused(f"volume `{image.stem}`: no space on this host's disk for all of it; free some") from error
        raise


def forget(image: Path) -> None:
    """Remove the marker of a volume that is deleted."""
    _mark(image).unlink(missing_ok=True)


def _mark(image: Path) -> Path:
    return image.with_suffix(".growing")


def _offline(image: Path) -> None:
    _run("e2fsck", "-f", "-p", str(image), fine=_CLEAN)
    _run("resize2fs", str(image))


def _run(name: str, *arguments: str, fine: tuple[int, ...] = (0,)) -> None:
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise Refused(f"{name} is missing, which volumes need to grow; install e2fsprogs")
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Refused(f"{name} took longer than {_SECONDS:g} s; retrying") from error
    if done.returncode not in fine:
        output = " ".join((done.stderr or done.stdout).split())
        raise Refused(f"the volume can't grow: {name}: {output}")


def _online(image: Path, device: str) -> None:
    """Grow a mounted file system. The kernel requires CAP_SYS_RESOURCE."""
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
            f"volume `{image.stem}`: in use, and this host can't grow it meanwhile ({error.strerror}); "
            "suspend the sandboxes that use it, and it grows at their next start"
        ) from error


def _block_bytes(image: Path) -> int:
    with image.open("rb") as file:
        file.seek(_SUPERBLOCK + _LOG_BLOCK_SIZE)
        return 1024 << int(struct.unpack("<I", file.read(4))[0])
