"""Comparison of a container's state inside with its rendered config, field by field, with both sides in words.

Narrower than rendered is fine; only wider differs. Limits and attached networks are not judged here: they are changed
in place, and the planner restores them after an out-of-band change.
"""

import re
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from controller.kinds.common.quantity import format_bytes
from controller.kinds.observed.inside import SECCOMP_FILTER, InsideState, ObservedMount
from controller.kinds.runtime.agent import FOLDER, is_runtime
from controller.kinds.runtime.container import ContainerConfig, Tmpfs
from controller.kinds.runtime.mount import BoundMount
from controller.kinds.runtime.user_ids import LOWEST_FREE_ID
from controller.policy.attest import mounted
from controller.policy.attest.facts import Fact as Fact
from controller.policy.levels.confinement import label_wanted

# In the order of the kernel's numbers (capabilities(7)).
_CAPABILITIES = """CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
    NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE
    SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL
    SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"""
CAPABILITIES = tuple(_CAPABILITIES.split())
# What every container may write: the engine's own mounts, and the kernel's, which have their own guards.
_DEVICES = "/dev"
_PROC = "/proc"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - inside the sandbox
_KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/sys")
_ENGINES_FILES = ("/etc/resolv.conf", "/etc/hostname", "/etc/hosts")
# Runtimes whose processes are not the sandbox's: the host's /proc shows the runtime itself.
_HIDING = ("runsc", "kata")
_GPU = re.compile(r"/dev/nvidia[0-9]+")
_AGENT = "the agent's runtime read-only"
# Comparisons are cached as long as their observation, because each takes 12 KiB.
_Asked = tuple[ContainerConfig, bool, tuple[BoundMount, ...], bool]
_COMPARED: WeakKeyDictionary[InsideState, dict[_Asked, tuple[Fact, ...]]] = WeakKeyDictionary()
_QUESTIONS = 4  # of one sandbox: another spec, its networks changing


def hides_processes(runtime: str) -> bool:
    """Return True if this runtime hides a sandbox's processes from the host's /proc."""
    return any(each in runtime for each in _HIDING)


def facts(
    config: ContainerConfig,
    inside: InsideState,
    *,
    networks: bool = True,
    bound: Iterable[BoundMount] = (),
    recorded: bool = True,
) -> tuple[Fact, ...]:
    """Return all comparisons. Without `networks` they are left out, for an action is just changing them.

    `bound` are the bind mounts that this host made in the sandbox, all of them if `recorded`.
    """
    known, asked = _COMPARED.setdefault(inside, {}), (config, networks, tuple(bound), recorded)
    found = known.get(asked)
    if found is None:
        if len(known) >= _QUESTIONS:
            known.clear()
        found = known[asked] = (
            *_facts(config, inside, networks),
            *mounted.facts(config, inside, asked[2], recorded=recorded),
        )
    return found


def differing(compared: Iterable[Fact]) -> str:
    """Return the differences as a message; "" if there are none."""
    return "; ".join(f"{each.name}: found {each.found}, wanted {each.wanted}" for each in compared if not each.holds)


def _facts(config: ContainerConfig, inside: InsideState, networks: bool) -> Iterator[Fact]:
    yield from _user(config, inside)
    wanted, found = mask_of(config.capabilities), inside.bounding
    yield Fact("capabilities that programs can gain", names_of(found), names_of(wanted), not found & ~wanted)
    held = wanted if inside.uid == 0 else 0
    holds = not inside.capabilities & ~held
    yield Fact("capabilities held", names_of(inside.capabilities), names_of(held), holds)
    asked = any(each.startswith("no-new-privileges") for each in config.security_options)
    yield Fact("no new privileges", _yes(inside.no_new_privileges), _yes(asked), inside.no_new_privileges or not asked)
    modes = {0: "none", 1: "strict", SECCOMP_FILTER: "filter"}
    filtered = modes.get(inside.seccomp, str(inside.seccomp))
    yield Fact("seccomp", filtered, "filter", inside.seccomp == SECCOMP_FILTER)
    labels = label_wanted(config)
    if labels:
        found_label = inside.label or "none"
        yield Fact("mandatory access", found_label, " ".join(labels), all(each in found_label for each in labels))
    yield from _mounts(config, inside)
    yield from _gpus(config, inside)
    shared = ", ".join(inside.shared) or "none"
    yield Fact("namespaces shared with the host", shared, "none", not inside.shared)
    if networks and config.network_mode == "none":
        reach = sorted({*inside.interfaces, *inside.routes, *inside.ipv6})
        yield Fact("network interfaces", ", ".join(reach) or "none", "none", not reach)
    elif networks:
        yield Fact("IPv6 addresses", ", ".join(inside.ipv6) or "none", "none", not inside.ipv6)


def _user(config: ContainerConfig, inside: InsideState) -> Iterator[Fact]:
    """Compare the ids, if the config names them. An image's user may be any but another sandbox's."""
    uid, _, gid = config.user.partition(":")
    if not uid.isdigit():
        owned, ids = config.owned_ids, {inside.uid, inside.gid} - {config.own_id}
        holds = owned is None or not any(each in owned for each in ids)
        yield Fact("user", f"{inside.uid}:{inside.gid}", "the image's, and not another sandbox's", holds)
        return
    wanted = (int(uid), int(gid) if gid.isdigit() else 0)
    found = (inside.uid, inside.gid)
    yield Fact("user", f"{found[0]}:{found[1]}", f"{wanted[0]}:{wanted[1]}", found == wanted)
    if min(wanted) >= LOWEST_FREE_ID:
        low = [each for each in inside.groups if each < LOWEST_FREE_ID]
        yield Fact("groups of the host's users", ", ".join(map(str, low)) or "none", "none", not low)


def _mounts(config: ContainerConfig, inside: InsideState) -> Iterator[Fact]:
    mounts = {each.path: each for each in inside.mounts}
    root = mounts.get("/")
    read_only = root is not None and not root.writable
    asked = config.read_only_root
    yield Fact("read-only root", _yes(read_only), _yes(asked), read_only or not asked)
    for each in config.tmpfs:
        yield _tmpfs(each, mounts.get(each.path))
    if config.agent:
        yield _agent(mounts.get(FOLDER))
    shm = mounts.get(_SHARED_MEMORY)
    if shm is not None:
        holds = 0 < shm.size_bytes <= _pages(config.shm_bytes)
        yield Fact(_SHARED_MEMORY, _size(shm.size_bytes), format_bytes(config.shm_bytes), holds)
    # Root of a mapped sandbox has no rights in cgroups: they belong to the host's root, whom its map lacks.
    closed = ("cgroup", "cgroup2") if inside.own_users else ()
    changeable = (each for each in inside.mounts if each.writable and each.kind not in closed)
    kernel = [each.path for each in changeable if _is_kernels(each)]
    exposed = kernel or [path for path in ("/proc/sys", "/sys") if path not in mounts]
    yield Fact("kernel settings writable", ", ".join(exposed) or "none", "none", not exposed)
    others = sorted(each.path for each in inside.mounts if each.writable and not _expected(each, config))
    yield Fact("other writable mounts", ", ".join(others) or "none", "none", not others)


def _gpus(config: ContainerConfig, inside: InsideState) -> Iterator[Fact]:
    """Compare the number of GPUs, as NVIDIA's runtime mounts them. Their indexes are the driver's, not the spec's."""
    found = sorted(each.path for each in inside.mounts if _GPU.fullmatch(each.path))
    if found or config.gpus:
        wanted = f"at most {config.gpus}" if config.gpus else "none"
        yield Fact("GPUs", ", ".join(found) or "none", wanted, len(found) <= config.gpus)


def _agent(found: ObservedMount | None) -> Fact:
    """Compare the agent's runtime. An older one is right, too: a newer image recreates nothing."""
    if found is None:
        return Fact(FOLDER, "no mount", _AGENT, holds=False, gone=True)
    ours, mode = is_runtime(found.origin), "read-write" if found.writable else "read-only"
    shown = f"the agent's runtime {mode}" if ours else f"{found.kind} {found.origin} {mode}"
    return Fact(FOLDER, shown, _AGENT, ours and not found.writable)


def _tmpfs(wanted: Tmpfs, found: ObservedMount | None) -> Fact:
    asked = f"tmpfs {_size(wanted.size_bytes)} nosuid nodev{' noexec' if wanted.noexec else ''}"
    if found is None:
        return Fact(wanted.path, "no mount", asked, holds=False, gone=True)
    flags = "".join(f" {name}" for name in ("nosuid", "nodev", "noexec") if getattr(found, name))
    sized = 0 < found.size_bytes <= _pages(wanted.size_bytes)
    holds = found.kind == "tmpfs" and sized and found.nosuid and found.nodev and (found.noexec or not wanted.noexec)
    return Fact(wanted.path, f"{found.kind} {_size(found.size_bytes)}{flags}", asked, holds)


def _expected(mount: ObservedMount, config: ContainerConfig) -> bool:
    """Return True if a container of this config has that writable mount."""
    path = mount.path
    if path == "/" or _below(path, _KERNEL_SETTINGS):
        return True
    if path in {*(each.path for each in config.tmpfs), *(each.path for each in config.slots)} or path == _PROC:
        return True
    masked = path.startswith(f"{_PROC}/") and mount.kind in ("tmpfs", "devtmpfs")
    return masked or _below(path, (_DEVICES,)) or (path in _ENGINES_FILES and not config.read_only_root)


def _is_kernels(mount: ObservedMount) -> bool:
    """Return True if writing there changes the host's kernel. The folder of v1's cgroups is only a folder.

    A masked file is a /dev/null, which everybody may write.
    """
    masked = mount.kind in ("tmpfs", "devtmpfs") and mount.origin.endswith(" /null")
    cgroups = (mount.path, mount.kind) == ("/sys/fs/cgroup", "tmpfs")
    return _below(mount.path, _KERNEL_SETTINGS) and not masked and not cgroups


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in folders)


def _pages(size_bytes: int) -> int:
    """Round up to whole pages, as the kernel does; 64 KiB is the largest page of a supported architecture."""
    return -(-size_bytes // (64 << 10)) * (64 << 10)


def mask_of(names: Iterable[str]) -> int:
    """Return capabilities as the kernel's bit mask. ValueError for an unknown name."""
    return sum(1 << CAPABILITIES.index(each) for each in set(names))


def names_of(mask: int) -> str:
    """Return the names of a bit mask's capabilities."""
    known = [name for number, name in enumerate(CAPABILITIES) if mask >> number & 1]
    if len(known) == len(CAPABILITIES):
        return "all"
    newer = [str(number) for number in range(len(CAPABILITIES), mask.bit_length()) if mask >> number & 1]
    return ", ".join((*known, *newer)) or "none"


def _size(size_bytes: int) -> str:
    return format_bytes(size_bytes) if size_bytes else "without a size"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
