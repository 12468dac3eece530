"""Probes run by a process inside a box: names of attempts on its command line, JSON of what became of each on stdout.

    ok | the name of the error it failed with (EPERM, EROFS ...) | what was read

It is sent into the box as a whole (`python3 -c`), so it is the standard library only, and one file.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import socket
import stat
import struct
import sys
from collections.abc import Callable
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_SIOCSIFMTU = 0x8922
# x86_64 and arm64 number them differently.
_CALLS = {
    "x86_64": {
        "bpf": 321,
        "io_uring_setup": 425,
        "keyctl": 250,
        "open_by_handle_at": 304,
        "perf_event_open": 298,
        "setns": 308,
        "userfaultfd": 323,
    },
    "aarch64": {
        "bpf": 280,
        "io_uring_setup": 425,
        "keyctl": 219,
        "open_by_handle_at": 265,
        "perf_event_open": 241,
        "setns": 268,
        "userfaultfd": 282,
    },
}
_libc = ctypes.CDLL(None, use_errno=True)


def main(names: list[str]) -> None:
    print(json.dumps({name: _one(name) for name in names}))


def _one(name: str) -> str:
    try:
        return PROBES[name]() or "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def _checked(result: int) -> str:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return "ok"


def _call(name: str) -> Callable[[], str]:
    number = _CALLS.get(os.uname().machine, {}).get(name)
    arguments = (1, 0, 0, 0, 0)
    return lambda: "ENOSYS" if number is None else _checked(_libc.syscall(number, *arguments))


def _opened(family: int, kind: int) -> Callable[[], str]:
    def attempt() -> str:
        with socket.socket(family, kind):
            return "ok"

    return attempt


def _written(folder: str) -> Callable[[], str]:
    def attempt() -> str:
        file = Path(folder) / "probe"
        file.write_text("x")
        file.unlink()
        return "ok"

    return attempt


def _changed(file: str) -> Callable[[], str]:
    """Write what it says already."""
    return lambda: str(Path(file).write_text(Path(file).read_text()) and "ok")


def _executed(folder: str) -> Callable[[], str]:
    def attempt() -> str:
        file = Path(folder) / "run"
        file.write_text("#!/bin/sh\nexit 0\n")
        file.chmod(0o755)
        try:
            pid = os.posix_spawn(str(file), [str(file)], {})
            return "ok" if os.waitpid(pid, 0)[1] == 0 else "failed"
        finally:
            file.unlink()

    return attempt


def _status(field: str) -> Callable[[], str]:
    def attempt() -> str:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith(field + ":"))

    return attempt


def _mtu() -> str:
    with socket.socket() as link:
        fcntl.ioctl(link, _SIOCSIFMTU, struct.pack("16si20x", b"lo", 1400))
    return "ok"


def _cgroup() -> str:
    """In a hierarchy of cgroup v1, whose common folder is only a folder, or in the one of v2."""
    root = Path("/sys/fs/cgroup")
    tree = root if (root / "cgroup.controllers").exists() else root / "memory"
    (tree / "probe").mkdir()
    return "ok"


def _mknod() -> str:
    os.mknod("/tmp/probe-node", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    return "ok"


def _ipv6() -> str:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except FileNotFoundError:
        lines = []
    return str(len([line for line in lines if not line.endswith(" lo")]))


def _forks() -> str:
    """How many processes can be there at a time; all of them end."""
    reading, writing = os.pipe()
    children = []
    why = ""
    while len(children) < 2000 and not why:
        try:
            pid = os.fork()
        except OSError as error:
            why = errno.errorcode[error.errno or 0]
            break
        if pid == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        children.append(pid)
    os.close(writing)
    for each in children:
        os.waitpid(each, 0)
    return f"{why} {len(children)}"


def _memory() -> str:
    """Whether a child that takes 200 MiB more than the limit outlives it."""
    pid = os.fork()
    if pid == 0:
        held = [bytearray(b"x" * (8 << 20)) for _ in range(41)]
        os._exit(len(held) and 0)
    return "ok" if os.waitpid(pid, 0)[1] == 0 else "killed"


def _filled() -> str:
    """More than a tmpfs of 64 MiB holds."""
    file = Path("/tmp/probe-full")
    try:
        with file.open("wb") as stream:
            for _ in range(70):
                stream.write(b"\0" * (1 << 20))
        return "ok"
    finally:
        with contextlib.suppress(OSError):
            file.unlink()


def _there(*paths: str) -> Callable[[], str]:
    return lambda: ",".join(each for each in paths if os.path.lexists(each)) or "none"


def _processes() -> str:
    """Names of processes that are not the box's own: its numbers begin anew, and its parent is not seen."""
    return str(max(int(each) for each in os.listdir("/proc") if each.isdigit()) < 10_000 and os.path.exists("/proc/1"))


def _variables() -> str:
    odd = ("PADDOCK", "DOCKER", "AWS", "TOKEN", "SECRET", "PASSWORD")
    return ",".join(name for name in os.environ if any(each in name.upper() for each in odd)) or "none"


PROBES: dict[str, Callable[[], str]] = {
    "bounding": _status("CapBnd"),
    "effective": _status("CapEff"),
    "no-new-privileges": _status("NoNewPrivs"),
    "seccomp": _status("Seccomp"),
    "uid": lambda: str(os.getuid()),
    "vsock": _opened(40, socket.SOCK_STREAM),
    "alg": _opened(38, socket.SOCK_SEQPACKET),
    "packet": _opened(17, socket.SOCK_RAW),
    "raw": _opened(socket.AF_INET, socket.SOCK_RAW),
    "mtu": _mtu,
    "ipv6": _ipv6,
    "write /": _written("/"),
    "write /etc": _written("/etc"),
    "write /usr": _written("/usr"),
    "write /proc/sys": _changed("/proc/sys/kernel/core_pattern"),
    "write /sys": _changed("/sys/kernel/mm/transparent_hugepage/enabled"),
    "make a cgroup": _cgroup,
    "exec /tmp": _executed("/tmp"),
    "mknod": _mknod,
    "mount": lambda: _checked(_libc.mount(b"none", b"/mnt", b"tmpfs", 0, None)),
    "umount": lambda: _checked(_libc.umount2(b"/proc/sys", 2)),
    "remount": lambda: _checked(_libc.mount(b"none", b"/proc/sys", b"", 0x20 | 0x1000, None)),
    "chroot": lambda: _checked(_libc.chroot(b"/")),
    "unshare": lambda: _checked(_libc.unshare(_CLONE_NEWUSER)),
    "forks": _forks,
    "memory": _memory,
    "fill /tmp": _filled,
    "files": lambda: str(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
    "host's things": _there(
        "/var/run/docker.sock", "/run/docker.sock", "/dev/kvm", "/dev/mem", "/dev/sda", "/dev/vda", "/dev/nvme0n1"
    ),
    "own processes": _processes,
    "variables": _variables,
    **{name: _call(name) for name in _CALLS["x86_64"]},
}

if __name__ == "__main__":
    main(sys.argv[1:])
