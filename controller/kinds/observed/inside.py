"""State inside a running container, read from the host's kernel. Nothing here comes from the sandbox itself."""

from dataclasses import dataclass

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")  # what every sandbox has of its own
SECCOMP_FILTER = 2  # of /proc/PID/status: 0 none, 1 strict, 2 a filter


@dataclass(frozen=True, slots=True)
class ObservedMount:
    """One mount as seen inside the sandbox. `size_bytes` is that of a tmpfs; 0: unlimited.

    `origin` is its source for the kernel: device numbers and the folder on that device.
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
class InsideState:
    """PID 1 of one run, and its view. Ids are those inside; capabilities are bit masks in the kernel's numbering.

    `unread` says why the kernel gave no answer ("": it did); then no other field means anything. `capabilities` are all
    that PID 1 holds in any set, `bounding` those that its programs may ever get. `interfaces` exclude loopback;
    `routes` and `ipv6` are those of them with IPv4 routes or IPv6 addresses. `shared` are namespaces of the host,
    `own_users`: its ids differ from the host's. `label` is PID 1's AppArmor or SELinux label ("": the kernel has
    neither).
    """

    unread: str = ""
    uid: int = -1
    gid: int = -1
    groups: tuple[int, ...] = ()
    capabilities: int = 0
    bounding: int = 0
    no_new_privileges: bool = False
    seccomp: int = 0
    mounts: tuple[ObservedMount, ...] = ()
    interfaces: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    own_users: bool = False
    label: str = ""
