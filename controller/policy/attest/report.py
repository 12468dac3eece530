"""Isolation report of a sandbox, in words, from the kernel's view of its inside. Pure.

The kernel tells that a seccomp filter is in force, but not which. The system calls are those of the profile that the
container was created with.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from controller.kinds.common.quantity import format_bytes
from controller.kinds.observed.inside import NAMESPACES, SECCOMP_FILTER, InsideState, ObservedMount
from controller.kinds.runtime.container import ContainerConfig
from controller.policy.attest.attest import names_of
from controller.policy.levels.seccomp import name_of

# Of the calls that Linux has on x86_64: what all but log-only refuse, and what minimal refuses beyond that.
_STANDARD = """acct add_key bpf clock_settime clone3 delete_module fanotify_init fanotify_mark finit_module fsconfig
    fsmount fsopen fspick get_thread_area init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl
    kexec_file_load kexec_load keyctl lookup_dcookie modify_ldt mount mount_setattr move_mount open_by_handle_at
    open_tree perf_event_open pivot_root quotactl quotactl_fd reboot request_key set_thread_area setdomainname
    sethostname setns settimeofday swapoff swapon sysfs syslog umount2 unshare userfaultfd ustat vhangup vmsplice"""
_MINIMAL = """adjtimex chroot clock_adjtime get_mempolicy io_cancel io_destroy io_getevents io_pgetevents io_setup
    io_submit kcmp mbind memfd_secret migrate_pages mlock mlock2 mlockall move_pages mq_getsetattr mq_notify mq_open
    mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd munlock munlockall name_to_handle_at pidfd_getfd
    pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease process_vm_readv process_vm_writev ptrace
    remap_file_pages semctl semget semop semtimedop set_mempolicy set_mempolicy_home_node shmat shmctl shmdt shmget
    splice tee"""
REFUSED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"minimal": tuple(sorted((_STANDARD + " " + _MINIMAL).split())), "standard": tuple(_STANDARD.split())}
)
LIMITED = ("clone", "personality", "socket", "socketpair")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report."""

    name: str
    observed: str


def report(config: ContainerConfig, inside: InsideState, runtime: str = "") -> tuple[Row, ...]:
    """Return the report; empty if the sandbox could not be read. `runtime` is the container's ("": unknown)."""
    return () if inside.unread else tuple(Row(*row) for row in _rows(config, inside, runtime))


def _rows(config: ContainerConfig, inside: InsideState, runtime: str) -> Iterator[tuple[str, str]]:
    yield "runtime", runtime or config.runtime or "the engine's own"
    yield "user", f"{inside.uid}:{inside.gid}" + _of("groups", inside.groups)
    yield "capabilities held", names_of(inside.capabilities)
    yield "capabilities bounding", names_of(inside.bounding)
    yield "no new privileges", "yes" if inside.no_new_privileges else "no"
    yield from _seccomp(config, inside)
    yield "AppArmor or SELinux", inside.label or "none: the kernel has neither"
    yield "own namespaces", _list(namespace for namespace in NAMESPACES if namespace not in inside.shared)
    yield "namespaces of the host", _list((*inside.shared, *(() if inside.own_users else ("user",))))
    yield "network interfaces", _list(inside.interfaces)
    for mount in inside.mounts:
        yield f"mount {mount.path}", _mount(mount)


def _seccomp(config: ContainerConfig, inside: InsideState) -> Iterator[tuple[str, str]]:
    modes = {0: "none", 1: "strict", SECCOMP_FILTER: "filter"}
    mode = modes.get(inside.seccomp, str(inside.seccomp))
    if inside.seccomp != SECCOMP_FILTER:
        yield "seccomp", mode
        return
    profile = name_of(config.seccomp)
    yield "seccomp", f"{mode}, {f'profile {profile}' if profile else 'of the engine'}"
    calls = REFUSED.get(profile)
    if calls:
        yield "calls refused", f"{len(calls)}: {', '.join(calls)}; and all of 32-bit programs"
        yield "calls limited", ", ".join(LIMITED)


def _mount(mount: ObservedMount) -> str:
    size = f" {format_bytes(mount.size_bytes)}" if mount.size_bytes else ""
    flags = "".join(f" {name}" for name in ("nosuid", "nodev", "noexec") if getattr(mount, name))
    return f"{mount.kind}{size} {'read-write' if mount.writable else 'read-only'}{flags}"


def _of(name: str, ids: tuple[int, ...]) -> str:
    return f" {name} {', '.join(map(str, ids))}" if ids else ""


def _list(texts: Iterator[str] | tuple[str, ...]) -> str:
    return ", ".join(texts) or "none"
