"""Host folders for sandboxes: opened below an operator's root, checked and mounted by descriptor.

The checked folder is the mounted one, even if its path changes in between.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from controller.engine.files.sandbox_root import kernel_file_system
from controller.engine.kernel import mount_calls
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.kinds.runtime.mount import HostRoot, Mount
from controller.policy.container.mounts import CREDENTIAL_FOLDERS, SYSTEM_FOLDERS, host_folder, is_for, root_of

_FLAGS = mount_calls.NO_SUID | mount_calls.NO_DEVICES
_MOST_ENTRIES = 10_000


class Refused(Exception):
    """The mount is refused; the message says why and what to do."""


def folder_tree(mount: Mount, namespace: str, roots: Iterable[HostRoot], user: Ids, maps: IdMaps) -> int:
    """Return a detached mount of the requested folder. Raises Refused."""
    folder = _open(mount, namespace, tuple(roots))
    try:
        _check(folder, mount.source)
        return _tree(folder, mount, user, maps)
    finally:
        os.close(folder)


def _open(mount: Mount, namespace: str, roots: tuple[HostRoot, ...]) -> int:
    path = mount.source
    refusal, root = host_folder(path, roots), root_of(path, roots)
    if refusal or root is None:
        raise Refused(refusal)
    if not is_for(root, namespace):
        raise Refused(f"{root.path} is not for namespace `{namespace}`; use a folder of another root (host_roots)")
    if root.read_only and not mount.read_only:
        raise Refused(f"{root.path} is read-only here (host_roots in the settings); set `readOnly: true`")
    try:
        outer = os.open(root.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(f"the root {root.path} can't be opened: {error.strerror}; see host_roots") from error
    try:
        return mount_calls.open_beneath(outer, path[len(root.path) :].strip("/"), os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise Refused(f"{path} {_opening(error)}") from error
    finally:
        os.close(outer)


def _opening(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "does not exist; create the folder, or use another"
    if error.errno == errno.ENOTDIR:
        return "is not a folder; only folders can be mounted"
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return "contains a link or leaves its root; use the folder's real path"
    return f"can't be opened: {error.strerror}"


def _check(folder: int, path: str) -> None:
    """Refuse a system folder under another name, and a folder with credentials or sockets."""
    why = kernel_file_system(folder)
    if why:
        raise Refused(f"{path}: {why}")
    system_reason = system_folder_of(folder)
    if system_reason:
        raise Refused(f"{path} {system_reason}")
    readable = os.open(f"/proc/self/fd/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_entries(readable, path)
    finally:
        os.close(readable)


def system_folder_of(folder: int) -> str:
    """Return the reason to refuse a system folder of the host, under any path; "" for others."""
    status = os.fstat(folder)
    system_folder = next((candidate for candidate in ("/", *SYSTEM_FOLDERS) if _is_same_file(candidate, status)), "")
    return f"is {system_folder} under another name; system folders are never mounted" if system_folder else ""


def _check_entries(folder: int, path: str) -> None:
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if entry.name in CREDENTIAL_FOLDERS:
                raise Refused(f"{path} contains credentials ({entry.name}); mount the project's folder only")
            mode = entry.stat(follow_symlinks=False).st_mode if count < _MOST_ENTRIES else 0
            if stat.S_ISSOCK(mode):
                raise Refused(
                    f"{path} contains a socket ({entry.name}), which gives access to its listener; move it elsewhere"
                )


def _is_same_file(path: str, status: os.stat_result) -> bool:
    try:
        own_status = Path(path).stat()
    except OSError:
        return False
    return (own_status.st_dev, own_status.st_ino) == (status.st_dev, status.st_ino)


def _tree(folder: int, mount: Mount, user: Ids, maps: IdMaps) -> int:
    owner = os.fstat(folder)
    if owner.st_uid == 0 and not mount.read_only:
        raise Refused(
            f"{mount.source} belongs to root, and so would a sandbox's files there; give it to a user (chown), "
            "or mount it with `readOnly: true`"
        )
    flags = _FLAGS | (mount_calls.READ_ONLY if mount.read_only else 0)
    tree = mount_calls.tree_of(folder)
    try:
        namespace = maps.of(Ids(owner.st_uid, owner.st_gid), user)
        mount_calls.change(tree, flags, propagation=mount_calls.PRIVATE, user_namespace=namespace)
    except OSError as error:
        os.close(tree)
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return _unmapped(folder, mount, flags, user, owner)
    return tree


def _unmapped(folder: int, mount: Mount, flags: int, user: Ids, owner: os.stat_result) -> int:
    """Return an unmapped mount, for a file system without id maps: only its owner may write there."""
    if user.uid == 0 or (not mount.read_only and user != Ids(owner.st_uid, owner.st_gid)):
        raise Refused(
            f"{mount.source} belongs to {owner.st_uid}:{owner.st_gid}, the sandbox's user is {user.uid}:{user.gid}, "
            "and its file system can't map ids; set spec.template.user to its owner (10000 up), or use another"
        )
    tree = mount_calls.tree_of(folder)
    mount_calls.change(tree, flags, propagation=mount_calls.PRIVATE)
    return tree
