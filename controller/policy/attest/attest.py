"""Comparison of a container's state inside with its rendered config, field by field, with both sides in words.

Narrower than rendered is fine; only wider differs. Limits and attached networks are not judged here: they are changed
in place, and the planner restores them after an out-of-band change.
"""

import re
from collections.abc import Iterable, Iterator
from weakref import ref

from controller.kinds.common.quantity import format_bytes
from controller.kinds.observed.inside import SECCOMP_FILTER, InsideState, ObservedMount
from controller.kinds.runtime.agent import FOLDER, is_runtime
from controller.kinds.runtime.container import ContainerConfig, Tmpfs
from controller.kinds.runtime.mount import BoundMount
from controller.kinds.runtime.user_ids import LOWEST_FREE_ID
from controller.policy.attest import mounted
from controller.policy.attest.facts import Fact as Fact
from controller.policy.levels.confinement import is_labelled, label_wanted

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
# Comparisons are cached as long as their observation, because each takes 12 KiB. Observations are told apart by their
# identity, and questions are compared: to hash either would look at all it consists of.
_Asked = tuple[ContainerConfig, bool, tuple[BoundMount, ...], bool]
_Answers = list[tuple[_Asked, tuple[Fact, ...]]]
_COMPARED: dict[int, tuple[ref[InsideState], _Answers]] = {}
_QUESTIONS = 4  # of one sandbox: another spec, its networks changing


def hides_processes(runtime: str) -> bool:
    """Return True if this runtime hides a sandbox's processes from the host's /proc."""
    return any(hiding in runtime for hiding in _HIDING)


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
    answers, question = _answers(inside), (config, networks, tuple(bound), recorded)
    for former_question, answer in answers:
        if former_question == question:
            return answer
    answer = (
        *_facts(config, mounted.as_requested(config, inside), networks),
        *mounted.facts(config, inside, question[2], recorded=recorded),
    )
    if len(answers) >= _QUESTIONS:
        answers.clear()
    answers.append((question, answer))
    return answer


def _answers(inside: InsideState) -> _Answers:
    """Return the comparisons of this observation so far; they are forgotten with it."""
    key = id(inside)
    if key not in _COMPARED:
        _COMPARED[key] = ref(inside, lambda _: _COMPARED.pop(key, None)), []
    return _COMPARED[key][1]


def differing(compared: Iterable[Fact]) -> str:
    """Return the differences as a message; "" if there are none."""
    return "; ".join(
        f"{fact.name}: found {fact.observed}, wanted {fact.desired}" for fact in compared if not fact.holds
    )


def _facts(config: ContainerConfig, inside: InsideState, networks: bool) -> Iterator[Fact]:
    """Yield what was read inside beside what the config says, fact by fact."""
    yield from _user(config, inside)
    configured, bounding = mask_of(config.capabilities), inside.bounding
    yield Fact(
        "capabilities that programs can gain", names_of(bounding), names_of(configured), not bounding & ~configured
    )
    expected = configured if inside.uid == 0 else 0
    holds = not inside.capabilities & ~expected
    yield Fact("capabilities held", names_of(inside.capabilities), names_of(expected), holds)
    is_requested = any(option.startswith("no-new-privileges") for option in config.security_options)
    yield Fact(
        "no new privileges",
        _yes(inside.no_new_privileges),
        _yes(is_requested),
        inside.no_new_privileges or not is_requested,
    )
    modes = {0: "none", 1: "strict", SECCOMP_FILTER: "filter"}
    filtered = modes.get(inside.seccomp, str(inside.seccomp))
    yield Fact("seccomp", filtered, "filter", inside.seccomp == SECCOMP_FILTER)
    labels = label_wanted(config)
    if labels:
        found_label = inside.label or "none"
        yield Fact(
            "mandatory access", found_label, " ".join(labels), all(is_labelled(found_label, label) for label in labels)
        )
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
        holds = owned is None or not any(user_id in owned for user_id in ids)
        yield Fact("user", f"{inside.uid}:{inside.gid}", "the image's, and not another sandbox's", holds)
        return
    configured = (int(uid), int(gid) if gid.isdigit() else 0)
    observed = (inside.uid, inside.gid)
    yield Fact("user", f"{observed[0]}:{observed[1]}", f"{configured[0]}:{configured[1]}", observed == configured)
    if min(configured) >= LOWEST_FREE_ID:
        low = [group for group in inside.groups if group < LOWEST_FREE_ID]
        yield Fact("groups of the host's users", ", ".join(map(str, low)) or "none", "none", not low)


def _mounts(config: ContainerConfig, inside: InsideState) -> Iterator[Fact]:
    mounts = {mount.path: mount for mount in inside.mounts}
    root = mounts.get("/")
    read_only = root is not None and not root.writable
    is_requested = config.read_only_root
    yield Fact("read-only root", _yes(read_only), _yes(is_requested), read_only or not is_requested)
    for folder in config.tmpfs:
        yield _tmpfs(folder, mounts.get(folder.path))
    if config.agent:
        yield _agent(mounts.get(FOLDER))
    shm = mounts.get(_SHARED_MEMORY)
    if shm is not None:
        holds = 0 < shm.size_bytes <= _pages(config.shm_bytes)
        yield Fact(_SHARED_MEMORY, _size(shm.size_bytes), format_bytes(config.shm_bytes), holds)
    # Root of a mapped sandbox has no rights in cgroups: they belong to the host's root, whom its map lacks.
    closed = ("cgroup", "cgroup2") if inside.own_users else ()
    changeable = (mount for mount in inside.mounts if mount.writable and mount.kind not in closed)
    kernel = [mount.path for mount in changeable if _is_kernels(mount)]
    exposed = kernel or [path for path in ("/proc/sys", "/sys") if path not in mounts]
    yield Fact("kernel settings writable", ", ".join(exposed) or "none", "none", not exposed)
    unexpected = sorted(mount.path for mount in inside.mounts if mount.writable and not _expected(mount, config))
    yield Fact("other writable mounts", ", ".join(unexpected) or "none", "none", not unexpected)


def _gpus(config: ContainerConfig, inside: InsideState) -> Iterator[Fact]:
    """Compare the number of GPUs, as NVIDIA's runtime mounts them. Their indexes are the driver's, not the spec's."""
    devices = sorted(mount.path for mount in inside.mounts if _GPU.fullmatch(mount.path))
    if devices or config.gpus:
        limit = f"at most {config.gpus}" if config.gpus else "none"
        yield Fact("GPUs", ", ".join(devices) or "none", limit, len(devices) <= config.gpus)


def _agent(mount: ObservedMount | None) -> Fact:
    """Compare the agent's runtime. An older one is right, too: a newer image recreates nothing."""
    if mount is None:
        return Fact(FOLDER, "no mount", _AGENT, holds=False, is_missing=True)
    ours, mode = is_runtime(mount.origin), "read-write" if mount.writable else "read-only"
    description = f"the agent's runtime {mode}" if ours else f"{mount.kind} {mount.origin} {mode}"
    return Fact(FOLDER, description, _AGENT, ours and not mount.writable)


def _tmpfs(folder: Tmpfs, mount: ObservedMount | None) -> Fact:
    expectation = f"tmpfs {_size(folder.size_bytes)} nosuid nodev{' noexec' if folder.noexec else ''}"
    if mount is None:
        return Fact(folder.path, "no mount", expectation, holds=False, is_missing=True)
    flags = "".join(f" {name}" for name in ("nosuid", "nodev", "noexec") if getattr(mount, name))
    sized = 0 < mount.size_bytes <= _pages(folder.size_bytes)
    holds = mount.kind == "tmpfs" and sized and mount.nosuid and mount.nodev and (mount.noexec or not folder.noexec)
    return Fact(folder.path, f"{mount.kind} {_size(mount.size_bytes)}{flags}", expectation, holds)


def _expected(mount: ObservedMount, config: ContainerConfig) -> bool:
    """Return True if a container of this config has that writable mount."""
    path = mount.path
    if path == "/" or _below(path, _KERNEL_SETTINGS):
        return True
    if path in {*(folder.path for folder in config.tmpfs), *(slot.path for slot in config.slots)} or path == _PROC:
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
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _pages(size_bytes: int) -> int:
    """Round up to whole pages, as the kernel does; 64 KiB is the largest page of a supported architecture."""
    return -(-size_bytes // (64 << 10)) * (64 << 10)


def mask_of(names: Iterable[str]) -> int:
    """Return capabilities as the kernel's bit mask. ValueError for an unknown name."""
    return sum(1 << CAPABILITIES.index(name) for name in set(names))


def names_of(mask: int) -> str:
    """Return the names of a bit mask's capabilities."""
    names = [name for number, name in enumerate(CAPABILITIES) if mask >> number & 1]
    if len(names) == len(CAPABILITIES):
        return "all"
    newer = [str(number) for number in range(len(CAPABILITIES), mask.bit_length()) if mask >> number & 1]
    return ", ".join((*names, *newer)) or "none"


def _size(size_bytes: int) -> str:
    return format_bytes(size_bytes) if size_bytes else "without a size"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
