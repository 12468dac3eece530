"""Abilities of this host that admission and rendering depend on, and the operator's grants of them."""

from dataclasses import dataclass

from controller.kinds.observed.observed import HostFacts
from controller.kinds.runtime.disk import DiskAbility

DEFAULT_PROFILE = "docker-default"  # the engine's own, in force for every container where the kernel has AppArmor


@dataclass(frozen=True, slots=True)
class Abilities:
    """Abilities of the engine and its kernel. `runtimes` are those that it can start containers with.

    `disk`: it can enforce a size of writable layers (None: not tried). `agent` is the id of the agent's image; "": it
    is not on this host. `maps_users`: ids in a container are others on the host (userns-remap). `host_runtime` is the
    runtime of new sandboxes whose spec names none; "": the engine's default.
    """

    apparmor: bool = False
    selinux: bool = False
    runtimes: tuple[str, ...] = ()
    default_runtime: str = ""
    disk: DiskAbility | None = None
    agent: str = ""
    maps_users: bool = False
    host_runtime: str = ""


@dataclass(frozen=True, slots=True)
class Confinements:
    """Runtimes, AppArmor profiles and SELinux types of this host that specs may name besides the engine's own."""

    runtimes: tuple[str, ...] = ()
    apparmor_profiles: tuple[str, ...] = ()
    selinux_types: tuple[str, ...] = ()


NO_CONFINEMENTS = Confinements()


def abilities(facts: HostFacts) -> Abilities:
    """Return the engine's abilities. It silently ignores options for features that it lacks."""
    return Abilities(
        apparmor=has_option(facts, "apparmor"),
        selinux=has_option(facts, "selinux"),
        runtimes=facts.runtimes,
        default_runtime=facts.default_runtime,
        disk=facts.disk,
        agent=facts.agent,
        maps_users=has_option(facts, "userns"),
        host_runtime=facts.runtime_choice.runtime if facts.runtime_choice else "",
    )


def has_option(facts: HostFacts, name: str) -> bool:
    """Return True if the engine lists this security option, such as `name=seccomp,profile=default`."""
    return any(option.split(",")[0] == f"name={name}" for option in facts.security_options)
