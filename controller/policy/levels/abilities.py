"""What this host is able to enforce, as far as admission and rendering depend on it, and what of it is granted."""

from dataclasses import dataclass

from controller.kinds.observed.observed import HostFacts
from controller.kinds.runtime.disk import DiskAbility

DEFAULT_PROFILE = "docker-default"  # the engine's own, in force for every container where the kernel has AppArmor


@dataclass(frozen=True, slots=True)
class Abilities:
    """Of the engine and its kernel. `runtimes` are those that the engine can start containers with.

    `disk` is whether it holds writable layers to a size (None: not tried).
    """

    apparmor: bool = False
    selinux: bool = False
    runtimes: tuple[str, ...] = ()
    default_runtime: str = ""
    disk: DiskAbility | None = None


@dataclass(frozen=True, slots=True)
class Confinements:
    """What specs may name beside the engine's own: runtimes, AppArmor profiles and SELinux types of this host."""

    runtimes: tuple[str, ...] = ()
    apparmor_profiles: tuple[str, ...] = ()
    selinux_types: tuple[str, ...] = ()


NO_CONFINEMENTS = Confinements()


def abilities(facts: HostFacts) -> Abilities:
    """What the engine says that it has. It takes options of what it lacks without a word, and heeds none of them."""
    return Abilities(
        apparmor=has_option(facts, "apparmor"),
        selinux=has_option(facts, "selinux"),
        runtimes=facts.runtimes,
        default_runtime=facts.default_runtime,
        disk=facts.disk,
    )


def has_option(facts: HostFacts, name: str) -> bool:
    """Whether the engine lists this security option, such as `name=seccomp,profile=default`."""
    return any(each.split(",")[0] == f"name={name}" for each in facts.security_options)
