"""Open files of one container's cgroups, kept between readings.

To open and close a file costs six times what reading it does. A file stays that container's even if its pid was reused;
once the cgroup is removed, reading it fails.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.engine.kernel.cgroups import Cgroups, Folder, Unreadable, folder_of, pairs, read_at, read_open
from controller.engine.usage.limits import limit_of

_CONTROLLERS = ("cpu", "cpuacct", "memory", "blkio", "pids")
STALLS = "unified"
"""Key of the v2 tree's folder, which has the pressure stall information with cgroup v1 as well."""
Figures = dict[str, float | None]
"""Fields of `Usage`, by name."""


@dataclass(frozen=True, slots=True)
class Handles:
    """Open folders of one run of a container, and the files in them that were read.

    `versions` has the cgroup version of each controller.
    """

    process: int
    folders: Mapping[str, int]
    versions: Mapping[str, int]
    files: dict[tuple[int, str], int] = field(default_factory=dict)

    def close(self) -> None:
        for handle in {self.process, *self.folders.values(), *self.files.values()}:
            with contextlib.suppress(OSError):
                os.close(handle)

    @property
    def handles(self) -> int:
        """Number of open files and folders."""
        return 1 + len(self.folders) + len(self.files)

    def data(self, controller: str, name: str) -> bytes:
        folder = self.folders[controller]
        handle = self.files.get((folder, name))
        if handle is None:
            handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            self.files[folder, name] = handle
        return read_open(handle)

    def number(self, controller: str, name: str) -> int:
        return int(self.data(controller, name))

    def pairs(self, controller: str, name: str) -> Mapping[bytes, bytes]:
        return pairs(self.data(controller, name))

    def limit(self, controller: str, name: str) -> int | None:
        return limit_of(self.data(controller, name).decode())

    def optional(self, controller: str, name: str) -> bytes | None:
        """Read a file that not every kernel has; None if missing."""
        try:
            return self.data(controller, name)
        except FileNotFoundError:
            return None


def open_folders(
    cgroups: Cgroups, container_id: str, pid: int, controllers: Sequence[str] = _CONTROLLERS, *, stalls: bool = False
) -> Handles:
    """Open the cgroup folders of a container's process; with `stalls`, the v2 tree's, too. Raises Unreadable."""
    handles: dict[str, int] = {}
    try:
        handles["/"] = _open_folder(str(cgroups.proc / str(pid)))
        # Below the held /proc folder: fails if the pid was reused.
        folders = cgroups.folders(read_at(handles["/"], "cgroup"), container_id)
        chosen = {controller: folder_of(folders, controller) for controller in controllers}
        if stalls and STALLS in folders:
            chosen[STALLS] = folders[STALLS]
        for folder in set(chosen.values()):
            handles[folder.path] = _open_folder(folder.path)
        return _handles_of(handles, chosen)
    except (OSError, ValueError, Unreadable) as error:
        for handle in handles.values():
            os.close(handle)
        if isinstance(error, Unreadable):
            raise
        cgroups.forget_mounts()
        raise Unreadable(f"the cgroups of container {container_id[:12]} can't be opened: {error}") from error


def _handles_of(handles: Mapping[str, int], chosen: Mapping[str, Folder]) -> Handles:
    return Handles(
        handles["/"],
        {name: handles[folder.path] for name, folder in chosen.items()},
        {name: folder.version for name, folder in chosen.items()},
    )


def _open_folder(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def number_of(data: bytes | None) -> int | None:
    """Return the number in a file; None if the kernel has no such file."""
    return None if data is None else int(data)
