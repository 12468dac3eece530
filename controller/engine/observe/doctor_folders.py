"""Looks at the folders of the settings for `paddock doctor`. Changes nothing, mounts nothing, raises nothing."""

import errno
import os
import shutil
import stat
from pathlib import Path

from controller.engine.kernel import mount_calls
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.engine.mounts.host_folders import of_the_hosts_own
from controller.engine.observe.doctor import mount_of, owner_of
from controller.kinds.observed.doctor import FolderFacts, VolumeFacts

_A_BOX = Ids(20000, 20000)


def look_at_folder(path: str, *, maps: bool = False) -> FolderFacts:
    """Whose a folder is, what it is on, and, where `maps` says so, whether ids can be mapped there."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return FolderFacts(path)
    except OSError as error:
        return FolderFacts(path, trouble=_words(error))
    try:
        found = os.fstat(opened)
        user, group = owner_of(found)
        return FolderFacts(
            path,
            mode=stat.S_IMODE(found.st_mode),
            owner=user,
            group=group,
            roots=found.st_uid == 0,
            file_system=mount_of(os.path.realpath(path))[0],
            hosts_own=of_the_hosts_own(opened),
            maps_ids=_maps_ids(opened, found) if maps else None,
        )
    except OSError as error:
        return FolderFacts(path, trouble=_words(error))
    finally:
        os.close(opened)


def look_at_volumes(folder: Path, most_bytes: int) -> VolumeFacts:
    """What volumes need of this host, and those that there are."""
    sizes = []
    for each in folder.glob("*/*.img") if os.access(folder, os.R_OK | os.X_OK) else ():
        try:
            sizes.append(each.stat().st_size)
        except OSError:
            continue  # it went meanwhile
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return VolumeFacts(
        str(folder),
        count=len(sizes),
        held_bytes=sum(sizes),
        most_bytes=most_bytes,
        makes=shutil.which("mkfs.ext4", path=path) is not None,
        loops=Path("/dev/loop-control").exists(),
    )


def _maps_ids(folder: int, found: os.stat_result) -> bool | None:
    """Tried on a mount that is nowhere; None: that can't be told from here."""
    maps = IdMaps()
    try:
        tree = mount_calls.tree_of(folder)
        try:
            namespace = maps.of(Ids(found.st_uid, found.st_gid), _A_BOX)
            mount_calls.change(tree, propagation=mount_calls.PRIVATE, user_namespace=namespace)
        finally:
            os.close(tree)
    except OSError as error:
        return False if error.errno in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS) else None
    finally:
        maps.close()
    return True


def _words(error: OSError) -> str:
    return "it is no folder" if error.errno == errno.ENOTDIR else (error.strerror or str(error)).lower()
