"""Use of a sandbox's in-memory folders (tmpfs), read from this host's kernel at any time.

The sandbox's processes may move what is on the way to a folder. So each is opened below the sandbox's root, through no
link that leads out of it, and counts only if it is the mount that the kernel lists there.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from controller.engine.files.sandbox_root import open_path
from controller.engine.kernel.cgroups import PROC, own_path, parse_paths, read_at
from controller.engine.kernel.inside import parse_mounts
from controller.kinds.observed.inside import ObservedMount
from controller.kinds.observed.observed import Container
from controller.kinds.observed.usage import FolderUse


def read_memory_folders(container: Container, proc: Path = PROC) -> tuple[FolderUse, ...]:
    """Return the use of the in-memory folders that it may write to; none if they can't be read. Never raises."""
    if container.pid <= 1:
        return ()
    try:
        folder = os.open(proc / str(container.pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        paths = parse_paths(read_at(folder, "cgroup"))
        if not any(own_path(path, container.id) for path in paths.values()):  # another process has this pid by now
            return ()
        mounts = [mount for mount in parse_mounts(read_at(folder, "mountinfo")) if _is_measured(mount)]
        root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            return tuple(use for mount in mounts for use in _use(root, mount))
        finally:
            os.close(root)
    except (OSError, ValueError, KeyError, IndexError):
        return ()
    finally:
        os.close(folder)


def _is_measured(mount: ObservedMount) -> bool:
    return mount.kind == "tmpfs" and mount.writable and mount.size_bytes > 0


def _use(root: int, mount: ObservedMount) -> Iterator[FolderUse]:
    try:
        handle = open_path(root, os.fsencode(mount.path), os.O_PATH)
    except OSError:
        return
    try:
        device = os.fstat(handle).st_dev
        if f"{os.major(device)}:{os.minor(device)}" != mount.origin.partition(" ")[0]:
            return
        use = os.fstatvfs(handle)
    except OSError:
        return
    finally:
        os.close(handle)
    size, free = use.f_blocks * use.f_frsize, use.f_bfree * use.f_frsize
    files = (use.f_files - use.f_ffree) / use.f_files if use.f_files else 0.0
    yield FolderUse(mount.path, size - free, size, files)
