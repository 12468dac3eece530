"""Attestation data of a sandbox, read from the host's /proc of its PID 1. No tool of the image is trusted.

All is read below one open folder, /proc/PID: once that process is gone, reading fails, even if the pid is reused.
"""

import errno
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from controller.engine.kernel.apparmor import with_modes
from controller.engine.kernel.cgroups import PROC, own_path, parse_paths, read_at
from controller.kinds.observed.inside import NAMESPACES, InsideState, ObservedMount

# The runtime's process still applies its last restrictions before it becomes the sandbox's.
_RUNTIMES = ("runc:[", "crun")
_RUNTIME_SECONDS = 0.25
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# A network has these once the host has used a tunnel: without addresses, and no sandbox can set any.
_IDLE_TUNNELS = frozenset(
    ["tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0", "teql0"]
)


def read_inside(pid: int, container_id: str, proc: Path = PROC) -> InsideState:
    """Read the inside of the container whose PID 1 is `pid`. Never raises: errors are in `unread`."""
    try:
        folder = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return InsideState(unread=_message(error))
    try:
        paths = parse_paths(read_at(folder, "cgroup"))
        if pid <= 1 or not any(own_path(path, container_id) for path in paths.values()):
            return InsideState(
                unread="its processes are not visible from here; run the daemon on the engine's own host"
            )
        _await_runtime(folder)
        return _read(folder, proc)
    except OSError as error:
        return InsideState(unread=_message(error))
    except (ValueError, KeyError, IndexError) as error:
        return InsideState(unread=f"unknown format of this kernel's files: {error!r}; please report this")
    finally:
        os.close(folder)


def _await_runtime(folder: int) -> None:
    """Wait for a moment until the runtime's process has become the sandbox's (a fake name only delays this)."""
    deadline, pause = time.monotonic() + _RUNTIME_SECONDS, 0.0005
    while read_at(folder, "comm").startswith(_RUNTIMES) and time.monotonic() < deadline:
        time.sleep(pause)
        pause *= 2


def _read(folder: int, proc: Path) -> InsideState:
    facts = _facts(folder, proc)
    _check_alive(folder)
    return facts


def _check_alive(folder: int) -> None:
    """Raise OSError once the process has ended: the last reads may be of a dead process."""
    try:
        os.readlink("ns/mnt", dir_fd=folder)
    except FileNotFoundError as error:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error


def _facts(folder: int, proc: Path) -> InsideState:
    status = dict(line.split(":", 1) for line in read_at(folder, "status").splitlines())
    uids, gids = _id_map(read_at(folder, "uid_map")), _id_map(read_at(folder, "gid_map"))
    sets = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    return InsideState(
        uid=_inside(int(status["Uid"].split()[1]), uids),
        gid=_inside(int(status["Gid"].split()[1]), gids),
        groups=tuple(sorted(_inside(int(group), gids) for group in status["Groups"].split())),
        capabilities=_or(int(status[name], 16) for name in sets),
        bounding=int(status["CapBnd"], 16),
        no_new_privileges=status["NoNewPrivs"].strip() == "1",
        seccomp=int(status["Seccomp"]),
        mounts=tuple(parse_mounts(read_at(folder, "mountinfo"))),
        interfaces=tuple(_interfaces(read_at(folder, "net/dev"))),
        routes=tuple(sorted({line.split()[0] for line in read_at(folder, "net/route").splitlines()[1:]} - {"lo"})),
        ipv6=tuple(sorted(_ipv6(folder) - {"lo"})),
        shared=tuple(_shared(folder, proc)),
        own_users=not list(_shared(folder, proc, ("user",))),
        label=_label(folder),
    )


def _label(folder: int) -> str:
    """Return the AppArmor or SELinux label of PID 1; "" if the kernel has neither."""
    try:
        return with_modes(read_at(folder, "attr/current").strip("\0\n "))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return ""
        raise


def _or(masks: Iterator[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _id_map(text: str) -> list[tuple[int, int, int]]:
    """Parse a uid_map or gid_map: (first inside, first outside, count) of each line."""
    return [(int(a), int(b), int(c)) for a, b, c in (line.split() for line in text.splitlines())]


def _inside(outside: int, ranges: list[tuple[int, int, int]]) -> int:
    """Return an id as seen in the sandbox; -1 for an unmapped one."""
    for first, host, count in ranges:
        if host <= outside < host + count:
            return first + outside - host
    return -1


def parse_mounts(mountinfo: str) -> Iterator[ObservedMount]:
    """Parse the mounts of a mountinfo (see proc_pid_mountinfo(5)); of several at one path the top one."""
    mounts: dict[str, ObservedMount] = {}
    for line in mountinfo.splitlines():
        before_dash, _, right = line.partition(" - ")
        device, root, path, options = before_dash.split(" ")[2:6]
        kind, _, of_system = right.split(" ")[:3]
        flags, system = options.split(","), of_system.split(",")
        plain = path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        mounts.pop(plain, None)
        mounts[plain] = ObservedMount(
            path=plain,
            kind=kind,
            writable="rw" in flags and "rw" in system,
            nosuid="nosuid" in flags,
            nodev="nodev" in flags,
            noexec="noexec" in flags,
            size_bytes=_size(dict(option.partition("=")[::2] for option in system)) if kind == "tmpfs" else 0,
            origin=f"{device} {root}",
        )
    yield from mounts.values()


def _size(options: Mapping[str, str]) -> int:
    """Return the bytes of a tmpfs: `size=65536k` (or a count of pages); 0 if unlimited."""
    word = options.get("size", "")
    if word[-1:] in _UNITS:
        return int(word[:-1]) * _UNITS[word[-1]]
    blocks = options.get("nr_blocks", "")
    return int(word or 0) or int(blocks or 0) * os.sysconf("SC_PAGE_SIZE")


def _interfaces(table: str) -> Iterator[str]:
    for line in table.splitlines()[2:]:
        name = line.partition(":")[0].strip()
        if name != "lo" and name not in _IDLE_TUNNELS:
            yield name


def _ipv6(folder: int) -> set[str]:
    """Return the interfaces with IPv6 addresses; none if the kernel has no IPv6."""
    try:
        return {line.split()[-1] for line in read_at(folder, "net/if_inet6").splitlines()}
    except FileNotFoundError:
        return set()


def _shared(folder: int, proc: Path, names: tuple[str, ...] = NAMESPACES) -> Iterator[str]:
    """Yield the namespaces shared with the daemon, which are the host's."""
    for name in names:
        try:
            if os.readlink(f"ns/{name}", dir_fd=folder) == os.readlink(proc / "self" / "ns" / name):
                yield name
        except FileNotFoundError:  # an older kernel without such namespaces
            yield name


def _message(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return "reading a sandbox's /proc needs root (CAP_SYS_PTRACE); run the daemon as root"
    return f"its PID 1 can't be read: {(error.strerror or str(error)).lower()}"
