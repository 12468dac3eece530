"""Write the seccomp profiles beside this file: `python images/seccomp/make.py`.

Each is a list of what is allowed; all else is refused. The calls are named by what programs do with them, so that one
who asks "why is X refused?" finds X's neighbours. `minimal` is what Python, gcc, git and node need; `standard` is that
and what debuggers, databases and older programs need; `log-only` refuses nothing, and logs what standard would refuse.
Only the host's own architecture is allowed: 32-bit calls (int 0x80) and x32 are another way round every list.
"""

import json
from pathlib import Path
from typing import Any

ENOSYS = 38  # "this kernel does not have it": libraries fall back, where EPERM would make them give up
FOLDER = Path(__file__).parent

OPENING = """open openat openat2 creat close close_range dup dup2 dup3 fcntl flock ioctl pipe pipe2 memfd_create umask
    access faccessat faccessat2 stat fstat lstat newfstatat statx statfs fstatfs readlink readlinkat getcwd chdir fchdir
    getdents getdents64 lseek"""
READING_WRITING = """read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 sendfile copy_file_range
    truncate ftruncate fallocate fadvise64 readahead sync syncfs fsync fdatasync sync_file_range cachestat"""
FOLDERS = """mkdir mkdirat rmdir rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat mknod mknodat
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr
    removexattr lremovexattr fremovexattr inotify_init inotify_init1 inotify_add_watch inotify_rm_watch"""
WAITING = """poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
    futex futex_waitv futex_wait futex_wake futex_requeue"""
MEMORY = "brk mmap munmap mremap mprotect madvise msync mincore mseal membarrier"
PROCESSES = """fork vfork execve execveat exit exit_group wait4 waitid pause restart_syscall kill tkill tgkill
    pidfd_open pidfd_send_signal set_tid_address set_robust_list get_robust_list rseq prctl arch_prctl
    getpid getppid gettid getpgid getpgrp setpgid getsid setsid getrlimit setrlimit prlimit64 getrusage
    getpriority setpriority ioprio_get ioprio_set getcpu sched_yield sched_getaffinity sched_setaffinity
    sched_getparam sched_setparam sched_getscheduler sched_setscheduler sched_getattr sched_setattr
    sched_get_priority_max sched_get_priority_min sched_rr_get_interval"""
WHO = """getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid setresuid setresgid
    setfsuid setfsgid setgroups capget capset"""
SIGNALS = """rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigsuspend rt_sigreturn rt_sigqueueinfo
    rt_tgsigqueueinfo sigaltstack alarm"""
TIME = """time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep times getitimer setitimer
    timer_create timer_settime timer_gettime timer_getoverrun timer_delete"""
SYSTEM = "uname sysinfo getrandom"
OWN_WALLS = "seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self"
NETWORK = """bind connect listen accept accept4 getsockname getpeername getsockopt setsockopt sendto recvfrom sendmsg
    recvmsg sendmmsg recvmmsg shutdown"""
MINIMAL = (
    OPENING,
    READING_WRITING,
    FOLDERS,
    WAITING,
    MEMORY,
    PROCESSES,
    WHO,
    SIGNALS,
    TIME,
    SYSTEM,
    OWN_WALLS,
    NETWORK,
)

DEBUGGING = "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd"
SHARING = """shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr"""
OLD_AIO = "io_setup io_destroy io_submit io_getevents io_pgetevents io_cancel"
SPLICING = "splice tee"
PINNING = """mlock mlock2 mlockall munlock munlockall pkey_alloc pkey_free pkey_mprotect remap_file_pages
    memfd_secret process_madvise process_mrelease get_mempolicy set_mempolicy set_mempolicy_home_node mbind
    migrate_pages move_pages"""
OTHERS = "chroot name_to_handle_at adjtimex clock_adjtime"
STANDARD = (DEBUGGING, SHARING, OLD_AIO, SPLICING, PINNING, OTHERS)

# clone3 takes its flags by pointer, where no filter can look: without it, programs use clone.
FALL_BACK = "clone3 io_uring_setup io_uring_enter io_uring_register userfaultfd"
FALL_BACK_MINIMAL = """io_setup io_destroy io_submit io_getevents io_pgetevents io_cancel splice tee shmget semget
    msgget mq_open mlock2 pkey_alloc pkey_free pkey_mprotect memfd_secret process_madvise get_mempolicy set_mempolicy
    mbind migrate_pages move_pages"""

NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID and NET
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, NETLINK_ROUTE = 1, 2, 10, 16, 0
# Linux without and with fixed addresses, and "what is it now?".
PERSONALITIES = (0, 0x0040000, 0xFFFFFFFF)


def allowed(names: str, *conditions: tuple[int, str, int, int]) -> dict[str, Any]:
    """A rule: these calls, when all conditions (index, operator, value, second value) on their arguments hold."""
    rule: dict[str, Any] = {"names": sorted(names.split()), "action": "SCMP_ACT_ALLOW"}
    if conditions:
        keys = ("index", "op", "value", "valueTwo")
        rule["args"] = [dict(zip(keys, each, strict=True)) for each in conditions]
    return rule


def equal(index: int, value: int) -> tuple[int, str, int, int]:
    return (index, "SCMP_CMP_EQ", value, 0)


def by_arguments() -> list[dict[str, Any]]:
    """Return the calls allowed with some arguments only. Stray upper bits of an argument: refused."""
    return [
        *(allowed("socket", equal(0, family)) for family in (AF_UNIX, AF_INET, AF_INET6)),
        allowed("socket", equal(0, AF_NETLINK), equal(2, NETLINK_ROUTE)),
        allowed("socketpair", equal(0, AF_UNIX)),
        allowed("clone", (0, "SCMP_CMP_MASKED_EQ", NEW_NAMESPACES, 0)),
        *(allowed("personality", equal(0, each)) for each in PERSONALITIES),
    ]


def refused(names: str) -> dict[str, Any]:
    return {"names": sorted(names.split()), "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}


def profile(otherwise: str, *rules: dict[str, Any], others: bool = False) -> dict[str, Any]:
    """One profile in the engine's format; `others`: programs of the host's other architectures may run, too."""
    archs = {"SCMP_ARCH_X86_64": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"], "SCMP_ARCH_AARCH64": ["SCMP_ARCH_ARM"]}
    return {
        "defaultAction": otherwise,
        "archMap": [{"architecture": name, "subArchitectures": more if others else []} for name, more in archs.items()],
        "syscalls": list(rules),
    }


def profiles() -> dict[str, dict[str, Any]]:
    minimal, more = allowed(" ".join(MINIMAL)), allowed(" ".join((*MINIMAL, *STANDARD)))
    return {
        "minimal": profile("SCMP_ACT_ERRNO", minimal, *by_arguments(), refused(f"{FALL_BACK} {FALL_BACK_MINIMAL}")),
        "standard": profile("SCMP_ACT_ERRNO", more, *by_arguments(), refused(FALL_BACK)),
        "log-only": profile("SCMP_ACT_LOG", more, *by_arguments(), others=True),
    }


def text(made: dict[str, Any]) -> str:
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    for name, made in profiles().items():
        (FOLDER / f"{name}.json").write_text(text(made))
