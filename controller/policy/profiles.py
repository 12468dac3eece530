"""The operator's own security profiles as levels: each is its base, tightened, or loosened by grants."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.container import Limits, Tmpfs
from controller.kinds.sandbox import Resources, Template, TmpfsMount
from controller.kinds.securityprofile import ProfileGrants, ProfileLimits, SecurityProfileSpec, StoredProfile
from controller.policy.host.host import fitted
from controller.policy.levels.allowed_hosts import is_covered
from controller.policy.levels.levels import BUILT_IN, FULL_ISOLATION, Level, Policy
from controller.policy.levels.narrow import NETWORKS, SECCOMP, beyond, overlaid, running_as
from controller.policy.levels.seccomp import WIDTH
from controller.policy.refusal import Refusal
from controller.policy.sandbox import judge

_GRANTED = "; policy may grant it (profile_grants in the settings)"
_UNREADABLE = "this version of Paddock can't read the stored profile"
_LIMITS = (("cpu", "cpu_millicores", format_cpu), ("memory", "memory_bytes", format_bytes), ("pids", "pids", str))


def as_seen(policy: Policy, snapshot: Snapshot) -> Policy:
    """Return the operator's policy for the host and with the profiles of a snapshot."""
    return with_profiles(fitted(policy, snapshot.observed.facts), snapshot.rules.profiles.values())


def with_profiles(policy: Policy, profiles: Iterable[StoredProfile]) -> Policy:
    """Return the policy with these profiles as levels besides the built-in ones; they replace earlier profiles."""
    built_in = {name: level for name, level in policy.levels.items() if not level.base}
    policy = replace(policy, levels=built_in)
    custom_levels = {
        profile.obj.name: _level(profile, policy) for profile in profiles if profile.obj.name not in built_in
    }
    return replace(policy, levels={**built_in, **custom_levels}) if custom_levels else policy


def default_limits(name: str, profiles: Iterable[StoredProfile]) -> Limits | None:
    """Return the limits of a sandbox of that level which asks for none; None: there is no such level."""
    level = _level_of(name, profiles)
    return level.limits if level is not None else None


def exec_limits(name: str, profiles: Iterable[StoredProfile]) -> tuple[int, int]:
    """Return the default and the maximum seconds of a command at that level (0: not set)."""
    level = _level_of(name, profiles)
    return (level.exec_seconds, level.most_exec_seconds) if level is not None else (0, 0)


def network_of(template: Template, profiles: Iterable[StoredProfile]) -> str:
    """Return a template's network: none, sealed or public; "" for an unknown level."""
    level = _level_of(template.security_level, profiles)
    network = template.security.network if template.security else None
    modes = [mode for mode in (level.network if level else "", network.mode if network else "") if mode]
    return min(modes, key=NETWORKS.index) if level else ""


def _level_of(name: str, profiles: Iterable[StoredProfile]) -> Level | None:
    """Return the level of that name, accepted or not."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    spec = next((profile.spec for profile in profiles if profile.obj.name == name), None)
    base = BUILT_IN.get(spec.base) if spec is not None else None
    return profile_level(spec, base) if spec is not None and base is not None else None


def refusals(spec: SecurityProfileSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason why no sandbox may use this profile. `field` is below the spec."""
    base = policy.levels.get(spec.base)
    if base is None or base.base:
        built_in = ", ".join(sorted(name for name, level in policy.levels.items() if not level.base))
        return (Refusal("base", f"`{spec.base}` is not a built-in profile; choose one of {built_in}"),)
    if not base.offered:
        return (Refusal("base", f"`{spec.base}` can't be enforced here: {base.missing}"),)
    bound, level = loosened(base, policy.grants), profile_level(spec, base)
    wide = (Refusal(refusal.field, f"{refusal.message}{_GRANTED}") for refusal in beyond(bound, spec))
    return (
        *wide,
        *_repeated(spec),
        *_hosts(spec, base),
        *_peers(spec, base),
        *_ids(spec, level, bound),
        *_limits(level, bound),
        *_folders(spec, level, bound),
        *_exec_seconds(level, bound),
    )


def loosened(base: Level, grants: ProfileGrants) -> Level:
    """Return the widest level that a profile of that base may be."""
    most = {}
    for name, field, _ in _LIMITS:
        standard, granted = getattr(base.most, field), getattr(grants.limits, name) or 0
        most[field] = max(standard, granted) if standard else 0
    lowest = base.lowest_uid if grants.lowest_user_id is None else min(base.lowest_uid, grants.lowest_user_id)
    return replace(
        base,
        capabilities=tuple(sorted({*base.capabilities, *grants.capabilities})),
        seccomp=max(base.seccomp, SECCOMP[grants.seccomp_profile], key=WIDTH.__getitem__),
        network=max(base.network, grants.network, key=NETWORKS.index),
        lowest_uid=lowest,
        read_only_root=base.read_only_root and not grants.writable_root,
        no_new_privileges=base.no_new_privileges and not grants.new_privileges,
        host_folders="read-write" if grants.writable_host_folders else base.host_folders,
        most=Limits(**most),
    )


def profile_level(spec: SecurityProfileSpec, base: Level, name: str = "") -> Level:
    """Return the level of a profile, accepted or not."""
    level = overlaid(replace(base, name=name or base.name, base=base.name), spec)
    lowest = base.lowest_uid if spec.lowest_user_id is None else spec.lowest_user_id
    level = running_as(level, lowest, spec.default_user)
    hosts = spec.network.allowed_hosts if spec.network else None
    if hosts is not None:
        level = replace(level, allowed_hosts=tuple(sorted(set(hosts))))
    if spec.network is not None and spec.network.peers is not None:
        level = replace(level, peers=spec.network.peers)
    if spec.read_only_host_folders is not None:
        level = replace(level, host_folders="read-only" if spec.read_only_host_folders else "read-write")
    folders = {folder.path: folder for folder in level.tmpfs}
    folders |= {folder.mount_path: Tmpfs(folder.mount_path, folder.size, folder.noexec) for folder in spec.tmpfs or ()}
    most = _laid(level.most, spec.max_limits)
    limits = _laid(level.limits, spec.default_limits)
    # A lower maximum lowers the defaults that the profile does not name.
    inherited = [field for name, field, _ in _LIMITS if getattr(spec.default_limits, name, None) is None]
    limits = replace(limits, **{field: _at_most(limits, most, field) for field in inherited})
    return replace(
        level,
        tmpfs=tuple(folders[path] for path in sorted(folders)),
        most=most,
        limits=limits,
        exec_seconds=spec.exec_deadline_seconds or _shorter(level.exec_seconds, spec.max_exec_deadline_seconds),
        most_exec_seconds=spec.max_exec_deadline_seconds or level.most_exec_seconds,
    )


def _shorter(usual: int, most: int | None) -> int:
    return min(usual, most) if usual and most else usual


def _level(profile: StoredProfile, policy: Policy) -> Level:
    """Return the profile as a level. One that is not accepted is not offered, and says why."""
    spec, name = profile.spec, profile.obj.name
    if spec is None:
        return replace(FULL_ISOLATION, name=name, base=FULL_ISOLATION.name, offered=False, missing=_UNREADABLE)
    reasons = refusals(spec, policy)
    base = policy.levels.get(spec.base, FULL_ISOLATION)
    if not reasons:
        return profile_level(spec, base, name)
    message = "; ".join(f"spec.{refusal.field}: {refusal.message}" for refusal in reasons)
    return replace(base, name=name, base=base.name, offered=False, missing=message)


def _laid(limits: Limits, requested: ProfileLimits | None) -> Limits:
    if requested is None:
        return limits
    overrides = {field: getattr(requested, name) for name, field, _ in _LIMITS}
    return replace(limits, **{field: value for field, value in overrides.items() if value is not None})


def _at_most(limits: Limits, most: Limits, field: str) -> int:
    value, bound = getattr(limits, field), getattr(most, field)
    return min(value, bound) if bound else int(value)


def _repeated(spec: SecurityProfileSpec) -> Iterator[Refusal]:
    names = spec.capabilities or ()
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Refusal(f"capabilities[{index}]", f"`{name}` is listed twice; keep one")


def _hosts(spec: SecurityProfileSpec, base: Level) -> Iterator[Refusal]:
    """Return the list of names: only for a sealed network, and within the base's list."""
    network, at = spec.network, "network.allowedHosts"
    if network is None or network.allowed_hosts is None:
        return
    if network.mode != "sealed":
        yield Refusal(at, f"only a sealed network can have a list, and this is `{network.mode}`; remove one of them")
    for index, host in enumerate(network.allowed_hosts):
        if base.allowed_hosts is not None and not is_covered(host, base.allowed_hosts):
            yield Refusal(f"{at}[{index}]", f"`{host}` is not among the hosts of {base.name}; remove it")


def _peers(spec: SecurityProfileSpec, base: Level) -> Iterator[Refusal]:
    network = spec.network
    if network is not None and network.peers and not (base.peers and network.mode == "sealed"):
        message = f"a sandbox of {base.name} with a network that is `{network.mode}` can't join others; remove it"
        yield Refusal("network.peers", message)


def _ids(spec: SecurityProfileSpec, level: Level, bound: Level) -> Iterator[Refusal]:
    if level.lowest_uid < bound.lowest_uid:
        message = f"{level.lowest_uid} is lower than {bound.name} allows: {bound.lowest_uid}{_GRANTED}"
        yield Refusal("lowestUserID", message)
    uid, _, gid = level.default_user.partition(":")
    if level.default_user and min(int(uid), int(gid or 0)) < level.lowest_uid:
        field = "lowestUserID" if spec.default_user is None else "defaultUser"
        message = f"the default user is {level.default_user}, below the lowest uid and gid {level.lowest_uid}"
        yield Refusal(field, f"{message}; name a `defaultUser: uid:gid` from there up")


def _limits(level: Level, bound: Level) -> Iterator[Refusal]:
    for name, field, format_limit in _LIMITS:
        most, widest, default = getattr(level.most, field), getattr(bound.most, field), getattr(level.limits, field)
        if widest and most > widest:
            message = f"{format_limit(most)} is more than a sandbox of {bound.name} may have: {format_limit(widest)}"
            yield Refusal(f"maxLimits.{name}", f"{message}{_GRANTED}")
        if most and default > most:
            yield Refusal(
                f"defaultLimits.{name}", f"{format_limit(default)} is more than the maximum, {format_limit(most)}"
            )


def _exec_seconds(level: Level, bound: Level) -> Iterator[Refusal]:
    most = level.most_exec_seconds
    widest = bound.most_exec_seconds
    usual = level.exec_seconds
    if widest and most > widest:
        message = f"{most} s are more than a command of {bound.name} may have: {widest} s; ask for no more"
        yield Refusal("maxExecDeadlineSeconds", message)
    if most and usual > most:
        yield Refusal("execDeadlineSeconds", f"{usual} s are more than the maximum, {most} s; lower it")


def _folders(spec: SecurityProfileSpec, level: Level, bound: Level) -> Iterator[Refusal]:
    if level.host_folders != "read-only" and bound.host_folders == "read-only":
        yield Refusal("readOnlyHostFolders", f"{bound.name} can't write to host folders; remove it{_GRANTED}")
    closed = {folder.path for folder in bound.tmpfs if folder.noexec}
    for index, folder in enumerate(spec.tmpfs or ()):
        if folder.mount_path in closed and not folder.noexec:
            yield Refusal(f"tmpfs[{index}].noexec", f"nothing in {folder.mount_path} can be executed at {bound.name}")
    # The rules of a sandbox's own folders hold for these, too.
    tmpfs = tuple(TmpfsMount(mount_path=folder.mount_path, size=folder.size) for folder in spec.tmpfs or ())
    template = Template(image="any", security_level=level.name, tmpfs=tmpfs)
    for refusal in judge(template, Resources(), "", Policy(levels={level.name: level})):
        if refusal.field.startswith("tmpfs"):
            yield refusal
