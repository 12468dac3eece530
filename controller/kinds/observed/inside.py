"""State inside a running container, read from the host's kernel. Nothing here comes from the sandbox itself."""

from dataclasses import dataclass

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")  # what every sandbox has of its own
STACKED = "//&"  # between the AppArmor profiles of a label that all confine it
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
    """First process of one run, and its view.

    Ids are those inside; capabilities are bit masks in the kernel's numbering.
    """

    unread: str = ""
    """Reason why the kernel gave no answer; then no other field means anything."""
    uid: int = -1
    """User of the process."""
    gid: int = -1
    """Group of the process."""
    groups: tuple[int, ...] = ()
    """Further groups of the process."""
    capabilities: int = 0
    """Capabilities that it holds in any set."""
    bounding: int = 0
    """Capabilities that its programs may ever get."""
    no_new_privileges: bool = False
    """No program gets more privileges than its parent."""
    seccomp: int = 0
    """Mode of its system call filter: 2 is a filter."""
    mounts: tuple[ObservedMount, ...] = ()
    """Mounts that it sees."""
    interfaces: tuple[str, ...] = ()
    """Network interfaces, without loopback."""
    routes: tuple[str, ...] = ()
    """Interfaces with IPv4 routes."""
    ipv6: tuple[str, ...] = ()
    """Interfaces with IPv6 addresses."""
    shared: tuple[str, ...] = ()
    """Namespaces that it shares with the host."""
    own_users: bool = False
    """Its ids differ from the host's."""
    label: str = ""
    """Label of AppArmor or SELinux; empty: the kernel has neither. Of profiles in several modes each has its own."""
