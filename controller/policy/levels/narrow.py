"""Narrowing of a level by a spec's `security:`, field by field, and refusal of anything wider."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from controller.kinds.sandbox import Template
from controller.kinds.security import Narrowing
from controller.policy.levels.levels import FULL_ISOLATION, PORTS, Level, Policy
from controller.policy.levels.seccomp import WIDTH, name_of
from controller.policy.refusal import Refusal

# From the narrowest to the widest.
NETWORKS = ("none", "sealed", "public")
SECCOMP: Mapping[str, str] = MappingProxyType(
    {name_of(profile): profile for profile in sorted(WIDTH, key=WIDTH.__getitem__)}
)


def level_of(template: Template, policy: Policy) -> Level | None:
    """Return the template's level, narrowed by its `security:`. None: there is no such level."""
    level = policy.levels.get(template.security_level)
    narrowing = template.security
    if level is None or narrowing is None or any(widened(template, level)):
        return level  # widening is refused at admission, and has no effect
    narrowed = overlaid(level, narrowing)
    return running_as(narrowed, max(narrowed.lowest_uid, 1)) if narrowing.run_as_non_root else narrowed


def widened(template: Template, level: Level) -> Iterator[Refusal]:
    """Yield every field of `security:` that asks for more than the level has."""
    narrowing = template.security
    if narrowing is None:
        return
    for refusal in beyond(level, narrowing):
        yield Refusal(f"security.{refusal.field}", f"{refusal.message}; a spec can only narrow its level")
    if narrowing.run_as_non_root is False and level.lowest_uid:
        message = f"{level.name} allows no root; remove it"
        yield Refusal("security.runAsNonRoot", f"{message}; a spec can only narrow its level")


def beyond(level: Level, narrowing: Narrowing) -> Iterator[Refusal]:
    """Yield every field that asks for more than that level has."""
    for index, name in enumerate(narrowing.capabilities or ()):
        if name not in level.capabilities:
            has = ", ".join(level.capabilities) or "none"
            yield Refusal(f"capabilities[{index}]", f"`{name}` is more than {level.name} has: {has}")
    if narrowing.no_new_privileges is False and level.no_new_privileges:
        yield Refusal("noNewPrivileges", f"{level.name} allows no new privileges; remove it")
    if narrowing.read_only_root_filesystem is False and level.read_only_root:
        yield Refusal("readOnlyRootFilesystem", f"the root file system of {level.name} is read-only; remove it")
    seccomp = narrowing.seccomp_profile
    # A level's own profile has no place in the order: it counts as the widest, and bounds nothing.
    if seccomp is not None and WIDTH[SECCOMP[seccomp]] > WIDTH.get(level.seccomp, len(WIDTH)):
        yield Refusal("seccompProfile", f"`{seccomp}` allows more calls than {level.name}'s: {name_of(level.seccomp)}")
    mode = narrowing.network.mode if narrowing.network else None
    if mode is not None and NETWORKS.index(mode) > NETWORKS.index(level.network):
        yield Refusal("network.mode", f"`{mode}` reaches more than the network of {level.name}: {level.network}")


def overlaid(level: Level, narrowing: Narrowing) -> Level:
    """Return the level with these fields instead of its own."""
    if narrowing.capabilities is not None:
        level = _with_capabilities(level, narrowing.capabilities)
    if narrowing.no_new_privileges is not None:
        level = replace(level, no_new_privileges=narrowing.no_new_privileges)
    if narrowing.read_only_root_filesystem is not None:
        level = _with_root(level, read_only=narrowing.read_only_root_filesystem)
    if narrowing.seccomp_profile is not None:
        level = replace(level, seccomp=SECCOMP[narrowing.seccomp_profile])
    if narrowing.network is None:
        return level
    hosts = level.allowed_hosts if narrowing.network.mode == "sealed" else None
    peers = level.peers and narrowing.network.mode == "sealed"
    return replace(level, network=narrowing.network.mode, allowed_hosts=hosts, peers=peers)


def running_as(level: Level, lowest_uid: int, default_user: str | None = None) -> Level:
    """Return the level with these ids. If the image's own user could be too low, the default is an id of nobody's."""
    user = level.default_user if default_user is None else default_user
    if user == "" and lowest_uid:
        user = FULL_ISOLATION.default_user
    return replace(level, lowest_uid=lowest_uid, default_user=user)


def _with_capabilities(level: Level, capabilities: tuple[str, ...]) -> Level:
    """Return the level with these capabilities. Without NET_BIND_SERVICE, ports below 1024 are closed."""
    ports = () if "NET_BIND_SERVICE" in capabilities or set(PORTS) <= set(level.sysctls) else PORTS
    return replace(level, capabilities=tuple(sorted(set(capabilities))), sysctls=(*level.sysctls, *ports))


def _with_root(level: Level, *, read_only: bool) -> Level:
    """Return the level with that root. A read-only root gets the in-memory folders that most programs need."""
    if not read_only or level.read_only_root:
        return replace(level, read_only_root=read_only)
    paths = {folder.path for folder in level.tmpfs}
    folders = (*level.tmpfs, *(folder for folder in FULL_ISOLATION.tmpfs if folder.path not in paths))
    return replace(level, read_only_root=True, tmpfs=folders, home=level.home or FULL_ISOLATION.home)
