"""What is true inside a running container, as the host's kernel tells it. Nothing here comes from the box itself."""

from dataclasses import dataclass

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")  # what every box has of its own
SECCOMP_FILTER = 2  # of /proc/PID/status: 0 none, 1 strict, 2 a filter


@dataclass(frozen=True, slots=True)
class Mounted:
    """One mount as the box sees it. `size_bytes` is that of a tmpfs, 0: none is set.

    `origin` is where the kernel has it from: the device's numbers and the folder there.
    """

    path: str
    kind: str
    writable: bool
    nosuid: bool = False
    nodev: bool = False
    noexec: bool = False
    size_bytes: int = 0
    origin: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Inside:
    """PID 1 of one run, and what it sees. Ids are those inside; capabilities are bit masks, as the kernel numbers them.

    `unread` is why the kernel did not tell ("" when it did): then nothing else here means anything. `capabilities` is
    all that PID 1 holds in any of its sets, `bounding` what a program it starts may ever get. `interfaces` are those
    but loopback, `routes` and `ipv6` the ones of them that have IPv4 routes or IPv6 addresses. `shared` are the
    namespaces that are the host's own, `own_users` whether its ids are not the host's. `label` is AppArmor's or
    SELinux's of PID 1 ("": the kernel has neither).
    """

    unread: str = ""
    uid: int = -1
    gid: int = -1
    groups: tuple[int, ...] = ()
    capabilities: int = 0
    bounding: int = 0
    no_new_privileges: bool = False
    seccomp: int = 0
    mounts: tuple[Mounted, ...] = ()
    interfaces: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    own_users: bool = False
    label: str = ""
