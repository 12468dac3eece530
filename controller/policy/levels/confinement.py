"""AppArmor, SELinux and runtimes: admission of a template, and its container's settings. Pure.

An engine ignores options for a mechanism that its kernel lacks, so they are refused on such a host. Available ones
apply to every container: the engine's AppArmor profile by name, so that attestation can check it, SELinux by the engine
itself.
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.observed.inside import STACKED
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.sandbox import Template
from controller.policy.levels.abilities import DEFAULT_PROFILE
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal

APPARMOR = "apparmor="
_SELINUX = "label="


def refusals(template: Template, policy: Policy) -> Iterator[Refusal]:
    """Yield the fields that the operator does not allow, or this host lacks. An unknown host is checked again later."""
    if policy.elsewhere:
        return
    yield from _runtime(template, policy)
    yield from _apparmor(template, policy)
    yield from _selinux(template, policy)


def _runtime(template: Template, policy: Policy) -> Iterator[Refusal]:
    runtime = template.runtime
    host = policy.host
    allowed_runtimes = policy.confinements.runtimes
    if runtime is None:
        return
    default = host.default_runtime if host else ""
    if runtime != default and runtime not in allowed_runtimes:
        choices = ", ".join(sorted({*allowed_runtimes, *([default] if default else [])})) or "none but the engine's own"
        yield Refusal("runtime", f"this host's operator does not allow `{runtime}` (setting `runtimes`: {choices})")
    elif host is not None and runtime not in host.runtimes:
        has = ", ".join(host.runtimes) or "none that it names"
        yield Refusal("runtime", f"this host's engine has no runtime `{runtime}`; it has {has}")


def _apparmor(template: Template, policy: Policy) -> Iterator[Refusal]:
    profile = template.app_armor_profile
    if profile is None:
        return
    profiles = (DEFAULT_PROFILE, *policy.confinements.apparmor_profiles)
    if profile not in profiles:
        message = f"this host's operator does not allow `{profile}`; choose one of {', '.join(profiles)}"
        yield Refusal("appArmorProfile", message)
    elif policy.host is not None and not policy.host.apparmor:
        message = "this host has no AppArmor: the engine would accept the profile and not apply it; remove it"
        yield Refusal("appArmorProfile", message)


def _selinux(template: Template, policy: Policy) -> Iterator[Refusal]:
    options, types = template.se_linux_options, policy.confinements.selinux_types
    if options is None:
        return
    if options.type is not None and options.type not in types:
        choices = ", ".join(types) or "none but the engine's own"
        message = f"this host's operator does not allow `{options.type}` (setting `selinux_types`: {choices})"
        yield Refusal("seLinuxOptions.type", message)
    if policy.host is not None and not policy.host.selinux:
        message = "this host's engine has no SELinux: it would accept the label and not apply it; remove it"
        yield Refusal("seLinuxOptions", message)


def confined(config: ContainerConfig, template: Template, policy: Policy) -> ContainerConfig:
    """Return the config with the confinement settings besides its level's."""
    profile = template.app_armor_profile
    if profile is None and policy.host is not None and policy.host.apparmor:
        profile = DEFAULT_PROFILE
    label = template.se_linux_options
    options = (
        *config.security_options,
        *([f"{APPARMOR}{profile}"] if profile else []),
        *([f"{_SELINUX}level:{label.level}"] if label and label.level else []),
        *([f"{_SELINUX}type:{label.type}"] if label and label.type else []),
    )
    return replace(
        config,
        security_options=options,
        runtime=template.runtime or config.runtime,
        host_runtime=_host_runtime(config, template, policy),
    )


def _host_runtime(config: ContainerConfig, template: Template, policy: Policy) -> str:
    """Return the host's choice of a runtime; "" where the spec names one, or the engine's own has to give devices.

    crun drops nosuid, nodev and noexec of what is bound at a mount point (each version up to 1.28): attestation would
    refuse the sandbox, so that one with mount points gets the engine's own.
    """
    is_open = template.runtime is None and not config.gpus and not config.mount_points
    return policy.host.host_runtime if is_open and policy.host is not None else ""


def label_wanted(config: ContainerConfig) -> tuple[str, ...]:
    """Return the required content of the processes' label, as the kernel reports it (/proc/PID/attr/current)."""
    expected = []
    for option in config.security_options:
        if option.startswith(APPARMOR):
            expected.append(f"{option.removeprefix(APPARMOR)} (enforce)")
        elif option.startswith(_SELINUX):
            expected.append(f":{option.partition(':')[2]}")
    return tuple(expected)


def is_labelled(label: str, requirement: str) -> bool:
    """Return True if a label, as the engine package reports it, has what is required.

    Debian has a profile of crun's own, in unconfined mode. The kernel stacks it with the container's: both count.
    """
    return requirement in (label if requirement.startswith(":") else label.split(STACKED))
