"""Probes run by a process inside a sandbox: names of attempts as arguments, JSON of the results on stdout.

    ok | the name of the error it failed with (EPERM, EROFS ...) | what was read

It is sent into the sandbox as a whole (`python3 -c`), so it is the standard library only, and one file.
"""

import contextlib
import ctypes
import errno
import fcntl
import glob
import json
import mmap
import os
import shutil
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_PTRACE_TRACEME, _PTRACE_ATTACH = 0, 16
_X32 = 0x40000000
_OTHER_USER = 12345
_SIOCSIFMTU = 0x8922
# x86_64 and arm64 number them differently.
_CALLS = {
    "x86_64": {
        "bpf": 321,
        "clone": 56,
        "clone3": 435,
        "io_uring_setup": 425,
        "keyctl": 250,
        "open_by_handle_at": 304,
        "perf_event_open": 298,
        "setns": 308,
        "userfaultfd": 323,
    },
    "aarch64": {
        "bpf": 280,
        "clone": 220,
        "clone3": 435,
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


def _in_child(attempt: Callable[[], object]) -> str:
    """Return the result of a child's attempt: ok, its error, or the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 255)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    code = os.WEXITSTATUS(status)
    return errno.errorcode.get(code, str(code)) if code else "ok"


def _cloned() -> str:
    """clone(2) itself, into a user namespace."""
    number = _CALLS[os.uname().machine]["clone"]

    def attempt() -> None:
        pid = _libc.syscall(number, _CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        _checked(pid)

    return _in_child(attempt)


def _by_32_bits() -> str:
    """getpid by int 0x80, which is another table of calls than the one that filters know by number."""
    if os.uname().machine != "x86_64":
        return "ENOSYS"
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def attempt() -> None:
        observed = function()
        if observed < 0:
            raise OSError(-observed, "int 0x80")

    return _in_child(attempt)


def _traced() -> str:
    """Tell whether a child may be traced."""
    return _in_child(lambda: _checked(_libc.ptrace(_PTRACE_TRACEME, 0, 0, 0)))


def _traces_others() -> str:
    """Tell whether a process of another user may be traced; of its own user where it can't become another."""
    reading, writing = os.pipe()
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        with contextlib.suppress(OSError):
            os.setgid(_OTHER_USER)
            os.setuid(_OTHER_USER)
        os.write(done, b"x")
        os.read(reading, 1)
        os._exit(0)
    os.read(ready, 1)
    try:
        return _checked(_libc.ptrace(_PTRACE_ATTACH, pid, 0, 0))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for number in (reading, writing, ready, done):
            os.close(number)


def _by_the_loader() -> str:
    """Run a program in /tmp by handing it to the loader, which needs no right to execute it."""
    loader = sorted(glob.glob("/lib64/ld-linux-*") + glob.glob("/lib/ld-linux-*"))[0]
    copy = shutil.copy("/bin/true", "/tmp/probe-true")
    try:
        pid = os.posix_spawn(loader, [loader, copy], {}, file_actions=[(os.POSIX_SPAWN_CLOSE, 2)])
        return "ok" if os.waitpid(pid, 0)[1] == 0 else "EACCES"
    finally:
        os.unlink(copy)


def _busy() -> str:
    """Thousandths of a processor that four busy processes get together over two seconds."""
    start, until = time.monotonic(), time.monotonic() + 2
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            while time.monotonic() < until:
                pass
            os._exit(0)
        children.append(pid)
    number = 0.0
    for child in children:
        spent = os.wait4(child, 0)[2]
        number += spent.ru_utime + spent.ru_stime
    return str(round(1000 * number / (time.monotonic() - start)))


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
    """Return the number of processes that can run at a time; all of them end."""
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
    for child in children:
        os.waitpid(child, 0)
    return f"{why} {len(children)}"


def _memory() -> str:
    """Tell whether a child survives an allocation of 200 MiB above the limit."""
    pid = os.fork()
    if pid == 0:
        bytearrays = [bytearray(b"x" * (8 << 20)) for _ in range(41)]
        os._exit(len(bytearrays) and 0)
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


def _allocated() -> str:
    """More than the disk limit of any of them."""
    file = Path("/probe-full")
    try:
        with file.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, 2 << 30)
        return "ok"
    finally:
        file.unlink()


def _names() -> str:
    """Create many empty files, which use no space of a tmpfs but memory."""
    created = 0
    try:
        while created < 200_000:
            os.mknod(f"/tmp/probe-{created}")
            created += 1
        return "ok"
    finally:
        for number in range(created):
            os.unlink(f"/tmp/probe-{number}")


def _descriptors() -> str:
    """As many open files as there may be; they are closed by its end."""
    return _in_child(lambda: [os.open("/", os.O_RDONLY) for _ in range(100_000)])


def _said() -> str:
    """30 MB for the container's log."""
    with open("/proc/1/fd/1", "wb") as output:
        for _ in range(300):
            output.write((b"x" * 99 + b"\n") * 1000)
    return "ok"


def _there(*paths: str) -> Callable[[], str]:
    return lambda: ",".join(path for path in paths if os.path.lexists(path)) or "none"


def _processes() -> str:
    """Return the names of processes that are not the sandbox's own: its pids start at 1, without a visible parent."""
    return str(max(int(name) for name in os.listdir("/proc") if name.isdigit()) < 10_000 and os.path.exists("/proc/1"))


def _variables() -> str:
    odd = ("PADDOCK", "DOCKER", "AWS", "TOKEN", "SECRET", "PASSWORD")
    authorities = "AWS_CA_BUNDLE"  # where the certificates are that this host trusts: no secret
    return ",".join(n for n in os.environ if n != authorities and any(name in n.upper() for name in odd)) or "none"


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
    "write /.paddock": _written("/.paddock"),
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
    "clone": _cloned,
    "int 0x80": _by_32_bits,
    "x32": lambda: _in_child(lambda: _checked(_libc.syscall(_X32 | 39))),  # getpid; elsewhere no call at all
    "ptrace": _traced,
    "ptrace others": _traces_others,
    "ld.so /tmp": _by_the_loader,
    "forks": _forks,
    "cpu": _busy,
    "fill /": _allocated,
    "names": _names,
    "descriptors": _descriptors,
    "say": _said,
    "memory": _memory,
    "fill /tmp": _filled,
    "host's things": _there(
        "/var/run/docker.sock", "/run/docker.sock", "/dev/kvm", "/dev/mem", "/dev/sda", "/dev/vda", "/dev/nvme0n1"
    ),
    "own processes": _processes,
    "variables": _variables,
    **{name: _call(name) for name in _CALLS["x86_64"] if name != "clone"},
}

if __name__ == "__main__":
    main(sys.argv[1:])
