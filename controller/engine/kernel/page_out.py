"""Move the memory of a frozen container to swap, by its cgroup files, and allow no swap again at once.

cgroup v1: `memory.swappiness` and `memory.force_empty`; the limit of memory and swap together is never touched, since
swapped pages count in it. cgroup v2: `memory.swap.max` limits new swap only, and `memory.reclaim` asks for it.
"""

import contextlib
import ctypes
import os
import struct

from controller.engine.kernel.cgroups import Cgroups, Folder, Unreadable, folder_of, pairs, read_at
from controller.kinds.observed.observed import FrozenMemory

_libc = ctypes.CDLL(None, use_errno=True)
_PROCESS_MADVISE, _WILLNEED = 440, 3  # the same number on every architecture; Linux 5.10
_TRIES = 4
_SHOWN_BYTES = 1 << 20
_V1_SWAP, _V2_SWAP = ("memory.swappiness", "100", "0"), ("memory.swap.max", "max", "0")


def page_out(cgroups: Cgroups, container_id: str, pid: int) -> FrozenMemory:
    """Move what the kernel can move, and return what stays. Raises Unreadable, OSError."""
    memory = _memory_folder(cgroups, container_id, pid)
    name, open_, closed = _V1_SWAP if memory.version == 1 else _V2_SWAP
    try:
        _write(memory, name, open_)
        resident = _used_bytes(memory)
        for _ in range(_TRIES):
            _reclaim(memory, resident)
            before, resident = resident, _used_bytes(memory)
            if resident > before - before // 16:
                break
    finally:
        _write(memory, name, closed)
    return _frozen_memory(memory)


def allow_no_swap(cgroups: Cgroups, container_id: str, pid: int) -> None:
    """Undo what a daemon that died while it moved memory left behind: a running sandbox is not swapped."""
    with contextlib.suppress(Unreadable, OSError, ValueError):
        memory = _memory_folder(cgroups, container_id, pid)
        name, open_, closed = _V1_SWAP if memory.version == 1 else _V2_SWAP
        if read_at(None, f"{memory.path}/{name}").strip() == open_:
            _write(memory, name, closed)


def read_in(cgroups: Cgroups, container_id: str, pid: int) -> None:
    """Have the kernel read back what is in swap, ahead of its use. A hint: what fails comes back when it is used."""
    with contextlib.suppress(Unreadable, OSError, ValueError):
        memory = _memory_folder(cgroups, container_id, pid)
        for process in read_at(None, f"{memory.path}/cgroup.procs").split():
            _read_in_process(cgroups, int(process))


def _read_in_process(cgroups: Cgroups, pid: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        process = os.pidfd_open(pid)
        try:
            for line in read_at(None, f"{cgroups.proc}/{pid}/maps").splitlines():
                start, _, end = line.partition(" ")[0].partition("-")
                first, last = int(start, 16), int(end, 16)
                _libc.syscall(_PROCESS_MADVISE, process, struct.pack("NN", first, last - first), 1, _WILLNEED, 0)
        finally:
            os.close(process)


def read_frozen_memory(cgroups: Cgroups, container_id: str, pid: int) -> FrozenMemory | None:
    """Return where the memory of a frozen container is; None if that can't be read."""
    try:
        return _frozen_memory(_memory_folder(cgroups, container_id, pid))
    except (Unreadable, OSError, ValueError, KeyError):
        return None


def _memory_folder(cgroups: Cgroups, container_id: str, pid: int) -> Folder:
    try:
        paths = read_at(None, f"{cgroups.proc}/{pid}/cgroup")
    except OSError as error:
        raise Unreadable(f"the cgroups of container {container_id[:12]} can't be read: {error}") from error
    return folder_of(cgroups.folders(paths, container_id), "memory")


def _reclaim(memory: Folder, count: int) -> None:
    """Ask the kernel once; it refuses with EBUSY or EAGAIN when something stays, which is no error."""
    if memory.version == 1:
        with contextlib.suppress(BlockingIOError, OSError):
            _write(memory, "memory.force_empty", "0")
        return
    for text in (f"{count} swappiness=200", str(count)):  # before Linux 6.7 it takes no swappiness
        try:
            _write(memory, "memory.reclaim", text)
        except BlockingIOError:
            return
        except OSError:
            continue
        return


def _frozen_memory(memory: Folder) -> FrozenMemory:
    if memory.version == 1:
        stat = pairs(read_at(None, f"{memory.path}/memory.stat").encode())
        swapped = int(stat.get(b"total_swap", b"0"))
    else:
        swapped = int(read_at(None, f"{memory.path}/memory.swap.current"))
    return FrozenMemory(_rounded(_used_bytes(memory)), _rounded(swapped))


def _rounded(count: int) -> int:
    """Return whole MiB: the kernel's batches move the last bytes without any change."""
    return -(-count // _SHOWN_BYTES) * _SHOWN_BYTES


def _used_bytes(memory: Folder) -> int:
    return int(read_at(None, f"{memory.path}/{'memory.usage_in_bytes' if memory.version == 1 else 'memory.current'}"))


def _write(memory: Folder, name: str, text: str) -> None:
    handle = os.open(f"{memory.path}/{name}", os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
