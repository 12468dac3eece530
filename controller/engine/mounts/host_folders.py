"""Folders of this host for boxes: opened below a root of the operator's, looked at, and made a mount of, by descriptor.

What was looked at is what is mounted, whatever its name leads to by then.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from controller.engine.files.sandbox_root import of_the_kernel
from controller.engine.kernel import mount_calls
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.kinds.runtime.mount import HostRoot, Mount
from controller.policy.mounts import CREDENTIAL_FOLDERS, SYSTEM_FOLDERS, host_folder, is_for, root_of

_FLAGS = mount_calls.NO_SUID | mount_calls.NO_DEVICES
_MOST_ENTRIES = 10_000


class Refused(Exception):
    """What is asked for is not bound; says why and what to do."""


def folder_tree(mount: Mount, namespace: str, roots: Iterable[HostRoot], user: Ids, maps: IdMaps) -> int:
    """A mount, nowhere yet, of the folder that is asked for. Raises Refused."""
    folder = _open(mount, namespace, tuple(roots))
    try:
        _look(folder, mount.source)
        return _tree(folder, mount, user, maps)
    finally:
        os.close(folder)


def _open(mount: Mount, namespace: str, roots: tuple[HostRoot, ...]) -> int:
    path = mount.source
    words, root = host_folder(path, roots), root_of(path, roots)
    if words or root is None:
        raise Refused(words)
    if not is_for(root, namespace):
        raise Refused(f"{root.path} is not for namespace `{namespace}`: name a folder of another root (host_roots)")
    if root.read_only and not mount.read_only:
        raise Refused(f"{root.path} is bound read-only here (host_roots in the settings): write `readOnly: true`")
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
        return "is not there: make the folder, or name another"
    if error.errno == errno.ENOTDIR:
        return "is no folder: only folders are bound"
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return "leads over a link or out of its root: name the folder itself"
    return f"can't be opened: {error.strerror}"


def _look(folder: int, path: str) -> None:
    """Refuse what is the host's own under another name, and what holds keys or doors to the host."""
    why = of_the_kernel(folder)
    if why:
        raise Refused(f"{path}: {why}")
    own = of_the_hosts_own(folder)
    if own:
        raise Refused(f"{path} {own}")
    readable = os.open(f"/proc/self/fd/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _look_into(readable, path)
    finally:
        os.close(readable)


def of_the_hosts_own(folder: int) -> str:
    """Why an open folder is the host's own, whatever it is called here; "" where it is not."""
    found = os.fstat(folder)
    same = next((each for each in ("/", *SYSTEM_FOLDERS) if _same(each, found)), "")
    return f"is {same} under another name: it is the host's own" if same else ""


def _look_into(folder: int, path: str) -> None:
    with os.scandir(folder) as entries:
        for count, each in enumerate(entries):
            if each.name in CREDENTIAL_FOLDERS:
                raise Refused(f"{path} holds credentials ({each.name}): bind the folder of the project alone")
            mode = each.stat(follow_symlinks=False).st_mode if count < _MOST_ENTRIES else 0
            if stat.S_ISSOCK(mode):
                raise Refused(f"{path} holds a socket ({each.name}), a door to whoever listens: move it elsewhere")


def _same(path: str, found: os.stat_result) -> bool:
    try:
        other = Path(path).stat()
    except OSError:
        return False
    return (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino)


def _tree(folder: int, mount: Mount, user: Ids, maps: IdMaps) -> int:
    owner = os.fstat(folder)
    if owner.st_uid == 0 and not mount.read_only:
        raise Refused(
            f"{mount.source} is root's: what a box writes there would be, too; give it to a user (chown), "
            "or bind it with `readOnly: true`"
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
    """Where the file system can't map ids, they are what they are: then only its own user writes there."""
    if user.uid == 0 or (not mount.read_only and user != Ids(owner.st_uid, owner.st_gid)):
        raise Refused(
            f"{mount.source} belongs to {owner.st_uid}:{owner.st_gid}, the box's user is {user.uid}:{user.gid}, and "
            "its file system can't map one to the other: chown it to that user, or take another folder"
        )
    tree = mount_calls.tree_of(folder)
    mount_calls.change(tree, flags, propagation=mount_calls.PRIVATE)
    return tree
