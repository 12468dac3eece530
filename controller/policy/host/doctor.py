"""Findings of `paddock doctor`: the meaning of each fact for sandboxes, and the remedy.

A check is here for what a user would miss in the first year: it keeps sandboxes from starting, from their limits, their
network or their isolation, and no condition, refusal or setting tells. Each says below why it stays.
"""

from collections.abc import Callable, Iterator

from controller.kinds.observed.doctor import DoctorFacts, Finding, Severity, SocketFacts
from controller.kinds.observed.pressure import Supply
from controller.kinds.runtime.engine_api import untried
from controller.kinds.runtime.user_ids import MAPPED_IDS, SHARED_ID
from controller.policy.host import hibernation
from controller.policy.host.doctor_cluster import certificate, cluster
from controller.policy.host.doctor_fleet import fleet
from controller.policy.host.doctor_folders import folders
from controller.policy.host.pressure import BANDS
from controller.policy.host.runc import LEAK as _LEAK
from controller.policy.host.runc import is_fixed
from controller.policy.levels.abilities import has_option

_NEEDED = ("cpu", "memory", "pids")
_DRIVERS = frozenset({"overlay2", "overlayfs", "btrfs", "zfs"})
_SKEW_SECONDS = 5.0
_OTHERS = 0o007
_SHOWN = 4
_GIB = 1 << 30
_KERNEL = "enable it in the kernel, and restart the engine"

Findings = Iterator[Finding]


def judge(facts: DoctorFacts) -> tuple[Finding, ...]:
    """Return every finding, in reading order. Facts that need the engine are left out without it."""
    if not facts.keeps_sandboxes:
        without: tuple[Callable[[DoctorFacts], Findings], ...]
        without = (_daemon, _clock, _room, _store, fleet, certificate, _daemon_socket)
        return tuple(finding for check in without for finding in check(facts))
    checks: list[Callable[[DoctorFacts], Findings]] = [_daemon, _root, _engine]
    if not facts.engine.trouble:
        checks += [
            _cgroups,
            _swap,
            _hibernation,
            _storage,
            _disk_quota,
            _seccomp,
            _mandatory,
            _runc,
            _gpus,
            _user_namespaces,
            _own_users,
            _live_restore,
        ]
    checks += [_guard, _resolvers, _bridges] if facts.local else [_elsewhere]
    checks += [folders, _clock, _room, _store, fleet, cluster, certificate]
    checks += [_engine_socket, _daemon_socket]
    return tuple(finding for check in checks for finding in check(facts))


def _ok(check: str, observed: str) -> Finding:
    return Finding(check, Severity.OK, observed)


def _warning(check: str, observed: str, meaning: str, action: str) -> Finding:
    return Finding(check, Severity.WARNING, observed, meaning, action)


def _problem(check: str, observed: str, meaning: str, action: str) -> Finding:
    return Finding(check, Severity.PROBLEM, observed, meaning, action)


def _daemon(facts: DoctorFacts) -> Findings:
    """Check the daemon: without one that is ready, all statuses that one reads elsewhere are old."""
    daemon = facts.daemon
    if daemon.ready:
        yield _ok("daemon", daemon.message)
    elif daemon.answers:
        meaning = "sandboxes keep running, but are not reconciled"
        yield _problem("daemon", daemon.message, meaning, "see its log, and the other findings here")
    else:
        meaning = "sandboxes keep running, but nothing is started, restarted or reaped"
        yield _warning("daemon", daemon.message, meaning, "start it: `systemctl start paddock`, or `paddock serve`")


def _root(facts: DoctorFacts) -> Findings:
    """Check for root: without it some checks below read nothing, and would look better than the host is."""
    if facts.kernel.root:
        yield _ok("root", "this check runs as root, as the daemon should")
        return
    meaning = "not everything can be checked; a daemon without root can't attest or probe its sandboxes"
    yield _warning("root", "this check does not run as root", meaning, "run `paddock doctor` and the daemon as root")


def _engine(facts: DoctorFacts) -> Findings:
    """Check the engine: one that is silent, or newer than what was tried, is the first thing to know of a host."""
    if facts.engine.trouble:
        yield _problem("engine", facts.engine.trouble, "no sandbox can be started", "fix that, then run this again")
        return
    reported = facts.engine.facts
    observed = f"Docker Engine {reported.engine_version} at {facts.engine.address}, API {reported.api_version}"
    if trouble := untried(reported.api_version):
        meaning, _, action = trouble.partition("; ")
        yield _warning("engine", observed, meaning, action)
        return
    yield _ok("engine", observed)


def _cgroups(facts: DoctorFacts) -> Findings:
    """Check the controllers of limits: the engine starts containers without one that is missing, and only logs it."""
    reported, controllers = facts.engine.facts, facts.kernel.controllers
    observed = f"version {reported.cgroup_version or 'unknown'}, driver {reported.cgroup_driver or 'unknown'}"
    if not facts.local:
        yield _ok("cgroups", observed)
    elif not controllers:
        meaning = "limits can't be read back, so it is unknown if they are enforced"
        yield _warning("cgroups", f"{observed}; their controllers can't be read", meaning, "mount /sys and /proc here")
    elif missing := [controller for controller in _NEEDED if controller not in controllers]:
        action = "boot with them enabled (on Debian for arm64: cgroup_enable=memory on the kernel's command line)"
        description = f"{observed}; without {', '.join(missing)}"
        yield _problem("cgroups", description, "the limits of sandboxes can't be enforced", action)
    else:
        yield _ok("cgroups", f"{observed}; {', '.join(sorted(controllers))}")


def _swap(facts: DoctorFacts) -> Findings:
    """Check the limit of swap: Debian and Ubuntu with cgroups v1 have none as installed, and the engine drops ours."""
    if facts.engine.facts.swap_limit:
        yield _ok("swap", "swap can be limited")
        return
    meaning = "a sandbox may use swap beyond its limit of memory"
    action = "boot with swapaccount=1 on the kernel's command line, or use no swap"
    yield _warning("swap", "the kernel does not limit swap", meaning, action)


def _hibernation(facts: DoctorFacts) -> Findings:
    """Check swap for hibernation: it is set up with the host, and decides if processes outlive idleness."""
    if not facts.local:
        return
    ability = hibernation.judge(facts.kernel.swap, facts.hibernation_bytes, to_plain_disk=facts.hibernate_to_plain_disk)
    if ability.available:
        yield _ok("hibernation", f"idle sandboxes are hibernated: {ability.message}")
    elif ability.reason in ("Disabled", "NoSwap"):
        yield _ok("hibernation", f"idle sandboxes are suspended, not hibernated: {ability.message}")
    else:
        meaning = "idle sandboxes are suspended, and their processes end"
        yield _warning("hibernation", ability.message, meaning, f"give the host safe swap: {hibernation.SETUP}")


def _storage(facts: DoctorFacts) -> Findings:
    """Check the storage driver: an engine in a container falls back to vfs unasked, which copies whole images."""
    driver = facts.engine.facts.storage_driver
    observed = f"{driver} on {facts.engine.file_system}" if facts.engine.file_system else driver
    if driver in _DRIVERS:
        yield _ok("storage", observed)
        return
    meaning = "each sandbox may copy its whole image: starts are slow and take much disk"
    yield _warning(
        "storage", observed or "unknown", meaning, 'set `"storage-driver": "overlay2"` in /etc/docker/daemon.json'
    )


def _disk_quota(facts: DoctorFacts) -> Findings:
    """Check for disk quotas: they need a file system below the engine that is chosen before there are sandboxes."""
    engine = facts.engine
    driver = engine.facts.storage_driver
    by_project = engine.file_system == "xfs" and not {"prjquota", "pquota"}.isdisjoint(engine.mount_options)
    if driver in ("btrfs", "zfs") or (driver == "overlay2" and by_project):
        yield _ok(
            "disk-quota",
            f"{driver} can hold a writable layer to limits.disk; the daemon tries it (DiskQuotaEnforceable)",
        )
        return
    observed = "the engine can't limit a container's writable layer"
    meaning = "limits.disk is soft: disk usage is measured, and a sandbox above it is stopped; Required is refused"
    action = "put the engine's data on xfs, mounted with the option pquota"
    if driver == "overlayfs":
        observed = "the containerd image store accepts a size for a writable layer and ignores it"
        action = (
            "for hard limits use the image store overlay2, with the engine's data on xfs mounted with the option pquota"
        )
    if not facts.local:
        observed, action = "it can't be checked from here if a writable layer can be limited", "run this on its host"
    yield _warning("disk-quota", observed, meaning, action)


def _seccomp(facts: DoctorFacts) -> Findings:
    """Check the filter of system calls: without it the whole kernel is open to each sandbox."""
    if has_option(facts.engine.facts, "seccomp"):
        # runc before 1.2 starts no container whose profile asks for a log (SECCOMP_FILTER_FLAG_LOG).
        yield _ok("seccomp", "the engine filters system calls; refused calls are not logged, at any level")
        return
    meaning = "sandboxes can't have the filter that their level requires; they are stopped when that is observed"
    yield _problem("seccomp", "the engine has no seccomp", meaning, f"CONFIG_SECCOMP_FILTER: {_KERNEL}")


def _mandatory(facts: DoctorFacts) -> Findings:
    """Check AppArmor and SELinux: many cloud images boot without them, and the engine does not mind."""
    active = [name for name in ("apparmor", "selinux") if has_option(facts.engine.facts, name)]
    if active:
        yield _ok("mandatory-access", f"{' and '.join(active)} confine containers")
        return
    meaning = "one line of defence is missing around a sandbox; capabilities, seccomp and its user remain"
    action = "install apparmor (Debian, Ubuntu) or selinux-enabled (Fedora), boot with it, and restart the engine"
    yield _warning("mandatory-access", "neither AppArmor nor SELinux confine containers", meaning, action)


def _runc(facts: DoctorFacts) -> Findings:
    """Check runc for a way out of each sandbox, which only an update of the host closes."""
    reported, package = facts.engine.runc_version, facts.engine.runc_package
    if not reported and not package:
        return
    observed = f"runc {reported or 'of unknown version'}" + (f" (package runc {package})" if package else "")
    safe = is_fixed(reported, package)
    if safe:
        yield _ok("runc", observed)
        return
    action = "update it: `apt install --only-upgrade runc` (or containerd.io), or install runc 1.1.12 or newer"
    if safe is None:
        meaning = f"its version does not tell if {_LEAK} is fixed"
        yield _warning("runc", observed, meaning, action)
        return
    meaning = f"it has {_LEAK}; a program in a sandbox may reach the host's files through a working directory"
    yield _problem("runc", observed, meaning, action)


def _gpus(facts: DoctorFacts) -> Findings:
    """Check that GPUs are listed: two sandboxes on one see nothing of each other but that its memory is gone."""
    if facts.gpu_devices:
        yield _ok("gpus", f"sandboxes have their own of {', '.join(facts.gpu_devices)}")
    elif "nvidia" in facts.engine.facts.runtimes:
        meaning = "the engine chooses the GPUs of each sandbox: two may get the same"
        yield _warning("gpus", "none are listed", meaning, "list them in the setting gpu_devices (`nvidia-smi -L`)")


def _user_namespaces(facts: DoctorFacts) -> Findings:
    """Check how users are mapped: a rootless engine has no limits that can be read, userns-remap other ids."""
    if has_option(facts.engine.facts, "rootless"):
        meaning = "limits may not reach the kernel, and sandboxes can't be inspected from outside"
        action = "use an engine that runs as root"
        yield _warning("user-namespaces", "the engine runs without root", meaning, action)
    elif has_option(facts.engine.facts, "userns"):
        observed = "the engine maps users (userns-remap): root in a sandbox is an ordinary user of the host"
        meaning = f"networks and models are untested with it; sandboxes' own ids are {MAPPED_IDS}, not sandbox_ids"
        action = "use it for sandboxes that run as root; else leave it out of /etc/docker/daemon.json"
        yield _warning("user-namespaces", observed, meaning, action)
    else:
        yield _ok("user-namespaces", "not used; a sandbox that runs as root is root for the kernel's limits, too")


def _own_users(facts: DoctorFacts) -> Findings:
    """Check users for being shared: they take watches and pipes from each other and only see an error."""
    check, meaning = "sandbox-users", "a sandbox can use up what the kernel gives their user: inotify, pipes, signals"
    if facts.user_ids_held:
        action = "set sandbox_ids to ids that no user of this host has"
        clashing_ids = ", ".join(facts.user_ids_held[:_SHOWN])
        observed = f"{facts.user_ids} (sandbox_ids) has ids of users of this host: {clashing_ids}"
        yield _problem(check, observed, "the daemon does not start", action)
    elif not facts.user_ids:
        observed = "sandboxes share the user 20000 (sandbox_ids is empty)"
        yield _warning(check, observed, meaning, "set sandbox_ids to ids that no user of this host has")
    elif not facts.engine.shared_users:
        ids = MAPPED_IDS if has_option(facts.engine.facts, "userns") else facts.user_ids
        yield _ok(check, f"each sandbox has its own of {ids}, if neither its spec nor its image names one")
    for user, names in facts.engine.shared_users:
        remainder = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        action = "leave `user` out of their specs, set `security.runAsNonRoot`, or trust them alike"
        if user == str(SHARED_ID):
            action = f"build older images again (`images/build.sh`) and change their specs; or {action}"
        yield _warning(check, f"user {user} is shared by {', '.join(names[:_SHOWN])}{remainder}", meaning, action)


def _live_restore(facts: DoctorFacts) -> Findings:
    """Check live-restore: it is off as Docker is installed, and the first upgrade then ends all processes."""
    if facts.engine.facts.live_restore:
        yield _ok("live-restore", "sandboxes outlive a restart of the engine")
        return
    meaning = "a restart or an upgrade of the engine ends all processes in all sandboxes; they are started again"
    action = 'set `"live-restore": true` in /etc/docker/daemon.json, then `systemctl reload docker`'
    yield _warning("live-restore", "off", meaning, action)


def _guard(facts: DoctorFacts) -> Findings:
    """Check the guard: each boot has to load it, and no sandbox gets a network without."""
    if not facts.kernel.unguarded:
        yield _ok("guard", "the nft table of Paddock's networks is loaded")
        return
    meaning = "no sandbox with a network is started; those without one are not affected"
    action = "do that, and enable deploy/paddock-guard.service, which loads the table at each boot"
    yield _warning("guard", facts.kernel.unguarded, meaning, action)


def _resolvers(facts: DoctorFacts) -> Findings:
    """Check name servers at private addresses, as companies have: the guard drops them, and DNS fails silently."""
    kernel = facts.kernel
    if kernel.unguarded or not kernel.resolvers:
        return
    if not kernel.dropped_resolvers:
        yield _ok("resolvers", f"the guard lets questions to {', '.join(kernel.resolvers)} through")
        return
    meaning = "sandboxes with a network, and their proxies, resolve no name"
    add = f"`nft add element inet paddock resolvers {{ {', '.join(kernel.dropped_resolvers)} }}`"
    action = f"start the daemon, which lets them through; or {add}"
    yield _warning("resolvers", f"the guard drops questions to {', '.join(kernel.dropped_resolvers)}", meaning, action)


def _bridges(facts: DoctorFacts) -> Findings:
    """Check forwarding: hardening guides turn it off, Engine 29 does not turn it on with nftables; packets vanish."""
    observed = ", ".join(facts.kernel.bridges) or "none"
    if facts.kernel.forwarding is not False:
        yield _ok("bridges", observed)
        return
    meaning = "sandboxes with a network reach nothing beyond this host"
    action = "`sysctl -w net.ipv4.ip_forward=1` (the engine sets it when it starts), and keep it in /etc/sysctl.d"
    yield _warning("bridges", f"{observed}; this host does not forward IPv4", meaning, action)


def _elsewhere(facts: DoctorFacts) -> Findings:
    """Report an engine on another host: most checks here, and all figures of use, are left out without a word."""
    meaning = (
        "its kernel, networks, sockets and disks can't be judged from here; sandboxes have no metrics of CPU, memory,"
        " disk and network use, which are read from its cgroups"
    )
    observed = f"the engine at {facts.engine.address} is reached over the network"
    yield _warning("host", observed, meaning, "run Paddock on the engine's host, and this command there")


def _clock(facts: DoctorFacts) -> Findings:
    """Check the clock: one that is off ends sandboxes and tokens at wrong times, and all times shown agree with it."""
    skew = facts.engine.skew_seconds
    if skew is not None and abs(skew) > _SKEW_SECONDS:
        meaning = "ages, deadlines and end times of sandboxes are off by as much"
        yield _problem("clock", f"the engine's clock differs by {skew:+.0f} s", meaning, "synchronise both by NTP")
    elif facts.kernel.clock_synchronised is False:
        meaning = "deadlines and token expiry come too early or too late"
        action = "install systemd-timesyncd or chrony, and let it run"
        yield _warning("clock", "this host's clock is not synchronised", meaning, action)
    else:
        yield _ok("clock", "in time" if facts.kernel.clock_synchronised else "in sync with the engine's")


def _room(facts: DoctorFacts) -> Findings:
    """Check the disks: full ones are the commonest trouble of a host, and keep conditions from being stored, too."""
    kernel = facts.kernel
    if facts.local and not facts.engine.trouble:
        meaning = "no sandbox is started while it is low, and writes in sandboxes fail when it is full"
        action = f"free space in {facts.engine.facts.root_dir}: `docker system df`, `docker image prune`"
        yield from _supply(facts, "disk (engine)", "disk", supply=kernel.use.disk, meaning=meaning, action=action)
        yield from _supply(facts, "inodes (engine)", "inodes", supply=kernel.use.inodes, meaning=meaning, action=action)
    meaning = "nothing is done that can't be stored: when it is full, ended sandboxes are not restarted"
    action = "free space in the state folder's file system"
    yield from _supply(facts, "disk (state)", "disk", supply=kernel.state_disk, meaning=meaning, action=action)
    yield from _supply(facts, "inodes (state)", "inodes", supply=kernel.state_inodes, meaning=meaning, action=action)


def _supply(facts: DoctorFacts, check: str, resource: str, supply: Supply, meaning: str, action: str) -> Findings:
    """Yield the state of one supply of the host, by the bands of its pressure."""
    if supply.total <= 0:  # a file system without a bound of it, or one that can't be read
        return
    low = BANDS[resource].low(supply, facts.pressure_scale or 1.0)
    free, total = (
        f"{amount / _GIB:.1f} GiB" if resource == "disk" else str(amount) for amount in (supply.free, supply.total)
    )
    observed = f"{free} of {total} left"
    if supply.free >= low:
        yield _ok(check, observed)
    elif supply.free >= low / 2:
        yield _warning(check, observed, meaning, action)
    else:
        yield _problem(check, observed, meaning, action)


def _store(facts: DoctorFacts) -> Findings:
    """Check the store: one that can't be used keeps the daemon from starting, and nothing else can tell why."""
    store, meaning = facts.store, "the daemon does not start, or does nothing: no sandbox is reconciled"
    if store.trouble or store.refuses:
        yield _problem("store", store.trouble or store.refuses, meaning, "fix that, or set PADDOCK_DATABASE_URL")
    elif not store.is_supported:
        observed = f"{store.name} was written by a newer Paddock (schema {store.schema})"
        yield _problem("store", observed, meaning, "install that version again, or restore a backup of this version")
    elif not store.schema:
        yield _ok("store", f"{store.name}: does not exist yet; the daemon creates it at its first start")
    elif store.schema > store.newest:
        observed = f"{store.name}: schema {store.schema}, of a newer Paddock that lets this one use it"
        yield _warning("store", observed, "this host is of an older version than others", "upgrade it, too")
    elif store.schema != store.newest:
        yield _ok(
            "store", f"{store.name}: schema {store.schema}, migrated to {store.newest} at the daemon's next start"
        )
    else:
        yield _ok("store", f"{store.name}: can be read and written, schema {store.schema}")


def _engine_socket(facts: DoctorFacts) -> Findings:
    """Check the engine's socket: chmod 666 is a common remedy for `permission denied`, and voids every rule."""
    if facts.local:
        meaning = "anyone who can use the engine's socket is root on this host, and bypasses every rule of Paddock"
        yield from _permissions("engine-socket", facts.engine_socket, meaning)


def _daemon_socket(facts: DoctorFacts) -> Findings:
    """Check the daemon's socket: without its group the daemon does not start, with a wide mode all may ask it."""
    if not facts.socket_group_exists:
        observed = f"socket_group is `{facts.socket_group}`, and there is no such group"
        action = f"`groupadd --system {facts.socket_group}`, or change the setting"
        yield _problem("paddock-socket", observed, "the daemon does not start", action)
        return
    meaning = "every user of this host can send requests to the daemon, and overload it"
    yield from _permissions("paddock-socket", facts.daemon_socket, meaning)


def _permissions(check: str, socket: SocketFacts, meaning: str) -> Findings:
    if socket.trouble:
        action = "run this as root, or fix that"
        yield _warning(check, f"{socket.path}: {socket.trouble}", "its permissions are unknown", action)
    elif socket.mode is None:
        yield _ok(check, f"{socket.path}: does not exist, nothing listens")
    else:
        observed = f"{socket.path}: mode {socket.mode:04o}, {socket.owner}:{socket.group}"
        open_ = socket.mode & _OTHERS
        action = f"`chmod o= {socket.path}`, and find out who changed it"
        yield _problem(check, observed, meaning, action) if open_ else _ok(check, observed)
