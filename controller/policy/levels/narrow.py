"""Narrowing of a level by a spec's `security:`, field by field, and refusal of anything wider."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from controller.kinds.sandbox import Template
from controller.kinds.security import Narrowing
from controller.policy.admission import Refusal
from controller.policy.levels.levels import FULL_ISOLATION, PORTS, Level, Policy
from controller.policy.levels.seccomp import WIDTH, name_of

# From the narrowest to the widest.
NETWORKS = ("none", "sealed", "public")
SECCOMP: Mapping[str, str] = MappingProxyType({name_of(each): each for each in sorted(WIDTH, key=WIDTH.__getitem__)})


def level_of(template: Template, policy: Policy) -> Level | None:
    """Return the template's level, narrowed by its `security:`. None: there is no such level."""
    level = policy.levels.get(template.security_level)
    asked = template.security
    if level is None or asked is None or any(widened(template, level)):
        return level  # widening is refused at admission, and has no effect
    found = overlaid(level, asked)
    return running_as(found, max(found.lowest_uid, 1)) if asked.run_as_non_root else found


def widened(template: Template, level: Level) -> Iterator[Refusal]:
    """Yield every field of `security:` that asks for more than the level has."""
    asked = template.security
    if asked is None:
        return
    for each in beyond(level, asked):
        yield Refusal(f"security.{each.field}", f"{each.message}; a spec can only narrow its level")
    if asked.run_as_non_root is False and level.lowest_uid:
        words = f"{level.name} allows no root; remove it"
        yield Refusal("security.runAsNonRoot", f"{words}; a spec can only narrow its level")


def beyond(level: Level, asked: Narrowing) -> Iterator[Refusal]:
    """Yield every field that asks for more than that level has."""
    for index, name in enumerate(asked.capabilities or ()):
        if name not in level.capabilities:
            has = ", ".join(level.capabilities) or "none"
            yield Refusal(f"capabilities[{index}]", f"`{name}` is more than {level.name} has: {has}")
    if asked.no_new_privileges is False and level.no_new_privileges:
        yield Refusal("noNewPrivileges", f"{level.name} allows no new privileges; remove it")
    if asked.read_only_root_filesystem is False and level.read_only_root:
        yield Refusal("readOnlyRootFilesystem", f"the root file system of {level.name} is read-only; remove it")
    seccomp = asked.seccomp_profile
    if seccomp is not None and WIDTH[SECCOMP[seccomp]] > WIDTH.get(level.seccomp, len(WIDTH)):
        yield Refusal("seccompProfile", f"`{seccomp}` allows more calls than {level.name}'s: {name_of(level.seccomp)}")
    mode = asked.network.mode if asked.network else None
    if mode is not None and NETWORKS.index(mode) > NETWORKS.index(level.network):
        yield Refusal("network.mode", f"`{mode}` reaches more than the network of {level.name}: {level.network}")


def overlaid(level: Level, asked: Narrowing) -> Level:
    """Return the level with these fields instead of its own."""
    if asked.capabilities is not None:
        level = _with_capabilities(level, asked.capabilities)
    if asked.no_new_privileges is not None:
        level = replace(level, no_new_privileges=asked.no_new_privileges)
    if asked.read_only_root_filesystem is not None:
        level = _with_root(level, read_only=asked.read_only_root_filesystem)
    if asked.seccomp_profile is not None:
        level = replace(level, seccomp=SECCOMP[asked.seccomp_profile])
    if asked.network is None:
        return level
    hosts = level.allowed_hosts if asked.network.mode == "sealed" else None
    peers = level.peers and asked.network.mode == "sealed"
    return replace(level, network=asked.network.mode, allowed_hosts=hosts, peers=peers)


def running_as(level: Level, lowest_uid: int, default_user: str | None = None) -> Level:
    """Return the level with these ids. If the image's own user could be too low, the default is an id of nobody's."""
    user = level.default_user if default_user is None else default_user
    if user == "" and lowest_uid:
        user = FULL_ISOLATION.default_user
    return replace(level, lowest_uid=lowest_uid, default_user=user)


def _with_capabilities(level: Level, asked: tuple[str, ...]) -> Level:
    """Return the level with these capabilities. Without NET_BIND_SERVICE, ports below 1024 are closed."""
    ports = () if "NET_BIND_SERVICE" in asked or set(PORTS) <= set(level.sysctls) else PORTS
    return replace(level, capabilities=tuple(sorted(set(asked))), sysctls=(*level.sysctls, *ports))


def _with_root(level: Level, *, read_only: bool) -> Level:
    """Return the level with that root. A read-only root gets the in-memory folders that most programs need."""
    if not read_only or level.read_only_root:
        return replace(level, read_only_root=read_only)
    known = {each.path for each in level.tmpfs}
    folders = (*level.tmpfs, *(each for each in FULL_ISOLATION.tmpfs if each.path not in known))
    return replace(level, read_only_root=True, tmpfs=folders, home=level.home or FULL_ISOLATION.home)
