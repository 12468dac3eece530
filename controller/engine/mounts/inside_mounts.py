"""Mounts attached inside a running container, whose own mounts no longer follow the host's.

A container that was started with its mounts has them by themselves: what is mounted at the host's mount point later
does not reach it, nor once that mount point is gone.
"""

import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from controller.engine.kernel import mount_calls
from controller.engine.kernel.cgroups import PROC, holds


def clone(place: Path) -> int:
    """Return a detached copy of the top mount at a path. Nothing mounted on either of them reaches the other."""
    opened = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        tree = mount_calls.tree_of(opened)
    finally:
        os.close(opened)
    mount_calls.change(tree, propagation=mount_calls.PRIVATE)
    return tree


def attach_inside(pid: int, container_id: str, trees: Iterable[tuple[str, int]], proc: Path = PROC) -> None:
    """Attach detached mounts at paths inside the container whose PID 1 is `pid`. Raises OSError.

    A link on the way is not followed: the sandbox itself may have put it there.
    """
    root = os.open(proc / str(pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        namespace = os.open(proc / str(pid) / "ns" / "mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not holds(pid, container_id, proc):  # asked after both were opened: the pid was not reused before
                raise ProcessLookupError(errno.ESRCH, "its main process is gone")
            for path, tree in trees:
                target = mount_calls.open_beneath(root, path.lstrip("/"), os.O_PATH)
                with ThreadPoolExecutor(1, thread_name_prefix="inside-mounts") as thread:
                    thread.submit(_attach, namespace, tree, target).result()
        finally:
            os.close(namespace)
    finally:
        os.close(root)


def _attach(namespace: int, tree: int, target: int) -> None:
    """Attach in the calling thread, which belongs to that mount namespace afterwards."""
    try:
        mount_calls.enter(namespace)
        mount_calls.attach(tree, target)
    finally:
        os.close(target)
