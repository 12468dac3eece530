"""Cgroup folders of a container: v1, v2 and hybrid hosts, any driver, any mount layout.

Everything is found through /proc: the mounts in mountinfo, the path in /proc/<pid>/cgroup. Only a path that contains
the container's id counts, so a reused pid is never mistaken for the container.
"""

import os
import threading
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_READ_BYTES = 8 << 10
# Containers whose folders are cached, as long as /proc/<pid>/cgroup is unchanged.
_FOUND_KEPT = 1024  # 4 KiB each


class Unreadable(Exception):
    """The container's cgroup files can't be read now: it is gone, the pid was reused, or the host hides them."""


_PF_EXITING = 0x4


class OutsideCgroup(Unreadable):
    """The container's PID 1 lives outside of the container's cgroup: its limits hold nothing."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted cgroup hierarchy. `controllers` is empty for v2, which has them all in one tree."""

    version: int
    controllers: frozenset[str]
    point: str
    root: str


@dataclass(frozen=True, slots=True)
class Folder:
    """Folder of one container for one controller."""

    version: int
    path: str


def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """Parse the cgroup mounts in the text of /proc/self/mountinfo (see proc_pid_mountinfo(5))."""
    mounts = []
    for line in mountinfo.splitlines():
        if " - cgroup" not in line:  # most are mounts of sandboxes
            continue
        before_dash, dash, right = line.partition(" - ")
        fields, source = before_dash.split(" "), right.split(" ")
        if not dash or len(fields) < 5 or source[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if source[0] == "cgroup2" else 1
        options = source[2].split(",") if version == 1 and len(source) > 2 else ()
        mounts.append(Mount(version, frozenset(options), _unescape(fields[4]), _unescape(fields[3])))
    return tuple(mounts)


def parse_paths(text: str) -> Mapping[str, str]:
    """Parse the text of /proc/<pid>/cgroup: controller -> path; "" is the v2 tree."""
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


class Cgroups:
    """Finder of cgroup folders. Reads the mounts once, and again after a folder was not found. Thread-safe."""

    def __init__(self, proc: Path = PROC) -> None:
        self.proc = proc
        self._lock = threading.Lock()
        self._mounts: tuple[Mount, ...] | None = None
        self._found: dict[str, tuple[str, Mapping[str, Folder]]] = {}  # by container: the text and its folders

    def folders(self, paths_text: str, container_id: str) -> Mapping[str, Folder]:
        """Return controller -> folder, from the text of /proc/<pid>/cgroup. Key "unified" is the v2 tree, if mounted.

        A controller missing in v1 is looked up in v2. Raises Unreadable if the process is another container's.
        """
        cached = self._found.get(container_id)
        if cached is not None and cached[0] == paths_text:
            return cached[1]
        mounts = self._known_mounts()
        paths = parse_paths(paths_text)
        folders: dict[str, Folder] = {}
        own_folders = {path: own_path(path, container_id) for path in set(paths.values())}  # mostly one, of v1
        for controller, path in paths.items():
            own_folder = own_folders[path]
            mount = _mount_for(mounts, controller)
            if own_folder is not None and mount is not None:
                folders[controller or "unified"] = Folder(mount.version, _join(mount, own_folder))
        if not folders:
            raise Unreadable(f"the process is not in a cgroup of container {container_id[:12]}")
        with self._lock:
            if len(self._found) >= _FOUND_KEPT:
                del self._found[next(iter(self._found))]
            self._found[container_id] = paths_text, folders
        return folders

    def keep_only(self, container_ids: Container[str]) -> None:
        """Drop the cached folders of all other containers."""
        with self._lock:
            self._found = {
                container_id: folders for container_id, folders in self._found.items() if container_id in container_ids
            }

    def forget_mounts(self) -> None:
        """Read mountinfo again next time: a folder was missing."""
        with self._lock:
            self._mounts, self._found = None, {}

    def _known_mounts(self) -> tuple[Mount, ...]:
        with self._lock:
            if self._mounts is None:
                try:
                    self._mounts = parse_mounts((self.proc / "self" / "mountinfo").read_text())
                except OSError as error:
                    raise Unreadable(f"the mounts can't be read: {error}") from error
            return self._mounts


def folder_of(folders: Mapping[str, Folder], controller: str) -> Folder:
    """Return the folder with a controller's files. Raises Unreadable."""
    folder = folders.get(controller) or folders.get("unified")
    if folder is None:
        raise Unreadable(f"no {controller} cgroup is mounted on this host")
    return folder


def own_path(path: str, container_id: str) -> str | None:
    """Return `path` up to the part with the id (a sandbox may have sub-groups), None if no part has it."""
    parts = path.split("/")
    for index, component in enumerate(parts):
        if container_id and container_id in component:
            return "/".join(parts[: index + 1])
    return None


def holds(pid: int, container_id: str, proc: Path = PROC) -> bool:
    """Tell whether that process belongs to the container now."""
    try:
        paths = parse_paths((proc / str(pid) / "cgroup").read_text())
    except (OSError, ValueError):
        return False
    return pid > 1 and any(own_path(path, container_id) for path in paths.values())


def is_outside(pid: int, container_id: str, controllers: Iterable[str], proc: Path = PROC) -> bool:
    """Tell whether the living PID 1 of a container is outside of its cgroup for one of these controllers.

    False for a process that is not the first of a PID namespace of its own: the pid may be another's by now. False for
    one that is ending, too: the kernel shows such a one in the root cgroup (v1), while its state is still a living one.
    """
    try:
        paths = parse_paths(read_at(None, f"{proc}/{pid}/cgroup"))
        status = dict(line.partition(":")[::2] for line in read_at(None, f"{proc}/{pid}/status").splitlines())
        if _is_ending(read_at(None, f"{proc}/{pid}/stat")):
            return False
    except (OSError, ValueError):
        return False
    pids, state = status.get("NSpid", "").split(), status.get("State", "").strip()
    if state[:1] in ("", "Z", "X") or len(pids) < 2 or pids[-1] != "1":
        return False
    if any(controller in paths and own_path(paths[controller], container_id) is None for controller in controllers):
        return True
    # The v2 tree counts for what v1 lacks; but a kernel without a controller has it in neither.
    counts_in_v2 = "" in paths and not all(controller in paths for controller in controllers)
    return counts_in_v2 and not any(own_path(path, container_id) for path in paths.values())


def _is_ending(stat: str) -> bool:
    """Return True for the `stat` of a process that begins to exit: its flags are the seventh field after the name."""
    return bool(int(stat.rpartition(")")[2].split()[6]) & _PF_EXITING)


def _mount_for(mounts: tuple[Mount, ...], controller: str) -> Mount | None:
    if controller:
        return next((mount for mount in mounts if mount.version == 1 and controller in mount.controllers), None)
    return next((mount for mount in mounts if mount.version == 2), None)


def _join(mount: Mount, path: str) -> str:
    """Return the path on disk; a hierarchy may be mounted from a sub-folder of its root."""
    below = path.removeprefix(mount.root) if mount.root != "/" else path
    return f"{mount.point}/{below.lstrip('/')}"


def _unescape(text: str) -> str:
    for code, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, plain)
    return text


def read_at(folder: int | None, path: str) -> str:
    """Return a small file's text; `path` is relative to an open folder. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        parts = []
        while chunk := os.read(handle, _READ_BYTES):
            parts.append(chunk)
        return b"".join(parts).decode(errors="surrogateescape")  # process names may be any bytes
    finally:
        os.close(handle)


def read_open(handle: int) -> bytes:
    """Return what a cgroup file that is held open has now. A short read is complete, which saves the second read.

    That does not hold for /proc, which returns long files a page at a time. Raises OSError: ENODEV once the cgroup is
    removed.
    """
    data = os.pread(handle, _READ_BYTES, 0)
    size = _READ_BYTES
    while len(data) == size:  # all of it again, with room for more: its parts would be of different times
        size *= 4
        data = os.pread(handle, size, 0)
    return data


def pairs(data: bytes) -> dict[bytes, bytes]:
    """Parse the `name number` lines of cpu.stat, memory.stat, memory.events ..."""
    tokens = data.split()
    return dict(zip(tokens[::2], tokens[1::2], strict=True))
